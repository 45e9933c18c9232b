/** What the parts of the host for WASI 0.3 share, of one instance of a component. */
import { HandlePool, trap } from "../handles.ts";
import type { StreamContext } from "../streams.ts";

/** Streams between the component and the host at once: each holds a file or a socket, and a piece of 16 KiB at most. */
const MAX_FLOWS = 256;

export class AsyncContext implements StreamContext {
  readonly handles: StreamContext["handles"];
  readonly poller: StreamContext["poller"];
  readonly wallNow: StreamContext["wallNow"];
  /** What the host promised has come: the glue is to look. */
  readonly onActivity: () => void;
  readonly #pools = new Map<string, HandlePool>();
  #waiting = 0;
  readonly #flows = new Set<() => void>();

  constructor({ handles, poller, wallNow }: StreamContext, onActivity: () => void) {
    this.handles = handles;
    this.poller = poller;
    this.wallNow = wallNow;
    this.onActivity = onActivity;
  }

  /** The numbers of one kind of resource of 0.3. @param what as it is called in messages */
  pool(what: string): HandlePool {
    const pool = this.#pools.get(what) ?? new HandlePool(what, this.handles.live);
    this.#pools.set(what, pool);
    return pool;
  }

  /** @param end lets go of what the stream holds. @returns what gives its place back. @throws a trap beyond the limit */
  takeFlow(end: () => void): () => void {
    if (this.#flows.size >= MAX_FLOWS)
      throw trap(`the component has more than ${MAX_FLOWS} streams of the host at once`);
    this.#flows.add(end);
    return () => void this.#flows.delete(end);
  }

  watched<T>(promise: Promise<T>): Promise<T> {
    promise.then(this.onActivity, this.onActivity);
    return promise;
  }

  /** Whether the component may be waiting for the host to take what it writes. */
  get isWaiting(): boolean {
    return this.#waiting > 0;
  }

  /** For whom the component may wait without the glue's knowing. */
  async waited(promise: Promise<void>): Promise<void> {
    this.#waiting += 1;
    try {
      await promise;
    } finally {
      this.#waiting -= 1;
      this.onActivity();
    }
  }

  /** Nobody uses the instance any more. */
  close(): void {
    for (const end of [...this.#flows]) end();
  }
}
