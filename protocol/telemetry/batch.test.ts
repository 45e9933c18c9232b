import assert from "node:assert/strict";
import { test } from "node:test";
import {
  anyRecord,
  event,
  point,
  SAMPLE_ORIGIN,
  SAMPLE_RECORDS,
} from "@picolet/test/support/unit/tunnel/telemetry-samples.ts";
import fc from "fast-check";
import { isPicoletError } from "../errors.ts";
import { encodeCbor } from "../tunnel/encoding/cbor.ts";
import { decodeBatch, encodeBatch, MAX_BATCH_BYTES } from "./batch.ts";
import {
  MAX_NAME_BYTES,
  MAX_TAGS,
  MAX_TEXT_BYTES,
  recordProblem,
  recordSize,
  type TelemetryRecord,
} from "./records.ts";

test("all records of a component survive encoding, with their offsets", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(anyRecord, fc.nat({ max: 10_000_000 })), { maxLength: 30 }), (list) => {
      const records = list.map(([record, offset]) => ({ record, stampUs: 5_000_000 + offset }));
      for (const { record } of records) assert.equal(recordProblem(record), undefined);
      const back = decodeBatch(encodeBatch(SAMPLE_ORIGIN, records, 5_000_000));
      assert.deepEqual(back.origin, SAMPLE_ORIGIN);
      assert.deepEqual(
        back.records,
        records.map(({ record, stampUs }) => ({ record, stampUs: stampUs - 5_000_000 })),
      );
    }),
    { numRuns: 300 },
  );
});

test("bytes that are cut off, flipped or anything at all are refused, or are a batch whose records are right", () => {
  const whole = encodeBatch(SAMPLE_ORIGIN, SAMPLE_RECORDS, 1_000_000);
  const flipped = fc.tuple(fc.nat({ max: whole.length - 1 }), fc.integer({ min: 1, max: 255 })).map(([at, mask]) => {
    const bytes = Uint8Array.from(whole);
    bytes[at] = (bytes[at] ?? 0) ^ mask;
    return bytes;
  });
  const cut = fc.nat({ max: whole.length - 1 }).map((length) => whole.slice(0, length));
  fc.assert(
    fc.property(fc.oneof(flipped, cut, fc.uint8Array({ maxLength: 200 })), (bytes) => {
      try {
        for (const { record } of decodeBatch(bytes).records) assert.equal(recordProblem(record), undefined);
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"), String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

test("a batch above its limit is refused before it is decoded", () => {
  const bytes = encodeCbor(new Uint8Array(MAX_BATCH_BYTES));
  assert.throws(() => decodeBatch(bytes), /more than 65536 bytes/);
});

const wrong: readonly [problem: RegExp, record: TelemetryRecord][] = [
  [/measurement/, point("", 1)],
  [/measurement/, point("é".repeat(MAX_NAME_BYTES / 2 + 1), 1)],
  [/measurement/, point("two\nlines", 1)],
  [/finite/, point("x", Number.NaN)],
  [/finite/, point("x", Number.NEGATIVE_INFINITY)],
  [/64 bits/, point("x", 2n ** 63n)],
  [/longer than 4096/, point("x", "v".repeat(MAX_TEXT_BYTES + 1))],
  [/no text/, point("x", "\ud800")],
  [/time/, { ...point("x", 1), timeNs: -1n }],
  [/time/, { ...point("x", 1), timeNs: 2n ** 64n - 1n }],
  [/0 fields/, { ...point("x", 1), fields: [] }],
  [
    /field a is given twice/,
    {
      ...point("x", 1),
      fields: [
        ["a", 1],
        ["a", 2],
      ],
    },
  ],
  [
    /tag a is given twice/,
    {
      ...point("x", 1),
      tags: [
        ["a", "1"],
        ["a", "2"],
      ],
    },
  ],
  [/tag a is not/, { ...point("x", 1), tags: [["a", ""]] }],
  [/more than 16 tags/, { ...point("x", 1), tags: Array.from({ length: MAX_TAGS + 1 }, (_, n) => [`${n}`, "1"]) }],
  [/its message/, event("x", "m".repeat(MAX_TEXT_BYTES + 1))],
  [/its name/, event("", "m")],
];
for (const [problem, record] of wrong) {
  test(`a record is refused: ${problem.source}, ${record.kind}`, () => {
    assert.match(recordProblem(record) ?? "", problem);
  });
}

test("a record is never larger in a batch than it was counted", () => {
  fc.assert(
    fc.property(anyRecord, (record) => {
      const [none, one] = [[], [{ record, stampUs: 2 ** 40 }]].map(
        (each) => encodeBatch(SAMPLE_ORIGIN, each, 0).length,
      );
      assert.ok((one ?? 0) - (none ?? 0) <= recordSize(record), `${one} - ${none} > ${recordSize(record)}`);
    }),
  );
});
