import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type LogFormat, LogFormatter, MAX_HELD_BYTES } from "./log-formatter.ts";

const PLAIN: LogFormat = { sinceMs: undefined, timestamps: false, limitBytes: undefined };
const STAMP = "2026-11-20T11:43:22.123456789Z";

function format(text: string | Buffer, options: Partial<LogFormat> = {}, cuts: readonly number[] = []): string {
  const bytes = typeof text === "string" ? Buffer.from(text) : text;
  const formatter = new LogFormatter({ ...PLAIN, ...options });
  const out: Buffer[] = [];
  let from = 0;
  for (const cut of [...cuts.filter((each) => each < bytes.length).sort((a, b) => a - b), bytes.length]) {
    // A copy, overwritten afterwards: the output may not share memory with the block.
    const block = Buffer.from(bytes.subarray(from, cut));
    out.push(formatter.push(block));
    block.fill(0x21);
    from = cut;
  }
  out.push(formatter.flush());
  return Buffer.concat(out).toString("utf8");
}

const cases: readonly {
  readonly name: string;
  readonly log: string;
  readonly options?: Partial<LogFormat>;
  readonly shows: string;
}[] = [
  { name: "lines of both streams in order", log: `${STAMP} stdout F a\n${STAMP} stderr F b\n`, shows: "a\nb\n" },
  { name: "an empty line", log: `${STAMP} stdout F \n`, shows: "\n" },
  { name: "parts are joined", log: `${STAMP} stdout P a\n${STAMP} stdout P b\n${STAMP} stdout F c\n`, shows: "abc\n" },
  { name: "further tags are ignored", log: `${STAMP} stdout F:x:y a\n`, shows: "a\n" },
  { name: "spaces in the text stay", log: `${STAMP} stdout F  a  b \n`, shows: " a  b \n" },
  {
    name: "a time stamp once a line",
    log: `${STAMP} stdout P a\n2026-11-20T11:43:23Z stdout F b\n`,
    options: { timestamps: true },
    shows: `${STAMP} ab\n`,
  },
  {
    name: "a part of one stream waits for the unfinished line of the other",
    log: `${STAMP} stdout P a\n${STAMP} stderr F x\n${STAMP} stderr P y\n${STAMP} stdout F b\n${STAMP} stderr F z\n`,
    shows: "ab\nx\nyz\n",
  },
  { name: "an unfinished line at the end is shown", log: `${STAMP} stdout P a\n`, shows: "a" },
  { name: "a cut off entry at the end is shown", log: `${STAMP} stdout F abc`, shows: "abc" },
  { name: "what is no entry is left out", log: `nonsense\n${STAMP} stdout F a\n\n{"log":1}\n`, shows: "a\n" },
  { name: "an unknown stream is no entry", log: `${STAMP} stdin F a\n${STAMP} stdout X a\n`, shows: "" },
  { name: "a hole that a power cut left is jumped", log: `${"\0".repeat(30)}${STAMP} stdout F a\n`, shows: "a\n" },
  {
    name: "a line without end that is no entry",
    log: `${"x".repeat(100_000)}\n${STAMP} stdout F a\n`,
    shows: "a\n",
  },
  {
    name: "only what was written since",
    log: `2026-11-20T11:00:00.9Z stdout F a\n2026-11-20T13:00:01+02:00 stderr F b\n2026-11-20T11:00:02Z stdout F c\n`,
    options: { sinceMs: Date.parse("2026-11-20T11:00:01Z") },
    shows: "b\nc\n",
  },
  {
    name: "a line that began before `since` stays out as a whole",
    log: `2026-11-20T11:00:00Z stdout P a\n2026-11-20T11:00:02Z stdout F b\n2026-11-20T11:00:03Z stdout F c\n`,
    options: { sinceMs: Date.parse("2026-11-20T11:00:01Z") },
    shows: "c\n",
  },
  { name: "the limit cuts within a line", log: `${STAMP} stdout F abc\n`, options: { limitBytes: 2 }, shows: "ab" },
];

for (const { name, log, options, shows } of cases) {
  test(name, () => {
    assert.equal(format(log, options), shows);
    const everywhere = Array.from({ length: Math.min(log.length, 400) }, (_, index) => index);
    assert.equal(format(log, options, everywhere), shows, "cut after every byte");
  });
}

test("lines to skip are counted as whole lines, in any division into parts", () => {
  const formatter = new LogFormatter(PLAIN);
  formatter.skip(2);
  const log = `${STAMP} stdout P a\n${STAMP} stdout F a\n${STAMP} stderr F b\n${STAMP} stdout F c\n`;
  assert.equal(formatter.push(Buffer.from(log)).toString(), "c\n");
});

test("what is held back for an unfinished line has a limit; then the line is broken", () => {
  const log = `${STAMP} stdout P start\n${`${STAMP} stderr F ${"x".repeat(1023)}\n`.repeat(80)}`;
  const formatter = new LogFormatter(PLAIN);
  const out = formatter.push(Buffer.from(log)).toString();
  assert.ok(out.startsWith("start\nxxx"));
  assert.ok(out.length > MAX_HELD_BYTES && out.length < log.length);
});

const entry = fc.record({
  stream: fc.constantFrom("stdout", "stderr"),
  partial: fc.boolean(),
  text: fc.string({ maxLength: 40 }).map((text) => text.replaceAll("\n", " ")),
});

test("however a log is cut into blocks, every line of every stream comes out whole", () => {
  fc.assert(
    fc.property(fc.array(entry), fc.array(fc.nat(4000)), (entries, cuts) => {
      const log = entries.map((e) => `${STAMP} ${e.stream} ${e.partial ? "P" : "F"} ${e.text}\n`).join("");
      const out = format(log, {}, cuts);
      assert.equal(out, format(log), "independent of the cuts");
      const open: Record<string, string | undefined> = {};
      const wanted: string[] = [];
      for (const { stream, partial, text } of entries) {
        const lineSoFar = (open[stream] ?? "") + text;
        open[stream] = partial ? lineSoFar : undefined;
        if (!partial) wanted.push(lineSoFar);
      }
      for (const rest of Object.values(open)) if (rest !== undefined) wanted.push(rest);
      const lines = out.split("\n");
      if (lines.at(-1) === "") lines.pop();
      const notEmpty = (each: string): boolean => each !== "";
      assert.deepEqual(lines.filter(notEmpty).sort(), wanted.filter(notEmpty).sort());
    }),
  );
});

test("garbage neither throws nor comes out longer than it went in", () => {
  const noise = fc.oneof(
    fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
    fc
      .constantFrom(`${STAMP} stdout F a\n`, `${STAMP} stdout P `, "\n", " ", `${STAMP} `)
      .map((text) => Buffer.from(text)),
  );
  fc.assert(
    fc.property(fc.array(noise), fc.array(fc.nat(2000)), fc.option(fc.nat(50)), (parts, cuts, limit) => {
      const log = Buffer.concat(parts);
      const out = format(log, { limitBytes: limit ?? undefined }, cuts);
      assert.ok(out.length <= log.length);
      if (limit !== null) assert.ok(Buffer.byteLength(out) <= limit * 3, "invalid UTF-8 shows as three bytes");
    }),
  );
});
