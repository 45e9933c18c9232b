/**
 * containerd can lose sight of a process: when the call that starts a container is cut off (the agent was killed in its
 * middle), its CRI plugin may note the container as never started (`failed to get task pid: context canceled`) while
 * the process runs. It then refuses to remove the container and its sandbox for ever. Such a task is ended here past
 * CRI, by containerd's own service.
 */
import { isPicoletError } from "@picolet/protocol/errors.ts";

/** @returns the container whose task stands in the way of a removal, by what containerd says. */
export function parseLeakedTask(error: unknown): string | undefined {
  if (!isPicoletError(error)) return undefined;
  return /cannot delete running task ([0-9a-f]{64})/.exec(error.message)?.[1];
}
