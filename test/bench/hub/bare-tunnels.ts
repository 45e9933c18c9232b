/** The floor under what an agent costs its hub: the same connections to a process that does nothing with them. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { createSecureContext } from "node:tls";
import { fileURLToPath } from "node:url";
import { WebSocket } from "ws";
import { TlsAuthority } from "../../support/unit/identity/tls-authority.ts";
import { memoryOf } from "../measure/process-usage.ts";

const PROGRAM = fileURLToPath(new URL("bare-hub-main.ts", import.meta.url));
const CONNECTS_AT_A_TIME = 50;
/** A hello's size. */
const MESSAGE = Buffer.alloc(100);
const LIMIT_MS = 30_000;

/** KiB of resident memory that each of `count` WebSockets over mutual TLS takes at its server, after `settleMs`. */
export async function bareKiBPerConnection(count: number, settleMs: number): Promise<number> {
  const authority = new TlsAuthority();
  const { ca } = authority;
  const subject = [{ type: "CN", value: "system:node:bare" }] as const;
  const { certificate, privateKey } = authority.issueClient(subject);
  const secureContext = createSecureContext({ ca, cert: certificate, key: privateKey });
  const server = fork(PROGRAM, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  const sockets: WebSocket[] = [];
  try {
    const listening = once(server, "message", { signal: AbortSignal.timeout(LIMIT_MS) });
    server.send({ ca, ...authority.issueServer() });
    const [port] = (await listening) as [number];
    const before = memoryOf(server.pid ?? 0).rssMiB;
    while (sockets.length < count) {
      const many = Math.min(CONNECTS_AT_A_TIME, count - sockets.length);
      const batch = Array.from(
        { length: many },
        () => new WebSocket(`wss://127.0.0.1:${port}`, optionsOf(secureContext)),
      );
      sockets.push(...batch);
      await Promise.all(batch.map(echoed));
    }
    await delay(settleMs);
    return Math.round(((memoryOf(server.pid ?? 0).rssMiB - before) * 1024) / count);
  } finally {
    for (const socket of sockets) {
      socket.on("error", () => undefined);
      socket.terminate();
    }
    server.kill("SIGKILL");
  }
}

const optionsOf = (secureContext: ReturnType<typeof createSecureContext>) =>
  ({ secureContext, perMessageDeflate: false }) as ConstructorParameters<typeof WebSocket>[2];

async function echoed(socket: WebSocket): Promise<void> {
  const signal = AbortSignal.timeout(LIMIT_MS);
  await once(socket, "open", { signal });
  const answer = once(socket, "message", { signal });
  socket.send(MESSAGE);
  await answer;
}
