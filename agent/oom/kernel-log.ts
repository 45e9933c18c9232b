import { closeSync, constants, openSync, readSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errorCode } from "../core/node/system-error-code.ts";

/** The longest record there is (CONSOLE_EXT_LOG_MAX); a shorter buffer could never get past it. */
const MAX_RECORD_BYTES = 8192;
/** Whatever tells of a kill has one of them in it. Of a thousand records few do: the others become no text. */
const MARKS = [Buffer.from("kill"), Buffer.from("Kill")];
const OTHER: KernelRecord = { kind: "other" };
const END: KernelRecord = { kind: "end" };
const LOST: KernelRecord = { kind: "lost" };

export type KernelRecord =
  | { readonly kind: "record"; readonly text: string }
  /** It tells of no kill. */
  | { readonly kind: "other" }
  /** The kernel has overwritten some that were not read. */
  | { readonly kind: "lost" }
  | { readonly kind: "end" };

/**
 * libuv's pipe as Node has it: the one handle that waits for any descriptor that can be polled. No public part of Node takes a
 * character device but a terminal. The version of Node is fixed with the product, and `kernel-log.test.ts` sees when this changes.
 */
interface PipeHandle {
  /** The descriptor is the handle's from then on. @returns below 0: errno */
  open(fd: number): number;
  /** From then on all is read into it, and `onread` called without an argument. */
  useUserBuffer(buffer: Uint8Array): void;
  onread: (() => void) | undefined;
  readStart(): number;
  readStop(): number;
  unref(): void;
  close(): void;
}

interface NodeParts {
  readonly Pipe: new (kind: number) => PipeHandle;
  readonly constants: { readonly SOCKET: number };
  readonly streamBaseState: Int32Array;
  readonly kReadBytesOrError: number;
}

function partOfNode(name: string): NodeParts {
  return (Reflect.get(process, "binding") as (name: string) => NodeParts).call(process, name);
}

/**
 * The kernel's log, record after record, from the oldest that it still has. Reading never waits: libuv reads files in threads, and
 * one that waits would take the one thread of all file access. What waits is the event loop, for the device to have more.
 */
export class KernelLog implements Disposable {
  readonly #path: string;
  readonly #buffer = Buffer.allocUnsafeSlow(MAX_RECORD_BYTES);
  #fd: number;
  #pipe: PipeHandle | undefined;
  /** Waiting is reading, as libuv has it: the record that ended it. */
  #ahead: KernelRecord | undefined;
  /** Defined while it waits. */
  #told: (() => void) | undefined;

  /** @throws `permission_denied`, `unavailable` */
  constructor(path = "/dev/kmsg") {
    this.#path = path;
    this.#fd = this.#open();
  }

  #open(): number {
    const path = this.#path;
    try {
      return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    } catch (cause) {
      const code = errorCode(cause);
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
        switch (errorCode(cause)) {
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

  /** Calls `told`, once, and nobody who was to be told before, when there is something to read. @throws `unavailable` */
  whenMore(told: () => void): void {
    const isWaiting = this.#told !== undefined;
    this.#told = told;
    if (isWaiting) return;
    this.#pipe ??= this.#takePipe();
    const status = this.#pipe.readStart();
    if (status < 0) throw new PicoletError("unavailable", `cannot wait for ${this.#path}: error ${status}`);
  }

  /** @param length of what was read into the buffer; below 0: errno; 0: somebody has read it meanwhile */
  #woken(length: number): void {
    if (length === 0) return;
    const told = this.#told;
    this.#told = undefined;
    this.#pipe?.readStop();
    if (length > 0) this.#ahead = this.#recordOf(length);
    else this.#beginAnew();
    told?.();
  }

  #takePipe(): PipeHandle {
    const { Pipe, constants: kinds } = partOfNode("pipe_wrap");
    const pipe = new Pipe(kinds.SOCKET);
    const status = pipe.open(this.#fd);
    if (status < 0) throw new PicoletError("unavailable", `cannot wait for ${this.#path}: error ${status}`);
    const { streamBaseState, kReadBytesOrError } = partOfNode("stream_wrap");
    pipe.onread = () => {
      this.#woken(streamBaseState[kReadBytesOrError] ?? 0);
    };
    pipe.useUserBuffer(this.#buffer);
    // It keeps no program from ending.
    pipe.unref();
    return pipe;
  }

  /**
   * A handle that has met an error is done with, and so is its descriptor. The error is that records were overwritten where
   * this one was: so the oldest that the kernel has is the next one.
   */
  #beginAnew(): void {
    this.#close();
    this.#ahead = LOST;
    this.#fd = -1;
    try {
      this.#fd = this.#open();
    } catch {
      // Whoever reads next is told so.
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
    if (this.#pipe !== undefined) this.#pipe.close();
    else if (this.#fd >= 0) closeSync(this.#fd);
    this.#pipe = undefined;
    this.#told = undefined;
  }

  [Symbol.dispose](): void {
    this.#close();
    this.#fd = -1;
  }
}
