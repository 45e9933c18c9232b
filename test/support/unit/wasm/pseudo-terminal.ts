/** A pair of pseudo terminals: one end is the test's, the other stands for a serial port of the board. */
import { closeSync, constants, openSync, readSync, symlinkSync, unlinkSync, writeSync } from "node:fs";
import { TCGETS2, TERMIOS_BYTES } from "@picolet/runtime-wasm/shared/board/serial/uapi.ts";
import { deviceAddon } from "@picolet/runtime-wasm/shared/devices/runner-packages.ts";
import { POLLIN, POLLOUT, SystemCalls } from "@picolet/runtime-wasm/shared/devices/system-calls.ts";

/** asm-generic/ioctls.h: _IOW('T', 0x31, int), _IOR('T', 0x30, unsigned int) */
const TIOCSPTLCK = 0x40045431;
const TIOCGPTN = 0x80045430;

export class PseudoTerminal implements Disposable {
  static #shared: SystemCalls | undefined;
  /** The path of the board's end. */
  readonly path: string;
  readonly #calls: SystemCalls;
  readonly #fd: number;
  readonly #links: string[] = [];
  #gone = false;

  /** @param devpts where its file system is mounted: each counts from 0 */
  constructor(devpts = "/dev/pts") {
    PseudoTerminal.#shared ??= new SystemCalls(deviceAddon(import.meta.filename));
    this.#calls = PseudoTerminal.#shared;
    this.#fd = openSync(`${devpts}/ptmx`, constants.O_RDWR | constants.O_NOCTTY | constants.O_NONBLOCK);
    const number = Buffer.alloc(4);
    this.#calls.ioctl(this.#fd, TIOCSPTLCK, number);
    this.#calls.ioctl(this.#fd, TIOCGPTN, number);
    this.path = `${devpts}/${number.readUInt32LE()}`;
  }

  /** As udev names a device when it is plugged in. */
  link(path: string): void {
    symlinkSync(this.path, path);
    this.#links.push(path);
  }

  /** The port's settings: flags of input, flags of the line, speed. */
  get settings(): { readonly input: number; readonly line: number; readonly speed: number } {
    const memory = Buffer.alloc(TERMIOS_BYTES);
    this.#calls.ioctl(this.#fd, TCGETS2, memory);
    return { input: memory.readUInt32LE(0), line: memory.readUInt32LE(8), speed: memory.readUInt32LE(40) };
  }

  /** True when the other end asks this end to wait. */
  get isFull(): boolean {
    return !this.#calls.ready([{ fd: this.#fd, events: POLLOUT }]).length;
  }

  /** As many as it takes now. */
  offer(bytes: Uint8Array): number {
    try {
      return writeSync(this.#fd, bytes);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EAGAIN") return 0;
      throw error;
    }
  }

  async write(bytes: Uint8Array): Promise<void> {
    for (let rest = bytes; rest.length > 0; ) {
      rest = rest.subarray(this.offer(rest));
      if (rest.length > 0) await this.#until(POLLOUT);
    }
  }

  async read(length: number): Promise<Buffer> {
    const bytes = Buffer.alloc(length);
    for (let got = 0; got < length; ) {
      await this.#until(POLLIN);
      got += readSync(this.#fd, bytes, got, length - got, null);
    }
    return bytes;
  }

  /** The port is gone for a process that has it open. */
  unplug(): void {
    if (this.#gone) return;
    this.#gone = true;
    closeSync(this.#fd);
  }

  #until(events: number): Promise<void> {
    return new Promise((resolve) => this.#calls.readyLater([{ fd: this.#fd, events }], resolve));
  }

  [Symbol.dispose](): void {
    this.unplug();
    for (const path of this.#links) unlinkSync(path);
  }
}
