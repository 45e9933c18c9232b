import { EX_USAGE, isUsageError } from "@picolet/protocol/command-line/usage-error.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";

export { usageError } from "@picolet/protocol/command-line/usage-error.ts";

/** The exit codes, which scripts rely on. */
export const EXIT_HEALTHY = 0;
/** `status`: something is not as it should be; any other command: it failed. */
export const EXIT_DEGRADED = 1;
export const EXIT_UNREACHABLE = 2;
export const EXIT_USAGE = EX_USAGE;

const UNREACHABLE = "AgentUnreachable";

/** There is no agent to talk to, as opposed to one that refuses. */
export const unreachable = (message: string, cause?: unknown): PicoletError =>
  new PicoletError("unavailable", message, { reason: UNREACHABLE, ...(cause === undefined ? {} : { cause }) });

export function exitCodeOf(error: unknown): number {
  if (isUsageError(error)) return EXIT_USAGE;
  const reason = error instanceof PicoletError ? error.reason : undefined;
  return reason === UNREACHABLE ? EXIT_UNREACHABLE : EXIT_DEGRADED;
}
