import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { nextStamp, parseLogName } from "./log-names.ts";

test("a container's log files by their names", () => {
  assert.deepEqual(parseLogName("0.log"), { attempt: 0, kind: "current", stamp: "" });
  assert.deepEqual(parseLogName("12.log.20261120-114322"), { attempt: 12, kind: "rotated", stamp: "20261120-114322" });
  assert.deepEqual(parseLogName("1.log.20261120-114322.gz"), {
    attempt: 1,
    kind: "compressed",
    stamp: "20261120-114322",
  });
  assert.deepEqual(parseLogName("1.log.20261120-114322.gz.tmp"), {
    attempt: 1,
    kind: "leftover",
    stamp: "20261120-114322",
  });
  assert.deepEqual(parseLogName("1.log.20261120-114322.tmp"), {
    attempt: 1,
    kind: "leftover",
    stamp: "20261120-114322",
  });
  for (const name of ["log", "0.log.gz", "0.log.", "0.log.x", "a.log", "-1.log", "0.log.20261120-114322.gz.x", ""])
    assert.equal(parseLogName(name), undefined, name);
});

test("a stamp is of its time, and later than those in use even if the clock goes back", () => {
  const now = new Date("2026-11-20T11:43:22.999Z");
  assert.equal(nextStamp(now, []), "20261120-114322");
  assert.equal(nextStamp(now, ["20261120-114321"]), "20261120-114322");
  assert.equal(nextStamp(now, ["20261120-114322", "20200101-000000"]), "20261120-114323");
  assert.equal(nextStamp(new Date(0), ["20261231-235959"]), "20270101-000000");
  const time = fc.integer({ min: 0, max: 4_000_000_000_000 });
  fc.assert(
    fc.property(fc.array(time, { maxLength: 20 }), (times) => {
      const used: string[] = [];
      for (const each of times) used.push(nextStamp(new Date(each), used));
      assert.deepEqual(used, [...new Set(used)].sort());
      for (const stamp of used) assert.equal(parseLogName(`0.log.${stamp}`)?.stamp, stamp);
    }),
  );
});

test("no name makes the parser fail", () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom("0", "1", ".", "log", "-", "gz", "tmp", "\n") }), (name) => {
      const parsed = parseLogName(name);
      assert.ok(parsed === undefined || Number.isSafeInteger(parsed.attempt));
    }),
  );
});
