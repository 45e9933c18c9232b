/** Grant of picolet:board/keyvalue: `wasm.picolet.io/keyvalue: settings=64Ki, samples=4Mi/10000` names buckets. */
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { BucketGrant } from "@picolet/runtime-contract/board-services.ts";
import { type InterfaceGrant, listOf, methods, type Parsed } from "../../grants/syntax/interface-grant.ts";

/** Bounds the buckets of one pod. Pods of boards store a few kinds of values. */
const MAX_BUCKETS = 16;
/** All buckets of a board share one file of 64 MiB; one bucket may take half of it. */
const MAX_BUCKET_BYTES = 32 * 1024 * 1024;
const MAX_BUCKET_KEYS = 100_000;
const DEFAULT_BUCKET_KEYS = 10_000;
/** `BUCKET=BYTES` or `BUCKET=BYTES/KEYS` */
const BUCKET = /^([A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)=([^/\s]+)(?:\/(\d{1,6}))?$/;

const ONE = ["get", "set", "delete", "exists", "list-keys"];
const MANY = ["get-many", "set-many", "delete-many"];
/** The two drafts whose shapes the host part knows. */
const DRAFTS = /^0\.2\.0-draft2?$/;

export const keyvalueGrant: InterfaceGrant = {
  asksAgent: true,
  proposals: { "wasi:keyvalue/store": DRAFTS, "wasi:keyvalue/atomics": DRAFTS, "wasi:keyvalue/batch": DRAFTS },
  annotations: { keyvalue: (value) => parseBuckets(value).problems },
  waiting: {
    "picolet:board/keyvalue": ["open", ...methods("bucket", [...ONE, "increment", "swap", ...MANY])],
    "wasi:keyvalue/store": ["open", ...methods("bucket", ONE)],
    "wasi:keyvalue/batch": MANY,
    "wasi:keyvalue/atomics": ["increment", "swap", "[static]cas.new", ...methods("cas", ["current"])],
  },
};

export function parseBuckets(text: string): Parsed<readonly BucketGrant[]> {
  const buckets = new Map<string, BucketGrant>();
  const problems: string[] = [];
  for (const entry of listOf(text)) {
    const bucket = bucketOf(entry);
    if (typeof bucket === "string") problems.push(bucket);
    else if (buckets.has(bucket.name)) problems.push(`the bucket ${bucket.name} is named twice`);
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
