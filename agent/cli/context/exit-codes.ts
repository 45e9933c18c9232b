import { PicoletError } from "@picolet/protocol/errors.ts";

/** What scripts rely on. */
export const EXIT_HEALTHY = 0;
/** `status`: something is not as it should be; any other command: it failed. */
export const EXIT_DEGRADED = 1;
export const EXIT_UNREACHABLE = 2;
export const EXIT_USAGE = 64;

const USAGE = "Usage";
const UNREACHABLE = "AgentUnreachable";

export const usageError = (message: string): PicoletError => new PicoletError("invalid", message, { reason: USAGE });

/** There is no agent to talk to, as opposed to one that refuses. */
export const unreachable = (message: string, cause?: unknown): PicoletError =>
  new PicoletError("unavailable", message, { reason: UNREACHABLE, ...(cause === undefined ? {} : { cause }) });

export function exitCodeOf(error: unknown): number {
  const reason = error instanceof PicoletError ? error.reason : undefined;
  if (reason === USAGE) return EXIT_USAGE;
  return reason === UNREACHABLE ? EXIT_UNREACHABLE : EXIT_DEGRADED;
}
