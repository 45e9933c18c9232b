import { describeError, PicoletError } from "@picolet/protocol/errors.ts";

/** @returns the error in the kubelet's words. One that names its operation already is the whole message. */
export function setUpFailure(volume: string, error: unknown): PicoletError {
  if (error instanceof PicoletError && error.reason === "FailedMount") return error;
  const retryable = !(error instanceof PicoletError) || error.retryable;
  const text = `MountVolume.SetUp failed for volume ${JSON.stringify(volume)} : ${describeError(error)}`;
  return new PicoletError(retryable ? "unavailable" : "invalid", text, { retryable });
}
