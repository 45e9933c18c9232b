/**
 * The streams of a running component: its two outputs, which it writes into its log, and the port that it is served on.
 * No other process can be started beside it.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { RuntimeStream, StreamRequest } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodRecords } from "./pod-records.ts";

export const execRefusal = (): PicoletError =>
  new PicoletError(
    "unimplemented",
    "cannot exec into a WebAssembly component: it has no shell and no other program to start; see its logs, or attach to its output",
  );
const notServed = (): PicoletError =>
  new PicoletError(
    "unimplemented",
    "cannot forward ports: none of the pod's WebAssembly components is served, as one that exports wasi:http/incoming-handler is on its containerPort",
  );
const noInput = (): PicoletError =>
  new PicoletError(
    "unimplemented",
    "a WebAssembly component takes no standard input and has no terminal: attach without -i and -t",
  );

/** @throws `unimplemented`, `not_found` when the container does not run */
export function openStream(
  pods: Pick<PodRecords, "container" | "runs">,
  uid: PodUid,
  request: StreamRequest,
): RuntimeStream {
  if (request.kind === "exec") throw execRefusal();
  if (request.kind === "portForward") return servedPorts(pods, request.sandboxId);
  const run = pods.container(uid, request.containerId);
  if (run === undefined || run.hasEnded) {
    throw new PicoletError("not_found", `cannot attach to container ${request.containerId}: it does not run`);
  }
  if (request.stdin || request.tty) throw noInput();
  return { kind: "log", logPath: run.file.logPath };
}

/** Ports of running containers; a port that they do not hold belongs to another process. */
function servedPorts(pods: Pick<PodRecords, "runs">, sandboxId: string): RuntimeStream {
  const served = pods.runs().filter(({ file }) => file.sandboxId === sandboxId && file.port !== undefined);
  if (served.length === 0) throw notServed();
  const ports = served.flatMap(({ state, file }) => (state.kind === "running" ? (file.port ?? []) : []));
  return { kind: "ports", host: "127.0.0.1", ports };
}
