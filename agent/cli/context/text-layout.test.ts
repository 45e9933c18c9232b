import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { age, formatShare, humanBytes, humanDuration, printableLine, renderTable, wrap } from "./text-layout.ts";

const SECOND = 1000;
const HOUR = 3600 * SECOND;
const DAY = 24 * HOUR;

test("durations are kubectl's", () => {
  for (const [ms, shown] of [
    [-5 * SECOND, "<invalid>"],
    [-1 * SECOND, "0s"],
    [0, "0s"],
    [119 * SECOND, "119s"],
    [120 * SECOND, "2m"],
    [125 * SECOND, "2m5s"],
    [10 * 60 * SECOND + SECOND, "10m"],
    [179 * 60 * SECOND, "179m"],
    [3 * HOUR, "3h"],
    [3 * HOUR + 60 * SECOND, "3h1m"],
    [47 * HOUR, "47h"],
    [2 * DAY, "2d"],
    [2 * DAY + HOUR, "2d1h"],
    [9 * DAY + HOUR, "9d"],
    [730 * DAY, "2y"],
    [740 * DAY, "2y10d"],
    [3000 * DAY, "8y"],
  ] as const) {
    assert.equal(humanDuration(ms), shown);
  }
  assert.equal(age(undefined, 0), "<unknown>");
  assert.equal(age("garbage", 0), "<unknown>");
  assert.equal(age("1970-01-01T00:00:00Z", 5000), "5s");
});

test("sizes have three digits at most", () => {
  assert.deepEqual([0, 999, 1000, 1536, 10 * 1024, 123_456_789, 5e15].map(humanBytes), [
    "0 B",
    "999 B",
    "1.0 KiB",
    "1.5 KiB",
    "10 KiB",
    "118 MiB",
    "4547 TiB",
  ]);
  assert.equal(formatShare(1 << 20, 64 << 20), "1.0 of 64 MiB");
  assert.equal(formatShare(1 << 10, 64 << 20), "1.0 KiB of 64 MiB");
});

test("text is made harmless", () => {
  assert.equal(
    printableLine("a\x1b[31mb\x07\u009b\nc\t d \u201ccaf\u00e9\u201d\u2026 \u{1f600}"),
    'a?[31mb?? c d "caf?"... ?',
  );
});

const words = fc.array(fc.oneof(fc.string({ maxLength: 12 }), fc.string({ minLength: 60, maxLength: 200 })));

test("wrapped text fits, is ASCII, and loses nothing", () => {
  fc.assert(
    fc.property(words, fc.integer({ min: 20, max: 100 }), fc.nat(15), fc.nat(15), (parts, width, indent, start) => {
      const text = parts.join(" ");
      const lines = wrap(text, width, indent, start).split("\n");
      for (const [index, line] of lines.entries()) {
        assert.ok(line.length <= width - (index === 0 ? start : 0), JSON.stringify(line));
        assert.match(line, /^[\x20-\x7e]*$/);
      }
      assert.equal(lines.join("").replaceAll(" ", ""), printableLine(text).replaceAll(" ", ""));
    }),
  );
});

test("tables fit with any content, and lose nothing", () => {
  const cell = fc.oneof(fc.stringMatching(/^[a-z0-9-]{1,20}$/), fc.stringMatching(/^[a-z0-9-]{60,250}$/));
  const rows = fc.array(fc.tuple(cell, fc.stringMatching(/^[a-z]{1,15}$/), fc.stringMatching(/^[a-z ]{0,100}$/)));
  fc.assert(
    fc.property(rows, fc.boolean(), (cells, textLast) => {
      const shown = textLast ? cells : cells.map(([name, state]) => [name, state]);
      const headers = textLast ? ["NAME", "STATE", "MESSAGE"] : ["NAME", "STATE"];
      const text = renderTable({
        headers,
        rows: shown,
        width: 80,
        withHeaders: true,
        textLast,
        nameColumns: textLast ? 0 : 1,
      });
      const joined = text.replace(/\s/g, "");
      for (const row of shown) assert.ok(joined.includes(row.join("").replaceAll(" ", "")));
      if (!textLast) for (const line of text.split("\n")) assert.ok(line.length <= 80, line);
    }),
  );
});

test("a name that does not fit has a line of its own and does not push the others apart", () => {
  const rows = [
    ["short", "1/1"],
    ["n".repeat(78), "0/1"],
  ];
  const init = { headers: ["NAME", "READY"], rows, withHeaders: true, nameColumns: 1 };
  assert.equal(renderTable({ ...init, width: 80 }), `NAME   READY\nshort  1/1\n${"n".repeat(78)}\n       0/1\n`);
  const long = renderTable({ ...init, width: undefined }).split("\n");
  assert.deepEqual(
    long.map((line) => line.length),
    [85, 83, 83, 0],
  );
});
