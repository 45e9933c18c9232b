import { PicoletError } from "@picolet/protocol/errors.ts";

/** The hub did what it may not, or more than this node can hold: it is told so, and the session ends. */
export class Violation extends PicoletError {
  /** Of the refusal: `protocol`, `limit`. */
  readonly refusal: "protocol" | "limit";

  constructor(refusal: Violation["refusal"], message: string) {
    super(refusal === "limit" ? "resource_exhausted" : "invalid", message, { retryable: true });
    this.refusal = refusal;
  }
}
