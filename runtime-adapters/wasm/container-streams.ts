/** What can be opened of a component that runs: its two outputs, which it writes into its log. Nothing can be started beside it. */
import { PicoletError } from "../../protocol/errors.ts";
import type { RuntimeStream, StreamRequest } from "../contract/runtime-adapter.ts";
import type { ContainerRun } from "./container-run.ts";

export const noSecondProgram = (): PicoletError =>
  new PicoletError(
    "unimplemented",
    "cannot exec into a WebAssembly component: it has no shell and no other program to start; see its logs, or attach to its output",
  );
const noAddress = (): PicoletError =>
  new PicoletError(
    "unimplemented",
    "cannot forward ports to a pod of WebAssembly components: it has no network address of its own",
  );
const noInput = (): PicoletError =>
  new PicoletError(
    "unimplemented",
    "a WebAssembly component takes no standard input and has no terminal: attach without -i and -t",
  );

/** @throws `unimplemented`, `not_found` when the container does not run */
export function openStream(
  request: StreamRequest,
  runOf: (containerId: string) => ContainerRun | undefined,
): RuntimeStream {
  if (request.kind === "exec") throw noSecondProgram();
  if (request.kind === "portForward") throw noAddress();
  const run = runOf(request.containerId);
  if (run === undefined || run.hasEnded) {
    throw new PicoletError("not_found", `cannot attach to container ${request.containerId}: it does not run`);
  }
  if (request.stdin || request.tty) throw noInput();
  return { kind: "log", logPath: run.file.logPath };
}
