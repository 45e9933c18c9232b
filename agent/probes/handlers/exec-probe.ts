import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod, ExecResult, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { goQuote, goSeconds } from "./go-text.ts";
import { isProbeTimeout, type ProbeOutcome, SUCCESS } from "./probe-outcome.ts";

/** The kubelet's, of what a command prints. */
const MAX_OUTPUT_BYTES = 10 * KIBIBYTE;
/** Beyond the adapter's own deadline, which tells more. */
const MARGIN = seconds(1);

/** `$(NAME)` in a command, by what `lookup` gives. */
export type Expand = (text: string, lookup: (name: string) => string | undefined) => string;

export interface ExecTarget {
  readonly pod: DesiredPod;
  readonly container: Container;
  readonly containerId: string;
  readonly adapter: RuntimeAdapter;
}

/**
 * The time after which an attempt is given up. The runtime ends the command at its timeout, but answers only when all
 * that the command has started has closed the output too: as a kubelet does, it is given the time of a request more.
 */
export const execDeadline = (timeout: Millis, runtimeRequestTimeout: Millis): Millis =>
  millis(timeout + runtimeRequestTimeout + MARGIN);

/**
 * Succeeds when the command exits with 0. Its references stand for what the container's `env` gives as plain values.
 * @param signal aborts after `execDeadline`.
 */
export async function execProbe(
  { pod, container, containerId, adapter }: ExecTarget,
  command: readonly string[],
  init: { readonly timeoutSeconds: number; readonly runtimeRequestTimeout: Millis; readonly expand: Expand },
  signal: AbortSignal,
): Promise<ProbeOutcome> {
  const { timeoutSeconds, runtimeRequestTimeout, expand } = init;
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
      const given = timeoutSeconds + runtimeRequestTimeout / 1000;
      const message = `the container runtime did not answer within ${goSeconds(given)}`;
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
