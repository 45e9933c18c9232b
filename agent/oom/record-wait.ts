/**
 * Waits for the next record of a character device that can be polled. libuv's pipe does that for any descriptor, but no
 * public part of Node makes one for a device that is no terminal: `process.binding` does, and is used here and nowhere
 * else in the agent. A Node without it polls every two seconds instead: it reads the same records, later, with a wakeup
 * each time.
 */

import { closeSync, readSync } from "node:fs";
import { constants } from "node:os";
import { ignore } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";

/** One wakeup costs some 0.4 ms of CPU; a record may wait this long, for the event of a kill is not urgent. */
const POLL_INTERVAL = seconds(2);

export interface RecordWait {
  /** Waits for a record until `onRead` is called. @returns below 0: errno */
  start(): number;
  stop(): void;
  /** And the descriptor, which is the wait's. */
  close(): void;
}

export interface RecordWaitInit {
  readonly fd: number;
  /** A record is read into it. */
  readonly buffer: Uint8Array;
  /** @param length of the record; below 0: errno; 0: another reader has it */
  readonly onRead: (length: number) => void;
}

/** @returns below 0: errno */
export type MakeRecordWait = (init: RecordWaitInit) => RecordWait | number;

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

interface PrivateParts {
  readonly Pipe: new (kind: number) => PipeHandle;
  readonly constants: { readonly SOCKET: number };
  readonly streamBaseState: Int32Array;
  readonly kReadBytesOrError: number;
}

type Binding = ((this: NodeJS.Process, name: string) => PrivateParts | undefined) | undefined;

const nodeBinding = (): Binding => Reflect.get(process, "binding") as Binding;

/** @returns undefined: this Node has no such parts */
export function privateRecordWait(binding = nodeBinding()): MakeRecordWait | undefined {
  const [pipes, streams] = ["pipe_wrap", "stream_wrap"].map((name) => {
    try {
      return binding?.call(process, name);
    } catch {
      return undefined;
    }
  });
  if (typeof pipes?.Pipe !== "function" || streams?.streamBaseState === undefined) return undefined;
  const { streamBaseState, kReadBytesOrError } = streams;
  return ({ fd, buffer, onRead }) => {
    const pipe = new pipes.Pipe(pipes.constants.SOCKET);
    const status = pipe.open(fd);
    if (status < 0) return status;
    pipe.onread = () => onRead(streamBaseState[kReadBytesOrError] ?? 0);
    pipe.useUserBuffer(buffer);
    // It keeps no program from ending.
    pipe.unref();
    return { start: () => pipe.readStart(), stop: () => void pipe.readStop(), close: () => pipe.close() };
  };
}

/** Reading never waits: the descriptor is not to block. */
export const publicRecordWait =
  (clock: Pick<Clock, "sleep">): MakeRecordWait =>
  ({ fd, buffer, onRead }) =>
    new PolledWait(clock, { fd, buffer, onRead });

class PolledWait implements RecordWait {
  readonly #clock: Pick<Clock, "sleep">;
  readonly #init: RecordWaitInit;
  #waiting: AbortController | undefined;

  constructor(clock: Pick<Clock, "sleep">, init: RecordWaitInit) {
    this.#clock = clock;
    this.#init = init;
  }

  start(): number {
    if (this.#waiting === undefined) {
      this.#waiting = new AbortController();
      void this.#poll(this.#waiting.signal);
    }
    return 0;
  }

  stop(): void {
    this.#waiting?.abort();
    this.#waiting = undefined;
  }

  close(): void {
    this.stop();
    closeSync(this.#init.fd);
  }

  async #poll(signal: AbortSignal): Promise<void> {
    // Not within `start`.
    await undefined;
    while (!signal.aborted) {
      const length = this.#read();
      if (length !== undefined) this.#init.onRead(length);
      if (!signal.aborted)
        await this.#clock.sleep(POLL_INTERVAL, signal).catch(ignore("the loop ends when the wait is cancelled"));
    }
  }

  /** Undefined: there is nothing yet. */
  #read(): number | undefined {
    const { fd, buffer } = this.#init;
    try {
      return readSync(fd, buffer, 0, buffer.length, null);
    } catch (error) {
      const code = errnoOf(error);
      if (code === "EAGAIN" || code === "EINTR") return undefined;
      return -(constants.errno[code as keyof typeof constants.errno] ?? 1);
    }
  }
}
