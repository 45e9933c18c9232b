/** Why a container did not start, with the reasons that a kubelet gives. */
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";

/** @param complaint of Node or the shell; "": none */
export const cannotStart = (name: string, error: unknown, complaint: string): PicoletError =>
  withReason(error, `cannot start container ${name}${complaint === "" ? "" : ` (${complaint})`}`, "RunContainerError");

/** As what is wrong with an image is told. */
export function asRefusal(check: () => void): void {
  try {
    check();
  } catch (error) {
    throw withReason(error, "this node does not run the component", "CreateContainerConfigError");
  }
}

/** With the reason that a kubelet shows for it. */
export function withReason(error: unknown, message: string, reason: string): PicoletError {
  if (!isPicoletError(error)) return new PicoletError("failed", message, { cause: error, reason });
  if (error.code === "cancelled") return error;
  return new PicoletError(error.code, message, { cause: error, retryable: error.retryable, reason });
}
