/**
 * The annotations by which a pod grants its components interfaces of the board (`wit/board`), and says what they get of
 * them:
 *
 *   wasm.picolet.io/interfaces: config, keyvalue, logging
 *   wasm.picolet.io/keyvalue: settings=64Ki, samples=4Mi/10000     bucket=bytes, or bucket=bytes/keys
 *   wasm.picolet.io/config: settings                               a volume of the pod
 *   wasm.picolet.io/log-level: debug
 *
 * Pure.
 */
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import { BOARD_INTERFACES, type BoardInterface, type BucketGrant } from "@picolet/runtime-contract/board-services.ts";

/** In the order of their weight. */
export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "critical"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
export const DEFAULT_LOG_LEVEL: LogLevel = "info";

/** A pod of a board keeps a few kinds of things. */
const MAX_BUCKETS = 16;
/** All buckets of a board are in one file of 64 MiB. */
const MAX_BUCKET_BYTES = 32 * 1024 * 1024;
const MAX_BUCKET_KEYS = 100_000;
const DEFAULT_BUCKET_KEYS = 10_000;
const BUCKET = /^([A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)=([^/\s]+)(?:\/(\d{1,6}))?$/;
const VOLUME_NAME = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

export interface Parsed<T> {
  readonly value: T;
  readonly problems: readonly string[];
}

const listOf = (text: string): string[] =>
  text
    .split(",")
    .map((each) => each.trim())
    .filter((each) => each !== "");

export function parseInterfaces(text: string): Parsed<readonly BoardInterface[]> {
  const names = [...new Set(listOf(text))];
  const known = names.filter((each): each is BoardInterface => (BOARD_INTERFACES as readonly string[]).includes(each));
  const problems = names
    .filter((each) => !(known as string[]).includes(each))
    .map((each) => `there is no interface ${JSON.stringify(each)}; there are ${BOARD_INTERFACES.join(", ")}`);
  return { value: known, problems };
}

export function parseBuckets(text: string): Parsed<readonly BucketGrant[]> {
  const buckets = new Map<string, BucketGrant>();
  const problems: string[] = [];
  for (const entry of listOf(text)) {
    const bucket = bucketOf(entry);
    if (typeof bucket === "string") problems.push(bucket);
    else if (buckets.has(bucket.name)) problems.push(`the bucket ${bucket.name} is there twice`);
    else buckets.set(bucket.name, bucket);
  }
  if (buckets.size > MAX_BUCKETS) problems.push(`there are ${buckets.size} buckets, ${MAX_BUCKETS} are allowed`);
  return { value: [...buckets.values()], problems };
}

function bucketOf(entry: string): BucketGrant | string {
  const [, name, size = "", keys] = BUCKET.exec(entry) ?? [];
  if (name === undefined) {
    return `${JSON.stringify(entry)} is no bucket: name=bytes or name=bytes/keys, such as settings=64Ki/100`;
  }
  const parsed = parseQuantity(size);
  const maxBytes = parsed.ok ? quantityValue(parsed.quantity) : 0n;
  if (maxBytes < 1n || maxBytes > BigInt(MAX_BUCKET_BYTES)) {
    return `the bucket ${name} must hold 1 byte to ${MAX_BUCKET_BYTES / 1_048_576}Mi, not ${JSON.stringify(size)}`;
  }
  const maxKeys = keys === undefined ? DEFAULT_BUCKET_KEYS : Number(keys);
  if (maxKeys < 1 || maxKeys > MAX_BUCKET_KEYS) {
    return `the bucket ${name} must hold 1 to ${MAX_BUCKET_KEYS} keys, not ${maxKeys}`;
  }
  return { name, maxBytes: Number(maxBytes), maxKeys };
}

/** That the volume is there and mounted is seen when a container starts. */
export function parseConfigVolume(text: string): Parsed<string> {
  const value = text.trim();
  return { value, problems: VOLUME_NAME.test(value) ? [] : [`${JSON.stringify(text)} is no name of a volume`] };
}

export function parseLogLevel(text: string): Parsed<LogLevel> {
  const value = LOG_LEVELS.find((each) => each === text.trim());
  if (value !== undefined) return { value, problems: [] };
  const problems = [`${JSON.stringify(text)} is no level; there are ${LOG_LEVELS.join(", ")}`];
  return { value: DEFAULT_LOG_LEVEL, problems };
}
