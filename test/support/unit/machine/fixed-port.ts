import { randomInt } from "node:crypto";
import { createServer } from "node:net";

/**
 * Below the ports that the kernel gives to outgoing connections (net.ipv4.ip_local_port_range), so that no other
 * program takes it meanwhile.
 */
const FIRST = 20_000;
const LAST = 32_000;
const MAX_TRIES = 50;

/** A free port on loopback for a server that ends and comes back on it. */
export const fixedPort = (): Promise<number> => fixedPorts(1);

/** The first of `count` free ports in a row. */
export async function fixedPorts(count: number): Promise<number> {
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const first = randomInt(FIRST, LAST - count);
    const free = await Promise.all(Array.from({ length: count }, (_, index) => isFree(first + index)));
    if (free.every(Boolean)) return first;
  }
  throw new Error("no free port was found");
}

async function isFree(port: number): Promise<boolean> {
  if (!(await isOurs(port))) return false;
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

/** Tests run side by side, in processes of their own. An abstract socket is this one's until it ends. */
function isOurs(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const claim = createServer().unref();
    claim.once("error", () => resolve(false));
    claim.listen(`\0picolet-test-port-${port}`, () => resolve(true));
  });
}
