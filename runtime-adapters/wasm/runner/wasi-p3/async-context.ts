/** State that the parts of the host for WASI 0.3 share, for one instance of a component. */
import { HandlePool, trap } from "../../shared/resources/handles.ts";
import type { StreamContext } from "../../shared/resources/streams.ts";

/** Streams between the component and the host at once: each holds a file or a socket, and a piece of 16 KiB at most. */
const MAX_FLOWS = 256;

export class AsyncContext implements StreamContext {
  readonly handles: StreamContext["handles"];
  readonly poller: StreamContext["poller"];
  readonly wallNow: StreamContext["wallNow"];
  /** Wakes the glue, because something that the host promised has happened. */
  readonly onActivity: () => void;
  readonly #pools = new Map<string, HandlePool>();
  #waiting = 0;
  readonly #ends = new Set<() => void>();
  #flows = 0;
  readonly #sending = new Set<Promise<unknown>>();
  readonly #rests: (() => Promise<void>)[] = [];

  constructor({ handles, poller, wallNow }: StreamContext, onActivity: () => void) {
    this.handles = handles;
    this.poller = poller;
    this.wallNow = wallNow;
    this.onActivity = onActivity;
  }

  /** The numbers of one kind of resource of 0.2. @param what names the kind in messages */
  pool(what: string): HandlePool {
    const pool = this.#pools.get(what) ?? new HandlePool(what, this.handles.live);
    this.#pools.set(what, pool);
    return pool;
  }

  /**
   * @param end releases what the stream holds
   * @returns a function that gives its place back
   * @throws a trap beyond the limit
   */
  takeFlow(end: () => void): () => void {
    if (this.#flows >= MAX_FLOWS) throw trap(`the component has more than ${MAX_FLOWS} streams of the host at once`);
    this.#flows += 1;
    const forget = this.endWith(end);
    return () => {
      if (forget()) this.#flows -= 1;
    };
  }

  /**
   * @param end runs when the instance is closed
   * @returns a function that withdraws `end`, and returns whether it was still pending
   */
  endWith(end: () => void): () => boolean {
    this.#ends.add(end);
    return () => this.#ends.delete(end);
  }

  watched<T>(promise: Promise<T>): Promise<T> {
    promise.then(this.onActivity, this.onActivity);
    return promise;
  }

  /** True while the component may wait for the host to take its output. */
  get isWaiting(): boolean {
    return this.#waiting > 0;
  }

  /** Marks a wait of the component that the glue does not see. */
  async waited(promise: Promise<void>): Promise<void> {
    this.#waiting += 1;
    try {
      await promise;
    } finally {
      this.#waiting -= 1;
      this.onActivity();
    }
  }

  /** @param sent settles when the component's output has reached its receiver */
  sends<T>(sent: Promise<T>): Promise<T> {
    this.#sending.add(sent);
    const forget = (): void => void this.#sending.delete(sent);
    sent.then(forget, forget);
    return sent;
  }

  /** Output that is under way. */
  get sending(): readonly Promise<unknown>[] {
    return [...this.#sending];
  }

  /** @param rest resolves when nothing is left of released resources */
  restsWith(rest: () => Promise<void>): void {
    this.#rests.push(rest);
  }

  /** Resolves when nothing is left of the instance's released resources. */
  async atRest(): Promise<void> {
    await Promise.all(this.#rests.map((rest) => rest()));
  }

  /** The instance is not used any more. */
  close(): void {
    for (const end of [...this.#ends]) end();
  }
}
