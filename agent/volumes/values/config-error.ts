import { PicoletError } from "@picolet/protocol/errors.ts";

/** The container cannot be made as its spec stands. */
export const configError = (message: string): PicoletError =>
  new PicoletError("invalid", message, { reason: "CreateContainerConfigError" });
