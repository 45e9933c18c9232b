/** The whole source on real files with real inotify. What is waited for is always what the store or the report says. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  closeSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { SourceProblem } from "@picolet/protocol/local-api/status.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { MemoryDesiredStore } from "@picolet/test/support/unit/store/memory-desired-store.ts";
import { TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import type { DesiredSnapshot } from "../../core/store/store-ports.ts";
import { FileSource } from "./file-source.ts";
import { MAX_FILES } from "./manifest-files.ts";

/** Generous: the machine is shared. */
const LIMIT_MS = 60_000;

const pod = (name: string, image = "example/app:1"): string =>
  `apiVersion: v1\nkind: Pod\nmetadata:\n  name: ${name}\nspec:\n  containers:\n  - name: app\n    image: ${image}\n`;

/** `name=image`, of all pods of a snapshot. */
const shown = ({ pods }: DesiredSnapshot): string =>
  [...pods.values()]
    .map(
      ({ pod: { metadata, spec } }: DesiredPod) =>
        `${metadata.name}=${spec.containers.map(({ image }) => image).join("+")}`,
    )
    .toSorted()
    .join(" ");

class Bench implements AsyncDisposable {
  readonly #outer = new TemporaryFolder();
  readonly folder = this.#outer.file("manifests");
  readonly store = new MemoryDesiredStore();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  /** Every state of the store, as it was shown. */
  readonly history: string[] = [];
  #stop = new AbortController();
  #running: Promise<unknown> = Promise.resolve();
  source: FileSource | undefined;

  constructor({ makesFolder = true } = {}) {
    if (makesFolder) mkdirSync(this.folder);
    this.store.onChange = (snapshot) => this.history.push(shown(snapshot));
  }

  start(path = this.folder): this {
    this.#stop = new AbortController();
    const { store, events, log } = this;
    const init = { path, nodeName: "n", checkFrequency: seconds(3600) };
    const source = new FileSource({ clock: systemClock, log, store, events }, init);
    this.source = source;
    this.#running = endOfRun(source.run(this.#stop.signal));
    return this;
  }

  /** As if the agent was started again: the store keeps what it has. */
  async restart(): Promise<void> {
    await this.stop();
    this.store.forgetSynced();
    this.start();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  write(name: string, text: string): void {
    writeFileSync(this.path(name), text);
  }

  /** So long ago that no process can still be writing it. */
  writeOld(name: string, text: string): void {
    this.write(name, text);
    utimesSync(this.path(name), 1, 1);
  }

  /** Beside and over, as one does. */
  replace(name: string, text: string): void {
    writeFileSync(this.path(`.${name}`), text);
    renameSync(this.path(`.${name}`), this.path(name));
  }

  async until(expected: string): Promise<void> {
    await reached(
      this.store.desired,
      (snapshot) => snapshot.synced.has("file") && shown(snapshot) === expected,
      () => `${expected}\nis: ${shown(this.store.desired.current)}\nproblems: ${this.problems}`,
    );
  }

  get warnings(): Watch<readonly SourceProblem[]> {
    assert.ok(this.source !== undefined);
    return this.source.warnings;
  }

  get problems(): string {
    return this.source?.problems.current.map(lineOf).join("\n") ?? "";
  }

  async untilProblem(pattern: RegExp): Promise<void> {
    assert.ok(this.source !== undefined);
    await reached(
      this.source.problems,
      (all) => pattern.test(all.map(lineOf).join("\n")),
      () => `${pattern}\nis: ${this.problems}`,
    );
  }

  async untilNoProblem(): Promise<void> {
    assert.ok(this.source !== undefined);
    await reached(
      this.source.problems,
      (all) => all.length === 0,
      () => `no problem\nis: ${this.problems}`,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await this.source?.[Symbol.asyncDispose]();
    this.#outer[Symbol.dispose]();
  }
}

const lineOf = ({ origin, line, message }: SourceProblem): string =>
  `${origin.split("/").at(-1)}:${line ?? "-"}: ${message}`;

async function reached<T>(watch: Watch<T>, isIt: (value: T) => boolean, what: () => string): Promise<void> {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), LIMIT_MS);
  try {
    for await (const value of watch.changes(limit.signal)) if (isIt(value)) return;
  } finally {
    clearTimeout(timer);
  }
  assert.fail(`waited in vain for: ${what()}`);
}

test("what lies in the folder at the start, in all notations, is wanted; hidden files are not", async () => {
  await using bench = new Bench();
  bench.writeOld("a.yaml", `${pod("a1")}---\n${pod("a2")}`);
  bench.writeOld(
    "b.json",
    '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}',
  );
  bench.writeOld("without-ending", pod("c"));
  bench.writeOld(".hidden.yaml", pod("hidden"));
  bench.start();
  await bench.until("a1-n=example/app:1 a2-n=example/app:1 b-n=i c-n=example/app:1");
  assert.equal(bench.history.length, 1, "in one go");
  assert.equal(bench.problems, "");
  assert.deepEqual(
    [...bench.store.desired.current.pods.values()].map(({ origin }) => origin.split("/").at(-1)),
    ["a.yaml", "a.yaml", "b.json", "without-ending"],
  );
});

test("a misspelt field is warned of with its line, and its pod runs, until it is mended", async () => {
  await using bench = new Bench();
  const misspelt = `${pod("a")}    comand: [sleep]\n`;
  bench.writeOld("a.yaml", misspelt);
  bench.start();
  await bench.until("a-n=example/app:1");
  const warning = 'unknown field "spec.containers[0].comand", did you mean "command"?';
  await reached(
    bench.warnings,
    (all) => all.map(lineOf).join() === `a.yaml:9: ${warning}`,
    () => "the warning",
  );
  assert.equal(bench.problems, "");
  assert.deepEqual(
    bench.events.all.map(({ type, reason, regarding, message }) => [type, reason, regarding.name, message]),
    [["Warning", "UnknownFields", "a-n", `${bench.path("a.yaml")}:9:5: ${warning}`]],
  );
  bench.replace("b.yaml", pod("b"));
  await bench.until("a-n=example/app:1 b-n=example/app:1");
  assert.equal(bench.warnings.current.length, 1, "as long as the file says so");
  bench.replace("a.yaml", misspelt.replace("comand", "command"));
  await reached(
    bench.warnings,
    (all) => all.length === 0,
    () => "no warning",
  );
  assert.equal(bench.events.all.length, 1);
});

test("what is misspelt is named beside what is missing for it", async () => {
  await using bench = new Bench();
  bench.writeOld("a.yaml", pod("a").replace("image:", "imge:"));
  bench.start();
  await bench.untilProblem(/containers\[0\]\.image: Required value\n.*imge", did you mean "image"\?/);
});

test("an empty folder wants nothing, and says so", async () => {
  await using bench = new Bench();
  bench.start();
  await bench.until("");
  assert.deepEqual([...bench.store.desired.current.synced], ["file"]);
  assert.equal(bench.store.writes, 0);
});

test("files that come, are renamed over, change in place and go", async () => {
  await using bench = new Bench();
  bench.start();
  await bench.until("");
  bench.write("a.yaml", pod("a"));
  await bench.until("a-n=example/app:1");
  bench.replace("a.yaml", pod("a", "example/app:2"));
  await bench.until("a-n=example/app:2");
  bench.write("a.yaml", pod("a", "example/app:3"));
  await bench.until("a-n=example/app:3");
  renameSync(bench.path("a.yaml"), bench.path("b.yaml"));
  bench.write("c.yaml", pod("c"));
  await bench.until("a-n=example/app:3 c-n=example/app:1");
  rmSync(bench.path("c.yaml"));
  await bench.until("a-n=example/app:3");
  rmSync(bench.path("b.yaml"));
  await bench.until("");
  assert.deepEqual(
    bench.history.filter((state, n) => state !== bench.history[n - 1]),
    [
      "",
      "a-n=example/app:1",
      "a-n=example/app:2",
      "a-n=example/app:3",
      "a-n=example/app:3 c-n=example/app:1",
      "a-n=example/app:3",
      "",
    ],
    "and nothing in between",
  );
  assert.deepEqual(bench.events.lines, []);
});

test("moving a file moves the pod's origin and nothing else", async () => {
  await using bench = new Bench();
  bench.writeOld("a.yaml", pod("a"));
  bench.start();
  await bench.until("a-n=example/app:1");
  const [before] = bench.store.desired.current.pods.keys();
  renameSync(bench.path("a.yaml"), bench.path("z.yaml"));
  await reached(
    bench.store.desired,
    ({ pods }) => [...pods.values()].every(({ origin }) => origin.endsWith("z.yaml")),
    () => "the new origin",
  );
  bench.write("b.yaml", pod("b"));
  await bench.until("a-n=example/app:1 b-n=example/app:1");
  assert.ok(before !== undefined && bench.store.desired.current.pods.has(before));
  assert.ok(
    bench.history.every((state) => state.includes("a-n")),
    bench.history.join("\n"),
  );
  assert.equal(bench.store.desired.current.removed.size, 0);
});

test("a comment changes nothing at all", async () => {
  await using bench = new Bench();
  bench.write("a.yaml", pod("a"));
  bench.start();
  await bench.until("a-n=example/app:1");
  const { writes } = bench.store;
  bench.replace("a.yaml", `# a comment\n${pod("a")}`);
  bench.write("b.yaml", pod("b"));
  await bench.until("a-n=example/app:1 b-n=example/app:1");
  assert.equal(bench.store.writes, writes + 1, "for b alone");
});

test("a broken file is named with its place; its last good pods and the others' go on, over a restart too", async () => {
  await using bench = new Bench();
  bench.write("a.yaml", pod("a"));
  bench.write("b.yaml", pod("b"));
  bench.start();
  await bench.until("a-n=example/app:1 b-n=example/app:1");
  bench.replace("a.yaml", pod("a").replace("image: example/app:1", "image: [no]"));
  await bench.untilProblem(/^a\.yaml:8: spec\.containers\[0\]\.image: Invalid value: a list/);
  assert.deepEqual(
    bench.events.all.map(({ regarding, reason }) => `${reason} ${regarding.kind} ${regarding.name}`),
    ["InvalidManifest Pod a-n"],
  );
  assert.match(
    bench.events.lines[0] ?? "",
    /^Warning InvalidManifest: .*\/a\.yaml:8:5: spec\.containers\[0\]\.image: .*\(its pods go on as they were\)$/,
  );
  await bench.restart();
  await bench.until("a-n=example/app:1 b-n=example/app:1");
  await bench.untilProblem(/^a\.yaml:8: /);
  bench.write("c.yaml", pod("c"));
  await bench.until("a-n=example/app:1 b-n=example/app:1 c-n=example/app:1");
  bench.replace("a.yaml", pod("a", "example/app:2"));
  await bench.until("a-n=example/app:2 b-n=example/app:1 c-n=example/app:1");
  await bench.untilNoProblem();
  assert.ok(
    bench.history.slice(1).every((state) => state.includes("a-n")),
    bench.history.join("\n"),
  );
});

test("every kind of bad file gets one located event, and harms nobody", async () => {
  await using bench = new Bench();
  bench.write("good.yaml", pod("good"));
  bench.write("syntax.yaml", "apiVersion: v1\nkind: [\n");
  bench.write("type.yaml", pod("a").replace("containers:", "restartPolicy: 5\n  containers:"));
  bench.write("long.yaml", pod("n".repeat(300)));
  bench.write("empty.yaml", "");
  bench.write("service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n");
  bench.write("zeros.yaml", "\0".repeat(4096));
  mkdirSync(bench.path("folder"));
  execFileSync("mkfifo", [bench.path("pipe")]);
  symlinkSync(bench.path("loop"), bench.path("loop"));
  symlinkSync("/nowhere/at/all", bench.path("dangling"));
  symlinkSync("/dev/zero", bench.path("device"));
  writeFileSync(bench.path("large.yaml"), "");
  truncateSync(bench.path("large.yaml"), 50 * 1024 * 1024);
  bench.start();
  await bench.until("good-n=example/app:1");
  const expected: Record<string, RegExp> = {
    "syntax.yaml": /^syntax\.yaml:\d: Flow sequence/,
    "type.yaml": /^type\.yaml:6: spec\.restartPolicy: Invalid value: 5: must be a string/,
    "long.yaml": /^long\.yaml:4: metadata\.name: /,
    "empty.yaml": /^empty\.yaml:-: holds no pod; to remove the pods of a file, delete the file/,
    "service.yaml": /^service\.yaml:2: kind: Unsupported value: "Service"/,
    "zeros.yaml": /^zeros\.yaml:/,
    folder: /^folder:-: must be a file, is a folder/,
    pipe: /^pipe:-: must be a file, is a pipe \(FIFO\)/,
    loop: /^loop:-: is a symbolic link that leads back to itself/,
    dangling: /^dangling:-: is a symbolic link to nothing/,
    device: /^device:-: must be a file, is a device/,
    "large.yaml": /^large\.yaml:-: Too long: 52428800 bytes, may not be more than 1048576/,
  };
  for (const problem of Object.values(expected)) await bench.untilProblem(new RegExp(problem.source, "m"));
  for (const name of Object.keys(expected)) {
    const about = bench.events.lines.filter((line) => line.includes(`/${name}:`));
    assert.equal(about.length, 1, `${name}: ${about.join("\n")}`);
  }
});

test("a link to a file is a manifest like any other", async () => {
  await using bench = new Bench();
  writeFileSync(join(bench.folder, "..", "elsewhere"), pod("a"));
  symlinkSync("../elsewhere", bench.path("a.yaml"));
  bench.start();
  await bench.until("a-n=example/app:1");
});

test("one name in two files: the first by path has it, unless the other's runs already", async () => {
  await using bench = new Bench();
  bench.write("b.yaml", pod("x", "example/b:1"));
  bench.start();
  await bench.until("x-n=example/b:1");
  bench.write("a.yaml", pod("x", "example/a:1"));
  await bench.untilProblem(
    /^a\.yaml:-: metadata\.name: Duplicate value: pod default\/x-n is that of .*\/b\.yaml; give one/,
  );
  await bench.restart();
  await bench.until("x-n=example/b:1");
  await bench.untilProblem(/^a\.yaml:/);
  bench.replace("b.yaml", pod("x", "example/b:2"));
  await bench.until("x-n=example/b:2");
  rmSync(bench.path("b.yaml"));
  await bench.until("x-n=example/a:1");
  await bench.untilNoProblem();
});

test("of ten thousand files the first thousand are taken, and those that run stay", async () => {
  await using bench = new Bench();
  bench.write("zzz.yaml", pod("zzz"));
  bench.start();
  await bench.until("zzz-n=example/app:1");
  await bench.stop();
  for (let n = 0; n < 10_000; n += 1) bench.write(`file-${String(n).padStart(5, "0")}.yaml`, pod(`p${n}`));
  bench.start();
  await bench.untilProblem(/Too many: at most 1000 files are read, the first by name; 9001 are left out/);
  await reached(
    bench.store.desired,
    ({ pods }) => pods.size === MAX_FILES,
    () => `${bench.store.desired.current.pods.size} pods`,
  );
  const names = [...bench.store.desired.current.pods.values()].map(({ pod: { metadata } }) => metadata.name);
  assert.ok(names.includes("zzz-n") && names.includes("p0-n") && names.includes("p998-n") && !names.includes("p999-n"));
  assert.equal(bench.events.lines.filter((line) => line.includes("TooManyManifests")).length, 1);
});

test("a folder that is not there yet is waited for, and until then nothing is said about its pods", async () => {
  await using bench = new Bench({ makesFolder: false });
  const outer = join(bench.folder, "deep", "er");
  bench.start(outer);
  await bench.untilProblem(/is not there: make it, or name another staticPodPath/);
  assert.equal(bench.store.desired.current.synced.size, 0);
  mkdirSync(outer, { recursive: true });
  writeFileSync(join(outer, "a.yaml"), pod("a"));
  await bench.until("a-n=example/app:1");
  await bench.untilNoProblem();
});

test("a folder that goes keeps its pods, and is watched again when it is made anew", async () => {
  await using bench = new Bench();
  bench.write("a.yaml", pod("a"));
  bench.start();
  await bench.until("a-n=example/app:1");
  renameSync(bench.folder, `${bench.folder}-away`);
  await bench.untilProblem(/is not there/);
  mkdirSync(bench.folder);
  writeFileSync(bench.path("a.yaml"), pod("a"));
  await bench.untilNoProblem();
  bench.write("b.yaml", pod("b"));
  await bench.until("a-n=example/app:1 b-n=example/app:1");
  // So fast that the source does not see it missing.
  renameSync(bench.folder, `${bench.folder}-away-too`);
  mkdirSync(bench.folder);
  bench.write("a.yaml", pod("a"));
  bench.write("b.yaml", pod("b", "example/app:2"));
  await bench.until("a-n=example/app:1 b-n=example/app:2");
  bench.write("b.yaml", pod("b"));
  await bench.until("a-n=example/app:1 b-n=example/app:1");
  rmSync(bench.folder, { recursive: true });
  await bench.untilProblem(/is not there/);
  await bench.restart();
  await bench.untilProblem(/is not there/);
  assert.equal(bench.store.desired.current.synced.size, 0);
  assert.equal(shown(bench.store.desired.current), "a-n=example/app:1 b-n=example/app:1");
  mkdirSync(bench.folder);
  bench.write("b.yaml", pod("b"));
  await bench.until("b-n=example/app:1");
});

test("staticPodPath may be one file, and its deletion is one", async () => {
  await using bench = new Bench();
  bench.write("only.yaml", pod("a"));
  bench.write("other.yaml", pod("other"));
  bench.start(bench.path("only.yaml"));
  await bench.until("a-n=example/app:1");
  bench.replace("only.yaml", pod("a", "example/app:2"));
  await bench.until("a-n=example/app:2");
  rmSync(bench.path("only.yaml"));
  await bench.until("");
  bench.write("only.yaml", pod("a", "example/app:3"));
  await bench.until("a-n=example/app:3");
});

test("a path that is neither folder nor file is a problem, not a wait", async () => {
  await using bench = new Bench();
  execFileSync("mkfifo", [bench.path("pipe")]);
  bench.start(bench.path("pipe"));
  await bench.untilProblem(/^pipe:-: must be a folder or a file, is a pipe/);
  assert.equal(bench.store.desired.current.synced.size, 0);
});

test("when the disk does not take the pods it is said, and tried again", async () => {
  await using bench = new Bench();
  bench.write("a.yaml", pod("a"));
  bench.store.failure = new PicoletError("resource_exhausted", "cannot store the pods of source file", {
    retryable: true,
  });
  bench.start();
  await bench.untilProblem(/^manifests:-: cannot store the pods of source file; it will be tried again/);
  assert.match(bench.events.lines.join("\n"), /^Warning FailedToStorePods/);
  bench.store.failure = undefined;
  bench.write("b.yaml", pod("b"));
  await bench.until("a-n=example/app:1 b-n=example/app:1");
  await bench.untilNoProblem();
});

/** In the time of the test, with a look every millisecond of it. */
class TimedBench implements AsyncDisposable {
  readonly outer = new TemporaryFolder();
  readonly path = this.outer.file("a.yaml");
  readonly store = new MemoryDesiredStore();
  readonly events = new RecordedEvents();
  // Long before any file was made: their age says nothing.
  readonly clock = new VirtualClock(0);
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor(checkFrequency: Millis = millis(1)) {
    const { clock, store, events } = this;
    const init = { path: this.outer.path, nodeName: "n", checkFrequency };
    this.#running = endOfRun(
      new FileSource({ clock, log: new RecordedLog(), store, events }, init).run(this.#stop.signal),
    );
  }

  async after(ms: number): Promise<string> {
    await this.clock.advance(millis(ms));
    return shown(this.store.desired.current);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.outer[Symbol.dispose]();
    assert.equal(this.clock.sleeping, 0);
  }
}

test("a half-written file is no deletion, no other pod and no problem", async () => {
  await using bench = new TimedBench();
  const text = `${pod("a")}---\n${pod("b")}`;
  const changed = text.replaceAll("app:1", "app:2");
  writeFileSync(bench.path, text);
  const before = await bench.after(20);
  assert.equal(before, "a-n=example/app:1 b-n=example/app:1");
  const file = openSync(bench.path, "w");
  assert.equal(await bench.after(990), before, "empty");
  writeSync(file, changed.slice(0, changed.indexOf("---")));
  assert.equal(await bench.after(990), before, "a whole pod, and another one missing");
  writeSync(file, changed.slice(changed.indexOf("---"), -10));
  assert.equal(await bench.after(990), before, "not to be read");
  writeSync(file, changed.slice(-10));
  closeSync(file);
  assert.equal(await bench.after(101), "a-n=example/app:2 b-n=example/app:2");
  assert.deepEqual(bench.events.lines, []);
});

test("an editor that moves the old version away before it writes the new one takes nothing away", async () => {
  await using bench = new TimedBench();
  writeFileSync(bench.path, pod("a"));
  assert.equal(await bench.after(20), "a-n=example/app:1");
  renameSync(bench.path, bench.outer.file(".a.yaml~"));
  assert.equal(await bench.after(98), "a-n=example/app:1");
  writeFileSync(bench.path, pod("a", "example/app:2"));
  assert.equal(await bench.after(10), "a-n=example/app:2");
  rmSync(bench.path);
  assert.equal(await bench.after(98), "a-n=example/app:2");
  assert.equal(await bench.after(4), "");
  assert.deepEqual(bench.events.lines, []);
});

test("pods that the disk did not take are stored within seconds when it does, with nobody's help", async () => {
  await using bench = new TimedBench(seconds(3600));
  bench.store.failure = new PicoletError("resource_exhausted", "cannot store", { retryable: true });
  assert.equal(await bench.after(1000), "");
  assert.equal(bench.store.desired.current.synced.size, 0);
  bench.store.failure = undefined;
  await bench.after(5000);
  assert.deepEqual([...bench.store.desired.current.synced], ["file"]);
});

test("without inotify the recheck finds everything", async () => {
  await using bench = new TimedBench(seconds(20));
  await bench.clock.settle();
  writeFileSync(bench.path, pod("a"));
  // The outcome does not depend on whether its event has come, nor on the order.
  await bench.after(20_000);
  assert.equal(await bench.after(5), "a-n=example/app:1");
  rmSync(bench.path);
  await bench.after(20_000);
  assert.equal(await bench.after(100), "");
});
