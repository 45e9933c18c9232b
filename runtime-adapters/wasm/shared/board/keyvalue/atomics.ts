/**
 * wasi:keyvalue/atomics: `increment` of both drafts, and `cas` and `swap` of the second. A handle records the value of
 * its key when it was made, or when `current` was last called, if that is later. A swap succeeds if the key then has
 * the same bytes.
 */
import type * as Keyvalue from "@picolet/wit/generated/picolet-board-keyvalue.js";
import { Failure } from "../../resources/failure.ts";
import { HandlePool, HostResource } from "../../resources/handles.ts";
import { asWasi, type WasiError, wasiError } from "./errors.ts";
import type { Bucket } from "./imports.ts";

type CasError =
  | { readonly tag: "store-error"; readonly val: WasiError }
  | { readonly tag: "cas-failed"; readonly val: CasHandle };

/** Holds no value: a component may have a thousand of these. */
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

export function atomicsImports() {
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
