import { describeError, PicoletError } from "../errors.ts";

const USAGE = "Usage";

/** The command line itself is wrong: programs exit with `EX_USAGE`. */
export const usageError = (message: string): PicoletError => new PicoletError("invalid", message, { reason: USAGE });

export const isUsageError = (error: unknown): boolean => error instanceof PicoletError && error.reason === USAGE;

/** sysexits.h */
export const EX_USAGE = 64;

/**
 * Formats the answer to a wrong command line: one sentence, and where the right words are listed if it does not name
 * them.
 */
export function usageReport(program: string, error: unknown, hint: string): string {
  const sentence = describeError(error);
  return `${program}: ${sentence}\n${sentence.endsWith("?") ? "" : `${hint}\n`}`;
}
