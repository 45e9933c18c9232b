import { PicoletError } from "@picolet/protocol/errors.ts";

/** The hub broke the protocol or a limit of this node: it gets a refusal, and the session ends. */
export class Violation extends PicoletError {
  /** Code of the refusal. */
  readonly refusal: "protocol" | "limit";

  constructor(refusal: Violation["refusal"], message: string) {
    super(refusal === "limit" ? "resource_exhausted" : "invalid", message, { retryable: true });
    this.refusal = refusal;
  }
}
