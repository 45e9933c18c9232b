import { closeSync, constants, openSync, readSync } from "node:fs";
import { PicoletError } from "../../protocol/errors.ts";
import { errorCode } from "../core/error-code.ts";

/** The longest record there is (CONSOLE_EXT_LOG_MAX); a shorter buffer could never get past it. */
const MAX_RECORD_BYTES = 8192;
/** Whatever tells of a kill has one of them in it. Of a thousand records few do: the others become no text. */
const MARKS = [Buffer.from("kill"), Buffer.from("Kill")];
const OTHER: KernelRecord = { kind: "other" };
const END: KernelRecord = { kind: "end" };

export type KernelRecord =
  | { readonly kind: "record"; readonly text: string }
  /** It tells of no kill. */
  | { readonly kind: "other" }
  /** The kernel has overwritten some that were not read. */
  | { readonly kind: "lost" }
  | { readonly kind: "end" };

/**
 * The kernel's log, record after record, from the oldest that it still has. Never waits: libuv cannot wait for this device, and
 * a read that blocks would take the one thread of all file access.
 */
export class KernelLog implements Disposable {
  readonly #path: string;
  readonly #fd: number;
  readonly #buffer = Buffer.allocUnsafeSlow(MAX_RECORD_BYTES);

  /** @throws `permission_denied`, `unavailable` */
  constructor(path = "/dev/kmsg") {
    this.#path = path;
    try {
      this.#fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    } catch (cause) {
      const code = errorCode(cause);
      const isForbidden = code === "EPERM" || code === "EACCES";
      throw new PicoletError(isForbidden ? "permission_denied" : "unavailable", `cannot open ${path}`, { cause });
    }
  }

  /** @throws `unavailable` */
  next(): KernelRecord {
    for (;;) {
      try {
        const length = readSync(this.#fd, this.#buffer, 0, MAX_RECORD_BYTES, null);
        if (length === 0) return END;
        return this.#hasMark(length) ? { kind: "record", text: this.#buffer.toString("latin1", 0, length) } : OTHER;
      } catch (cause) {
        switch (errorCode(cause)) {
          case "EAGAIN":
            return END;
          case "EPIPE":
            return { kind: "lost" };
          case "EINTR":
            continue;
          default:
            throw new PicoletError("unavailable", `cannot read ${this.#path}`, { cause });
        }
      }
    }
  }

  /** Behind `length` there is what was left of longer records. */
  #hasMark(length: number): boolean {
    return MARKS.some((mark) => {
      const at = this.#buffer.indexOf(mark);
      return at >= 0 && at < length;
    });
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }
}
