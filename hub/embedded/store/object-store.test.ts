import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import Database from "better-sqlite3";
import fc from "fast-check";
import type { ApiObject } from "../api/resource-definition.ts";
import { backupStoppedStore, restoreStore } from "./backup.ts";
import { ObjectStore } from "./object-store.ts";
import type { ChangeType } from "./recent-events.ts";

const KEY = { resource: "configmaps", namespace: "default" };

const open = (path: string, clock = new VirtualClock()): ObjectStore =>
  new ObjectStore({ clock, log: new RecordedLog() }, path);

const object = (name: string, value = ""): ApiObject => ({
  apiVersion: "v1",
  kind: "ConfigMap",
  metadata: { name, namespace: "default" },
  data: { value },
});

function put(
  store: ObjectStore,
  name: string,
  type: ChangeType = "ADDED",
  value = "",
  resource = "configmaps",
): number {
  return store.put({ key: { ...KEY, resource, name }, type, object: object(name, value), previous: undefined });
}

const names = (store: ObjectStore): string[] =>
  [...store.list("configmaps", "")].map(({ body }) => (JSON.parse(body) as ApiObject).metadata.name);

test("what is written is read back with its revision, also by the next process", async () => {
  using folder = new TempFolder();
  {
    using store = open(folder.at("hub.db"));
    assert.equal(put(store, "b"), 2);
    assert.equal(put(store, "a"), 3);
    assert.equal(put(store, "b", "MODIFIED", "new"), 4);
    put(store, "c");
    put(store, "c", "DELETED");
    assert.equal(store.revision, 1, "nothing is safe yet");
    await store.settled();
    assert.equal(store.revision, 6);
  }
  using store = open(folder.at("hub.db"));
  assert.equal(store.revision, 6);
  assert.deepEqual(names(store), ["a", "b"]);
  const stored = store.get({ ...KEY, name: "b" });
  assert.equal(stored?.revision, 4);
  assert.equal((JSON.parse(stored?.body ?? "") as ApiObject).metadata.resourceVersion, "4");
  assert.deepEqual(
    store.eventsAfter("configmaps", 2).map(({ revision, type }) => [revision, type]),
    [
      [3, "ADDED"],
      [4, "MODIFIED"],
      [5, "ADDED"],
      [6, "DELETED"],
    ],
  );
});

test("derived values follow each write, from one group to another", () => {
  using folder = new TempFolder();
  using store = open(folder.at("hub.db"));
  put(store, "a", "ADDED", "x");
  const derived = store.derive("configmaps", ({ metadata: { name }, data }) => {
    const { value } = data as { readonly value: string };
    return value === "" ? undefined : { group: value, value: name };
  });
  const shown = (): string[][] => ["x", "y", ""].map((group) => [...derived.in(group)]);
  assert.deepEqual(shown(), [["a"], [], []]);
  put(store, "b", "ADDED", "x");
  put(store, "c");
  assert.deepEqual(shown(), [["a", "b"], [], []]);
  assert.equal(derived.get("x", "default", "b"), "b");
  put(store, "a", "MODIFIED", "y");
  assert.deepEqual(shown(), [["b"], ["a"], []]);
  put(store, "b", "MODIFIED");
  put(store, "a", "DELETED", "y");
  put(store, "a", "ADDED", "x", "secrets");
  assert.deepEqual(shown(), [[], [], []]);
});

test("watchers see a change when it is safe, not before", async () => {
  using folder = new TempFolder();
  using store = open(folder.at("hub.db"));
  let woken = 0;
  store.onChange("configmaps", () => {
    woken += 1;
  });
  store.onChange("secrets", () => assert.fail("another resource"));
  put(store, "a");
  assert.deepEqual([woken, store.eventsAfter("configmaps", 1).length], [0, 0]);
  await store.settled();
  assert.deepEqual([woken, store.eventsAfter("configmaps", 1).length], [1, 1]);
});

test("pages of a long list and of a long history join without a gap or a double", async () => {
  using folder = new TempFolder();
  const count = 1203;
  const seen = async (store: ObjectStore): Promise<void> => {
    assert.equal(new Set(names(store)).size, count);
    const revisions: number[] = [];
    for (let after = 1; ; after = revisions.at(-1) ?? after) {
      const page = store.eventsAfter("configmaps", after);
      if (page.length === 0) break;
      revisions.push(...page.map(({ revision }) => revision));
    }
    assert.deepEqual(
      revisions,
      Array.from({ length: count }, (_, n) => n + 2),
    );
  };
  {
    using store = open(folder.at("hub.db"));
    for (let n = 0; n < count; n += 1) put(store, `n${n}`);
    await store.settled();
    await seen(store);
  }
  using store = open(folder.at("hub.db"));
  await seen(store);
});

test("the history of one resource is cut by number and age, and says so", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  using store = open(folder.at("hub.db"), clock);
  put(store, "secret", "ADDED", "", "secrets");
  for (let n = 0; n < 5010; n += 1) put(store, "a", n === 0 ? "ADDED" : "MODIFIED", String(n));
  await store.settled();
  store.compact();
  assert.equal(store.floor("configmaps"), 12);
  assert.equal(store.eventsAfter("configmaps", 12).length, 500);
  assert.throws(
    () => store.eventsAfter("configmaps", 11),
    (error) => isPicoletError(error, "conflict") && error.reason === "Expired",
  );
  assert.equal(store.eventsAfter("secrets", 1).length, 1, "what others write pushes nothing out");
  await clock.advance(seconds(3601));
  store.compact();
  await store.settled();
  assert.equal(store.floor("secrets"), 2);
  assert.equal(store.floor("configmaps"), store.revision);
});

test("expired objects are found when their time is over", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  using store = open(folder.at("hub.db"), clock);
  store.put({
    key: { ...KEY, name: "e" },
    type: "ADDED",
    object: object("e"),
    previous: undefined,
    expiresAt: clock.wall().getTime() + 1000,
  });
  put(store, "stays");
  await clock.advance(seconds(0.9));
  assert.deepEqual(store.expiredKeys(10), []);
  await clock.advance(seconds(0.2));
  assert.deepEqual(store.expiredKeys(10), [{ ...KEY, name: "e" }]);
});

test("only its owner may read the store, its log and its backups", async () => {
  using folder = new TempFolder();
  writeFileSync(folder.at("hub.db"), "", { mode: 0o644 });
  using store = open(folder.at("hub.db"));
  put(store, "a");
  await store.backup(folder.at("copy.db"));
  for (const name of ["hub.db", "hub.db-wal", "copy.db"])
    assert.equal(statSync(folder.at(name)).mode & 0o777, 0o600, name);
});

test("on a full disk nothing is acknowledged, nothing is lost, and it goes on by itself", async (t) => {
  if (process.getuid?.() !== 0) {
    t.skip("needs root to mount a small tmpfs");
    return;
  }
  using folder = new TempFolder();
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=512k", "none", folder.path]);
  try {
    const log = new RecordedLog();
    using store = new ObjectStore({ clock: new VirtualClock(), log }, folder.at("hub.db"));
    put(store, "before");
    await store.settled();
    const acknowledged: string[] = ["before"];
    const derived = store.derive("configmaps", ({ metadata }) => ({ group: "", value: metadata.name }));
    assert.deepEqual([...derived.in("")], acknowledged);
    let refused = 0;
    for (let n = 0; n < 400 && refused < 3; n += 1) {
      try {
        put(store, `n${n}`, "ADDED", "x".repeat(4000));
        await store.settled();
        acknowledged.push(`n${n}`);
      } catch (error) {
        assert.ok(isPicoletError(error, "unavailable") && error.retryable, String(error));
        refused += 1;
      }
    }
    assert.equal(refused, 3);
    assert.deepEqual(names(store).toSorted(), acknowledged.toSorted());
    const seen = store.eventsAfter("configmaps", 1).map(({ object: { metadata } }) => metadata.name);
    assert.deepEqual(seen, acknowledged, "no watcher sees what was refused");
    assert.deepEqual([...derived.in("")].toSorted(), acknowledged.toSorted());
    assert.ok(log.entries.some(({ level }) => level === "error"));
    execFileSync("mount", ["-o", "remount,size=4m", folder.path]);
    const revision = put(store, "after");
    await store.settled();
    assert.ok(revision > Number(store.get({ ...KEY, name: "before" })?.revision));
    assert.deepEqual(names(store).toSorted(), [...acknowledged, "after"].toSorted());
  } finally {
    execFileSync("umount", ["-l", folder.path]);
  }
});

test("a second hub on the same file is refused with the reason", () => {
  using folder = new TempFolder();
  using _store = open(folder.at("hub.db"));
  assert.throws(
    () => open(folder.at("hub.db")),
    (error) => isPicoletError(error, "unavailable") && error.message.includes("another picolet-hub"),
  );
});

test("a damaged, foreign or newer file is refused and left as it is", async () => {
  using folder = new TempFolder();
  const path = folder.at("hub.db");
  {
    using store = open(path);
    for (let n = 0; n < 500; n += 1) put(store, `n${n}`, "ADDED", "x".repeat(200));
    await store.settled();
  }
  const good = readFileSync(path);
  const cases: readonly (readonly [string, Buffer, string])[] = [
    ["pages overwritten", Buffer.from(good).fill(0x5a, 4096 * 3, 4096 * 9), "corrupt"],
    ["no database", Buffer.from("this is no database, by far".repeat(40)), "corrupt"],
    ["cut", good.subarray(0, 4096 * 5), "corrupt"],
  ];
  for (const [what, bytes, code] of cases) {
    writeFileSync(path, bytes);
    assert.throws(
      () => open(path),
      (error) => isPicoletError(error) && error.code === code,
      what,
    );
    assert.deepEqual(readFileSync(path), bytes, what);
  }
  writeFileSync(path, good);
  const newer = new Database(path);
  newer.pragma("user_version = 99");
  newer.close();
  assert.throws(
    () => open(path),
    (error) => isPicoletError(error, "invalid") && error.message.includes("newer"),
  );
  const foreign = folder.at("foreign.db");
  new Database(foreign).exec("CREATE TABLE t (a)").close();
  assert.throws(
    () => open(foreign),
    (error) => isPicoletError(error, "invalid"),
  );
});

test("any damage is either found or does no harm", async () => {
  using folder = new TempFolder();
  const path = folder.at("hub.db");
  {
    using store = open(path);
    for (let n = 0; n < 60; n += 1) put(store, `n${n}`, "ADDED", "x".repeat(300));
    await store.settled();
  }
  const good = readFileSync(path);
  const flips = fc.array(fc.record({ at: fc.nat(good.length - 1), by: fc.integer({ min: 1, max: 255 }) }), {
    minLength: 1,
    maxLength: 4,
  });
  fc.assert(
    fc.property(flips, (all) => {
      const bytes = Buffer.from(good);
      for (const { at, by } of all) bytes[at] = (bytes[at] ?? 0) ^ by;
      writeFileSync(path, bytes);
      try {
        using store = open(path);
        assert.ok([...store.list("configmaps", "")].length <= 60);
      } catch (error) {
        assert.ok(isPicoletError(error) || (error instanceof Error && "code" in error), String(error));
      }
    }),
    { numRuns: 150 },
  );
});

test("what was acknowledged is there after a kill -9", { timeout: 60_000 }, async () => {
  using folder = new TempFolder();
  const path = folder.at("hub.db");
  let expected = 0;
  for (let round = 0; round < 3; round += 1) {
    const child = spawn(
      process.execPath,
      ["test/support/unit/embedded/object-store-writer.ts", path, String(expected)],
      {
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    let output = "";
    child.stdout.on("data", (data: Buffer) => {
      output += data.toString();
      // Somewhere in the middle of its writes.
      if (output.length > 2000 * (round + 1)) child.kill("SIGKILL");
    });
    await once(child, "close");
    const acknowledged = Number(output.slice(0, output.lastIndexOf("\n")).split("\n").at(-1));
    assert.ok(acknowledged > expected, "it has written something");
    using store = open(path);
    const found = names(store).map((name) => Number(name.slice(1)));
    for (let n = 0; n <= acknowledged; n += 1) assert.ok(found.includes(n), `n${n} of ${acknowledged}`);
    assert.ok(store.revision >= acknowledged + 2);
    expected = Math.max(...found) + 1;
  }
});

test("a backup holds everything that was acknowledged, and a restore makes every watcher list again", async () => {
  using folder = new TempFolder();
  const path = folder.at("hub.db");
  const clock = new VirtualClock();
  let lost: number;
  {
    using store = open(path, clock);
    put(store, "a");
    await store.backup(folder.at("copy.db"));
    lost = put(store, "b");
    await store.settled();
    await assert.rejects(store.backup(folder.at("copy.db")), (error) => isPicoletError(error, "failed"));
    assert.throws(
      () => restoreStore(folder.at("copy.db"), path, clock),
      (error) => isPicoletError(error, "unavailable"),
    );
  }
  const { setAside = "" } = restoreStore(folder.at("copy.db"), path, clock);
  {
    using store = open(path, clock);
    assert.deepEqual(names(store), ["a"]);
    for (const old of [1, 2, lost]) {
      assert.throws(
        () => store.eventsAfter("configmaps", old),
        (error) => isPicoletError(error, "conflict") && error.reason === "Expired",
      );
    }
    assert.ok(store.revision > lost);
    assert.deepEqual(store.eventsAfter("configmaps", store.revision), []);
    put(store, "c");
    await store.settled();
  }
  using before = open(setAside, clock);
  assert.deepEqual(names(before), ["a", "b"]);
  backupStoppedStore(path, folder.at("second.db"));
  restoreStore(folder.at("second.db"), path, clock);
  using again = open(path, clock);
  assert.deepEqual(names(again), ["a", "c"]);
});

test("a backup that is damaged or none changes nothing", async () => {
  using folder = new TempFolder();
  const path = folder.at("hub.db");
  {
    using store = open(path);
    put(store, "a");
    await store.settled();
  }
  const before = readFileSync(path);
  writeFileSync(folder.at("bad.db"), "nonsense");
  const restore = (file: string) => (): unknown => restoreStore(folder.at(file), path, new VirtualClock());
  assert.throws(restore("bad.db"), (error) => isPicoletError(error, "corrupt"));
  assert.throws(restore("absent.db"), (error) => isPicoletError(error, "not_found"));
  assert.deepEqual(readFileSync(path), before);
  copyFileSync(path, folder.at("good.db"));
  writeFileSync(path, "a damaged store");
  const { setAside = "" } = restoreStore(folder.at("good.db"), path, new VirtualClock());
  assert.ok(existsSync(setAside));
  using store = open(path);
  assert.deepEqual(names(store), ["a"]);
});

test("stores of every released format can still be read", () => {
  const folder = "test/golden/hub-store";
  for (const format of [1]) {
    using temporary = new TempFolder();
    const path = temporary.at("hub.db");
    new Database(path).exec(readFileSync(`${folder}/format-${format}.sql`, "utf8")).close();
    using store = open(path);
    assert.deepEqual(names(store), ["kept", "other"]);
    assert.equal(store.revision, 6);
    assert.equal(store.getMeta("service-account-key"), "key");
    assert.deepEqual(
      store.eventsAfter("configmaps", 3).map(({ type }) => type),
      ["ADDED", "MODIFIED", "DELETED"],
    );
    assert.equal(store.floor("secrets"), 1);
  }
});
