/**
 * Runs commands in a guest, several at a time, over its virtio serial port; the other end is `guest/courier.c`, which
 * goes on answering while the guest is out of memory.
 */
import { once } from "node:events";
import { createConnection, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import type { RunningCommand } from "./board-machine.ts";

/** The courier's own, of a frame's content and of commands at a time. */
const MAX_FRAME = 64 * 1024;
const MAX_COMMANDS = 32;
const HEADER_BYTES = 9;
/** How often a socket is tried that QEMU has not made yet. */
const CONNECT_TRIES = 500;
const CONNECT_RETRY_MS = 10;

export interface CommandHandlers {
  readonly onStdout: (data: Buffer) => void;
  readonly onStderr: (data: Buffer) => void;
}

export interface RemoteCommand extends RunningCommand {
  /** Resolves when the command's pipe has taken it. An empty one ends its input. */
  write(data: Uint8Array): Promise<void>;
}

interface UnderWay extends CommandHandlers {
  readonly end: (code: number) => void;
  readonly fail: (error: Error) => void;
  /** Set while the courier has input that the command has not taken. */
  taken?: (() => void) | undefined;
}

export class GuestChannel implements Disposable {
  readonly #socket: Socket;
  readonly #underWay = new Map<number, UnderWay>();
  readonly #waiting: (() => void)[] = [];
  #greeted = Promise.withResolvers<void>();
  #received = Buffer.alloc(0);
  #lastNumber = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (data: Buffer) => this.#receive(data));
    socket.on("error", (error) => this.#lose(error));
    socket.on("close", () => this.#lose(new Error("the guest is gone")));
    this.#greeted.promise.catch(() => undefined);
  }

  static async connect(path: string): Promise<GuestChannel> {
    return new GuestChannel(await connectTo(path));
  }

  /** Resolves when the guest has booted so far that it takes commands; not of a guest that was woken. */
  get greeted(): Promise<void> {
    return this.#greeted.promise;
  }

  /** Resolves when it does so after a restart. All that is under way now is lost. */
  expectGreeting(): Promise<void> {
    this.#drop(new Error("the guest was restarted"));
    this.#greeted = Promise.withResolvers();
    this.#greeted.promise.catch(() => undefined);
    return this.#greeted.promise;
  }

  /** Runs a line of shell as root. */
  async start(line: string, handlers: CommandHandlers): Promise<RemoteCommand> {
    while (this.#underWay.size >= MAX_COMMANDS) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#lastNumber += 1;
    const number = this.#lastNumber;
    const ended = Promise.withResolvers<number>();
    const command: UnderWay = { ...handlers, end: ended.resolve, fail: ended.reject };
    ended.promise.catch(() => undefined);
    this.#underWay.set(number, command);
    this.#send(number, "R", Buffer.from(line));
    return {
      ended: ended.promise,
      write: (data) => this.#write(number, command, data),
      kill: () => this.#send(number, "K", Buffer.alloc(0)),
    };
  }

  async #write(number: number, command: UnderWay, data: Uint8Array): Promise<void> {
    for (let offset = 0; offset === 0 || offset < data.length; offset += MAX_FRAME) {
      if (!this.#underWay.has(number)) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      command.taken = resolve;
      this.#send(number, "I", data.subarray(offset, offset + MAX_FRAME));
      await promise;
    }
  }

  #send(number: number, kind: "R" | "I" | "K", content: Uint8Array): void {
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt32LE(number, 0);
    header.write(kind, 4, "latin1");
    header.writeUInt32LE(content.length, 5);
    this.#socket.write(Buffer.concat([header, content]));
  }

  #receive(data: Buffer): void {
    this.#received = Buffer.concat([this.#received, data]);
    while (this.#received.length >= HEADER_BYTES) {
      const end = HEADER_BYTES + this.#received.readUInt32LE(5);
      if (this.#received.length < end) return;
      const number = this.#received.readUInt32LE(0);
      this.#take(number, this.#received.toString("latin1", 4, 5), this.#received.subarray(HEADER_BYTES, end));
      this.#received = this.#received.subarray(end);
    }
  }

  #take(number: number, kind: string, content: Buffer): void {
    if (kind === "H") this.#greeted.resolve();
    const command = this.#underWay.get(number);
    if (command === undefined) return;
    if (kind === "O") command.onStdout(content);
    else if (kind === "E") command.onStderr(content);
    else if (kind === "A") command.taken?.();
    else if (kind === "X") {
      this.#underWay.delete(number);
      const status = content.readInt32LE(0);
      const signal = status & 0x7f;
      command.taken?.();
      command.end(signal === 0 ? (status >> 8) & 0xff : 128 + signal);
      this.#waiting.shift()?.();
    }
  }

  #lose(error: Error): void {
    this.#greeted.reject(error);
    this.#drop(error);
  }

  #drop(error: Error): void {
    for (const command of this.#underWay.values()) {
      command.taken?.();
      command.fail(error);
    }
    this.#underWay.clear();
    for (const next of this.#waiting.splice(0)) next();
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }
}

/** Waits until something listens there. */
export async function connectTo(path: string): Promise<Socket> {
  for (let tries = CONNECT_TRIES; ; tries -= 1) {
    const socket = createConnection(path);
    try {
      await once(socket, "connect");
      return socket;
    } catch (error) {
      socket.destroy();
      if (tries === 0) throw error;
      await pause(CONNECT_RETRY_MS);
    }
  }
}
