import { PicoletError } from "@picolet/protocol/errors.ts";

/**
 * With what was to be done, as whoever asked for it is told. @param reason of the kubelet; undefined: none of its own
 */
export function withMessage(error: PicoletError, message: string, reason: string | undefined): PicoletError {
  if (error.code === "cancelled") return error;
  const { code, retryable } = error;
  return new PicoletError(code, message, { cause: error, retryable, ...(reason === undefined ? {} : { reason }) });
}
