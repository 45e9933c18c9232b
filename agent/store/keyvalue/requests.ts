/** Reads the requests of runners, which may send anything. Pure. */
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { type Plain, type ServiceMessage, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";

/** As `wit/board/keyvalue.wit` says. */
const MAX_KEY_BYTES = 1024;
const MAX_VALUE_BYTES = MEBIBYTE;
const MAX_KEYS = 1024;
const MAX_NAME_LENGTH = 1024;

type Fields = Readonly<Record<string, Plain | undefined>>;

export function fieldsOf({ value }: ServiceMessage): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

/** @throws ServiceRefusal `no-such-bucket` */
export function bucketName({ bucket }: Fields): string {
  if (typeof bucket === "string" && bucket.length <= MAX_NAME_LENGTH) return bucket;
  throw new ServiceRefusal("no-such-bucket");
}

/** @throws ServiceRefusal `bad-key`; half of a surrogate pair is no text that could be stored */
export function keyOf(key: Plain | undefined): string {
  if (typeof key === "string" && key !== "" && key.isWellFormed() && !key.includes("\0")) {
    if (Buffer.byteLength(key) <= MAX_KEY_BYTES) return key;
  }
  throw new ServiceRefusal("bad-key");
}

/** @throws ServiceRefusal `bad-key`, `too-large` */
export function keysOf({ keys }: Fields): string[] {
  if (!Array.isArray(keys)) throw new ServiceRefusal("bad-key");
  if (keys.length > MAX_KEYS) throw new ServiceRefusal("too-large");
  return keys.map(keyOf);
}

/** @throws ServiceRefusal `too-large`, also for one that is missing */
export function valueAt({ bytes }: ServiceMessage, index = 0): Uint8Array {
  const value = bytes[index];
  if (value !== undefined && value.length <= MAX_VALUE_BYTES) return value;
  throw new ServiceRefusal("too-large");
}

/** @throws ServiceRefusal `too-large` for more than goes into one answer, or one call */
export function checkTogether(values: readonly (Uint8Array | undefined)[]): void {
  const total = values.reduce((sum, value) => sum + (value?.length ?? 0), 0);
  if (total > MAX_VALUE_BYTES) throw new ServiceRefusal("too-large");
}

/** @returns the number of a decimal text. @throws ServiceRefusal `not-a-number` */
export function deltaOf({ delta }: Fields): bigint {
  if (typeof delta === "string" && /^-?\d{1,20}$/.test(delta)) return BigInt(delta);
  throw new ServiceRefusal("not-a-number");
}

/** Accepts a made-up cursor too, because it is only a place in the list. */
export function cursorOf({ cursor }: Fields): number {
  const place = typeof cursor === "string" && /^\d{1,15}$/.test(cursor) ? Number(cursor) : 0;
  return Number.isSafeInteger(place) ? place : 0;
}

/** The state of a key as text, which runners keep for a later compare-and-set. */
export const stateText = (state: Buffer | undefined): string | null => state?.toString("base64") ?? null;

/** @returns undefined when there was no such key; a made-up state matches no value */
export const stateOf = ({ state }: Fields): Buffer | undefined =>
  state === null ? undefined : Buffer.from(typeof state === "string" ? state : "", "base64");
