/**
 * The base of every resource that the host gives a component.
 *
 * The glue that jco generates numbers resources upwards without end and remembers every number in a set. It takes the
 * number from the resource itself where that has one, under `Symbol.for("cabiRep")`. Here the numbers of dropped
 * resources are used again, so that neither the set nor the number (30 bits) grows with time.
 */
import { ignore } from "@picolet/protocol/errors.ts";

/** Bounds the handles of one kind. A component with more of one kind leaks them; wasi-libc's own limit is far lower. */
const MAX_LIVE_HANDLES = 1024;

const REPRESENTATION = Symbol.for("cabiRep");

/**
 * The resources that a component holds. They are kept only where it can end before its process does, which closes
 * everything else. It is no set, because V8 makes a new table for an empty one, which keeps the old contents from the
 * collector of young garbage.
 */
export class LiveResources {
  readonly #resources: (HostResource | undefined)[] = [];
  readonly #free: number[] = [];
  readonly #instances = new Set<LiveResources>();

  get size(): number {
    let size = this.#resources.length - this.#free.length;
    for (const each of this.#instances) size += each.size;
    return size;
  }

  /** Adds an instance that may end before its component does. Its resources are among the component's. */
  addInstance(instance: LiveResources): void {
    this.#instances.add(instance);
  }

  deleteInstance(instance: LiveResources): void {
    this.#instances.delete(instance);
  }

  /** @returns its place */
  add(resource: HostResource): number {
    const place = this.#free.pop() ?? this.#resources.length;
    this.#resources[place] = resource;
    return place;
  }

  /** A resource that was released before is not in the list any more. */
  delete(resource: HostResource, place: number): void {
    if (this.#resources[place] !== resource) return;
    this.#resources[place] = undefined;
    this.#free.push(place);
  }

  /** Closes what a component that has ended still holds. Resources that others hold may be closed by then. */
  closeAll(): void {
    for (const each of this.#resources) {
      try {
        each?.[Symbol.dispose]();
      } catch {
        ignore("there is no one to report it to");
      }
    }
    for (const each of this.#instances) each.closeAll();
  }
}

/** The numbers of one kind of resource. */
export class HandlePool {
  readonly live: LiveResources | undefined;
  readonly #what: string;
  readonly #free: number[] = [];
  #highest = 0;

  constructor(what: string, live?: LiveResources) {
    this.#what = what;
    this.live = live;
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
  readonly live: LiveResources | undefined;
  readonly pollables: HandlePool;
  readonly inputs: HandlePool;
  readonly outputs: HandlePool;
  readonly errors: HandlePool;
  readonly descriptors: HandlePool;
  readonly directoryStreams: HandlePool;
  readonly networks: HandlePool;
  readonly tcpSockets: HandlePool;
  readonly udpSockets: HandlePool;
  readonly datagramStreams: HandlePool;
  readonly lookups: HandlePool;

  constructor(live?: LiveResources) {
    const pool = (what: string): HandlePool => new HandlePool(what, live);
    this.live = live;
    this.pollables = pool("pollables");
    this.inputs = pool("input streams");
    this.outputs = pool("output streams");
    this.errors = pool("errors");
    this.descriptors = pool("descriptors");
    this.directoryStreams = pool("directory streams");
    this.networks = pool("networks");
    this.tcpSockets = pool("TCP sockets");
    this.udpSockets = pool("UDP sockets");
    this.datagramStreams = pool("datagram streams");
    this.lookups = pool("name look-ups");
  }
}

/** @param act runs when the glue asks for the resource's number, as it makes a handle for the component */
export function onHandleCreated(resource: HostResource, act: () => void): void {
  const value = resource[REPRESENTATION];
  const get = (): number => {
    Object.defineProperty(resource, REPRESENTATION, { value });
    act();
    return value;
  };
  Object.defineProperty(resource, REPRESENTATION, { configurable: true, get });
}

export abstract class HostResource {
  readonly #pool: HandlePool;
  readonly #place: number | undefined;
  declare readonly [REPRESENTATION]: number;

  constructor(pool: HandlePool) {
    this.#pool = pool;
    this[REPRESENTATION] = pool.take();
    this.#place = pool.live?.add(this);
  }

  /** The generated glue calls it when the component drops its handle. */
  [Symbol.dispose](): void {
    if (this.#place !== undefined) this.#pool.live?.delete(this, this.#place);
    this.closed();
    this.#pool.release(this[REPRESENTATION]);
  }

  /** Releases what the resource holds. */
  protected closed(): void {
    // Most hold nothing.
  }
}

/** Ends the component where it is, as an `unreachable` instruction would. */
export const trap = (message: string): Error => new WebAssembly.RuntimeError(message);

/**
 * The value that the glue calls with `new` and compares with by `instanceof`: the class, bound to the instance's
 * context.
 */
export function makeConstructor<A extends readonly never[]>(
  of: { readonly prototype: object },
  make: (...args: A) => object,
  statics: Readonly<Record<string, unknown>> = {},
): unknown {
  // A function, because only a function can be called with `new` and return another object.
  function Made(...args: A): object {
    return make(...args);
  }
  Made.prototype = of.prototype;
  return Object.assign(Made, statics);
}

/** The constructor of resources that only functions make. */
export function trapOnNew(): never {
  throw trap("there is no such constructor");
}
