import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { test } from "node:test";
import { seconds } from "@picolet/protocol/ports.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { samplePod, TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import Database from "better-sqlite3";
import { MAX_KEPT_RECORDS, MAX_KEPT_VALUE_BYTES } from "../core/store/kept-records.ts";
import { Store } from "./store.ts";

class Bench implements AsyncDisposable {
  readonly folder = new TemporaryFolder();
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly path: string = this.folder.file("picolet.db");
  store: Store = this.#open();

  get kept(): Store["kept"] {
    return this.store.kept;
  }

  async reopen(between: () => void = () => undefined): Promise<void> {
    await this.store[Symbol.asyncDispose]();
    between();
    this.store = this.#open();
  }

  /** Bytes of the log beside the database, which grows with every write. */
  get written(): number {
    return statSync(`${this.path}-wal`).size;
  }

  #open(): Store {
    return new Store({ clock: this.clock, log: this.log }, { path: this.path });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.store[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}

test("what is kept is there by area, at once and after a restart", async () => {
  await using bench = new Bench();
  bench.kept.put("images", "b", { usedAtMs: 2, tags: ["x"] });
  bench.kept.put("images", "a", { usedAtMs: 1, tags: [] });
  bench.kept.put("days", "a", 7);
  const see = () => [[...bench.kept.all("images")].toSorted(), [...bench.kept.all("days")]];
  const all = [
    [
      ["a", { usedAtMs: 1, tags: [] }],
      ["b", { usedAtMs: 2, tags: ["x"] }],
    ],
    [["a", 7]],
  ];
  assert.deepEqual(see(), all);
  bench.store.flush();
  assert.deepEqual(see(), all);
  await bench.reopen();
  assert.deepEqual(see(), all);
  bench.kept.delete("images", "b");
  bench.kept.put("days", "a", 8);
  assert.deepEqual(see(), [[["a", { usedAtMs: 1, tags: [] }]], [["a", 8]]]);
  await bench.reopen();
  assert.deepEqual(see(), [[["a", { usedAtMs: 1, tags: [] }]], [["a", 8]]]);
});

test("equal content writes nothing, whatever the order of its keys; `soon` is a second, `later` a minute", async () => {
  await using bench = new Bench();
  const stop = new AbortController();
  const running = endOfRun(bench.store.run(stop.signal));
  bench.kept.put("days", "a", { x: 1, y: 2 }, "soon");
  const start = bench.written;
  await bench.clock.advance(seconds(2));
  const first = bench.written;
  assert.ok(first > start);
  bench.kept.put("days", "a", { y: 2, x: 1 }, "soon");
  bench.kept.delete("days", "nobody");
  await bench.clock.settle();
  assert.equal(bench.clock.sleeping, 0, "nothing waits to be written");
  await bench.clock.advance(seconds(120));
  assert.equal(bench.written, first);
  bench.kept.put("days", "a", { x: 2, y: 2 });
  await bench.clock.advance(seconds(59));
  assert.equal(bench.written, first);
  await bench.clock.advance(seconds(2));
  assert.ok(bench.written > first);
  stop.abort();
  await running;
});

test("a damaged row is left out and goes, the others and the pods stay", async () => {
  await using bench = new Bench();
  for (const key of ["a", "b", "c"]) bench.kept.put("days", key, `value of ${key}`);
  bench.store.desired.replace("file", 1, [samplePod("a")]);
  await bench.reopen(() => {
    const database = new Database(bench.path);
    database.exec("UPDATE kept SET value = X'FF00' WHERE key = 'a'; UPDATE kept SET digest = X'00' WHERE key = 'b'");
    database.exec("UPDATE kept SET key = 'd' WHERE key = 'c'");
    database.close();
  });
  assert.deepEqual(bench.store.state.current, { kind: "durable", opening: { kind: "opened" } });
  assert.equal(bench.store.desired.desired.current.pods.size, 1);
  assert.equal(bench.kept.all("days").size, 0);
  bench.kept.put("days", "b", "anew");
  assert.deepEqual([...bench.kept.all("days")], [["b", "anew"]]);
  await bench.reopen();
  assert.deepEqual([...bench.kept.all("days")], [["b", "anew"]]);
  await bench.reopen(() => {
    const database = new Database(bench.path, { readonly: true });
    assert.deepEqual(database.prepare("SELECT key FROM kept").pluck().all(), ["b"]);
    database.close();
  });
});

test("there is a limit to records and to each, and reaching it is said once", async () => {
  await using bench = new Bench();
  bench.kept.put("big", "a", "x".repeat(MAX_KEPT_VALUE_BYTES));
  assert.equal(bench.kept.all("big").size, 0);
  for (let n = 0; n < MAX_KEPT_RECORDS - 1; n += 1) bench.kept.put("many", `${n}`, n);
  await bench.reopen();
  bench.kept.put("more", "a", 1);
  bench.kept.put("more", "b", 1);
  bench.kept.put("more", "c", 1);
  bench.kept.put("more", "a", 2);
  assert.deepEqual([...bench.kept.all("more")], [["a", 2]], "one that is there can change");
  bench.kept.delete("many", "7");
  bench.kept.put("more", "b", 3);
  assert.equal(bench.kept.all("more").size, 2);
  const said = ["a record is too large to be kept", "too many records are kept, further ones are dropped"];
  assert.deepEqual(bench.log.problems, said);
});
