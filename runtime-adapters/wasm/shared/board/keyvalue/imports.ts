/** picolet:board/keyvalue, and wasi:keyvalue 0.2.0-draft and -draft2 on the same store, which the agent keeps. */

import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { Plain, ServiceMessage } from "@picolet/runtime-contract/board-services.ts";
import type * as Keyvalue from "@picolet/wit/generated/picolet-board-keyvalue.js";
import { Failure } from "../../resources/failure.ts";
import { HandlePool, HostResource } from "../../resources/handles.ts";
import type { AgentCalls } from "../../services/agent-calls.ts";

/** The interface's limits. The agent checks them too. */
const MAX_KEY_BYTES = 1024;
const MAX_VALUE_BYTES = MEBIBYTE;

const failure = (error: Keyvalue.Error): Failure<Keyvalue.Error> => new Failure(error);

function checkKey(key: string): string {
  if (key === "" || key.length > MAX_KEY_BYTES || Buffer.byteLength(key) > MAX_KEY_BYTES) {
    throw failure({ tag: "bad-key" });
  }
  return key;
}

/** Before anything is sent: a component may give as much as its memory holds. */
function checkValue(value: Uint8Array): Uint8Array {
  if (value.length > MAX_VALUE_BYTES) throw failure({ tag: "too-large" });
  return value;
}

const bytesOf = ({ bytes }: ServiceMessage, index = 0): Uint8Array => bytes[index] ?? new Uint8Array();

export interface Observed {
  /** By which the store knows it again; null: there is no such key. */
  readonly state: string | null;
  readonly value: Uint8Array | undefined;
}

/** One bucket at the agent, by its name: a handle costs nothing there. */
export class Bucket extends HostResource implements Keyvalue.Bucket {
  readonly #calls: AgentCalls;
  readonly #name: string;

  constructor(pool: HandlePool, calls: AgentCalls, name: string) {
    super(pool);
    this.#calls = calls;
    this.#name = name;
  }

  get(key: string): Uint8Array | undefined {
    const answer = this.#ask("get", { key: checkKey(key) });
    return answer.value === true ? bytesOf(answer) : undefined;
  }

  set(key: string, value: Uint8Array): void {
    this.#ask("set", { key: checkKey(key) }, [checkValue(value)]);
  }

  delete(key: string): void {
    this.#ask("delete", { key: checkKey(key) });
  }

  exists(key: string): boolean {
    return this.#ask("exists", { key: checkKey(key) }).value === true;
  }

  /** Wasi's first draft gives the cursor as a number, and takes a decimal text for one. */
  listKeys(cursor: string | bigint | undefined): Keyvalue.Page {
    const asked = cursor === undefined ? {} : { cursor: String(cursor).slice(0, MAX_KEY_BYTES) };
    const { keys, cursor: next } = this.#ask("list", asked).value as { keys: string[]; cursor?: string };
    return next === undefined ? { keys } : { keys, cursor: next };
  }

  increment(key: string, delta: bigint): bigint {
    const asked = { key: checkKey(key), delta: String(delta) };
    return BigInt(this.#ask("increment", asked, [], false).value as string);
  }

  swap(key: string, expected: Keyvalue.Expected, value: Uint8Array): Keyvalue.Expected | undefined {
    const old = expected.tag === "value" ? [checkValue(expected.val)] : [];
    const bytes = [checkValue(value), ...old];
    const answer = this.#ask("swap", { key: checkKey(key) }, bytes, false);
    if (answer.value === "swapped") return undefined;
    return answer.value === "nothing" ? { tag: "nothing" } : { tag: "value", val: bytesOf(answer) };
  }

  /**
   * Reads the current value of a key, for `swapObserved`.
   * @param whole true to get the value too
   */
  observe(key: string, whole: boolean): Observed {
    const { value, bytes } = this.#ask("observe", { key: checkKey(key), whole });
    const { state } = value as { readonly state: string | null };
    return { state, value: state === null ? undefined : bytes[0] };
  }

  /**
   * Sets the value if the key still has the observed value.
   * @returns the current value otherwise; undefined: it was set
   */
  swapObserved(key: string, state: string | null, value: Uint8Array): Omit<Observed, "value"> | undefined {
    const answer = this.#ask("swap-observed", { key, state }, [checkValue(value)], false).value;
    return answer === "swapped" ? undefined : (answer as { readonly state: string | null });
  }

  getMany(keys: string[]): (Uint8Array | undefined)[] {
    const answer = this.#ask("get-many", { keys: keys.map(checkKey) });
    let next = 0;
    return (answer.value as boolean[]).map((isThere) => {
      if (!isThere) return undefined;
      next += 1;
      return bytesOf(answer, next - 1);
    });
  }

  setMany(entries: [string, Uint8Array][]): void {
    const bytes = entries.map(([, value]) => checkValue(value));
    this.#ask("set-many", { keys: entries.map(([key]) => checkKey(key)) }, bytes);
  }

  deleteMany(keys: string[]): void {
    this.#ask("delete-many", { keys: keys.map(checkKey) });
  }

  #ask(
    method: string,
    value: Readonly<Record<string, Plain>>,
    bytes: readonly Uint8Array[] = [],
    repeatable = true,
  ): ServiceMessage {
    const asked = { ...value, bucket: this.#name };
    return this.#calls.ask({ method: `keyvalue.${method}`, value: asked, bytes, repeatable });
  }
}

export function keyvalueImports(calls: AgentCalls) {
  const buckets = new HandlePool("buckets");
  const open = opener((name) => new Bucket(buckets, calls, name), calls);
  return {
    "picolet:board/keyvalue": { open, Bucket },
    "wasi:keyvalue/store": {
      open: (name: string) => asWasi(() => opener((known) => new WasiBucket(buckets, calls, known), calls)(name)),
      Bucket,
    },
    "wasi:keyvalue/batch": {
      getMany: (bucket: Bucket, keys: string[]) => asWasi(() => pairs(keys, bucket.getMany(keys))),
      setMany: (bucket: Bucket, entries: [string, Uint8Array][]) => asWasi(() => bucket.setMany(entries)),
      deleteMany: (bucket: Bucket, keys: string[]) => asWasi(() => bucket.deleteMany(keys)),
    },
    "wasi:keyvalue/atomics": atomicsImports(),
  };
}

function opener<B>(make: (name: string) => B, calls: AgentCalls): (identifier: string) => B {
  return (bucket) => {
    // Longer than any name that a pod could give.
    if (bucket.length > MAX_KEY_BYTES) throw failure({ tag: "no-such-bucket" });
    calls.ask({ method: "keyvalue.open", value: { bucket }, repeatable: true });
    return make(bucket);
  };
}

class WasiBucket extends Bucket {
  override get(key: string): Uint8Array | undefined {
    return asWasi(() => super.get(key));
  }

  override set(key: string, value: Uint8Array): void {
    asWasi(() => super.set(key, value));
  }

  override delete(key: string): void {
    asWasi(() => super.delete(key));
  }

  override exists(key: string): boolean {
    return asWasi(() => super.exists(key));
  }

  override listKeys(cursor: string | bigint | undefined): Keyvalue.Page {
    return asWasi(() => super.listKeys(cursor));
  }
}

/** Both drafts have `option<tuple<string, list<u8>>>` for each key. */
const pairs = (keys: readonly string[], values: readonly (Uint8Array | undefined)[]) =>
  keys.map((key, index) => {
    const value = values[index];
    return value === undefined ? undefined : [key, value];
  });

/** wasi:keyvalue/store.error. */
type WasiError = { readonly tag: "no-such-store" | "access-denied" } | { readonly tag: "other"; readonly val: string };

/** The same with the fewer errors that wasi:keyvalue has. */
function asWasi<R>(work: () => R): R {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    throw new Failure<WasiError>(wasiError(error.payload as Keyvalue.Error));
  }
}

const wasiError = (error: Keyvalue.Error): WasiError => {
  if (error.tag === "no-such-bucket") return { tag: "no-such-store" };
  return { tag: "other", val: error.tag === "storage" ? `storage: ${error.val}` : error.tag };
};

type CasError =
  | { readonly tag: "store-error"; readonly val: WasiError }
  | { readonly tag: "cas-failed"; readonly val: CasHandle };

/**
 * wasi:keyvalue/atomics: a handle records the value of its key when it was made, or when `current` was last called, if
 * that is later. A swap succeeds if the key then has the same bytes. It holds no value: a component may have a thousand
 * of these.
 */
class CasHandle extends HostResource {
  readonly #bucket: Bucket;
  readonly #key: string;
  #state: string | null;

  constructor(pool: HandlePool, bucket: Bucket, key: string, state: string | null) {
    super(pool);
    this.#bucket = bucket;
    this.#key = key;
    this.#state = state;
  }

  current(): Uint8Array | undefined {
    const { state, value } = asWasi(() => this.#bucket.observe(this.#key, true));
    this.#state = state;
    return value;
  }

  /**
   * Takes this handle, once it need not wait any more. @throws Failure<CasError> with another handle where the key
   * holds something else
   */
  swap(value: Uint8Array, next: (bucket: Bucket, key: string, state: string | null) => CasHandle): void {
    const found = this.#swapped(value);
    this[Symbol.dispose]();
    if (found === undefined) return;
    throw new Failure<CasError>({ tag: "cas-failed", val: next(this.#bucket, this.#key, found.state) });
  }

  #swapped(value: Uint8Array): ReturnType<Bucket["swapObserved"]> {
    try {
      return this.#bucket.swapObserved(this.#key, this.#state, value);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this[Symbol.dispose]();
      throw new Failure<CasError>({ tag: "store-error", val: wasiError(error.payload as Keyvalue.Error) });
    }
  }
}

function atomicsImports() {
  const pool = new HandlePool("handles of compare-and-swap");
  /** The glue compares with the class that it was given. */
  class Cas extends CasHandle {
    static new(bucket: Bucket, key: string): Cas {
      const { state } = asWasi(() => bucket.observe(key, false));
      return new Cas(pool, bucket, key, state);
    }
  }
  return {
    Cas,
    increment: (bucket: Bucket, key: string, delta: bigint) => asWasi(() => bucket.increment(key, delta)),
    swap: (cas: CasHandle, value: Uint8Array) => cas.swap(value, (...next) => new Cas(pool, ...next)),
  };
}
