import { PicoletError } from "@picolet/protocol/errors.ts";

/** Adds what was to be done, for the caller. @param reason of the kubelet; undefined: none of its own */
export function withMessage(error: PicoletError, message: string, reason: string | undefined): PicoletError {
  if (error.code === "cancelled") return error;
  const { code, retryable } = error;
  return new PicoletError(code, message, { cause: error, retryable, ...(reason === undefined ? {} : { reason }) });
}
