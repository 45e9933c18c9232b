// Generated from wit/board by `npm run wit-types`; do not edit.
/** @module Interface picolet:board/keyvalue@0.1.0 **/
export function open(identifier: string): Bucket;
export type Error =
  | {
    /**
     * The pod names no such bucket.
     */
    tag: 'no-such-bucket',
  }
  | {
    /**
     * A key is empty or longer than 1,024 bytes of UTF-8.
     */
    tag: 'bad-key',
  }
  | {
    /**
     * A value is longer than 1 MiB, or the keys or values of one call are more than 1,024 or 1 MiB together.
     */
    tag: 'too-large',
  }
  | {
    /**
     * The bucket would hold more bytes or keys than its pod may put there. Nothing was changed.
     */
    tag: 'quota-exceeded',
  }
  | {
    /**
     * `increment` of a value that is no decimal number, or beyond 64 bits.
     */
    tag: 'not-a-number',
  }
  | {
    /**
     * The board's agent does not answer: it is restarting. A change may or may not have been made.
     */
    tag: 'unavailable',
  }
  | {
    /**
     * The disk: full, or damaged; what, in words.
     */
    tag: 'storage',
    val: string,
  };
export interface Page {
  keys: Array<string>,
  /**
   * For the next call. `none`: these were the last.
   */
  cursor?: string,
}
/**
 * What `swap` expects to find.
 */
export type Expected =
  | {
    /**
     * No such key.
     */
    tag: 'nothing',
  }
  | {
    /**
     * This value.
     */
    tag: 'value',
    val: Uint8Array,
  };

export class Bucket {
  /**
   * This type does not have a public constructor.
   */
  private constructor();
  /**
  * `none`: no such key.
  */
  get(key: string): Uint8Array | undefined;
  set(key: string, value: Uint8Array): void;
  /**
  * Of a key that is not there: `ok`.
  */
  'delete'(key: string): void;
  exists(key: string): boolean;
  /**
  * Some of the keys, 256 at the most, in the order in which they were first set. A key that is there from the first
  * page to the last is on exactly one of them.
  */
  listKeys(cursor: string | undefined): Page;
  /**
  * Adds to a decimal number (its text in ASCII; no such key: 0) and returns the sum, all at once.
  */
  increment(key: string, delta: bigint): bigint;
  /**
  * Sets the value if the key holds what is expected, all at once. `none`: it was set; else it was not, and this is
  * what the key holds.
  */
  swap(key: string, expected: Expected, value: Uint8Array): Expected | undefined;
  /**
  * In the order of the keys.
  */
  getMany(keys: Array<string>): Array<Uint8Array | undefined>;
  /**
  * All of them or none.
  */
  setMany(keyValues: Array<[string, Uint8Array]>): void;
  /**
  * All of them or none.
  */
  deleteMany(keys: Array<string>): void;
}
