import type { Server } from "node:net";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, Millis } from "@picolet/protocol/ports.ts";

export interface PatientListening {
  /** For the log. */
  readonly part: string;
  readonly address: string;
  readonly port: number;
  /** The wait before a port in use, or an address that does not exist yet, is tried again. */
  readonly retry: Millis;
}

/** Nothing of the node depends on such a port: one that cannot be had is logged once and tried again. */
export async function listenPatiently(
  server: Server,
  { clock, log }: { readonly clock: Clock; readonly log: Log },
  { part, address, port, retry }: PatientListening,
  signal: AbortSignal,
): Promise<void> {
  for (let failures = 0; ; failures += 1) {
    try {
      await listening(server, address, port);
      break;
    } catch (error) {
      if (failures === 0) log.warn("cannot listen; tries again", { part, address, port, error: describeError(error) });
      await clock.sleep(retry, signal);
    }
  }
  server.on("error", (error) => log.warn("a port failed", { part, error }));
  const own = server.address();
  log.info("listens", { part, address, port: typeof own === "object" ? own?.port : port });
}

function listening(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host, port }, () => {
      server.removeListener("error", reject);
      resolve();
    });
  });
}
