import { type ErrorCode, PicoletError } from "@picolet/protocol/errors.ts";

/** Status codes by number: the name that gRPC libraries print, and our code. */
const STATUSES: readonly (readonly [name: string, code: ErrorCode])[] = [
  ["OK", "internal"],
  // Not by us, for we would not be listening; a runtime that shuts down says so.
  ["Canceled", "unavailable"],
  ["Unknown", "failed"],
  ["InvalidArgument", "invalid"],
  ["DeadlineExceeded", "deadline_exceeded"],
  ["NotFound", "not_found"],
  ["AlreadyExists", "already_exists"],
  ["PermissionDenied", "permission_denied"],
  ["ResourceExhausted", "resource_exhausted"],
  ["FailedPrecondition", "conflict"],
  ["Aborted", "conflict"],
  ["OutOfRange", "invalid"],
  ["Unimplemented", "unimplemented"],
  ["Internal", "failed"],
  ["Unavailable", "unavailable"],
  ["DataLoss", "corrupt"],
  ["Unauthenticated", "permission_denied"],
];
const RETRYABLE: ReadonlySet<ErrorCode> = new Set(["unavailable", "deadline_exceeded"]);

/** The error that the server answered; its message is the server's own, word for word. */
export class GrpcStatusError extends PicoletError {
  readonly status: number;

  /** @param status not 0 */
  constructor(status: number, message: string) {
    const code = STATUSES[status]?.[1] ?? "failed";
    super(code, message, { retryable: RETRYABLE.has(code) });
    this.status = status;
  }

  /** As Kubernetes prints it in events. */
  get printed(): string {
    return `rpc error: code = ${STATUSES[this.status]?.[0] ?? `Code(${this.status})`} desc = ${this.message}`;
  }
}
