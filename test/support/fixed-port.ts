import { randomInt } from "node:crypto";
import { createServer } from "node:net";

/** Below the ports that the kernel gives to outgoing connections (net.ipv4.ip_local_port_range): nobody takes it meanwhile. */
const FIRST = 20_000;
const LAST = 32_000;
const MAX_TRIES = 50;

/** A free port on loopback for a server that ends and comes back on it. */
export async function fixedPort(): Promise<number> {
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const port = randomInt(FIRST, LAST);
    if (await isFree(port)) return port;
  }
  throw new Error("no free port was found");
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
