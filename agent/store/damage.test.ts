/** Files that were cut, flipped or replaced, and disks that are full or refuse: opening never throws for them. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { sealerOf } from "@picolet/test/support/unit/store/sealers.ts";
import {
  remoteObject,
  samplePod,
  sampleReference,
  sampleStatus,
  TemporaryFolder,
} from "@picolet/test/support/unit/store/store-samples.ts";
import Database from "better-sqlite3";
import fc from "fast-check";
import { FORMAT, TABLES } from "./schema.ts";
import { Store } from "./store.ts";

const PODS: readonly DesiredPod[] = Array.from({ length: 12 }, (_, n) => samplePod(`pod-${n}`));
const OBJECTS: readonly RemoteObject[] = Array.from({ length: 6 }, (_, n) =>
  remoteObject("Secret", `secret-${n}`, { kind: "Secret", data: { key: "c2VjcmV0".repeat(20) } }),
);
const uids = (store: Store): string[] => [...store.desired.desired.current.pods.keys()].toSorted();
const stateOf = (store: Store): string => store.state.current.kind;
const ALL_UIDS = PODS.map(({ uid }) => uid).toSorted();

function open(path: string, init: { clock?: VirtualClock; maxBytes?: number } = {}): Store {
  const { clock = new VirtualClock(), ...rest } = init;
  return new Store({ clock, log: new RecordedLog(), sealer: sealerOf({ scrubbed: true }) }, { path, ...rest });
}

async function fillAndClose(path: string): Promise<void> {
  await using store = open(path);
  store.desired.replace("file", 1, PODS);
  store.desired.replace("api", 1, [samplePod("gone", { source: "api" })]);
  store.desired.replace("api", 2, []);
  for (const { pod } of PODS) store.statuses.put(sampleStatus(pod.metadata.name, "x".repeat(300)));
  for (let n = 0; n < 20; n += 1) recordSome(store, n);
  const digest = store.objects.digestAfter({ upserts: OBJECTS, deletes: [] });
  const cursor = { epoch: Uint8Array.of(1, 2), revision: 5, digest };
  const removed = [...store.desired.desired.current.removed.values()];
  store.objects.apply({ cursor, upserts: OBJECTS, deletes: [] }, { wanted: [], removed });
  for (let n = 0; n < 5; n += 1) store.kept.put("days", `day-${n}`, `kept on ${n}`);
}

const recordSome = (store: Store, n: number): void =>
  store.events.record({
    regarding: sampleReference(`pod-${n}`),
    type: "Normal",
    reason: "Started",
    message: `event ${n}`,
  });

/** The daily work of a store, which must succeed on any file that was opened. */
function exercise(store: Store): void {
  const known = uids(store);
  assert.ok(
    known.every((uid) => ALL_UIDS.includes(uid as (typeof ALL_UIDS)[number])),
    "no pod is another one than was stored",
  );
  for (const pod of store.desired.desired.current.pods.values()) {
    assert.deepEqual(
      pod,
      PODS.find(({ uid }) => uid === pod.uid),
    );
  }
  for (const { key } of store.objects.inventory()) {
    const found = store.objects.object(key);
    if (found === undefined) assert.equal(store.objects.cursor.epoch.length, 0, "lost, and known to be");
    else assert.deepEqual(found, OBJECTS.find((each) => each.key === key)?.object);
  }
  const { cursor } = store.objects;
  assert.ok(cursor.epoch.length === 0 || [...store.objects.inventory()].length === OBJECTS.length, "whole or unknown");
  for (const [key, value] of store.kept.all("days")) assert.equal(value, `kept on ${key.slice(4)}`);
  store.events.list({ limit: 2000 });
  store.statuses.pending(100);
  store.events.pending(100);
  store.statuses.put(sampleStatus("pod-1", "again"));
  recordSome(store, 1);
  assert.ok(store.flush());
  assert.equal(store.desired.replace("file", store.desired.revision("file") + 1, PODS.slice(1)), "accepted");
}

test("a damaged file is set aside, its readable pods are kept, their sources are asked anew", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  await fillAndClose(path);
  const bytes = readFileSync(path);
  // Within the text of one pod, wherever a page was once written: SQLite itself finds nothing wrong with it.
  const origin = "/manifests/pod-4.yaml";
  for (let row = bytes.indexOf(origin); row >= 0; row = bytes.indexOf(origin, row + 1)) {
    const at = bytes.indexOf("busybox:1", row);
    bytes[at] = (bytes[at] ?? 0) ^ 0x01;
  }
  writeFileSync(path, bytes);
  const clock = new VirtualClock();
  {
    await using store = open(path, { clock });
    const { current } = store.state;
    assert.ok(current.kind === "durable" && current.opening.kind === "rebuilt");
    assert.equal(current.opening.setAside, `${path}.damaged-20260101T000000Z`);
    assert.equal(current.opening.salvagedPods, PODS.length, "eleven pods and one that was removed");
    assert.equal(uids(store).length, PODS.length - 1);
    assert.equal(store.desired.desired.current.removed.size, 1);
    assert.equal(store.desired.revision("file"), 0);
    assert.deepEqual(readFileSync(current.opening.setAside), bytes, "as it was found");
  }
  await using again = open(path, { clock });
  assert.deepEqual(again.state.current, { kind: "durable", opening: { kind: "opened" } });
  assert.equal(uids(again).length, PODS.length - 1);
});

test("flipped bytes anywhere never keep the store from opening and never make another pod", async () => {
  using folder = new TemporaryFolder();
  const original = folder.file("original.db");
  await fillAndClose(original);
  const bytes = readFileSync(original);
  const flip = fc.record({ at: fc.nat(bytes.length - 1), by: fc.integer({ min: 1, max: 255 }) });
  // The header and the roots of the tables are few bytes among many, and the ones that matter.
  const flipAtStart = fc.record({ at: fc.nat(300), by: fc.integer({ min: 1, max: 255 }) });
  const damage = fc.array(fc.oneof(flip, flipAtStart), { minLength: 1, maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(damage, async (flips) => {
      using own = new TemporaryFolder();
      const path = own.file("picolet.db");
      const damaged = Buffer.from(bytes);
      for (const { at, by } of flips) damaged[at] = (damaged[at] ?? 0) ^ by;
      writeFileSync(path, damaged);
      await using store = open(path);
      assert.equal(store.state.current.kind, "durable");
      exercise(store);
    }),
    // The first makes the database read-only; SQLite says so at the first write alone.
    { numRuns: 300, examples: [[[{ at: 18, by: 1 }]]] },
  );
});

test("any page that is overwritten is found when the file is opened", async () => {
  using folder = new TemporaryFolder();
  const original = folder.file("original.db");
  await fillAndClose(original);
  const bytes = readFileSync(original);
  for (let page = 0; page < bytes.length / 4096; page += 1) {
    const path = folder.file(`page-${page}.db`);
    writeFileSync(path, Buffer.from(bytes).fill(0x5a, page * 4096, (page + 1) * 4096));
    await using store = open(path);
    const { current } = store.state;
    assert.ok(current.kind === "durable" && current.opening.kind === "rebuilt", `page ${page}`);
    exercise(store);
  }
});

test("a file cut at any length opens", async () => {
  using folder = new TemporaryFolder();
  const original = folder.file("original.db");
  await fillAndClose(original);
  const { length } = readFileSync(original);
  const cuts = [0, 1, 15, 16, 99, 100, 101, 4095, 4096, 4097, length - 1];
  for (let at = 8192; at < length; at += 4096) cuts.push(at);
  for (const at of cuts) {
    const path = folder.file(`cut-${at}.db`);
    copyFileSync(original, path);
    truncateSync(path, at);
    await using store = open(path);
    assert.equal(store.state.current.kind, "durable", `cut at ${at}`);
    exercise(store);
  }
});

test("after a power cut at any byte of the log the store holds a prefix of what was done", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  await using store = open(path);
  const revisions = 12;
  const start = readFileSync(`${path}-wal`).length;
  for (let n = 1; n <= revisions; n += 1) store.desired.replace("file", n, PODS.slice(0, n));
  const log = readFileSync(`${path}-wal`);
  const seen = new Set<number>();
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: start, max: log.length }), fc.boolean(), async (cut, isTorn) => {
      using own = new TemporaryFolder();
      const copy = own.file("picolet.db");
      copyFileSync(path, copy);
      // Torn: the rest of the log is there, but its sectors hold something else.
      writeFileSync(`${copy}-wal`, log.subarray(0, cut));
      if (isTorn) appendFileSync(`${copy}-wal`, Buffer.alloc(log.length - cut, 0xa5));
      await using opened = open(copy);
      assert.equal(opened.state.current.kind, "durable");
      const revision = opened.desired.revision("file");
      seen.add(revision);
      assert.deepEqual([...opened.desired.desired.current.pods.values()], PODS.slice(0, revision));
      if (cut === log.length) assert.equal(revision, revisions);
    }),
    { numRuns: 150, examples: [[log.length, false]] },
  );
  assert.ok(seen.size > 5, "the cuts fell on many revisions");
});

test("at most two damaged files are kept", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  // A clock that stands still, goes on, and goes back: the newest is kept in any case.
  for (const wall of [1e12, 1e12, 2e12, 2e12, 1e9]) {
    writeFileSync(path, "this is no database");
    await using store = open(path, { clock: new VirtualClock(wall) });
    const { current } = store.state;
    assert.ok(current.kind === "durable" && current.opening.kind === "rebuilt");
    assert.ok(existsSync(current.opening.setAside));
    const kept = readdirSync(folder.path).filter((name) => /damaged-[^-]*(-\d+)?$/.test(name));
    assert.ok(kept.length <= 2, kept.join(" "));
  }
});

test("whatever lies in the file's place is moved out of the way", async () => {
  using folder = new TemporaryFolder();
  const makers: Record<string, (path: string) => void> = {
    directory: (path) => mkdirSync(join(path, "inside"), { recursive: true }),
    dangling: (path) => symlinkSync("/nowhere/at/all", path),
    loop: (path) => symlinkSync(path, path),
    fifo: (path) => void execFileSync("mkfifo", [path]),
    otherDatabase: (path) => void new Database(path).exec("CREATE TABLE t (a); PRAGMA user_version = 1").close(),
    noPrimaryKey: (path) => {
      const made = new Database(path);
      for (const [name, sql] of Object.entries(TABLES)) {
        made.exec(name === "sources" ? sql.replace(" PRIMARY KEY", "").replace(", WITHOUT ROWID", "") : sql);
      }
      made.exec("INSERT INTO meta VALUES ('format', 1); PRAGMA application_id = 0x7069636f; PRAGMA user_version = 1");
      made.close();
    },
    otherSchema: (path) => {
      const made = new Database(path);
      made.exec("CREATE TABLE meta (name TEXT, value); INSERT INTO meta VALUES ('format', 1)");
      made.exec("PRAGMA application_id = 0x7069636f; PRAGMA user_version = 1");
      made.close();
    },
  };
  for (const [name, make] of Object.entries(makers)) {
    const path = folder.file(`${name}/picolet.db`);
    mkdirSync(folder.file(name));
    make(path);
    await using store = open(path);
    const { current } = store.state;
    assert.ok(current.kind === "durable" && current.opening.kind === "rebuilt", `${name}: ${JSON.stringify(current)}`);
    exercise(store);
  }
});

test("a newer picolet's file is refused with what to do, and left as it is", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  await fillAndClose(path);
  const database = new Database(path);
  database.exec("UPDATE meta SET value = 7 WHERE name = 'format'; PRAGMA user_version = 7");
  database.close();
  const before = readFileSync(path);
  assert.throws(
    () => open(path),
    (error) =>
      isPicoletError(error, "conflict") &&
      error.message.includes(`format 7, this picolet knows formats up to ${FORMAT}: install`),
  );
  assert.deepEqual(readFileSync(path), before);
});

test("a header that claims a newer format alone is damage, not a newer picolet", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  await fillAndClose(path);
  const database = new Database(path);
  database.exec("PRAGMA user_version = 7");
  database.close();
  await using store = open(path);
  const { current } = store.state;
  assert.ok(current.kind === "durable" && current.opening.kind === "rebuilt");
  assert.deepEqual(uids(store), ALL_UIDS, "all of them can still be read");
});

/** Every page but the first, while the store is open. */
function overwriteAllPages(store: Store, path: string): void {
  // More than the page cache takes, so that it has to be read again.
  for (let n = 0; n < 800; n += 1) {
    store.events.record({ regarding: sampleReference(`p${n}`), type: "Normal", reason: "R", message: "m".repeat(500) });
    if (n % 200 === 0) store.flush();
  }
  store.flush();
  const held = readFileSync(path);
  held.fill(0x5a, 4096);
  writeFileSync(path, held);
  writeFileSync(`${path}-wal`, Buffer.alloc(readFileSync(`${path}-wal`).length, 0x5a));
}

test("damage that shows while the store is open costs no pod", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  await fillAndClose(path);
  await using store = open(path);
  store.desired.replace("file", 9, PODS.slice(0, 6));
  overwriteAllPages(store, path);
  assert.deepEqual(store.events.list({ limit: 2000 }), [], "lost with the file");
  store.kept.put("days", "after", 1);
  assert.deepEqual([...store.kept.all("days")], [["after", 1]], "what was kept is lost too");
  const { current } = store.state;
  assert.ok(current.kind === "durable" && current.opening.kind === "rebuilt", JSON.stringify(current));
  store.statuses.put(sampleStatus("pod-2", "new"));
  assert.ok(store.flush());
  assert.equal(store.desired.replace("file", 10, PODS.slice(0, 7)), "accepted");
  await store[Symbol.asyncDispose]();
  await using again = open(path);
  assert.deepEqual(
    uids(again),
    PODS.slice(0, 7).map(({ uid }) => uid),
  );
  assert.equal(again.desired.revision("file"), 10);
  assert.deepEqual([...again.kept.all("days")], [["after", 1]]);
});

test("a change that finds the file damaged is refused, and the objects are asked for anew", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  await fillAndClose(path);
  await using store = open(path);
  overwriteAllPages(store, path);
  const change = (): void => {
    const upserts = [remoteObject("Secret", "secret-0", { kind: "Secret", data: {} })];
    const cursor = { ...store.objects.cursor, digest: store.objects.digestAfter({ upserts, deletes: [] }) };
    store.objects.apply({ cursor, upserts, deletes: [] }, { wanted: [], removed: [] });
  };
  assert.throws(change, (error) => isPicoletError(error, "corrupt"));
  assert.deepEqual([...store.objects.inventory()], []);
  assert.equal(store.objects.cursor.epoch.length, 0);
  assert.deepEqual(uids(store), ALL_UIDS);
  change();
  assert.equal([...store.objects.inventory()].length, 1);
  await store[Symbol.asyncDispose]();
  await using again = open(path);
  assert.deepEqual(uids(again), ALL_UIDS);
  assert.equal([...again.objects.inventory()].length, 1);
});

test("a full database refuses the change whole, keeps the batch, and goes on when there is room", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  const clock = new VirtualClock();
  await using store = open(path, { clock, maxBytes: 16 * 4096 });
  const stop = new AbortController();
  const running = endOfRun(store.run(stop.signal));
  assert.equal(store.desired.replace("file", 1, [samplePod("small")]), "accepted");
  const large = Array.from({ length: 200 }, (_, n) => samplePod(`large-${n}`));
  const before = store.desired.desired.current;
  assert.throws(
    () => store.desired.replace("file", 2, large),
    (error) => isPicoletError(error, "resource_exhausted") && error.retryable,
  );
  assert.equal(store.desired.desired.current, before);
  assert.equal(store.desired.revision("file"), 1);

  for (let n = 0; n < 40; n += 1) store.statuses.put(sampleStatus(`s${n}`, "y".repeat(2000)));
  await clock.advance(seconds(1));
  assert.equal(store.state.current.kind, "unwritable");
  assert.equal(store.statuses.pending(100).length, 40, "kept in memory");
  for (let n = 0; n < 40; n += 1) store.statuses.delete(samplePod(`s${n}`).uid);
  await clock.advance(seconds(2));
  assert.equal(store.state.current.kind, "durable", "tried again by itself");
  assert.equal(store.desired.replace("file", 2, [samplePod("small", { image: "busybox:2" })]), "accepted");
  stop.abort();
  await running;
});

test("events kept back while the disk is full are bounded, Normal ones go first", async () => {
  using folder = new TemporaryFolder();
  await using store = open(folder.file("picolet.db"), { maxBytes: 14 * 4096 });
  for (let n = 0; n < 300; n += 1) {
    const type = n < 10 ? "Warning" : "Normal";
    store.events.record({ regarding: sampleReference(`p${n}`), type, reason: "R", message: "z".repeat(1000) });
  }
  assert.equal(store.flush(), false);
  const kept = store.events.list({ limit: 1000 });
  assert.equal(kept.length, 256);
  assert.equal(kept.filter(({ type }) => type === "Warning").length, 10);
  assert.equal(kept.at(-1)?.regarding.name, "p299");
});

/** A small file system of its own, where this process may make one. */
function mounted(t: TestContext, work: (folder: string) => Promise<void>): Promise<void> | undefined {
  if (process.getuid?.() !== 0) {
    t.skip("needs root to mount a small tmpfs");
    return undefined;
  }
  const folder = new TemporaryFolder();
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=256k", "none", folder.path]);
  return work(folder.path).finally(() => {
    execFileSync("umount", [folder.path]);
    folder[Symbol.dispose]();
  });
}

test("on a disk that is really full `replace` changes nothing, and works when there is room again", async (t) => {
  await mounted(t, async (folder) => {
    const path = join(folder, "picolet.db");
    const filler = join(folder, "filler");
    {
      await using store = open(path);
      assert.equal(store.desired.replace("file", 1, PODS.slice(0, 2)), "accepted");
      assert.throws(() => writeFileSync(filler, Buffer.alloc(300_000)), /ENOSPC/);
      const many = Array.from({ length: 60 }, (_, n) => samplePod(`large-${n}`));
      assert.throws(
        () => store.desired.replace("file", 2, many),
        (error) => isPicoletError(error, "resource_exhausted"),
      );
      assert.equal(uids(store).length, 2);
    }
    const clock = new VirtualClock();
    await using store = open(path, { clock });
    assert.equal(stateOf(store), "durable");
    assert.equal(uids(store).length, 2);
    const stop = new AbortController();
    const running = endOfRun(store.run(stop.signal));
    for (let n = 0; n < 15; n += 1) store.statuses.put(sampleStatus(`s${n}`, "y".repeat(2000)));
    await clock.advance(seconds(1));
    assert.equal(stateOf(store), "unwritable");
    truncateSync(filler, 0);
    await clock.advance(seconds(2));
    assert.equal(stateOf(store), "durable", "tried again by itself");
    assert.equal(store.desired.replace("file", 2, PODS.slice(0, 3)), "accepted");
    stop.abort();
    await running;
  });
});

test("where no file can be made at all the store is in memory, and returns to disk when it can", async (t) => {
  await mounted(t, async (folder) => {
    const path = join(folder, "root", "picolet.db");
    const filler = join(folder, "filler");
    assert.throws(() => writeFileSync(filler, Buffer.alloc(300_000)), /ENOSPC/);
    const clock = new VirtualClock();
    await using store = open(path, { clock });
    const { current } = store.state;
    assert.ok(current.kind === "inMemory", JSON.stringify(current));
    const stop = new AbortController();
    const running = endOfRun(store.run(stop.signal));
    assert.equal(store.desired.replace("file", 1, PODS.slice(0, 2)), "accepted");
    recordSome(store, 1);
    await clock.advance(seconds(61));
    assert.equal(store.state.current.kind, "inMemory");
    truncateSync(filler, 0);
    await clock.advance(seconds(61));
    assert.equal(store.state.current.kind, "durable");
    assert.equal(store.events.list({ limit: 9 }).length, 1);
    stop.abort();
    await running;
    await store[Symbol.asyncDispose]();
    await using again = open(path);
    assert.equal(uids(again).length, 2);
    assert.equal(again.desired.revision("file"), 1);
  });
});

test("on a read-only disk what was stored is still wanted", async (t) => {
  await mounted(t, async (folder) => {
    const path = join(folder, "picolet.db");
    await fillAndClose(path);
    execFileSync("mount", ["-o", "remount,ro", folder]);
    const clock = new VirtualClock();
    await using store = open(path, { clock });
    const { current } = store.state;
    assert.ok(current.kind === "inMemory", JSON.stringify(current));
    assert.deepEqual(uids(store), ALL_UIDS);
    const stop = new AbortController();
    const running = endOfRun(store.run(stop.signal));
    await clock.settle();
    execFileSync("mount", ["-o", "remount,rw", folder]);
    store.desired.replace("file", 5, PODS.slice(2));
    await clock.advance(seconds(61));
    assert.equal(store.state.current.kind, "durable");
    stop.abort();
    await running;
    await store[Symbol.asyncDispose]();
    await using again = open(path);
    assert.equal(again.desired.revision("file"), 5);
    assert.equal(uids(again).length, PODS.length - 2);
  });
});
