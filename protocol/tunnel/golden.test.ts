/**
 * The tunnel's wire format, byte for byte: test/golden/tunnel. A hub and an agent of different releases meet on these,
 * so the goldens of a released subprotocol do not change. Before that: UPDATE_GOLDEN=1, and read the difference.
 */
import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { SAMPLE_ORIGIN, SAMPLE_RECORDS } from "@picolet/test/support/unit/tunnel/telemetry-samples.ts";
import { SAMPLE_FRAMES, SAMPLE_MESSAGES, SAMPLE_STATUS } from "@picolet/test/support/unit/tunnel/tunnel-samples.ts";
import { usageSample } from "@picolet/test/support/unit/tunnel/usage-samples.ts";
import { decodeBatch, encodeBatch } from "../telemetry/batch.ts";
import { SampleDecoder, SampleEncoder } from "../telemetry/sample-codec.ts";
import {
  decodeDelivery,
  encodeDelivery,
  encodeTelemetryAck,
  LengthPrefixedReader,
} from "../telemetry/stream-messages.ts";
import { compactBase, packCompactDelta, SAMPLE_DELTAS, unpackCompactDelta } from "./compact-status.ts";
import { digestOf, mirrorsDigest, objectHash, statusHash } from "./digest.ts";
import { decodeCbor, encodeCbor } from "./encoding/cbor.ts";
import { fromHex, toHex } from "./encoding/hex.ts";
import { applyDelta, diffJson } from "./encoding/json-delta.ts";
import { KUBERNETES_WORDS } from "./encoding/word-table.ts";
import { decodeFrame, encodeFrame, encodeMessageFrame } from "./frames.ts";
import { packMessage, unpackMessage } from "./message-codec.ts";
import { LANE_OF, type TunnelMessage } from "./messages.ts";

const FOLDER = new URL("../../test/golden/tunnel/", import.meta.url);
const sha256 = (bytes: Uint8Array): Uint8Array => hash("sha256", bytes, "buffer");

interface Golden {
  readonly name: string;
  readonly hex: string;
  /** Byte strings as `{"bytes": hex}`. */
  readonly decoded: unknown;
}

const shown = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (_, each: unknown) => (each instanceof Uint8Array ? { bytes: toHex(each) } : each)));

const meant = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value), (_, each: unknown) => {
    const isBytes = typeof each === "object" && each !== null && Object.keys(each).join() === "bytes";
    const bytes = isBytes ? (each as { bytes: unknown }).bytes : undefined;
    return typeof bytes === "string" ? fromHex(bytes) : each;
  });

function golden<T>(name: string, made: T): T {
  const file = new URL(`${name}.json`, FOLDER);
  if (process.env.UPDATE_GOLDEN === "1") writeFileSync(file, `${JSON.stringify(made, undefined, 2)}\n`);
  return JSON.parse(readFileSync(file, "utf8")) as T;
}

const messageFrame = (message: TunnelMessage): Uint8Array => encodeMessageFrame(encodeCbor(packMessage(message)));

const messages = golden(
  "messages",
  Object.entries(SAMPLE_MESSAGES).map(
    ([name, message]): Golden => ({ name, hex: toHex(messageFrame(message)), decoded: shown(message) }),
  ),
);
for (const { name, hex, decoded } of messages) {
  test(`message on the wire: ${name}`, () => {
    const frame = decodeFrame(fromHex(hex));
    assert.ok(frame.type === "message");
    assert.deepEqual(unpackMessage(frame.message), meant(decoded));
    assert.equal(toHex(messageFrame(meant(decoded) as TunnelMessage)), hex);
  });
}

test("every kind of message has a golden", () => {
  const kinds = new Set(messages.map(({ decoded }) => (decoded as TunnelMessage).kind));
  assert.deepEqual([...kinds].toSorted(), Object.keys(LANE_OF).toSorted());
});

const frames = golden(
  "frames",
  Object.entries(SAMPLE_FRAMES).map(
    ([name, frame]): Golden => ({ name, hex: toHex(encodeFrame(frame)), decoded: shown(frame) }),
  ),
);
for (const { name, hex, decoded } of frames) {
  test(`frame on the wire: ${name}`, () => {
    assert.deepEqual(shown(decodeFrame(fromHex(hex))), decoded);
    assert.equal(toHex(encodeFrame(meant(decoded) as Parameters<typeof encodeFrame>[0])), hex);
  });
}

test("telemetry stays what it is, in the stream and in its batches", () => {
  const batch = Uint8Array.from(encodeBatch(SAMPLE_ORIGIN, SAMPLE_RECORDS, 1_000_000));
  const delivery = { sequence: 2 ** 26 + 1, baseUs: 1_769_860_800_000_000, isEstimated: true, batch };
  const made = {
    batch: toHex(batch),
    delivery: toHex(encodeDelivery(delivery)),
    ack: toHex(encodeTelemetryAck(2 ** 26 + 1)),
  };
  const kept = golden("telemetry", made);
  assert.deepEqual(made, kept);
  const [message = new Uint8Array()] = new LengthPrefixedReader().push(fromHex(kept.delivery));
  assert.deepEqual(decodeDelivery(message), delivery);
  const read = decodeBatch(fromHex(kept.batch));
  assert.deepEqual(read.origin, SAMPLE_ORIGIN);
  const relative = SAMPLE_RECORDS.map(({ record, stampUs }) => ({ record, stampUs: stampUs - 1_000_000 }));
  assert.deepEqual(read.records, relative);
});

test("samples of usage stay what they are", () => {
  const encoder = new SampleEncoder();
  const samples = [usageSample(2, 1), usageSample(2, 2)];
  const made = samples.map((sample, index) => toHex(encoder.encode(index + 1, sample)));
  const kept = golden("samples", made);
  assert.deepEqual(made, kept);
  const decoder = new SampleDecoder();
  const messages = new LengthPrefixedReader().push(fromHex(kept.join("")));
  assert.deepEqual(
    messages.map((message) => decoder.decode(message).sample),
    samples,
  );
});

test("the words keep their numbers", () => {
  const words = golden("words", KUBERNETES_WORDS);
  assert.deepEqual(KUBERNETES_WORDS, words);
  assert.equal(new Set(words).size, words.length);
  assert.ok(words.length <= 256);
});

const next = { ...SAMPLE_STATUS, phase: "Failed", podIPs: [], containerStatuses: undefined, reason: "Evicted" };

test("a delta stays what it is", () => {
  const made = [{ base: SAMPLE_STATUS, next, delta: diffJson(SAMPLE_STATUS, next) }];
  for (const { base, next: wanted, delta } of golden("deltas", shown(made) as typeof made)) {
    assert.deepEqual(shown(diffJson(base, wanted)), delta);
    assert.deepEqual(applyDelta(base, delta), wanted);
  }
});

test("hashes and digests stay what they are", () => {
  const object = { b: [1, null, "é"], a: { __proto__: null, x: undefined, y: true } };
  const entries = ["Pod/default/a", "Secret/default/b"].map((key) => ({ key, hash: objectHash(sha256, { key }) }));
  const items = [
    { namespace: "default", name: "a", uid: "1" },
    { namespace: "default", name: "b", uid: "2" },
  ];
  const made = {
    object: toHex(objectHash(sha256, object)),
    status: toHex(statusHash(sha256, SAMPLE_STATUS)),
    set: toHex(digestOf(sha256, entries)),
    mirrors: toHex(mirrorsDigest(sha256, items)),
  };
  assert.deepEqual(made, golden("digests", made));
  assert.equal(toHex(digestOf(sha256, entries.toReversed())), made.set);
});

const ended = {
  ...SAMPLE_STATUS,
  phase: "Failed",
  containerStatuses: SAMPLE_STATUS.containerStatuses.map((each) => ({ ...each, started: false, ready: false })),
};

test("a compact status stays what it is", () => {
  const pod = { namespace: "default", name: "web", uid: "0b5a7b3e-1f52-4d0e-9d55-d8f0a3c7e111" };
  const base = compactBase(sha256, pod, SAMPLE_STATUS);
  const delta = packCompactDelta(
    (bytes, dictionary) => deflateRawSync(bytes, { dictionary }),
    base,
    SAMPLE_STATUS,
    ended,
  );
  assert.ok(delta);
  const made = { samples: toHex(SAMPLE_DELTAS), dictionary: toHex(base.dictionary), key: toHex(base.key) };
  const { delta: kept, ...rest } = golden("compact", { ...made, delta: toHex(delta) });
  assert.deepEqual(made, rest);
  // A later zlib may deflate better; inflating must read what an older one sent.
  const inflate = (bytes: Uint8Array, dictionary: Uint8Array): Uint8Array => inflateRawSync(bytes, { dictionary });
  for (const bytes of [delta, fromHex(kept)]) {
    assert.deepEqual(applyDelta(SAMPLE_STATUS, unpackCompactDelta(inflate, base, bytes)), ended);
  }
});

test("a change of a pod's status costs at most 250 bytes on the wire, with its ack", () => {
  const bytesOf = (name: string): number => messageFrame(SAMPLE_MESSAGES[name] as TunnelMessage).length;
  // TLS 1.3: 5 of the record's head, 1 of its type, 16 of its tag. WebSocket: 2 of its head, 2 more from 126 bytes on,
  // 4 of the mask.
  const sent = (payload: number, mask: number): number => payload + (payload > 125 ? 4 : 2) + mask + 22;
  const change = sent(bytesOf("statuses, a container that failed"), 4);
  const ack = sent(bytesOf("statusesAck"), 0);
  assert.ok(change + ack <= 250, `${change} + ${ack} bytes`);
});

test("hello and welcome together are at most 110 bytes", () => {
  const bytes = ["hello", "welcome"].map((name) => messageFrame(SAMPLE_MESSAGES[name] as TunnelMessage).length);
  assert.ok(bytes.reduce((sum, each) => sum + each) <= 110, bytes.join(" + "));
});

test("elements that a newer peer adds at the end of an array are skipped", () => {
  for (const message of Object.values(SAMPLE_MESSAGES)) {
    // A newer peer would not leave out the last field of these.
    if (["statusesAck", "nodeAck"].includes(message.kind)) continue;
    if (message.kind === "welcome" && message.samplesEverySeconds === undefined) continue;
    if (message.kind === "statuses" && message.compact === undefined) continue;
    if (message.kind === "events" && message.ackMayWait === undefined) continue;
    const packed = decodeCbor(encodeCbor([...packMessage(message), "something new", 1]));
    assert.deepEqual(shown(unpackMessage(packed)), shown(message));
  }
});
