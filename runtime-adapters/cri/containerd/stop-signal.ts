import { constants } from "node:os";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { ContainerdServices } from "../wire/containerd-services.ts";

/** The range of real-time signals, with the C libraries' numbers. */
const SIGRTMIN = 34;
const SIGRTMAX = 64;
const ALIASES: Readonly<Record<string, string>> = { SIGCLD: "SIGCHLD", SIGIOT: "SIGABRT", SIGPOLL: "SIGIO" };

/** Linux' number of a signal with Kubernetes' name; `undefined` for what is none. */
export function linuxSignal(name: string): number | undefined {
  const [, end, sign, offset] = /^SIGRT(MIN|MAX)(?:([+-])(\d+))?$/.exec(name) ?? [];
  if (end !== undefined) {
    const number = (end === "MIN" ? SIGRTMIN : SIGRTMAX) + Number(`${sign ?? "+"}${offset ?? 0}`);
    return number >= SIGRTMIN && number <= SIGRTMAX ? number : undefined;
  }
  return (constants.signals as Readonly<Record<string, number | undefined>>)[ALIASES[name] ?? name];
}

/**
 * Does what a runtime with stop signals does, for a containerd without them (before CRI of Kubernetes 1.33): sends the
 * signal and waits for the end. The caller stops the container through CRI afterwards in any case.
 * @returns false when the signal could not be sent: use the runtime's own, with the whole of the time
 */
export async function stopWithSignal(
  containerd: Pick<ContainerdServices, "signalTask" | "waitForTask">,
  containerId: string,
  stopSignal: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<boolean> {
  const number = linuxSignal(stopSignal);
  if (number === undefined) return false;
  const sent = await containerd.signalTask(containerId, number, signal);
  if (sent !== "sent") return sent === "gone";
  try {
    await containerd.waitForTask(containerId, timeoutMs, signal);
  } catch (error) {
    if (!isTimeout(error)) throw error;
  }
  return true;
}

/** Either end's deadline can fire first; containerd has no code for its own. */
const isTimeout = (error: unknown): boolean =>
  isPicoletError(error) && (error.code === "deadline_exceeded" || /deadline exceeded/.test(error.message));
