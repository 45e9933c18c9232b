/**
 * What every resource that the host gives a component has in common.
 *
 * The glue that jco generates numbers resources upwards for ever and remembers every number in a set; it takes the
 * number from the resource itself where that has one, under `Symbol.for("cabiRep")`. Numbers of dropped resources are
 * used again here, so that neither the set nor the number (30 bits) grows with time.
 */

/** Of one kind. A component that holds more of one kind at once leaks them; wasi-libc's own limit is far lower. */
const MAX_LIVE_HANDLES = 1024;

const REPRESENTATION = Symbol.for("cabiRep");

/** The numbers of one kind of resource. */
export class HandlePool {
  readonly #what: string;
  readonly #free: number[] = [];
  #highest = 0;

  constructor(what: string) {
    this.#what = what;
  }

  get full(): boolean {
    return this.#free.length === 0 && this.#highest >= MAX_LIVE_HANDLES;
  }

  take(): number {
    const recycled = this.#free.pop();
    if (recycled !== undefined) return recycled;
    if (this.#highest >= MAX_LIVE_HANDLES) {
      throw trap(`the component holds more than ${MAX_LIVE_HANDLES} ${this.#what} at once`);
    }
    this.#highest += 1;
    return this.#highest;
  }

  release(representation: number): void {
    this.#free.push(representation);
  }
}

/** The pools of one component. */
export class Handles {
  readonly pollables = new HandlePool("pollables");
  readonly inputs = new HandlePool("input streams");
  readonly outputs = new HandlePool("output streams");
  readonly errors = new HandlePool("errors");
  readonly descriptors = new HandlePool("descriptors");
  readonly directoryStreams = new HandlePool("directory streams");
  readonly networks = new HandlePool("networks");
  readonly tcpSockets = new HandlePool("TCP sockets");
  readonly udpSockets = new HandlePool("UDP sockets");
  readonly datagramStreams = new HandlePool("datagram streams");
  readonly lookups = new HandlePool("name look-ups");
}

export abstract class HostResource {
  readonly #pool: HandlePool;
  readonly [REPRESENTATION]: number;

  constructor(pool: HandlePool) {
    this.#pool = pool;
    this[REPRESENTATION] = pool.take();
  }

  /** The generated glue calls it when the component drops its handle. */
  [Symbol.dispose](): void {
    this.closed();
    this.#pool.release(this[REPRESENTATION]);
  }

  /** What it held is given back. */
  protected closed(): void {
    // Most hold nothing.
  }
}

/** Ends the component where it is, as an `unreachable` instruction would. */
export const trap = (message: string): Error => new WebAssembly.RuntimeError(message);
