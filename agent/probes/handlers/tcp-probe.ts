import { connect } from "node:net";
import { dialError } from "./go-text.ts";
import { dialTimeout } from "./http-getter.ts";
import { lookup } from "./lookup.ts";
import { isProbeTimeout, type ProbeOutcome, SUCCESS } from "./probe-outcome.ts";

/** Checks whether the port accepts a connection. Nothing is read. */
export function tcpProbe(host: string, port: number, signal: AbortSignal): Promise<ProbeOutcome> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, lookup });
    const end = (outcome: ProbeOutcome): void => {
      signal.removeEventListener("abort", onAbort);
      socket.destroy();
      resolve(outcome);
    };
    const onAbort = (): void => {
      end({ kind: "failure", message: isProbeTimeout(signal) ? dialTimeout(host, port) : "context canceled" });
    };
    signal.addEventListener("abort", onAbort, { once: true });
    socket.on("connect", () => end(SUCCESS));
    socket.on("error", (error) => end({ kind: "failure", message: dialError(error, host, port) }));
    if (signal.aborted) onAbort();
  });
}
