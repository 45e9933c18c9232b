import assert from "node:assert/strict";
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import type { LogRequest } from "../core/pods/container-logs.ts";
import { type LogWriter, readContainerLog } from "./container-log-reader.ts";

const ALL: LogRequest = {
  tailLines: undefined,
  sinceMs: undefined,
  timestamps: false,
  limitBytes: undefined,
  follow: false,
};
const never = new AbortController().signal;

class FakeWriter implements LogWriter {
  readonly #running = new WatchSource(true);
  running = (): boolean => this.#running.current;
  settled = (): Promise<void> => Promise.resolve();
  /** Called one for each wait of the reader for lines that are on their way. */
  readonly arriving: (() => void)[] = [];
  arrived = async (): Promise<void> => this.arriving.shift()?.();
  changes = (signal: AbortSignal): AsyncIterable<boolean> => this.#running.changes(signal);
  end(): void {
    this.#running.set(false);
  }
}

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "picolet-log-"));
  t.after(() => rmSync(path, { recursive: true }));
  return path;
}

const line = (text: string, second = 0): string =>
  `2026-11-20T11:00:${String(second).padStart(2, "0")}.5Z stdout F ${text}\n`;

function openFilesIn(prefix: string): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/self/fd/${fd}`);
      return target.startsWith(prefix) ? [target] : [];
    } catch {
      return []; // the one that listed the folder
    }
  });
}

async function read(path: string, request: Partial<LogRequest> = {}, writer = new FakeWriter()): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of readContainerLog(path, { ...ALL, ...request }, writer, never)) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

/** A followed log; `until` reads on until what came ends so. */
class Followed {
  readonly #chunks: AsyncGenerator<Buffer>;
  text = "";
  constructor(chunks: AsyncGenerator<Buffer>) {
    this.#chunks = chunks;
  }
  async until(end: string): Promise<void> {
    while (!this.text.endsWith(end)) {
      const next = await this.#chunks.next();
      if (next.done) assert.fail(`ended with ${JSON.stringify(this.text)}`);
      this.text += next.value.toString("utf8");
    }
  }
  async rest(): Promise<void> {
    for await (const chunk of this.#chunks) this.text += chunk.toString("utf8");
  }
}

function follow(t: TestContext, path: string, request: Partial<LogRequest> = {}) {
  const writer = new FakeWriter();
  const controller = new AbortController();
  const chunks = readContainerLog(path, { ...ALL, follow: true, ...request }, writer, controller.signal);
  t.after(async () => {
    controller.abort();
    await chunks.return(undefined);
  });
  return { log: new Followed(chunks), writer, controller };
}

test("rotated files are read first, compressed or not, each once", async (t) => {
  const path = join(folder(t), "0.log");
  writeFileSync(`${path}.20261120-110000.gz`, gzipSync(line("a") + line("b")));
  writeFileSync(`${path}.20261120-120000`, line("c"));
  writeFileSync(`${path}.20261120-120000.gz`, gzipSync(line("the other form of c")));
  writeFileSync(`${path}.20261120-130000.tmp`, line("half compressed"));
  writeFileSync(path, line("d"));
  assert.equal(await read(path), "a\nb\nc\nd\n");
  for (const [tail, shows] of [
    [0, ""],
    [1, "d\n"],
    [2, "c\nd\n"],
    [3, "b\nc\nd\n"],
    [99, "a\nb\nc\nd\n"],
  ] as const) {
    assert.equal(await read(path, { tailLines: tail }), shows, `tail ${tail}`);
  }
});

test("a compressed file that a power cut left half written gives what it has", async (t) => {
  const path = join(folder(t), "0.log");
  const whole = gzipSync(Array.from({ length: 5000 }, (_, n) => line(`line ${n} ${Math.sin(n)}`)).join(""));
  writeFileSync(`${path}.20261120-110000.gz`, whole.subarray(0, whole.length - 100));
  writeFileSync(path, line("after"));
  const out = await read(path);
  assert.ok(out.startsWith("line 0 0\n") && out.endsWith("after\n"));
});

test("the tail of any log is the end of the whole of it", async (t) => {
  const path = join(folder(t), "0.log");
  const entry = fc.record({
    partial: fc.boolean(),
    // Some longer than what is read at once.
    size: fc.oneof(fc.nat(30), fc.integer({ min: 60_000, max: 70_000 })),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(entry, { maxLength: 12 }), fc.nat(14), async (entries, tail) => {
      writeFileSync(
        path,
        entries
          .map((e, n) => `2026-11-20T11:00:00Z stdout ${e.partial ? "P" : "F"} ${"x".repeat(e.size)}${n}\n`)
          .join(""),
      );
      const whole = await read(path);
      const lines = whole === "" ? [] : whole.replace(/\n$/, "").split("\n");
      const wanted = tail === 0 ? [] : lines.slice(-tail);
      const end = whole.endsWith("\n") && wanted.length > 0 ? "\n" : "";
      assert.ok((await read(path, { tailLines: tail })) === wanted.join("\n") + end);
    }),
    { numRuns: 60 },
  );
});

test("garbage in any of the files harms nothing", async (t) => {
  const path = join(folder(t), "0.log");
  await fc.assert(
    fc.asyncProperty(fc.uint8Array(), fc.uint8Array(), fc.uint8Array(), fc.nat(4), async (zipped, old, now, tail) => {
      writeFileSync(`${path}.20261120-110000.gz`, zipped);
      writeFileSync(`${path}.20261120-120000`, old);
      writeFileSync(path, Buffer.concat([now, Buffer.from(`\n${line("end")}`)]));
      assert.ok((await read(path)).endsWith("end\n"));
      assert.ok((await read(path, { tailLines: tail })).endsWith(tail === 0 ? "" : "end\n"));
    }),
    { numRuns: 50 },
  );
});

test("no log, a log that is a link, a log that is a folder", async (t) => {
  const dir = folder(t);
  await assert.rejects(read(join(dir, "0.log")), (error) => isPicoletError(error, "not_found"));
  await assert.rejects(read(join(dir, "no", "0.log")), (error) => isPicoletError(error, "not_found"));
  writeFileSync(join(dir, "secret"), line("secret"));
  symlinkSync("secret", join(dir, "1.log"));
  await assert.rejects(read(join(dir, "1.log")), (error) => isPicoletError(error, "failed"));
  mkdirSync(join(dir, "2.log"));
  await assert.rejects(read(join(dir, "2.log")), (error) => isPicoletError(error, "invalid"));
});

test("since, time stamps and the byte limit hold", async (t) => {
  const path = join(folder(t), "0.log");
  writeFileSync(path, line("a", 1) + line("b", 2) + line("c", 3));
  assert.equal(await read(path, { sinceMs: Date.parse("2026-11-20T11:00:02Z") }), "b\nc\n");
  assert.equal(await read(path, { tailLines: 1, timestamps: true }), "2026-11-20T11:00:03.5Z c\n");
  assert.equal(await read(path, { limitBytes: 3 }), "a\nb");
});

test("following shows what is written later and ends when the container has ended", async (t) => {
  const path = join(folder(t), "0.log");
  writeFileSync(path, line("a") + line("b"));
  const { log, writer } = follow(t, path, { tailLines: 1 });
  await log.until("b\n");
  appendFileSync(path, line("c"));
  await log.until("c\n");
  appendFileSync(path, line("last words"));
  writer.end();
  await log.rest();
  assert.equal(log.text, "b\nc\nlast words\n");
});

test("following waits for a log that is not there yet", async (t) => {
  const path = join(folder(t), "0.log");
  const { log } = follow(t, path);
  const first = log.until("a\n");
  writeFileSync(path, line("a"));
  await first;
  assert.equal(log.text, "a\n");
});

test("following goes on across a rotation, with what was written into the renamed file", async (t) => {
  const path = join(folder(t), "0.log");
  writeFileSync(path, line("a"));
  const { log, writer } = follow(t, path);
  await log.until("a\n");
  renameSync(path, `${path}.20261120-110000`);
  appendFileSync(`${path}.20261120-110000`, line("b"));
  await log.until("b\n");
  appendFileSync(`${path}.20261120-110000`, line("c"));
  writeFileSync(path, line("d"));
  await log.until("d\n");
  appendFileSync(path, line("e"));
  writer.end();
  await log.rest();
  assert.equal(log.text, "a\nb\nc\nd\ne\n");
});

test("following loses no line that a runtime writes to the renamed file after it has made the new one", async (t) => {
  const path = join(folder(t), "0.log");
  const renamed = `${path}.20261120-110000`;
  writeFileSync(path, line("a"));
  const { log, writer } = follow(t, path);
  await log.until("a\n");
  writer.arriving.push(
    () => appendFileSync(renamed, line("b")),
    () => appendFileSync(renamed, line("c")),
  );
  renameSync(path, renamed);
  writeFileSync(path, line("d"));
  await log.until("d\n");
  assert.equal(log.text, "a\nb\nc\nd\n");
});

test("following reads a file once that is rotated while the one before is waited for", async (t) => {
  const path = join(folder(t), "0.log");
  writeFileSync(path, line("a"));
  const { log, writer } = follow(t, path);
  await log.until("a\n");
  writer.arriving.push(() => {
    renameSync(path, `${path}.20261120-120000`);
    writeFileSync(path, line("c"));
  });
  renameSync(path, `${path}.20261120-110000`);
  writeFileSync(path, line("b"));
  await log.until("c\n");
  assert.equal(log.text, "a\nb\nc\n");
});

test("a log that is being rotated when it is opened has every line", async (t) => {
  const path = join(folder(t), "0.log");
  const renamed = `${path}.20261120-110000`;
  writeFileSync(renamed, line("a"));
  writeFileSync(path, line("c"));
  const writer = new FakeWriter();
  writer.arriving.push(() => appendFileSync(renamed, line("b")));
  assert.equal(await read(path, {}, writer), "a\nb\nc\n");
});

test("following begins with the renamed file while there is no new one yet", async (t) => {
  const path = join(folder(t), "0.log");
  const renamed = `${path}.20261120-110000`;
  writeFileSync(renamed, line("a"));
  const { log } = follow(t, path);
  await log.until("a\n");
  appendFileSync(renamed, line("b"));
  await log.until("b\n");
  writeFileSync(path, line("c"));
  await log.until("c\n");
  assert.equal(log.text, "a\nb\nc\n");
});

test("following misses nothing of files that came and went between two looks", async (t) => {
  const path = join(folder(t), "0.log");
  writeFileSync(path, line("a"));
  const { log } = follow(t, path);
  await log.until("a\n");
  appendFileSync(path, line("b"));
  writeFileSync(`${path}.1`, gzipSync(""));
  renameSync(path, `${path}.20261120-110000`);
  writeFileSync(`${path}.20261120-120000.gz`, gzipSync(line("c")));
  writeFileSync(`${path}.20261120-130000`, line("d"));
  writeFileSync(path, line("e"));
  rmSync(`${path}.1`);
  await log.until("e\n");
  assert.equal(log.text, "a\nb\nc\nd\ne\n");
});

test("following starts anew when the file was emptied in place", async (t) => {
  const path = join(folder(t), "0.log");
  writeFileSync(path, line("a") + line("b"));
  const { log } = follow(t, path);
  await log.until("b\n");
  truncateSync(path);
  appendFileSync(path, line("c"));
  await log.until("c\n");
});

test("following ends quietly when it is cancelled, and leaves no file open", async (t) => {
  const path = join(folder(t), "0.log");
  writeFileSync(path, line("a"));
  const { log, controller } = follow(t, path);
  await log.until("a\n");
  const rest = log.rest();
  assert.notDeepEqual(openFilesIn(path), []);
  controller.abort();
  await rest;
  assert.equal(log.text, "a\n");
  assert.deepEqual(openFilesIn(path), []);
});
