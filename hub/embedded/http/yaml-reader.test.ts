import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import fc from "fast-check";
import { parse, stringify } from "yaml";
import { budgetOf } from "../admission/quotas.ts";
import { StatusError } from "../api/status-error.ts";
import { YamlReader } from "./yaml-reader.ts";
import { readYaml } from "./yaml-text.ts";

const LARGE_TEXT = `a:\n${"# a comment\n".repeat(1000)}  b: [1, yes, 'x']\n`;
const LARGE = Buffer.from(LARGE_TEXT);
const READ = '{"a":{"b":[1,"yes","x"]}}';

const hasStatus = (code: number) => (error: unknown) => error instanceof StatusError && error.statusCode === code;

test("a large text is read in a thread, a small one at once, both to the same", async () => {
  const reader = new YamlReader(systemClock);
  assert.equal(await reader.toJson(LARGE, "a"), READ);
  assert.equal(await reader.toJson(Buffer.from(LARGE_TEXT.replaceAll("# a comment\n", "")), "a"), READ);
  await assert.rejects(
    reader.toJson(Buffer.from(`${LARGE_TEXT}  b: 2\n`), "a"),
    /error decoding YAML: Map keys must be unique: "b"/,
  );
});

test("a text that takes too long is given up, and the next one is read", async () => {
  let naps = 0;
  const first: Clock = {
    ...{ monotonic: () => systemClock.monotonic(), wall: () => systemClock.wall() },
    sleep: (duration, signal) => {
      naps += 1;
      return naps === 1 ? Promise.resolve() : systemClock.sleep(duration, signal);
    },
  };
  const reader = new YamlReader(first);
  await assert.rejects(reader.toJson(LARGE, "a"), hasStatus(413));
  assert.equal(await reader.toJson(LARGE, "a"), READ);
});

test("users take turns, and one may not have many texts waiting", async () => {
  const reader = new YamlReader(systemClock);
  const order: string[] = [];
  const read = (user: string, name: string): Promise<unknown> =>
    reader.toJson(LARGE, user).then(() => order.push(name));
  const all = ["a1", "a2", "a3"].map((name) => read("a", name));
  all.push(read("b", "b1"));
  const more = ["a4", "a5"].map((name) => read("a", name));
  await assert.rejects(reader.toJson(LARGE, "a"), hasStatus(429));
  await Promise.all([...all, ...more]);
  assert.deepEqual(order.slice(0, 3), ["a1", "a2", "b1"]);
});

test("service accounts of a namespace do not each have their own turns", async () => {
  const reader = new YamlReader(systemClock);
  const accounts = Array.from({ length: 9 }, (_, n) => `system:serviceaccount:shop:a${n}`);
  const two = Map.groupBy(accounts, budgetOf)
    .values()
    .find(({ length }) => length > 1);
  assert.ok(two !== undefined, "nine accounts have eight budgets");
  const all = Array.from({ length: 5 }, () => reader.toJson(LARGE, two[0] ?? ""));
  await assert.rejects(reader.toJson(LARGE, two[1] ?? ""), hasStatus(429));
  await Promise.all(all);
});

test("any text is read or refused", () => {
  const piece = fc.constantFrom(
    "a",
    ":",
    " ",
    "\n",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ",",
    '"',
    "'",
    "|",
    "#",
    "&a",
    "*a",
    "!t",
    "? ",
  );
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.string({ unit: piece, maxLength: 40 })), (text) => {
      const reading = readYaml(text);
      if ("json" in reading) JSON.parse(reading.json);
      else assert.equal(typeof reading.error, "string");
    }),
    { numRuns: 2000 },
  );
});

test("what was written as YAML is read as what it was", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (value) => {
      const text = stringify(value, { version: "1.1" });
      const reading = readYaml(text);
      const plain = JSON.stringify(parse(text, { version: "1.1", schema: "core" }));
      assert.deepEqual(reading, { json: plain });
    }),
  );
});
