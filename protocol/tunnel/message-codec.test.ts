import assert from "node:assert/strict";
import { test } from "node:test";
import { SAMPLE_MESSAGES } from "@picolet/test/support/unit/tunnel/tunnel-samples.ts";
import fc from "fast-check";
import { isPicoletError } from "../errors.ts";
import { MAX_REPORT_LENGTH } from "../updates/node-updates.ts";
import { desiredPieces } from "./desired-pieces.ts";
import { decodeCbor, encodeCbor } from "./encoding/cbor.ts";
import { packJson, unpackJson } from "./encoding/wire-json.ts";
import {
  MAX_DESIRED_BYTES,
  MAX_INVENTORY_ITEMS,
  MAX_STATUS_ITEMS,
  packMessage,
  parseNodeReport,
  unpackMessage,
} from "./message-codec.ts";
import type { RemoteObject, TunnelMessage } from "./messages.ts";

const throughWire = (value: unknown): unknown => decodeCbor(encodeCbor(value));

/** Texts that have short forms on the wire, and their neighbours that have none. */
const text = fc.oneof(
  fc.string({ unit: "binary" }).filter((each) => each.isWellFormed()),
  fc.constantFrom(
    "True",
    "Running",
    "__proto__",
    "2026-01-31T12:00:00Z",
    "2026-02-30T12:00:00Z",
    "1969-12-31T23:59:59Z",
  ),
  fc.uuid(),
  fc.uuid().map((each) => each.toUpperCase()),
  fc
    .tuple(
      fc.constantFrom("", "containerd://", "x", "é", "a/b@sha256:", "Z".repeat(600)),
      fc.stringMatching(/^[0-9a-f]{64}$/),
    )
    .map((parts) => parts.join("")),
);
const json = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    text,
    fc.constantFrom(null, true, false, 0, -1, 23, 24, 255, 65_536, 2 ** 32, 2 ** 53 - 1, 1.5, -1e300),
    fc.array(tie("value"), { maxLength: 5 }),
    fc.dictionary(text, tie("value"), { maxKeys: 5 }),
  ),
})).value;

test("JSON comes back as it was, prototypes untouched", () => {
  fc.assert(
    fc.property(json, (value) => {
      const back = unpackJson(throughWire(packJson(value)));
      assert.equal(JSON.stringify(back), JSON.stringify(value));
    }),
    { numRuns: 500 },
  );
});

test("a text that comes again costs three bytes", () => {
  const value = Array.from({ length: 100 }, () => "containers with unready status: [app]");
  const bytes = encodeCbor(packJson(value));
  assert.ok(bytes.length < 39 + 100 * 3 + 3, String(bytes.length));
  assert.deepEqual(unpackJson(decodeCbor(bytes)), value);
});

test("more texts than can be numbered are sent as they are", () => {
  const value = Array.from({ length: 70_000 }, (_, index) => `text ${index}`);
  assert.deepEqual(unpackJson(throughWire(packJson([...value, ...value]))), [...value, ...value]);
});

test("a few bytes do not become gigabytes of text", () => {
  const bomb = ["x".repeat(256), ...Array.from({ length: 30_000 }, () => Uint8Array.of(0, 0))];
  assert.throws(
    () => unpackJson(throughWire(bomb)),
    (error) => isPicoletError(error, "invalid") && /more than 4194304 characters/.test(error.message),
  );
});

const json16 = (byte: number): Uint8Array => new Uint8Array(16).fill(byte);

const WRONG: readonly (readonly [name: string, packed: unknown, problem: RegExp])[] = [
  ["no array", 5, /kind undefined is unknown/],
  ["an unknown kind", [99], /kind 99 is unknown/],
  ["a kind that is a text", ["hello"], /is unknown/],
  ["a hello without fields", [0], /hello: agentVersion/],
  ["a digest of 15 bytes", [0, "v", new Uint8Array(), 0, new Uint8Array(15)], /cursor\.digest: is not 16 bytes/],
  ["a negative revision", [4, -1], /desiredAck: revision: is negative/],
  ["half a revision", [4, 0.5], /desiredAck: revision: is not a whole number/],
  ["an unknown mode", [1, "v", new Uint8Array(8), 1, 1, 7, true, true], /welcome: desired/],
  [
    "a fleet that is no id",
    [1, "v", new Uint8Array(8), 1, 1, 0, true, true, false, "\u001b[2J", []],
    /welcome: fleet: is no id/,
  ],
  [
    "too many former fleets",
    [1, "v", new Uint8Array(8), 1, 1, 0, true, true, false, "f", Array.from({ length: 17 }, () => "g")],
    /welcome: formerFleets/,
  ],
  ["half an inventory item", [2, ["Pod/a/b"], true], /inventory\.items: hash: is not 16 bytes/],
  ["a long inventory", [2, Array.from({ length: 2 * MAX_INVENTORY_ITEMS + 1 }, () => 0), true], /more than 512/],
  ["a last piece without a digest", [3, 1, true, new Uint8Array(), [], []], /desired: digest: is not 16 bytes/],
  ["an object that is a list", [3, 1, true, json16(1), [], ["k", json16(1), []]], /object: is no object/],
  ["too many statuses", [6, 1, Array.from({ length: MAX_STATUS_ITEMS + 1 }, () => [])], /more than 64/],
  ["a namespace that is a path", [6, 1, [["../x", "web", "u", 0, new Map()]]], /items\[0\]: namespace: is no name/],
  ["an empty uid", [6, 1, [["default", "web", "", 0, new Map()]]], /items\[0\]: uid: is empty/],
  ["an unknown form of a status", [6, 1, [["default", "web", "u", 9]]], /items\[0\]: body/],
  [
    "an unknown word",
    [6, 1, [["default", "web", Uint8Array.of(255), 0]]],
    /items\[0\]: uid: .*word 255|items\[0\]: uid/,
  ],
  ["a repeat of nothing", [6, 1, [["default", "web", "u", 0, new Map([[1, Uint8Array.of(0, 0)]])]]], /status/],
  [
    "a report without labels",
    [10, new Uint8Array(8), 0, new Map([["register", true]])],
    /node report: register|labels/,
  ],
  ["a long reason", [13, 1, "x".repeat(1025)], /drain: reason: is longer than 1024/],
];
for (const [name, packed, problem] of WRONG) {
  test(`a wrong message is refused by the name of its field: ${name}`, () => {
    assert.throws(
      () => unpackMessage(throughWire(packed)),
      (error) => isPicoletError(error, "invalid") && problem.test(error.message),
    );
  });
}

test("nothing that was read points into the frame it came in", () => {
  for (const message of Object.values(SAMPLE_MESSAGES)) {
    const frame = Uint8Array.from(encodeCbor(packMessage(message)));
    const read = unpackMessage(decodeCbor(frame));
    const before = structuredClone(read);
    frame.fill(0xee);
    assert.deepEqual(read, before);
  }
});

test("a report is judged as a whole, also when a delta made it", () => {
  const report = { register: true, labels: {}, taints: [], providerID: "", status: {} };
  assert.deepEqual(parseNodeReport({ ...report, other: 1 }), report);
  assert.deepEqual(parseNodeReport({ ...report, updates: "{}" }), { ...report, updates: "{}" });
  for (const wrong of [
    { register: 1 },
    { labels: { a: 1 } },
    { taints: [{ key: "a" }] },
    { providerID: null },
    { status: [] },
    { updates: {} },
    { updates: "x".repeat(MAX_REPORT_LENGTH + 1) },
  ]) {
    assert.throws(() => parseNodeReport({ ...report, ...wrong }), /cannot read node report/);
  }
});

test("pieces hold everything once, in order, and the last has the digest", () => {
  const size = fc.integer({ min: 0, max: 40_000 });
  fc.assert(
    fc.property(fc.array(size, { maxLength: 30 }), fc.array(fc.string(), { maxLength: 2000 }), (sizes, deletes) => {
      const upserts = sizes.map((length, index): RemoteObject => {
        return { key: `Secret/a/${index}`, hash: json16(index), object: { data: "x".repeat(length) } };
      });
      const pieces = [...desiredPieces({ revision: 3, upserts, deletes, digest: json16(9) })];
      assert.deepEqual(
        pieces.flatMap((piece) => piece.upserts),
        upserts,
      );
      assert.deepEqual(
        pieces.flatMap((piece) => piece.deletes),
        deletes,
      );
      for (const [index, piece] of pieces.entries()) {
        assert.equal(piece.last, index === pieces.length - 1);
        const bytes = encodeCbor(packMessage(piece as TunnelMessage));
        assert.ok(bytes.length <= MAX_DESIRED_BYTES || piece.upserts.length === 1, String(bytes.length));
        unpackMessage(decodeCbor(bytes));
      }
    }),
    { numRuns: 50, examples: [[[35_169, 30_277], []]] },
  );
});
