import assert from "node:assert/strict";
import { mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { makeTerminationLog, readLogTail, readTerminationLog } from "./termination-message.ts";

test("each run has a file of its own that anybody may write to; those of long ago go", () => {
  using folder = new TempFolder();
  for (let attempt = 0; attempt < 5; attempt += 1)
    writeFileSync(makeTerminationLog(folder.path, attempt, false), `run ${attempt}`);
  assert.deepEqual(readdirSync(folder.path).sort(), ["00000003", "00000004"]);
  assert.equal(readTerminationLog(folder.path, 4), "run 4");
  assert.equal(readTerminationLog(folder.path, 3), "run 3");
  assert.equal(readTerminationLog(folder.path, 2), "");
  assert.equal(statSync(folder.at("00000004")).mode & 0o777, 0o666);
});

test("a run that has begun keeps what it wrote, one that begins anew does not", () => {
  using folder = new TempFolder();
  writeFileSync(makeTerminationLog(folder.path, 0, false), "last words");
  makeTerminationLog(folder.path, 0, true);
  assert.equal(readTerminationLog(folder.path, 0), "last words");
  makeTerminationLog(folder.path, 0, false);
  assert.equal(readTerminationLog(folder.path, 0), "");
});

test("a message is cut at 4096 bytes and never in a character; what is no file is none", () => {
  using folder = new TempFolder();
  writeFileSync(folder.at("00000000"), `x${"é".repeat(4000)}`);
  assert.equal(readTerminationLog(folder.path, 0), `x${"é".repeat(2047)}`);
  mkdirSync(folder.at("00000001"));
  assert.equal(readTerminationLog(folder.path, 1), "");
  assert.equal(readTerminationLog(folder.at("nowhere"), 1), "");
  symlinkSync("/etc/passwd", folder.at("00000002"));
  assert.throws(() => readTerminationLog(folder.path, 2));
});

const line = (content: string, tag = "F", stream = "stderr"): string =>
  `2026-01-01T00:00:00.000000000Z ${stream} ${tag} ${content}\n`;

test("the end of a log, without its time stamps: at most 80 lines and 2048 bytes", () => {
  using folder = new TempFolder();
  const tail = (text: string): string => {
    writeFileSync(folder.at("log"), text);
    return readLogTail(folder.at("log"));
  };
  assert.equal(tail(line("one") + line("two", "F", "stdout")), "one\ntwo\n");
  assert.equal(tail(line("half ", "P") + line("whole")), "half whole\n");
  assert.equal(tail(`no log line\n${line("a")}`), "a\n");
  assert.equal(tail(""), "");
  const many = Array.from({ length: 300 }, (_, index) => line(`${index}`)).join("");
  assert.equal(tail(many), `${Array.from({ length: 80 }, (_, index) => 220 + index).join("\n")}\n`);
  const long = tail(line("y".repeat(16_000)) + line("z".repeat(15_000)));
  assert.equal(long, `${"z".repeat(2047)}\n`);
  assert.equal(readLogTail(folder.at("none")), "");
});

test("no log makes the reader fail or say too much", () => {
  using folder = new TempFolder();
  const parts = fc.constantFrom("2026-01-01T00:00:00Z", " ", "stdout", "F", "P", "\n", "é", "x".repeat(3000));
  fc.assert(
    fc.property(fc.array(parts, { maxLength: 40 }), (words) => {
      writeFileSync(folder.at("log"), words.join(""));
      assert.ok(Buffer.byteLength(readLogTail(folder.at("log"))) <= 2048);
    }),
  );
});
