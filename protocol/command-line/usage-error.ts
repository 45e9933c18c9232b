import { PicoletError } from "../errors.ts";

const USAGE = "Usage";

/** The command line itself is wrong: programs exit with `EX_USAGE`. */
export const usageError = (message: string): PicoletError => new PicoletError("invalid", message, { reason: USAGE });

export const isUsageError = (error: unknown): boolean => error instanceof PicoletError && error.reason === USAGE;

/** sysexits.h */
export const EX_USAGE = 64;
