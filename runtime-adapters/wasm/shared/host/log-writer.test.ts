import assert from "node:assert/strict";
import { existsSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { type LogStream, LogWriter, MAX_LINE_BYTES } from "./log-writer.ts";

const TIME = "2026-03-01T12:00:00.250Z";

class Bench {
  readonly folder = new TempFolder();
  readonly path = this.folder.at("0.log");
  readonly log = new LogWriter(this.path, () => Date.parse(TIME));

  constructor(context: TestContext) {
    context.after(() => this.folder[Symbol.dispose]());
  }

  write(stream: LogStream, text: string): void {
    this.log.write(stream, Buffer.from(text));
  }

  /** Entries without their time. */
  entries(path = this.path): string[] {
    // Made with the first entry; the agent has it made before.
    const text = existsSync(path) ? readFileSync(path, "utf8") : "";
    if (text === "") return [];
    const lines = text.split("\n");
    assert.equal(lines.pop(), "", "every entry ends with a newline");
    return lines.map((line) => {
      assert.ok(line.startsWith(`${TIME} `), line);
      return line.slice(TIME.length + 1);
    });
  }
}

test("a line is an entry once it is whole, each stream for itself", (context) => {
  const bench = new Bench(context);
  bench.write("stdout", "one\ntw");
  bench.write("stderr", "other\n");
  bench.write("stdout", "o\n\n");
  assert.deepEqual(bench.entries(), ["stdout F one", "stderr F other", "stdout F two", "stdout F "]);
});

test("an unfinished line is written as a piece on request", (context) => {
  const bench = new Bench(context);
  bench.write("stdout", "prompt> ");
  assert.deepEqual(bench.entries(), []);
  bench.log.flushUnfinished();
  bench.log.flushUnfinished();
  bench.write("stdout", "answer\n");
  assert.deepEqual(bench.entries(), ["stdout P prompt> ", "stdout F answer"]);
});

test("last words follow all output, on lines of their own", (context) => {
  const whole = new Bench(context);
  whole.write("stderr", "one\n");
  whole.log.end("two\nthree\n");
  assert.deepEqual(whole.entries(), ["stderr F one", "stderr F two", "stderr F three"]);
  const inLine = new Bench(context);
  inLine.write("stdout", "one");
  inLine.log.end("two\n");
  assert.deepEqual(inLine.entries(), ["stdout P one", "stderr F ", "stderr F two"]);
  const flushed = new Bench(context);
  flushed.write("stderr", "one");
  flushed.log.flushUnfinished();
  flushed.log.end("two\n");
  assert.deepEqual(flushed.entries(), ["stderr P one", "stderr F ", "stderr F two"]);
  const silent = new Bench(context);
  silent.write("stderr", "one");
  silent.log.end("");
  assert.deepEqual(silent.entries(), ["stderr P one"]);
});

test("a long line is cut into pieces of 16 KiB", (context) => {
  const bench = new Bench(context);
  bench.write("stdout", `${"x".repeat(MAX_LINE_BYTES)}\n${"y".repeat(MAX_LINE_BYTES + 1)}\n`);
  assert.deepEqual(
    bench.entries().map((entry) => [entry.slice(0, 9), entry.length - 9]),
    [
      ["stdout F ", MAX_LINE_BYTES],
      ["stdout P ", MAX_LINE_BYTES],
      ["stdout F ", 1],
    ],
  );
});

test("any bytes in any pieces are read back complete", (context) => {
  const piece = fc.oneof(
    fc.string({ maxLength: 40 }),
    fc.constant("\n"),
    fc.nat(3 * MAX_LINE_BYTES).map((length) => "long".repeat(length / 4)),
  );
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.constantFrom<LogStream>("stdout", "stderr"), piece), { maxLength: 12 }),
      (pieces) => {
        const bench = new Bench(context);
        const written = { stdout: "", stderr: "" };
        for (const [stream, text] of pieces) {
          bench.write(stream, text);
          written[stream] += text;
        }
        bench.log.flushUnfinished();
        const read = { stdout: "", stderr: "" };
        for (const entry of bench.entries()) {
          const stream = entry.slice(0, 6) === "stderr" ? "stderr" : "stdout";
          read[stream] += entry.slice(9) + (entry[7] === "F" ? "\n" : "");
        }
        assert.deepEqual(read, written);
        bench.folder[Symbol.dispose]();
      },
    ),
    { numRuns: 60 },
  );
});

test("after the file was renamed away the next line is in a new one", (context) => {
  const bench = new Bench(context);
  bench.write("stdout", "one\n");
  renameSync(bench.path, bench.folder.at("old"));
  bench.write("stdout", "two\n");
  bench.write("stdout", "three\n");
  assert.deepEqual(bench.entries(bench.folder.at("old")), ["stdout F one"]);
  assert.deepEqual(bench.entries(), ["stdout F two", "stdout F three"]);
});

test("without its folder output is dropped, and nothing fails", (context) => {
  const bench = new Bench(context);
  rmSync(bench.folder.path, { recursive: true });
  bench.write("stdout", "lost\n");
  bench.log.flushUnfinished();
});

const LIMIT = { maxBytes: 100_000, patienceMs: 60_000 };
const HOUR_MS = 3_600_000;
const BLOCK = "x".repeat(MAX_LINE_BYTES - 1);

/** A writer with a limit, whose blocking is virtual time; `onSleep` is the agent. */
class LimitedBench {
  readonly folder = new TempFolder();
  readonly path = this.folder.at("0.log");
  nowMs = 0;
  onSleep = (): void => undefined;
  readonly log: LogWriter;

  constructor(context: TestContext, blocks = true) {
    context.after(() => this.folder[Symbol.dispose]());
    const sleep = (milliseconds: number): void => {
      this.nowMs += milliseconds;
      this.onSleep();
    };
    const limit = { ...LIMIT, now: () => this.nowMs, sleep: blocks ? sleep : undefined };
    this.log = new LogWriter(this.path, () => Date.parse(TIME), limit);
  }

  /** @returns milliseconds that the component waited */
  write(bytes: number): number {
    const before = this.nowMs;
    for (let left = bytes; left > 0; left -= BLOCK.length) this.log.write("stdout", Buffer.from(`${BLOCK}\n`));
    return this.nowMs - before;
  }

  get size(): number {
    return statSync(this.path).size;
  }

  rotate(to: string): void {
    renameSync(this.path, this.folder.at(to));
    writeFileSync(this.path, "");
  }
}

test("a component whose log is full waits until it has been rotated, and loses nothing", (context) => {
  const bench = new LimitedBench(context);
  assert.equal(bench.write(90_000), 0);
  let rotations = 0;
  bench.onSleep = () => {
    if (bench.nowMs % 10_000 !== 0) return;
    rotations += 1;
    assert.ok(statSync(bench.path).size <= LIMIT.maxBytes + 2 * MAX_LINE_BYTES, "one write beyond the limit at most");
    bench.rotate(`rotated-${rotations}`);
  };
  bench.write(1_000_000);
  assert.ok(rotations >= 8, `${rotations} rotations`);
  const files = ["0.log", ...Array.from({ length: rotations }, (_, index) => `rotated-${index + 1}`)];
  const lines = files.flatMap((name) => readFileSync(bench.folder.at(name), "utf8").split("\n").slice(0, -1));
  assert.equal(lines.length, Math.ceil(90_000 / BLOCK.length) + Math.ceil(1_000_000 / BLOCK.length));
  assert.ok(lines.every((line) => line.endsWith(` stdout F ${BLOCK}`)));
});

test("without an agent the file stays small, the component continues, and dropped bytes are counted", (context) => {
  const bench = new LimitedBench(context);
  assert.equal(bench.write(200_000), LIMIT.patienceMs, "it waits once");
  let written = 0;
  for (let minute = 0; minute < 180; minute += 1) {
    const before = bench.size;
    assert.equal(bench.write(1_000_000), 0, "and never again");
    const after = bench.size;
    written += after >= before ? after - before : after;
    assert.ok(after <= LIMIT.maxBytes + 2 * MAX_LINE_BYTES, `${after} bytes`);
    bench.nowMs += 60_000;
  }
  assert.ok(written <= 4 * (LIMIT.maxBytes + 2 * MAX_LINE_BYTES), `${written} bytes in three hours`);
  bench.rotate("old");
  bench.log.write("stdout", Buffer.from("back\n"));
  const lines = readFileSync(bench.path, "utf8").split("\n");
  assert.match(lines[0] ?? "", /stderr F picolet: \d+ bytes of output were dropped here: the log was full/);
  assert.equal(lines[1], `${TIME} stdout F back`);
  assert.equal(bench.write(200_000), LIMIT.patienceMs, "the agent that came back is waited for again");
});

test("last words are written into a full log too, without a wait", (context) => {
  const bench = new LimitedBench(context);
  bench.write(100_000);
  bench.log.end("picolet: it trapped\n");
  assert.equal(bench.nowMs, 0);
  assert.ok(readFileSync(bench.path, "utf8").endsWith("stderr F picolet: it trapped\n"));
});

test("where a thread is shared the writer never blocks: it is full, and takes one buffer more at most", (context) => {
  const bench = new LimitedBench(context, false);
  bench.write(90_000);
  assert.equal(bench.log.isFull, false);
  bench.write(1_000_000);
  assert.equal(bench.log.isFull, true);
  assert.ok(bench.size <= LIMIT.maxBytes + 4 * MAX_LINE_BYTES);
  bench.rotate("old");
  assert.equal(bench.log.isFull, false);
  bench.write(200_000);
  assert.equal(bench.log.isFull, true);
  bench.nowMs += LIMIT.patienceMs;
  assert.equal(bench.log.isFull, false, "no agent: it runs on");
  bench.write(200_000);
  assert.equal(bench.log.isFull, false);
  bench.nowMs += HOUR_MS;
  bench.write(10_000);
  assert.ok(bench.size <= LIMIT.maxBytes);
});
