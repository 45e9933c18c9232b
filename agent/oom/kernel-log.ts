import { closeSync, constants, openSync, readSync } from "node:fs";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { MakeRecordWait, RecordWait } from "./record-wait.ts";

/** The longest record there is (CONSOLE_EXT_LOG_MAX); a shorter buffer could never get past it. */
const MAX_RECORD_BYTES = 8192;
/** Every record of a kill has one of these words. Few records of a thousand do; the others are not decoded. */
const MARKS = [Buffer.from("kill"), Buffer.from("Kill")];
const OTHER: KernelRecord = { kind: "other" };
const END: KernelRecord = { kind: "end" };
const LOST: KernelRecord = { kind: "lost" };

export interface KernelLogInit {
  readonly waitFor: MakeRecordWait;
  /** Default /dev/kmsg. */
  readonly path?: string;
}

export type KernelRecord =
  | { readonly kind: "record"; readonly text: string }
  /** A record that is not about a kill. */
  | { readonly kind: "other" }
  /** The kernel has overwritten records that were not read. */
  | { readonly kind: "lost" }
  | { readonly kind: "end" };

/**
 * The kernel's log, record after record, from the oldest that it still has. Reading never waits: libuv reads files in
 * threads, and one that waits would take the one thread of all file access. What waits is the event loop, for the
 * device to have more.
 */
export class KernelLog implements Disposable {
  readonly #path: string;
  readonly #buffer = Buffer.allocUnsafeSlow(MAX_RECORD_BYTES);
  #fd: number;
  readonly #waitFor: MakeRecordWait;
  #wait: RecordWait | undefined;
  /** Waiting is reading, as libuv has it: the record that ended it. */
  #ahead: KernelRecord | undefined;
  /** Defined while it waits. */
  #onMore: (() => void) | undefined;

  /** @throws `permission_denied`, `unavailable` */
  constructor({ waitFor, path = "/dev/kmsg" }: KernelLogInit) {
    this.#path = path;
    this.#waitFor = waitFor;
    this.#fd = this.#open();
  }

  #open(): number {
    const path = this.#path;
    try {
      return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    } catch (cause) {
      const code = errnoOf(cause);
      const isForbidden = code === "EPERM" || code === "EACCES";
      throw new PicoletError(isForbidden ? "permission_denied" : "unavailable", `cannot open ${path}`, { cause });
    }
  }

  /** @throws `unavailable` */
  next(): KernelRecord {
    const ahead = this.#ahead;
    this.#ahead = undefined;
    if (ahead !== undefined) return ahead;
    for (;;) {
      try {
        return this.#recordOf(readSync(this.#fd, this.#buffer, 0, MAX_RECORD_BYTES, null));
      } catch (cause) {
        switch (errnoOf(cause)) {
          case "EAGAIN":
            return END;
          case "EPIPE":
            return LOST;
          case "EINTR":
            continue;
          default:
            throw new PicoletError("unavailable", `cannot read ${this.#path}`, { cause });
        }
      }
    }
  }

  /** Calls `onMore` once when there is something to read. Replaces an earlier callback. @throws `unavailable` */
  whenMore(onMore: () => void): void {
    const isWaiting = this.#onMore !== undefined;
    this.#onMore = onMore;
    if (isWaiting) return;
    this.#wait ??= this.#makeWait();
    const status = this.#wait.start();
    if (status < 0) throw new PicoletError("unavailable", `cannot wait for ${this.#path}: error ${status}`);
  }

  /** @param length bytes read into the buffer; below 0: errno; 0: another reader has read the record */
  #woken(length: number): void {
    if (length === 0) return;
    const onMore = this.#onMore;
    this.#onMore = undefined;
    this.#wait?.stop();
    if (length > 0) this.#ahead = this.#recordOf(length);
    else this.#restart();
    onMore?.();
  }

  #makeWait(): RecordWait {
    const init = { fd: this.#fd, buffer: this.#buffer, onRead: (length: number) => this.#woken(length) };
    const wait = this.#waitFor(init);
    if (typeof wait === "number") throw new PicoletError("unavailable", `cannot wait for ${this.#path}: error ${wait}`);
    return wait;
  }

  /**
   * Opens the log again. A handle with an error cannot be used, nor can its descriptor. The error means that the
   * records at its position were overwritten, so the next record is the oldest that the kernel has.
   */
  #restart(): void {
    this.#close();
    this.#ahead = LOST;
    this.#fd = -1;
    try {
      this.#fd = this.#open();
    } catch {
      ignore("the next read reports the failure");
    }
  }

  #recordOf(length: number): KernelRecord {
    if (length === 0) return END;
    return this.#hasMark(length) ? { kind: "record", text: this.#buffer.toString("latin1", 0, length) } : OTHER;
  }

  /** Behind `length` there is what was left of longer records. */
  #hasMark(length: number): boolean {
    return MARKS.some((mark) => {
      const at = this.#buffer.indexOf(mark);
      return at >= 0 && at < length;
    });
  }

  #close(): void {
    if (this.#wait !== undefined) this.#wait.close();
    else if (this.#fd >= 0) closeSync(this.#fd);
    this.#wait = undefined;
    this.#onMore = undefined;
  }

  [Symbol.dispose](): void {
    this.#close();
    this.#fd = -1;
  }
}
