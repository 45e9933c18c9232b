import { describeError, type ErrorCode, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";

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

const UNKNOWN = 2;
const OK = 0;
/** Statuses with a code of ours that another one has, too, or none. */
const CLIENTS_OWN: ReadonlySet<string> = new Set(["OK", "Canceled", "Internal"]);
/** Bounds grpc-message, which goes into the logs of the client. */
const MAX_MESSAGE_BYTES = 2048;

/** The name of a call's status, one of gRPC's 17. @param error undefined: the call succeeded */
export function statusName(error: unknown): string {
  const status = error === undefined ? OK : error instanceof GrpcStatusError ? error.status : statusOf(error);
  return STATUSES[status]?.[0] ?? "Unknown";
}

function statusOf(error: unknown): number {
  const code = isPicoletError(error) ? error.code : undefined;
  const found = STATUSES.findIndex(([name, own]) => !CLIENTS_OWN.has(name) && own === code);
  return found < 0 ? UNKNOWN : found;
}

/** The status of a failed call, for a server's trailers. The message is percent-encoded as gRPC asks. */
export function printableStatus(error: unknown): { readonly status: number; readonly message: string } {
  const bytes = Buffer.from(describeError(error)).subarray(0, MAX_MESSAGE_BYTES);
  const isPlain = (byte: number): boolean => byte >= 0x20 && byte <= 0x7e && byte !== 0x25;
  const escaped = (byte: number): string => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  const message = Array.from(bytes, (byte) => (isPlain(byte) ? String.fromCharCode(byte) : escaped(byte))).join("");
  return { status: statusOf(error), message };
}
