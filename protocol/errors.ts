/**
 * The one error type of picolet. Callers match on `code`, never on the message.
 *
 * - `cancelled`           the caller's AbortSignal fired; neither logged nor reported
 * - `invalid`             the input is wrong and stays wrong until it is changed
 * - `not_found`           the object named does not exist
 * - `already_exists`      it exists already
 * - `conflict`            it exists with another content or in another state
 * - `unavailable`         the other side is not there now; trying again may help
 * - `deadline_exceeded`   it took longer than it was given
 * - `resource_exhausted`  a limit was reached: disk, memory, queue, size
 * - `permission_denied`   this process may not
 * - `unimplemented`       the other side has no such call
 * - `corrupt`             stored or received data contradicts itself
 * - `failed`              the other side tried and reports a failure
 * - `internal`            our own mistake
 */
export type ErrorCode =
  | "cancelled"
  | "invalid"
  | "not_found"
  | "already_exists"
  | "conflict"
  | "unavailable"
  | "deadline_exceeded"
  | "resource_exhausted"
  | "permission_denied"
  | "unimplemented"
  | "corrupt"
  | "failed"
  | "internal";

export interface PicoletErrorInit {
  /** True when the same call may succeed later without any change. Default false. */
  readonly retryable?: boolean;
  readonly cause?: unknown;
  /** The Kubernetes reason, CamelCase, that a status or an event shows for it (`ErrImagePull`). */
  readonly reason?: string;
}

export class PicoletError extends Error {
  override readonly name = "PicoletError";
  readonly code: ErrorCode;
  readonly retryable: boolean;
  readonly reason: string | undefined;

  /** @param message "cannot <verb> <object>"; it must not repeat the cause, `describeError` joins them. */
  constructor(code: ErrorCode, message: string, init: PicoletErrorInit = {}) {
    super(message, init.cause === undefined ? undefined : { cause: init.cause });
    this.code = code;
    this.retryable = init.retryable ?? false;
    this.reason = init.reason;
  }
}

export function isPicoletError(error: unknown, code?: ErrorCode): error is PicoletError {
  return error instanceof PicoletError && (code === undefined || error.code === code);
}

const nothing = (): undefined => undefined;

/**
 * Names why a failure is ignored on purpose: `child.catch(ignore("it is killed below"))`, which resolves to `undefined`,
 * or `catch { ignore("it has ended"); }`, which bundles leave out.
 */
export const ignore = /* @__NO_SIDE_EFFECTS__ */ (_why: string): (() => undefined) => nothing;

export const isCancelled = (error: unknown): boolean => isPicoletError(error, "cancelled");

/** Deep enough for every real chain; a cyclic `cause` ends here. */
const MAX_CAUSE_DEPTH = 8;

/** The message with those of its causes: "cannot pull image x: cannot connect to y: ECONNREFUSED". */
export function describeError(error: unknown): string {
  const parts: string[] = [];
  let current: unknown = error;
  for (let depth = 0; depth < MAX_CAUSE_DEPTH && current !== undefined && current !== null; depth += 1) {
    const message = current instanceof Error ? current.message : String(current);
    if (message !== "" && parts.at(-1) !== message) parts.push(message);
    current = current instanceof Error ? current.cause : undefined;
  }
  return parts.join(": ");
}

/** An unknown error made ours at a boundary; one of ours passes unchanged. */
export function toPicoletError(error: unknown, code: ErrorCode, message: string): PicoletError {
  if (error instanceof PicoletError && error.code === "cancelled") return error;
  return new PicoletError(code, message, { cause: error, retryable: isPicoletError(error) ? error.retryable : false });
}
