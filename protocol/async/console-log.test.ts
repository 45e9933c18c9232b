import assert from "node:assert/strict";
import { test } from "node:test";
import { ConsoleLog, type ConsoleLogInit } from "./console-log.ts";

function logInto(lines: string[], format: "text" | "json", level: ConsoleLogInit["level"] = "info"): ConsoleLog {
  return new ConsoleLog({ format, level, write: (line) => lines.push(line), now: () => new Date(0) });
}

test("a text entry is one line with its fields quoted where needed", () => {
  const lines: string[] = [];
  logInto(lines, "text")
    .child({ pod: "default/a" })
    .warn("pod failed", { error: new Error("two\nlines"), count: 3 });
  assert.deepEqual(lines, ['1970-01-01T00:00:00.000Z WARN  pod failed pod=default/a error="two\\nlines" count=3\n']);
});

test("a JSON entry can be parsed and keeps the fields of its child log", () => {
  const lines: string[] = [];
  logInto(lines, "json")
    .child({ pod: "default/a" })
    .error("pod failed", { error: new Error("why") });
  assert.deepEqual(JSON.parse(lines[0] ?? ""), {
    ts: "1970-01-01T00:00:00.000Z",
    level: "error",
    msg: "pod failed",
    pod: "default/a",
    error: "why",
  });
});

test("entries below the level are dropped and long fields are cut", () => {
  const lines: string[] = [];
  const log = logInto(lines, "text", "warn");
  log.info("not shown");
  log.warn("shown", { text: "x".repeat(5000) });
  assert.equal(lines.length, 1);
  assert.ok((lines[0] ?? "").length < 1200);
});
