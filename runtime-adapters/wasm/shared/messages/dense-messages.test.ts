import assert from "node:assert/strict";
import { test } from "node:test";
import { heldMemory } from "@picolet/test/support/unit/machine/held-memory.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { type DenseReport, LineReader, line, readReport } from "./dense-messages.ts";

const REPORTS: readonly DenseReport[] = [
  { kind: "hello", containers: [] },
  { kind: "hello", containers: ["a", "b"] },
  { kind: "started", id: "a" },
  { kind: "refused", id: "a", message: "no\nway", stale: true },
  { kind: "ended", id: "a" },
  { kind: "pong", number: 7 },
  { kind: "usage", containers: [{ id: "a", memoryBytes: 65_536, ranMs: 1.5 }] },
];

test("every report is read back from pieces of any size", () => {
  const bytes = Buffer.from(REPORTS.map(line).join(""));
  for (let size = 1; size < bytes.length; size += 1) {
    const reader = new LineReader(1000);
    const read: (DenseReport | undefined)[] = [];
    for (let at = 0; at < bytes.length; at += size) {
      read.push(...reader.push(bytes.subarray(at, at + size)).map(readReport));
    }
    assert.deepEqual(read, REPORTS);
  }
});

test("the length of a line is bounded, in one piece or in many", () => {
  const reader = new LineReader(10);
  assert.deepEqual(reader.push(Buffer.from("0123456789\n01234")), ["0123456789"]);
  assert.throws(() => reader.push(Buffer.from("567890")), RangeError);
  assert.throws(() => new LineReader(10).push(Buffer.from("01234567890\n")), RangeError);
});

test("a line that arrives byte by byte takes little more than its bytes", () => {
  const reader = new LineReader(200_000);
  const before = heldMemory();
  for (let count = 0; count < 100_000; count += 1) reader.push(Buffer.from(Uint8Array.of(120).buffer));
  const { heap, buffers } = heldMemory();
  assert.ok(heap - before.heap + buffers - before.buffers < 1_000_000);
  assert.deepEqual(
    reader.push(Buffer.from("\n")).map((each) => each.length),
    [100_000],
  );
});

test("any other text is no report, and never an exception", () => {
  const wrong = [
    ...["", "null", "7", "[]", "{}", '"hello"', '{"kind":"hello"}', '{"kind":"hello","containers":[1]}'],
    ...['{"kind":"started"}', '{"kind":"started","id":7}', '{"kind":"refused","id":"a","message":"m"}'],
    ...['{"kind":"pong","number":-1}', '{"kind":"pong","number":"1"}', '{"kind":"usage","containers":[null]}'],
    ...['{"kind":"usage","containers":[{"id":"a","memoryBytes":1}]}', '{"kind":"stop","id":"a"}'],
  ];
  for (const text of wrong) assert.equal(readReport(text), undefined, text);
  const random = seededRandom(20_261_122);
  const valid = REPORTS.map((each) => JSON.stringify(each));
  let understood = 0;
  for (let turn = 0; turn < 20_000; turn += 1) {
    const text = [...(valid[Math.floor(random.next() * valid.length)] ?? "")];
    for (let change = 0; change < 1; change += 1) {
      text[Math.floor(random.next() * text.length)] = String.fromCharCode(32 + Math.floor(random.next() * 95));
    }
    const report = readReport(text.join(""));
    if (report !== undefined) understood += 1;
    assert.ok(report === undefined || REPORTS.some(({ kind }) => kind === report.kind));
  }
  assert.ok(understood > 0 && understood < 20_000, `${understood} made sense`);
});
