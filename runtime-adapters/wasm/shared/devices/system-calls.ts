/**
 * System calls for devices that Node does not have, through koffi's native part, without its JavaScript. Only processes
 * that use devices load it: 1.8 MiB. Buffers have the size that the call expects; their users check it (`uapi.ts` of
 * each kind).
 */
import { constants } from "node:os";
import type * as Koffi from "koffi";

/** poll.h */
export const POLLIN = 0x001;
export const POLLOUT = 0x004;
const POLLFD_BYTES = 8;

/** Stacks and scratch memory of calls: all of these take a few words. */
const CALL_MEMORY_BYTES = 65_536;
/** sys/file.h */
const LOCK_EX = 2;
const LOCK_NB = 4;
/** sys/eventfd.h */
const EFD_CLOEXEC = 0o2000000;
const EFD_NONBLOCK = 0o4000;

export interface PollEntry {
  readonly fd: number;
  readonly events: number;
}

/** A system call that failed; `code` as in Node's own errors. */
export class SystemCallError extends Error {
  readonly code: string;

  constructor(call: string, errno: number) {
    const code = NAMES.get(errno) ?? `errno ${errno}`;
    super(`${call}: ${code}`);
    this.code = code;
  }
}

/** Where several names share a number, Node's own: EAGAIN, not EWOULDBLOCK. */
const NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(constants.errno)
    .filter(([name]) => name !== "EWOULDBLOCK" && name !== "ENOTSUP")
    .map(([name, value]) => [value, name]),
);

type Call = Koffi.KoffiFunc<(...args: readonly unknown[]) => number>;

export class SystemCalls {
  readonly #koffi: typeof Koffi;
  readonly #library: Koffi.LibraryHandle;
  readonly #known = new Map<string, Call>();

  /** @param addonPath of koffi.node */
  constructor(addonPath: string) {
    const module = { exports: {} };
    process.dlopen(module, addonPath);
    this.#koffi = module.exports as typeof Koffi;
    this.#koffi.config({
      ...this.#koffi.config(),
      sync_stack_size: CALL_MEMORY_BYTES,
      sync_heap_size: CALL_MEMORY_BYTES,
      async_stack_size: CALL_MEMORY_BYTES,
      async_heap_size: CALL_MEMORY_BYTES,
      resident_async_pools: 1,
    });
    // The process itself: Node has the C library.
    this.#library = this.#koffi.load(null as unknown as string);
  }

  /** The address of its first byte, for structures that hold pointers. Keep `memory` alive while the kernel uses it. */
  addressOf(memory: Uint8Array): bigint {
    return this.#koffi.address(memory);
  }

  /**
   * @param argument memory that the kernel reads or writes, of the size that `request` expects; or a number
   * @throws SystemCallError
   */
  ioctl(fd: number, request: number, argument: Uint8Array | number): number {
    return typeof argument === "number"
      ? this.call("int ioctl(int fd, unsigned long request, long argument)", fd, request, argument)
      : this.call("int ioctl(int fd, unsigned long request, void *argument)", fd, request, argument);
  }

  /** @returns the entries that are ready for their events, or broken, without a wait */
  ready(entries: readonly PollEntry[]): PollEntry[] {
    if (entries.length === 0) return [];
    const memory = pollMemory(entries);
    this.call(POLL, memory, entries.length, 0);
    return entries.filter((_, index) => memory.readUInt16LE(index * POLLFD_BYTES + 6) !== 0);
  }

  /** Blocks the thread. @param timeoutMs from now; @returns whether one of them is ready */
  waitFor(entries: readonly PollEntry[], timeoutMs: number): boolean {
    return this.call(POLL, pollMemory(entries), entries.length, timeoutMs) > 0;
  }

  /** Occupies one of libuv's threads until one of them is ready. */
  readyLater(entries: readonly PollEntry[], done: () => void): void {
    const memory = pollMemory(entries);
    // Held by the callback for as long as the kernel writes to it.
    this.#function(POLL).async(memory, entries.length, -1, () => {
      memory.fill(0);
      done();
    });
  }

  eventFd(): number {
    return this.call("int eventfd(unsigned int initial, int flags)", 0, EFD_CLOEXEC | EFD_NONBLOCK);
  }

  /** @returns false when another open file holds it. It lasts until the last descriptor of this open file is closed. */
  lock(fd: number): boolean {
    try {
      this.call("int flock(int fd, int operation)", fd, LOCK_EX | LOCK_NB);
      return true;
    } catch (error) {
      if (error instanceof SystemCallError && error.code === "EAGAIN") return false;
      throw error;
    }
  }

  /** @param prototype of C. @throws SystemCallError when it returns -1 */
  call(prototype: string, ...args: readonly (number | bigint | Uint8Array)[]): number {
    for (;;) {
      const result = this.#function(prototype)(...args);
      if (result >= 0) return result;
      const error = new SystemCallError(/(\w+)\(/.exec(prototype)?.[1] ?? prototype, this.#koffi.errno());
      if (error.code !== "EINTR") throw error;
    }
  }

  #function(prototype: string): Call {
    let known = this.#known.get(prototype);
    if (known === undefined) {
      known = this.#library.func(prototype) as unknown as Call;
      this.#known.set(prototype, known);
    }
    return known;
  }
}

const POLL = "int poll(void *entries, unsigned long count, int timeout)";

/** struct pollfd */
function pollMemory(entries: readonly PollEntry[]): Buffer {
  const memory = Buffer.alloc(Math.max(entries.length, 1) * POLLFD_BYTES);
  for (const [index, { fd, events }] of entries.entries()) {
    memory.writeInt32LE(fd, index * POLLFD_BYTES);
    memory.writeInt16LE(events, index * POLLFD_BYTES + 4);
  }
  return memory;
}
