/**
 * containerd can lose sight of a process: when the call that starts a container is cut off (the agent was killed in its
 * middle), its CRI plugin may note the container as never started (`failed to get task pid: context canceled`) while
 * the process runs. It then refuses to remove the container and its sandbox for ever. Such a task is ended here past CRI,
 * by containerd's own service.
 */
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { CriClient } from "../wire/cri-client.ts";
import { ContainerdTasks } from "./containerd-tasks.ts";

const SIGKILL = 9;
/** @returns the container whose task stands in the way of a removal, by what containerd says. */
export function parseLeakedTask(error: unknown): string | undefined {
  if (!isPicoletError(error)) return undefined;
  return /cannot delete running task ([0-9a-f]{64})/.exec(error.message)?.[1];
}

/** Kills what runs in it and forgets the task. One that is gone already, or a runtime without such tasks, is no fault. */
export async function endLeakedTask(client: CriClient, containerId: string, signal: AbortSignal): Promise<void> {
  for (const step of [
    () => client.call(ContainerdTasks.kill, { containerId, signal: SIGKILL, all: true }, signal),
    () => client.call(ContainerdTasks.wait, { containerId }, signal),
    () => client.call(ContainerdTasks.delete, { containerId }, signal),
  ]) {
    try {
      await step();
    } catch (error) {
      if (!isPicoletError(error, "not_found") && !isPicoletError(error, "unimplemented")) throw error;
    }
  }
}
