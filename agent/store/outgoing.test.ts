/** Outgoing records, which are statuses and events until they are acknowledged, and objects of the API server. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { digestOf } from "@picolet/protocol/tunnel/digest.ts";
import type { EventItem, RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import {
  remoteObject,
  remotePod,
  samplePod,
  sampleReference,
  sampleStatus,
  TemporaryFolder,
} from "@picolet/test/support/unit/store/store-samples.ts";
import type { ApiPods } from "../core/store/store-ports.ts";
import { sha256 } from "./object-rows.ts";
import { MAX_OBJECTS, MAX_OBJECTS_BYTES } from "./remote-object-table.ts";
import { Store } from "./store.ts";

const NOBODY: ReadonlySet<string> = new Set();
const NO_PODS: ApiPods = { wanted: [], removed: [] };

const isLoss = ({ value }: { readonly value: EventItem }): boolean => value.reason === "EventsLost";

class Bench implements AsyncDisposable {
  readonly folder = new TemporaryFolder();
  readonly clock = new VirtualClock();
  readonly #maxBytes: number | undefined;
  store: Store;

  constructor(maxBytes?: number) {
    this.#maxBytes = maxBytes;
    this.store = this.#open();
  }

  get path(): string {
    return this.folder.file("picolet.db");
  }

  async reopen(): Promise<void> {
    await this.store[Symbol.asyncDispose]();
    this.store = this.#open();
  }

  /** `sequence name message` */
  get statuses(): string[] {
    return this.store.statuses
      .pending(99)
      .map(
        ({ sequence, value: { uid, status, gone } }) => `${sequence} ${uid} ${status.message}${gone ? " gone" : ""}`,
      );
  }

  get events(): string[] {
    return this.store.events.pending(9999).map(({ sequence, value }) => `${sequence} ${value.message} ${value.count}`);
  }

  record(message: string): void {
    this.store.events.record({ regarding: sampleReference("a"), type: "Normal", reason: "R", message });
  }

  apply(upserts: readonly RemoteObject[], deletes: readonly string[] = [], pods: ApiPods = NO_PODS): void {
    const { objects } = this.store;
    const digest = objects.digestAfter({ upserts, deletes });
    const { revision } = objects.cursor;
    objects.apply({ cursor: { epoch: Uint8Array.of(1), revision: revision + 1, digest }, upserts, deletes }, pods);
  }

  get keys(): string[] {
    return [...this.store.objects.inventory()].map(({ key }) => key);
  }

  #open(): Store {
    const init = { path: this.path, nodeName: "edge-1", ...(this.#maxBytes ? { maxBytes: this.#maxBytes } : {}) };
    return new Store({ clock: this.clock, log: new RecordedLog() }, { ...init, eventRate: { perSecond: 0, burst: 0 } });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.store[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}

test("what is refused of a batch stays pending under a new sequence, over restarts", async () => {
  await using bench = new Bench();
  for (const name of ["a", "b", "c"]) bench.store.statuses.put(sampleStatus(name, "up"));
  assert.deepEqual([bench.store.statuses.latest.current, bench.store.statuses.pendingCount()], [3, 3]);
  bench.store.statuses.ack(2, new Set(["uid-a"]));
  assert.deepEqual(bench.statuses, ["3 uid-c up", "4 uid-a up"]);
  await bench.reopen();
  assert.deepEqual(bench.statuses, ["3 uid-c up", "4 uid-a up"]);
  assert.deepEqual([bench.store.statuses.latest.current, bench.store.statuses.pendingCount()], [4, 2]);
  assert.equal(bench.store.statuses.acknowledged.current, 2);
  bench.store.statuses.ack(4, new Set(["uid-a", "uid-b"]));
  assert.deepEqual(bench.statuses, ["5 uid-b up", "6 uid-a up"], "of what was acknowledged before too");
  bench.store.statuses.ack(99, NOBODY);
  assert.deepEqual([bench.statuses, bench.store.statuses.pendingCount()], [[], 0]);
  assert.equal(bench.store.statuses.acknowledged.current, 6);
});

test("what was acknowledged is told again when it is asked for, and nothing else", async () => {
  await using bench = new Bench();
  for (const name of ["a", "b", "c"]) bench.store.statuses.put(sampleStatus(name, "up"));
  bench.store.statuses.ack(2, NOBODY);
  bench.store.statuses.repeat(new Set(["uid-a", "uid-c", "uid-unknown"]));
  assert.deepEqual(bench.statuses, ["3 uid-c up", "4 uid-a up"]);
  await bench.reopen();
  assert.deepEqual(bench.statuses, ["3 uid-c up", "4 uid-a up"]);
});

test("a status that is the same under another UID is told under that", async () => {
  await using bench = new Bench();
  bench.store.statuses.put(sampleStatus("a", "up"));
  bench.store.statuses.ack(1, NOBODY);
  bench.store.statuses.put(sampleStatus("a", "up"));
  assert.deepEqual(bench.statuses, []);
  bench.store.statuses.put({ ...sampleStatus("a", "up"), apiUid: "other" });
  assert.deepEqual(bench.statuses, ["2 other up"]);
});

test("who waits for a status is woken by each", async () => {
  await using bench = new Bench();
  const { statuses } = bench.store;
  const stop = new AbortController();
  const seen: number[] = [];
  const following = (async () => {
    for await (const sequence of statuses.latest.changes(stop.signal)) seen.push(sequence);
  })();
  for (const message of ["one", "two", "two"]) {
    await bench.clock.settle();
    statuses.put(sampleStatus("a", message));
  }
  await bench.clock.settle();
  stop.abort();
  await following;
  assert.deepEqual(seen, [0, 1, 2]);
});

test("an event is told until it is acknowledged, and again with its new count when it is repeated", async () => {
  await using bench = new Bench();
  bench.record("x");
  bench.record("y");
  assert.deepEqual(bench.events, ["1 x 1", "2 y 1"]);
  const [first] = bench.store.events.pending(1);
  bench.store.events.ack(2);
  assert.deepEqual(bench.events, []);
  bench.record("x");
  assert.deepEqual(bench.events, ["3 x 2"]);
  await bench.reopen();
  assert.deepEqual(bench.events, ["3 x 2"]);
  bench.record("x");
  const [again] = bench.store.events.pending(1);
  assert.deepEqual([again?.sequence, again?.value.count], [4, 3]);
  assert.equal(again?.value.id, first?.value.id, "it is the same event");
  assert.equal(again?.value.firstAtMs, first?.value.firstAtMs);
  await bench.clock.advance(seconds(3600));
  bench.record("x");
  const [, later] = bench.store.events.pending(9);
  assert.notEqual(later?.value.id, first?.value.id, "after an hour it is another one");
  bench.store.events.ack(99);
  bench.store.flush();
  await bench.reopen();
  assert.deepEqual(bench.events, []);
});

test("an event that goes on for a day is told at intervals that grow, and its last count is not lost", async () => {
  await using bench = new Bench();
  const stop = new AbortController();
  const running = endOfRun(bench.store.run(stop.signal));
  const told: number[] = [];
  const tell = (): void => {
    for (const { sequence, value } of bench.store.events.pending(9)) {
      told.push(value.count);
      bench.store.events.ack(sequence);
    }
  };
  for (let failures = 0; failures < 8640; failures += 1) {
    bench.record("Readiness probe failed");
    tell();
    await bench.clock.advance(seconds(10));
    tell();
  }
  assert.deepEqual(told.slice(0, 28), [...Array.from({ length: 25 }, (_, n) => n + 1), 55, 115, 204]);
  assert.ok(told.length < 130, `${told.length} times`);
  await bench.clock.advance(seconds(900));
  tell();
  assert.equal(told.at(-1), 8640);
  const before = told.length;
  await bench.clock.advance(seconds(1800));
  tell();
  assert.equal(told.length, before, "nothing has changed since");

  bench.record("Readiness probe failed");
  bench.record("Readiness probe failed");
  tell();
  stop.abort();
  await running;
  await bench.reopen();
  tell();
  assert.equal(told.at(-1), 8642, "an agent that ends tells the next one");
});

test("events that the ring let go before they were told are told of once", async () => {
  await using bench = new Bench();
  const overflow = (from: number, count = 1010): void => {
    for (let n = from; n < from + count; n += 1) {
      bench.store.events.record({ regarding: sampleReference(`p${n}`), type: "Normal", reason: "R", message: "m" });
      if (n % 200 === 0) bench.store.flush();
    }
    bench.store.flush();
  };
  overflow(0);
  const lost = (): number => bench.events.filter((each) => each.includes("Events were dropped")).length;
  assert.equal(lost(), 0, "nobody has ever been told of anything");
  bench.store.events.ack(bench.store.events.latest.current);
  overflow(2000);
  for (let n = 0; n < 5; n += 1) overflow(3500 + 50 * n, 50);
  assert.deepEqual([lost(), bench.store.events.pending(9999).find(isLoss)?.value.count], [1, 1], "not at each of them");
  overflow(4000);
  assert.equal(lost(), 1, "gone itself, it has come again");
  const told = bench.store.events.pending(9999).find(isLoss);
  assert.deepEqual([told?.value.regarding.kind, told?.value.regarding.name], ["Node", "edge-1"]);
  bench.store.events.ack(bench.store.events.latest.current);
  await bench.clock.advance(seconds(601));
  overflow(6000);
  assert.equal(lost(), 1, "and again, once, after it has been heard");
});

test("objects and the pods made of them are there together, or neither", async () => {
  await using bench = new Bench(24 * 4096);
  const pod = samplePod("web", { source: "api", origin: "" });
  bench.apply([remotePod("web")], [], { wanted: [pod], removed: [] });
  const before = bench.store.objects.cursor;
  const big = remoteObject("Secret", "big", { data: "x".repeat(200_000) });
  const other = samplePod("other", { source: "api", origin: "" });
  assert.throws(
    () => bench.apply([remotePod("other"), big], [], { wanted: [pod, other], removed: [] }),
    (error) => isPicoletError(error, "resource_exhausted"),
  );
  assert.deepEqual(bench.keys, ["Pod/default/web"]);
  assert.deepEqual(bench.store.objects.cursor, before);
  assert.deepEqual([...bench.store.desired.desired.current.pods.keys()], ["uid-web"]);
  await bench.reopen();
  assert.deepEqual(bench.keys, ["Pod/default/web"]);
  assert.deepEqual(bench.store.objects.cursor, before);
});

test("the digest is that of the set, whatever came and went", async () => {
  await using bench = new Bench();
  bench.apply([remotePod("a"), remotePod("b"), remotePod("c")]);
  bench.apply([remotePod("b", { image: "busybox:2" })], ["Pod/default/a", "Pod/default/unknown"]);
  await bench.reopen();
  bench.apply([remotePod("a")], ["Pod/default/a"]);
  const { objects } = bench.store;
  assert.deepEqual(objects.cursor.digest, digestOf(sha256, objects.inventory()));
  assert.deepEqual(bench.keys.toSorted(), ["Pod/default/a", "Pod/default/b", "Pod/default/c"]);
});

test("a cursor alone is moved with the next batch", async () => {
  await using bench = new Bench();
  bench.apply([remotePod("a")]);
  const size = readFileSync(`${bench.path}-wal`).length;
  bench.apply([]);
  assert.equal(readFileSync(`${bench.path}-wal`).length, size, "nothing was written");
  assert.equal(bench.store.objects.cursor.revision, 2);
  bench.store.flush();
  await bench.reopen();
  assert.equal(bench.store.objects.cursor.revision, 2);
});

test("more than the limits is refused whole, and a set above one may shrink", async () => {
  await using bench = new Bench();
  const many = Array.from({ length: MAX_OBJECTS }, (_, n) => remoteObject("ConfigMap", `c${n}`, { n }));
  bench.apply(many);
  const refused = (upserts: readonly RemoteObject[], deletes: readonly string[] = []): void =>
    assert.throws(
      () => bench.apply(upserts, deletes),
      (error) => isPicoletError(error, "resource_exhausted") && error.retryable,
    );
  refused([remoteObject("ConfigMap", "more", {})]);
  bench.apply([remoteObject("ConfigMap", "more", {})], ["ConfigMap/default/c0"]);
  refused([remoteObject("ConfigMap", "more", { data: "x".repeat(MAX_OBJECTS_BYTES) })]);
  assert.equal(bench.keys.length, MAX_OBJECTS);
  bench.apply([], bench.keys.slice(1));
  assert.equal(bench.keys.length, 1);
});

test("of a damaged file the pods are kept and the objects asked for again", async () => {
  await using bench = new Bench();
  const pod = samplePod("web", { source: "api", origin: "" });
  bench.apply([remotePod("web")], [], { wanted: [pod], removed: [] });
  await bench.store[Symbol.asyncDispose]();
  const bytes = readFileSync(bench.path);
  const at = bytes.indexOf("Pod/default/web");
  assert.ok(at > 0);
  bytes.write("Pod/default/ouch", at);
  writeFileSync(bench.path, bytes);
  await bench.reopen();
  const { objects, desired, state } = bench.store;
  assert.equal(state.current.kind === "durable" && state.current.opening.kind, "rebuilt");
  assert.deepEqual([objects.cursor.epoch.length, objects.cursor.revision, bench.keys], [0, 0, []]);
  assert.deepEqual([...desired.desired.current.pods.keys()], ["uid-web"]);
});

test("an object that lies beside its cursor makes that worthless", async () => {
  await using bench = new Bench();
  bench.apply([remotePod("a"), remotePod("b")]);
  await bench.store[Symbol.asyncDispose]();
  const { default: Database } = await import("better-sqlite3");
  const database = new Database(bench.path);
  database.exec("DELETE FROM objects WHERE key = 'Pod/default/a'");
  database.close();
  await bench.reopen();
  assert.deepEqual([bench.store.objects.cursor.epoch.length, bench.keys], [0, ["Pod/default/b"]]);
});
