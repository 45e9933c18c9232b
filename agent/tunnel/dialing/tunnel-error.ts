import { type ErrorCode, PicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, millis } from "@picolet/protocol/ports.ts";

export interface TunnelErrorInit {
  readonly cause?: unknown;
  /** The hub asked to stay away for so long; 0: it did not. */
  readonly retryAfter?: Millis;
  /** An authenticated hub does not take this node's certificate. */
  readonly isRefusal?: boolean;
}

/** Why there is no session, with what follows from it for the next attempt. */
export class TunnelError extends PicoletError {
  readonly retryAfter: Millis;
  readonly isRefusal: boolean;

  constructor(code: ErrorCode, message: string, init: TunnelErrorInit = {}) {
    super(code, message, { cause: init.cause, retryable: true });
    this.retryAfter = init.retryAfter ?? millis(0);
    this.isRefusal = init.isRefusal ?? false;
  }
}
