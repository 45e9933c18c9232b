import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import { type Millis, millis } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod, ExecResult, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { goQuote, goSeconds } from "./go-text.ts";
import { isProbeTimeout, type ProbeOutcome, SUCCESS } from "./probe-outcome.ts";

/** The kubelet's, of what a command prints. */
const MAX_OUTPUT_BYTES = 10 * KIBIBYTE;
/** The time beyond the probe's timeout that a runtime has to kill the command and to report that. */
const EXEC_GRACE_MS = 10_000;

/** `$(NAME)` in a command, by what `lookup` gives. */
export type Expand = (text: string, lookup: (name: string) => string | undefined) => string;

export interface ExecTarget {
  readonly pod: DesiredPod;
  readonly container: Container;
  readonly containerId: string;
  readonly adapter: RuntimeAdapter;
}

/** The time after which an attempt is given up; the runtime should have ended the command before. */
export const execDeadline = (timeout: Millis): Millis => millis(timeout + EXEC_GRACE_MS);

/**
 * Succeeds when the command exits with 0. Its references stand for what the container's `env` gives as plain values.
 * @param signal aborts after `execDeadline`.
 */
export async function execProbe(
  { pod, container, containerId, adapter }: ExecTarget,
  command: readonly string[],
  { timeoutSeconds, expand }: { readonly timeoutSeconds: number; readonly expand: Expand },
  signal: AbortSignal,
): Promise<ProbeOutcome> {
  const lookup = (name: string): string | undefined => {
    const variable = container.env?.findLast((each) => each.name === name);
    return variable && (variable.value ?? "");
  };
  const words = command.map((word) => (word.includes("$") ? expand(word, lookup) : word));
  try {
    const given = adapter.execSync(pod.uid, containerId, words, millis(timeoutSeconds * 1000), signal);
    const result = await untilAborted(given, signal);
    return result.exitCode === 0 ? SUCCESS : { kind: "failure", message: outputOf(result) };
  } catch (error) {
    // The runtime ends a command that takes too long, and says so. Without a word of it nothing is known of the
    // container.
    if (isProbeTimeout(signal)) {
      const message = `the container runtime did not answer within ${goSeconds(timeoutSeconds)} and ${EXEC_GRACE_MS / 1000}s of grace`;
      return { kind: "error", state: "unknown", message, final: true };
    }
    if (isPicoletError(error, "deadline_exceeded")) {
      const what = `${goQuote(words.join(" "))} timed out after ${goSeconds(timeoutSeconds)}`;
      return { kind: "failure", message: `command timed out: ${what}` };
    }
    // Another attempt would take as long, or end in the same way.
    const isSilent = isPicoletError(error, "unavailable") && isPicoletError(error.cause, "deadline_exceeded");
    const final = isSilent || isPicoletError(error, "unimplemented") || isPicoletError(error, "not_found");
    return { kind: "error", state: "unknown", message: describeError(error), final };
  }
}

/** Also of a runtime that does not heed the signal. */
export function untilAborted<T>(task: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    task.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** As the kubelet shows it: all of the one, then all of the other. */
export function outputOf({ stdout, stderr }: ExecResult): string {
  return Buffer.concat([stdout, stderr]).subarray(0, MAX_OUTPUT_BYTES).toString("utf8");
}
