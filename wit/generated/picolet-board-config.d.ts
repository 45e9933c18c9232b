// Generated from wit/board by `npm run wit-types`; do not edit.
/** @module Interface picolet:board/config@0.1.0 **/
/**
 * The value as it is at this moment: an update of the ConfigMap is seen by the next call. `none`: no such key.
 */
export function get(key: string): string | undefined;
/**
 * All keys with their values, sorted by key, and of one moment: never half of an update.
 */
export function getAll(): Array<[string, string]>;
export type Error =
  | {
    /**
     * The file cannot be read; why, in words.
     */
    tag: 'io',
    val: string,
  }
  | {
    /**
     * The value is longer than 1 MiB, is no UTF-8, or there are more than 1,024 keys; which it is, in words.
     */
    tag: 'unfit',
    val: string,
  };
