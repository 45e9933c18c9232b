/** One open serial port and its two streams. It is closed when all of them are dropped and all output is sent. */
import { closeSync, readSync, writeSync } from "node:fs";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Options } from "@picolet/wit/generated/picolet-board-serial.js";
import type { DeviceContext } from "../../devices/host/device-host.ts";
import { POLLIN, POLLOUT } from "../../devices/system-calls.ts";
import type { ByteSink, ByteSource } from "../../resources/streams.ts";
import { WakeListeners } from "../../resources/wake-listeners.ts";
import { lineTimeMs, TIOCOUTQ, TIOCSER_TEMT, TIOCSERGETLSR } from "./uapi.ts";

/** Taken from the component before the port has taken it; the port's own buffer is some 4 KiB. */
const PENDING_BYTES = 4096;
/** The kernel gives no more at once. */
const READ_BYTES = 4096;
/** Bounds the time in which a port that the component has closed sends the rest of its output. */
const LINGER_MS = 30_000;
/** The longest interval at which a flush checks the port, for lines that flow control holds up. */
const MAX_CHECK_MS = 250;
/** The size of the largest buffer of a port, beside the kernel's buffer. */
const FIFO_BYTES = 256;

export class SerialLine {
  readonly fd: number;
  options: Options;
  readonly #context: DeviceContext;
  /** The port's own handle, and its streams. */
  #holders = 1;
  #closed = false;
  #pending: Uint8Array = new Uint8Array();
  #flushing = false;
  /** The error that ended the output, as node:fs throws it. */
  #failure: unknown;
  readonly #writable = new WakeListeners();
  #undo: () => void = () => undefined;

  constructor(context: DeviceContext, fd: number, options: Options) {
    this.#context = context;
    this.fd = fd;
    this.options = options;
  }

  /** Ends the hold of the port or one of its streams. */
  release(): void {
    this.#holders -= 1;
    if (this.#holders > 0) return;
    if (this.#pending.length === 0) {
      this.#close();
      return;
    }
    const timer = setTimeout(() => this.#close(), LINGER_MS);
    this.#writable.add(() => clearTimeout(timer));
  }

  /** Input stays in the kernel until it is read. The port itself does the flow control, if any. */
  source(): ByteSource {
    this.#holders += 1;
    const { waits } = this.#context.host;
    const { fd } = this;
    return {
      readiness: { ready: () => waits.isReady(fd, POLLIN), onReady: (wake) => waits.add(fd, POLLIN, wake) },
      read: (length) => readNow(fd, length),
      close: () => this.release(),
    };
  }

  sink(): ByteSink {
    this.#holders += 1;
    const ready = (): boolean => this.#failure !== undefined || this.#room() > 0;
    return {
      readiness: { ready, onReady: this.#writable.add },
      // The next write reports the failure.
      writable: () => (this.#failure === undefined ? this.#room() : PENDING_BYTES),
      write: (bytes) => this.#write(bytes),
      flush: () => this.#flush(),
      close: () => this.release(),
    };
  }

  #room(): number {
    return this.#pending.length === 0 && !this.#flushing ? PENDING_BYTES : 0;
  }

  #write(bytes: Uint8Array): void {
    if (this.#failure !== undefined) throw this.#failure;
    this.#pending = Uint8Array.prototype.slice.call(bytes);
    this.#pump();
    if (this.#failure !== undefined) throw this.#failure;
  }

  #pump(): void {
    try {
      while (this.#pending.length > 0) {
        const written = writeSync(this.fd, this.#pending);
        this.#pending = this.#pending.subarray(written);
      }
    } catch (error) {
      if (errnoOf(error) === "EAGAIN") {
        this.#undo = this.#context.host.waits.add(this.fd, POLLOUT, () => this.#pump());
        return;
      }
      this.#fail(error);
    }
    this.#settled();
  }

  #flush(): void {
    if (this.#failure !== undefined) throw this.#failure;
    this.#flushing = true;
    if (this.#pending.length === 0) this.#drain();
  }

  /** tcdrain(3) would hold a thread for as long as the other end holds up the line. */
  #drain(): void {
    try {
      const left = this.#queued();
      if (left > 0 || !this.#isEmpty()) {
        const time = lineTimeMs(this.options, left > 0 ? left : FIFO_BYTES / 16);
        const timer = setTimeout(() => this.#drain(), Math.min(time, MAX_CHECK_MS));
        this.#undo = () => clearTimeout(timer);
        return;
      }
    } catch (error) {
      this.#fail(error);
    }
    this.#flushing = false;
    this.#settled();
  }

  #queued(): number {
    const count = Buffer.alloc(4);
    this.#context.host.calls.ioctl(this.fd, TIOCOUTQ, count);
    return count.readInt32LE();
  }

  /** For ports that cannot report it, the kernel's count has to do. */
  #isEmpty(): boolean {
    const state = Buffer.alloc(4);
    try {
      this.#context.host.calls.ioctl(this.fd, TIOCSERGETLSR, state);
    } catch {
      return true;
    }
    return (state.readUInt32LE() & TIOCSER_TEMT) !== 0;
  }

  #fail(error: unknown): void {
    this.#failure = error;
    this.#pending = new Uint8Array();
    this.#flushing = false;
  }

  /** All that was pending is with the port, or will never be. */
  #settled(): void {
    if (this.#flushing && this.#failure === undefined) {
      this.#drain();
      return;
    }
    this.#writable.all();
    if (this.#holders === 0) this.#close();
  }

  #close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#undo();
    closeSync(this.fd);
    this.#context.host.closed();
  }
}

/** @returns undefined at the end: the port is gone */
function readNow(fd: number, length: number): Uint8Array | undefined {
  const bytes = new Uint8Array(Math.min(length, READ_BYTES));
  try {
    const count = readSync(fd, bytes, 0, bytes.length, null);
    return count === 0 ? undefined : bytes.slice(0, count);
  } catch (error) {
    const code = errnoOf(error);
    if (code === "EAGAIN") return new Uint8Array();
    if (code === "EIO" || code === "ENXIO" || code === "ENODEV") return undefined;
    throw error;
  }
}
