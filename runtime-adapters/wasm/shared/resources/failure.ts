import { errnoOf } from "@picolet/protocol/guards.ts";

/** The failure of a host function. It carries the error case of a `result`; the generated glue takes `payload`. */
export class Failure<P> {
  /** Not an Error, because failures are expected here (a missing file), and a stack would cost more than the call. */
  readonly payload: P;

  constructor(payload: P) {
    this.payload = payload;
  }
}

/** `wasi:filesystem/types.error-code`, as far as Linux can bring it about. */
export type FileErrorCode =
  | "access"
  | "would-block"
  | "bad-descriptor"
  | "busy"
  | "deadlock"
  | "quota"
  | "exist"
  | "file-too-large"
  | "illegal-byte-sequence"
  | "interrupted"
  | "invalid"
  | "io"
  | "is-directory"
  | "loop"
  | "too-many-links"
  | "name-too-long"
  | "no-device"
  | "no-entry"
  | "no-lock"
  | "insufficient-memory"
  | "insufficient-space"
  | "not-directory"
  | "not-empty"
  | "unsupported"
  | "no-tty"
  | "no-such-device"
  | "overflow"
  | "not-permitted"
  | "pipe"
  | "read-only"
  | "invalid-seek"
  | "text-file-busy"
  | "cross-device";

const CODES: Readonly<Record<string, FileErrorCode>> = {
  EACCES: "access",
  EAGAIN: "would-block",
  EBADF: "bad-descriptor",
  EBUSY: "busy",
  EDEADLK: "deadlock",
  EDQUOT: "quota",
  EEXIST: "exist",
  EFBIG: "file-too-large",
  EILSEQ: "illegal-byte-sequence",
  EINTR: "interrupted",
  EINVAL: "invalid",
  EIO: "io",
  EISDIR: "is-directory",
  ELOOP: "loop",
  EMFILE: "insufficient-memory",
  EMLINK: "too-many-links",
  ENAMETOOLONG: "name-too-long",
  ENFILE: "insufficient-memory",
  ENODEV: "no-device",
  ENOENT: "no-entry",
  ENOLCK: "no-lock",
  ENOMEM: "insufficient-memory",
  ENOSPC: "insufficient-space",
  ENOTDIR: "not-directory",
  ENOTEMPTY: "not-empty",
  ENOTSUP: "unsupported",
  ENOTTY: "no-tty",
  ENXIO: "no-such-device",
  EOVERFLOW: "overflow",
  EPERM: "not-permitted",
  EPIPE: "pipe",
  EROFS: "read-only",
  ESPIPE: "invalid-seek",
  ETXTBSY: "text-file-busy",
  EXDEV: "cross-device",
  // Node's own: a path with a NUL character, and its permission model.
  ERR_INVALID_ARG_VALUE: "invalid",
  ERR_OUT_OF_RANGE: "invalid",
  ERR_ACCESS_DENIED: "access",
};

export const fileFailure = (code: FileErrorCode): Failure<FileErrorCode> => new Failure(code);

/** @param error thrown by `node:fs` */
export function fileErrorCode(error: unknown): FileErrorCode {
  return CODES[errnoOf(error)] ?? "io";
}

/** Runs file system calls. Their errors become error codes. */
export function fileCall<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (error instanceof Failure || error instanceof WebAssembly.RuntimeError) throw error;
    throw fileFailure(fileErrorCode(error));
  }
}
