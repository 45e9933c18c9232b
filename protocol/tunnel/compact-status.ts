/**
 * The shortest form of a pod's status that the hub has an earlier version of: ten bytes name the pod and the earlier
 * status, and the delta is compressed with what both ends know already.
 *
 * - The dictionary is ` pod=NAME_NAMESPACE(UID)`, as messages of a kubelet have it, the earlier status as packed JSON
 *   in CBOR, its keys sorted, and SAMPLE_DELTAS. Ids, times and texts that a delta repeats from the status then take
 *   two or three bytes, and so does the frame around what changed.
 * - The key is two bytes of SHA-256(UID), which spare the hub a search through all of the node's pods, and eight of
 *   SHA-256(dictionary). Ends with different dictionaries get different keys, never another status.
 * - The delta is that of `diffJson`, its keys sorted, as packed JSON in CBOR, in raw DEFLATE (RFC 1951) with the
 *   dictionary.
 */
import { canonicalJson } from "../pod/container-hash.ts";
import type { Sha256 } from "./digest.ts";
import { decodeCbor, encodeCbor } from "./encoding/cbor.ts";
import { diffJson } from "./encoding/json-delta.ts";
import { packJson, unpackJson } from "./encoding/wire-json.ts";

/** Nothing here may import `node:zlib`. */
export interface RawDeflate {
  deflate(bytes: Uint8Array, dictionary: Uint8Array): Uint8Array;
  /** @throws when it is none, or more than `maxBytes` */
  inflate(bytes: Uint8Array, dictionary: Uint8Array, maxBytes: number): Uint8Array;
}

type Json = Readonly<Record<string, unknown>>;

export interface PodIdentity {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

const utf8 = new TextEncoder();

export const COMPACT_TAG_BYTES = 2;
const HASH_BYTES = 8;
export const COMPACT_KEY_BYTES = COMPACT_TAG_BYTES + HASH_BYTES;
/**
 * A delta before it is compressed. What a usual change takes is a tenth of a KiB; larger ones go without compression.
 */
export const MAX_COMPACT_DELTA_BYTES = 16_384;
/**
 * Bounds the earlier status as JSON, and so the work that a few bytes can cause in a hub. A pod of ten containers takes
 * a tenth of it.
 */
export const MAX_COMPACT_BASE_CHARACTERS = 32_768;

const TIME = "2026-01-01T00:00:00Z";
const CONTAINER = "containerd://";
const change = (status: string, more: Json = {}): Json => ({ lastTransitionTime: TIME, ...more, status });
const UNREADY = change("False", { message: "containers with unready status: [app]", reason: "ContainersNotReady" });
const READY = change("True", { message: [], reason: [] });
const termination = (exitCode: number, reason: string): Json => ({
  containerID: CONTAINER,
  exitCode,
  finishedAt: TIME,
  reason,
  startedAt: TIME,
});
const ended = (exitCode: number, reason: string): Json => ({
  ready: false,
  started: false,
  state: { running: [], terminated: [termination(exitCode, reason)] },
});

const packed = (value: unknown): Uint8Array => encodeCbor(packJson(JSON.parse(canonicalJson(value))));

/**
 * How pods usually change; what comes last is the cheapest to refer to. Part of the subprotocol: a golden holds it, and
 * other samples are another element in the welcome.
 */
export const SAMPLE_DELTAS: Uint8Array = joined(
  [
    { conditions: [4, 0, { observedGeneration: 2 }, 1, { observedGeneration: 2 }], observedGeneration: 2 },
    {
      conditions: [4, 2, change("False", { reason: "PodCompleted" }), 3, change("False", { reason: "PodCompleted" })],
      containerStatuses: [1, 0, ended(0, "Completed")],
      phase: "Succeeded",
    },
    {
      conditions: [4, 2, UNREADY, 3, UNREADY],
      containerStatuses: [
        1,
        0,
        {
          lastState: { terminated: { containerID: CONTAINER, finishedAt: TIME, startedAt: TIME } },
          ready: false,
          started: false,
          state: {
            running: [],
            waiting: [{ message: "back-off 10s restarting failed container=app", reason: "CrashLoopBackOff" }],
          },
        },
      ],
    },
    {
      conditions: [4, 2, READY, 3, READY],
      containerStatuses: [
        1,
        0,
        {
          containerID: CONTAINER,
          lastState: { terminated: [termination(1, "Error")] },
          ready: true,
          restartCount: 1,
          started: true,
          state: { running: [{ startedAt: TIME }], terminated: [] },
        },
      ],
    },
    { conditions: [4, 2, UNREADY, 3, UNREADY], containerStatuses: [1, 0, ended(1, "Error")] },
    {
      conditions: [4, 0, change("True"), 2, READY, 3, READY],
      containerStatuses: [
        1,
        0,
        {
          containerID: CONTAINER,
          imageID: "sha256:",
          ready: true,
          resources: [{}],
          started: true,
          state: { running: [{ startedAt: TIME }], waiting: [] },
        },
      ],
      phase: "Running",
      podIP: "10.",
      podIPs: [[{ ip: "10." }]],
    },
    {
      conditions: [4, 2, change("False", { reason: "PodFailed" }), 3, change("False", { reason: "PodFailed" })],
      containerStatuses: [1, 0, ended(137, "Error")],
      phase: "Failed",
    },
    { conditions: [4, 0, change("False")] },
  ].map(packed),
);

/** The key and the dictionary of a compact status. */
export interface CompactBase {
  /** COMPACT_KEY_BYTES. */
  readonly key: Uint8Array;
  readonly dictionary: Uint8Array;
}

/** The first bytes of the key of every status of that pod. */
export const compactTag = (sha256: Sha256, uid: string): Uint8Array =>
  sha256(utf8.encode(uid)).subarray(0, COMPACT_TAG_BYTES);

export function compactBase(sha256: Sha256, { namespace, name, uid }: PodIdentity, status: Json): CompactBase {
  const whose = utf8.encode(` pod=${name}_${namespace}(${uid})`);
  const dictionary = joined([whose, packed(status), SAMPLE_DELTAS]);
  return { key: joined([compactTag(sha256, uid), sha256(dictionary).subarray(0, HASH_BYTES)]), dictionary };
}

/** @returns undefined for a change that is too large for this form */
export function packCompactDelta(
  deflate: RawDeflate["deflate"],
  { dictionary }: CompactBase,
  base: Json,
  next: Json,
): Uint8Array | undefined {
  const delta = packed(diffJson(base, next));
  return delta.length > MAX_COMPACT_DELTA_BYTES ? undefined : deflate(delta, dictionary);
}

/** @returns a delta for `applyDelta` @throws for what `packCompactDelta` does not make of that base */
export const unpackCompactDelta = (
  inflate: RawDeflate["inflate"],
  { dictionary }: CompactBase,
  bytes: Uint8Array,
): unknown => unpackJson(decodeCbor(inflate(bytes, dictionary, MAX_COMPACT_DELTA_BYTES)));

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let end = 0;
  for (const part of parts) {
    all.set(part, end);
    end += part.length;
  }
  return all;
}
