/** On real files, with a runtime that writes to what it has open, and virtual time. */

import assert from "node:assert/strict";
import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { type Millis, millis, podUid, seconds } from "@picolet/protocol/ports.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { type LoggedContainer, LogRotation, type LogRotationInit } from "./log-rotation.ts";

const NEVER = new AbortController().signal;

/** A container whose log is held open, as a runtime does. */
class Writer {
  readonly container: LoggedContainer;
  #fd: number;

  constructor(id: string, logPath: string) {
    this.container = { uid: podUid("uid-1"), id, logPath };
    mkdirSync(dirname(logPath), { recursive: true });
    this.#fd = openSync(logPath, "a", 0o640);
  }

  write(text: string): void {
    writeSync(this.#fd, text);
    fsyncSync(this.#fd);
  }

  /** By zeroes that take no room on the disk. */
  grow(bytes: number): void {
    ftruncateSync(this.#fd, fstatSync(this.#fd).size + bytes);
  }

  reopen(): void {
    closeSync(this.#fd);
    this.#fd = openSync(this.container.logPath, "a", 0o640);
  }

  close(): void {
    closeSync(this.#fd);
  }
}

class Bench implements Disposable {
  readonly folder = new TempFolder();
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly writers: Writer[] = [];
  readonly reopened: string[] = [];
  reopenError: Error | undefined;
  /** The free space of the disk; a test changes it explicitly, its writes do not. */
  freeBytes = 1_000_000_000;
  /** When the free space was asked for. */
  readonly comparedAt: number[] = [];
  readonly changes = new WatchSource(0);
  isBounded = false;
  onReopen = (): Promise<void> => Promise.resolve();
  readonly rotator: LogRotation;

  constructor(init: Partial<LogRotationInit> = {}) {
    this.rotator = this.newRotator(init);
  }

  newRotator(init: Partial<LogRotationInit> = {}): LogRotation {
    return new LogRotation(
      {
        containers: () => this.writers.map((writer) => writer.container),
        reopen: async ({ id }) => {
          await this.onReopen();
          this.reopened.push(id);
          if (this.reopenError !== undefined) throw this.reopenError;
          this.writers.find((writer) => writer.container.id === id)?.reopen();
        },
        owns: (uid) => uid === "uid-1",
        isBounded: () => this.isBounded,
        changes: this.changes,
        freeBytes: () => {
          this.comparedAt.push(this.clock.monotonic());
          return this.freeBytes;
        },
        clock: this.clock,
        log: this.log,
      },
      {
        podLogsDir: this.folder.path,
        maxSizeBytes: 1000,
        maxFiles: 3,
        interval: seconds(10),
        maxWorkers: 1,
        totalMaxBytes: undefined,
        ...init,
      },
    );
  }

  start(container: string, attempt = 0): Writer {
    const id = `${container}-${attempt}`;
    const writer = new Writer(id, this.folder.at("default_web_uid-1", container, `${attempt}.log`));
    this.writers.push(writer);
    return writer;
  }

  stop(writer: Writer): void {
    writer.close();
    this.writers.splice(this.writers.indexOf(writer), 1);
  }

  /** One look, and everything that it leaves to be done. */
  async scan(rotator = this.rotator): Promise<Millis> {
    const next = await rotator.scan(NEVER);
    await rotator[Symbol.asyncDispose]();
    await this.clock.advance(next);
    return next;
  }

  files(container: string): string[] {
    return readdirSync(this.folder.at("default_web_uid-1", container)).sort();
  }

  content(container: string, file: string): string {
    const bytes = readFileSync(this.folder.at("default_web_uid-1", container, file));
    return (file.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString();
  }

  [Symbol.dispose](): void {
    for (const writer of this.writers) writer.close();
    this.folder[Symbol.dispose]();
  }
}

test("a log that is too large is put aside, older ones are compressed, the oldest goes", async () => {
  using bench = new Bench();
  const app = bench.start("app");
  app.write("x".repeat(1000));
  await bench.scan();
  assert.deepEqual(bench.files("app"), ["0.log"], "not larger than the limit");
  for (let round = 0; round < 4; round += 1) {
    app.write(`${round} ${"x".repeat(1000)}`);
    await bench.scan();
    app.write(`after ${round}`);
  }
  const [current, older = "", newest = "", ...more] = bench.files("app");
  assert.deepEqual([current, more], ["0.log", []], "three files at most");
  assert.match(older, /^0\.log\.\d{8}-\d{6}\.gz$/);
  assert.match(newest, /^0\.log\.\d{8}-\d{6}$/);
  assert.equal(bench.content("app", older), `after 1${"2 "}${"x".repeat(1000)}`);
  assert.equal(bench.content("app", newest), `after 23 ${"x".repeat(1000)}`);
  assert.equal(bench.content("app", "0.log"), "after 3");
  assert.equal(statSync(bench.folder.at("default_web_uid-1/app", older)).mode & 0o777, 0o640);
  assert.deepEqual(bench.log.problems, []);
});

test("killed between the renaming and the reopening: the next agent has the log reopened, nothing is lost", async () => {
  using bench = new Bench();
  const app = bench.start("app");
  app.write("before ");
  const path = app.container.logPath;
  renameSync(path, `${path}.20260101-000000`);
  app.write("in between");
  await bench.scan();
  assert.deepEqual(bench.reopened, ["app-0"]);
  app.write("after");
  assert.equal(bench.content("app", "0.log.20260101-000000"), "before in between");
  assert.equal(bench.content("app", "0.log"), "after");
  await bench.scan();
  assert.deepEqual(bench.reopened, ["app-0"]);
});

test("killed while it compressed: what is half goes, what is whole stays once", async () => {
  using bench = new Bench({ maxFiles: 4 });
  const app = bench.start("app");
  const aside = (name: string, content: string | Buffer): void =>
    writeFileSync(bench.folder.at("default_web_uid-1/app", name), content);
  aside("0.log.20250101-000001", "one");
  aside("0.log.20250101-000001.gz.tmp", "half of");
  aside("0.log.20250101-000002", "two");
  aside("0.log.20250101-000002.gz", gzipSync("two"));
  aside("0.log.20250101-000003.gz.tmp", "an orphan");
  aside("notes.txt", "somebody's");
  app.write("x".repeat(1001));
  await bench.scan();
  const files = bench.files("app");
  assert.equal(files.length, 5);
  assert.deepEqual(files.slice(0, 3), ["0.log", "0.log.20250101-000001.gz", "0.log.20250101-000002.gz"]);
  assert.equal(bench.content("app", "0.log.20250101-000001.gz"), "one");
  assert.ok(files.includes("notes.txt"));
});

test("a runtime that cannot reopen keeps its file under its old name, and the next check tries again", async () => {
  using bench = new Bench();
  const app = bench.start("app");
  app.write("x".repeat(1001));
  bench.reopenError = new Error("no answer");
  await bench.scan();
  assert.deepEqual(bench.files("app"), ["0.log"]);
  assert.deepEqual(bench.log.problems, ["cannot rotate a log"]);
  bench.reopenError = undefined;
  await bench.scan();
  assert.equal(bench.files("app").length, 2);
});

test("a runtime that reopened although it reported an error loses nothing", async () => {
  using bench = new Bench();
  const app = bench.start("app");
  app.write("x".repeat(1001));
  const path = app.container.logPath;
  const rotator = new LogRotation(
    {
      containers: () => [app.container],
      reopen: async () => {
        app.reopen();
        app.write("new");
        throw new Error("deadline");
      },
      owns: () => true,
      clock: bench.clock,
      log: bench.log,
    },
    {
      podLogsDir: bench.folder.path,
      maxSizeBytes: 1000,
      maxFiles: 3,
      interval: seconds(10),
      maxWorkers: 1,
      totalMaxBytes: undefined,
    },
  );
  await rotator.scan(NEVER);
  assert.equal(bench.log.entries[0]?.fields.error, "deadline");
  assert.equal(readFileSync(path, "utf8"), "new");
  assert.equal(bench.files("app").length, 2);
});

test("as many logs are put aside at once as there may be workers", async () => {
  for (const maxWorkers of [1, 2, 9]) {
    using bench = new Bench({ maxWorkers });
    for (const name of ["a", "b", "c", "d"]) bench.start(name).write("x".repeat(1200));
    const expected = Math.min(maxWorkers, 4);
    const full = Promise.withResolvers<void>();
    let active = 0;
    let most = 0;
    bench.onReopen = async () => {
      active += 1;
      most = Math.max(most, active);
      if (active === expected) full.resolve();
      await full.promise;
      // Time enough for one too many to come.
      for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      active -= 1;
    };
    await bench.rotator.scan(NEVER);
    assert.equal(most, expected);
    assert.deepEqual(bench.reopened.toSorted(), ["a-0", "b-0", "c-0", "d-0"]);
  }
});

test("one log that cannot be rotated does not keep the others from it", async () => {
  using bench = new Bench();
  const [first, second] = [bench.start("a"), bench.start("b")];
  first.write("x".repeat(1001));
  second.write("x".repeat(1001));
  bench.reopenError = new Error("no answer");
  await bench.scan();
  assert.deepEqual(bench.reopened, ["a-0", "b-0"]);
});

test("of a container's runs the last two keep their logs, with all that was put aside; one that still runs does too", async () => {
  using bench = new Bench();
  const old = bench.start("app", 0);
  for (const attempt of [1, 2, 3]) bench.stop(bench.start("app", attempt));
  writeFileSync(bench.folder.at("default_web_uid-1/app/1.log.20250101-000000.gz"), "");
  writeFileSync(bench.folder.at("default_web_uid-1/app/3.log.20250101-000000.gz"), "");
  await bench.scan();
  assert.deepEqual(bench.files("app"), ["0.log", "2.log", "3.log", "3.log.20250101-000000.gz"]);
  bench.stop(old);
  bench.start("app", 4);
  await bench.scan();
  assert.deepEqual(bench.files("app"), ["3.log", "3.log.20250101-000000.gz", "4.log"], "seen at once with the new run");
});

test("all together have a cap: what was put aside goes first, then what is dead, oldest first; not what is written", async () => {
  using bench = new Bench({ totalMaxBytes: 5000 });
  const running = bench.start("running");
  running.write("x".repeat(900));
  const dead = bench.folder.at("default_web_uid-1/dead");
  mkdirSync(dead);
  const put = (name: string, size: number, ageS: number): void => {
    writeFileSync(`${dead}/${name}`, "x".repeat(size));
    utimesSync(`${dead}/${name}`, 1_700_000_000 - ageS, 1_700_000_000 - ageS);
  };
  put("0.log", 2000, 300);
  put("1.log", 1000, 100);
  put("1.log.20250101-000000", 1500, 200);
  await bench.scan();
  assert.deepEqual(readdirSync(dead).sort(), ["0.log", "1.log"]);
  assert.deepEqual(bench.log.entries.at(-1)?.fields, { files: 1, limitBytes: 5000, leftBytes: 3900 });
  put("1.log", 4000, 100);
  await bench.clock.advance(seconds(300));
  await bench.scan();
  assert.deepEqual(readdirSync(dead).sort(), [], "0.log is older, and without 1.log it would still be too much");
  assert.deepEqual(bench.files("running"), ["0.log"]);
});

test("the cap is seen as soon as what grows may have reached it, and large ones are put aside early then", async () => {
  using bench = new Bench({ totalMaxBytes: 2000 });
  const writers = ["a", "b", "c"].map((name) => bench.start(name));
  await bench.scan();
  for (const writer of writers) writer.write("x".repeat(800));
  writers[2]?.write("x".repeat(100));
  await bench.scan();
  const total = ["a", "b", "c"].flatMap((name) =>
    bench.files(name).map((file) => statSync(bench.folder.at("default_web_uid-1", name, file)).size),
  );
  assert.ok(total.reduce((a, b) => a + b, 0) <= 2000);
  for (const writer of writers) assert.ok(existsSync(writer.container.logPath));
});

test("logs of pods that are not this node's are neither counted nor touched", async () => {
  using bench = new Bench({ totalMaxBytes: 100 });
  const other = bench.folder.at("default_web_other/app");
  mkdirSync(other, { recursive: true });
  for (const attempt of [0, 1, 2, 3]) writeFileSync(`${other}/${attempt}.log`, "x".repeat(500));
  symlinkSync(bench.folder.at("default_web_other"), bench.folder.at("default_link_uid-1"));
  await bench.scan();
  assert.equal(readdirSync(other).length, 4);
  assert.deepEqual(bench.log.problems, []);
});

test("at rest the next check is later, and sooner again when a log would be full before it", async () => {
  using bench = new Bench({ maxSizeBytes: 1000 });
  const app = bench.start("app");
  assert.equal(await bench.scan(), seconds(10));
  assert.equal(await bench.scan(), seconds(30), "nothing grows");
  app.write("x".repeat(600));
  assert.equal(await bench.scan(), seconds(10), "full in 20 s");
  assert.equal(await bench.scan(), seconds(30));
});

test("a clock that was set back does not make the newest file the oldest", async () => {
  using bench = new Bench({ maxFiles: 3 });
  const app = bench.start("app");
  for (const text of ["first", "second", "third"]) {
    app.write(text.padEnd(1001));
    await bench.scan();
    bench.clock.setWall(0);
  }
  const contents = bench
    .files("app")
    .slice(1)
    .map((file) => bench.content("app", file).trim());
  assert.deepEqual(contents, ["second", "third"]);
});

test("the loop ends when its signal aborts, in the middle of a wait", async () => {
  using bench = new Bench();
  bench.start("app");
  const stop = new AbortController();
  const done = endOfRun(bench.rotator.run(stop.signal));
  while (bench.clock.sleeping === 0) await new Promise((resolve) => setImmediate(resolve));
  stop.abort();
  await done;
  assert.equal(bench.clock.sleeping, 0);
});

test("an interrupted compression leaves the log as it was", async () => {
  using bench = new Bench({ maxFiles: 5 });
  const app = bench.start("app");
  for (let round = 0; round < 2; round += 1) {
    app.write("x".repeat(1001));
    const stop = new AbortController();
    await bench.rotator.scan(stop.signal);
    stop.abort();
    await bench.rotator[Symbol.asyncDispose]();
    await bench.clock.advance(millis(1000));
  }
  assert.equal(bench.files("app").length, 3);
  assert.ok(bench.files("app").every((name) => !name.endsWith(".tmp")));
  assert.deepEqual(bench.log.problems, []);
  app.write("x".repeat(1001));
  await bench.scan();
  assert.equal(bench.files("app").filter((name) => name.endsWith(".gz")).length, 2);
});

test("under pressure logs of runs that are gone go, with all that was put aside of them; others' stay", async () => {
  using bench = new Bench();
  for (const attempt of [0, 1]) {
    const app = bench.start("app", attempt);
    app.write("x".repeat(1001));
    await bench.scan();
    bench.stop(app);
  }
  bench.start("other");
  const asked: string[] = [];
  const isDead = (uid: string, container: string, attempt: number): boolean => {
    asked.push(`${uid} ${container} ${attempt}`);
    return container === "app" && attempt === 0;
  };
  await bench.rotator.removeDead(isDead, NEVER);
  assert.deepEqual([...new Set(asked)].sort(), ["uid-1 app 0", "uid-1 app 1", "uid-1 other 0"]);
  assert.ok(bench.files("app").length >= 2 && bench.files("app").every((name) => name.startsWith("1.log")));
  assert.deepEqual(bench.files("other"), ["0.log"]);
});

test("a container that floods its log is found within a second, and its files stay bounded", async () => {
  const maxSizeBytes = 1_000_000;
  using bench = new Bench({ maxSizeBytes, maxFiles: 3 });
  const app = bench.start("app");
  const stop = new AbortController();
  const running = endOfRun(bench.rotator.run(stop.signal));
  const settle = async (): Promise<void> => {
    while (bench.clock.sleeping === 0) await new Promise((resolve) => setImmediate(resolve));
  };
  await settle();
  await bench.clock.advance(seconds(60));
  await settle();
  // 20 MB/s: a log is full after 50 ms.
  const flood = async (): Promise<void> => {
    app.grow(5_000_000);
    bench.freeBytes -= 5_000_000;
    await bench.clock.advance(millis(250));
    await settle();
  };
  for (let quarter = 0; quarter < 8; quarter += 1) await flood();
  assert.ok(bench.reopened.length > 0, "rotated within two seconds of the first burst");
  for (let quarter = 0; quarter < 20; quarter += 1) {
    const before = bench.reopened.length;
    await flood();
    assert.equal(bench.reopened.length, before + 1, "and at every quarter of a second from then on");
    const files = bench.files("app").filter((name) => !name.endsWith(".tmp"));
    assert.ok(files.length <= 2, `${files.join(" ")}: what is far too large is not kept beside another one`);
  }
  stop.abort();
  await running;
});

test("while nothing runs nothing is checked; with containers the disk is, by how much is free", async () => {
  using bench = new Bench({ maxSizeBytes: 10_000_000 });
  const stop = new AbortController();
  const running = endOfRun(bench.rotator.run(stop.signal));
  /** The files that are checked are real: with containers a check is over when the loop sleeps again. */
  const settle = async (): Promise<void> => {
    while (bench.writers.length > 0 && bench.clock.sleeping === 0) await bench.clock.settle();
    await bench.clock.settle();
  };
  /** The usual time between two comparisons. */
  const interval = async (): Promise<number | undefined> => {
    bench.comparedAt.length = 0;
    for (let past = 0; past < 120_000; past += 500) {
      await bench.clock.advance(millis(500));
      await settle();
    }
    const counts = new Map<number, number>();
    for (const [index, at] of bench.comparedAt.slice(1).entries()) {
      const gap = at - (bench.comparedAt[index] ?? 0);
      counts.set(gap, (counts.get(gap) ?? 0) + 1);
    }
    return [...counts].toSorted(([, one], [, other]) => other - one)[0]?.[0];
  };
  await settle();
  assert.equal(await interval(), undefined);
  bench.start("app");
  bench.changes.set(1);
  assert.equal(await interval(), 1000);
  // A wait that has begun keeps its interval.
  bench.freeBytes = 20_000_000_000;
  await interval();
  assert.equal(await interval(), 2000);
  bench.freeBytes = 75_000_000_000;
  await interval();
  assert.equal(await interval(), 5000);
  stop.abort();
  await running;
});

test("a log whose writer waits is rotated once an interval, however fast it fills", async () => {
  using bench = new Bench({ maxSizeBytes: 1000 });
  bench.isBounded = true;
  const app = bench.start("app");
  await bench.scan();
  app.write("x".repeat(1100));
  assert.equal(await bench.scan(), seconds(10));
  assert.equal(bench.reopened.length, 1);
  app.write("x".repeat(1100));
  assert.equal(await bench.rotator.scan(NEVER), seconds(10));
  assert.equal(bench.reopened.length, 2, "an interval later");
  app.write("x".repeat(1100));
  await bench.clock.advance(seconds(4));
  assert.equal(await bench.rotator.scan(NEVER), seconds(6), "a disk that fills does not make it sooner");
  assert.equal(bench.reopened.length, 2);
  await bench.clock.advance(seconds(6));
  await bench.rotator.scan(NEVER);
  assert.equal(bench.reopened.length, 3);
});
