/** A hub serves only the store that it left. */
import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import Database from "better-sqlite3";
import { backupStoppedStore, restoreStore } from "./backup.ts";
import { lockDataDir } from "./data-dir-lock.ts";
import {
  FleetGuard,
  type FleetGuardInit,
  type GuardRecord,
  judgeStore,
  type StoreFacts,
  storePathIn,
} from "./fleet-guard.ts";
import { ObjectStore } from "./object-store.ts";

const clock = new VirtualClock();
const OWN = "11111111-1111-4111-8111-111111111111";
const OTHER = "22222222-2222-4222-8222-222222222222";

const guardOf = (dataDir: string, init: Partial<FleetGuardInit> = {}): FleetGuard =>
  new FleetGuard({ clock, log: new RecordedLog() }, { dataDir, ...init });

const open = (dataDir: string, init: Partial<FleetGuardInit> = {}): ObjectStore =>
  new ObjectStore({ clock, log: new RecordedLog(), guard: guardOf(dataDir, init) }, storePathIn(dataDir));

function put(store: ObjectStore, name: string): number {
  const key = { resource: "configmaps", namespace: "default", name };
  const object = { apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace: "default" } };
  return store.put({ key, type: "ADDED", object, previous: undefined });
}

const names = (store: ObjectStore): string[] =>
  [...store.list("configmaps", "")].map(
    ({ body }) => (JSON.parse(body) as { metadata: { name: string } }).metadata.name,
  );

/** A hub that served `objects`, with its CA. */
async function served(dataDir: string, ...objects: readonly string[]): Promise<void> {
  using store = open(dataDir);
  for (const name of objects) put(store, name);
  await store.settled();
  writeFileSync(join(dataDir, "hub-ca.json"), "{}");
}

/** @returns the message, and the code that would accept the store */
function refusal(work: () => unknown): { readonly message: string; readonly code: string | undefined } {
  try {
    work();
  } catch (error) {
    assert.ok(isPicoletError(error, "conflict") && error.reason === "RefusedStore", String(error));
    return { message: error.message, code: /--accept-restored-store ([0-9a-f]{8}):/.exec(error.message)?.[1] };
  }
  throw new Error("it was not refused");
}

test("every store beside every set of keys", () => {
  const store = (fleet: string | undefined, revision = 100, starts = 3): StoreFacts => {
    return { kind: "filled", fleet, revision, starts };
  };
  const mark = { revision: 100, starts: 3 };
  const nothing: GuardRecord = { fleet: undefined, hasCa: false, mark: undefined };
  const whole: GuardRecord = { fleet: OWN, hasCa: true, mark };
  const older: GuardRecord = { fleet: undefined, hasCa: true, mark: undefined };
  const cases: readonly (readonly [string, StoreFacts, GuardRecord, string])[] = [
    ["the first start", { kind: "absent" }, nothing, "first"],
    ["one that was cut off before there was a store", { kind: "absent" }, { ...nothing, fleet: OWN }, "first"],
    ["one that was cut off after that", store(OWN, 1, 1), { ...nothing, fleet: OWN }, "own"],
    ["a hub before fleets had ids", store(undefined), older, "own"],
    ["its upgrade was cut off", store(undefined), { ...older, fleet: OWN }, "own"],
    ["as it was left", store(OWN), whole, "own"],
    ["further than the mark: it was killed", store(OWN, 120), whole, "own"],
    ["the mark is lost", store(OWN), { ...whole, mark: undefined }, "own"],
    ["the store is missing", { kind: "absent" }, whole, "refused"],
    ["the store is empty", { kind: "empty" }, whole, "refused"],
    ["it is missing, with the mark alone", { kind: "absent" }, { ...nothing, mark }, "refused"],
    ["an older hub's is missing", { kind: "absent" }, older, "refused"],
    ["an older hub's is empty", { kind: "empty" }, older, "refused"],
    ["an older revision", store(OWN, 99), whole, "refused"],
    ["an older start", store(OWN, 130, 2), whole, "refused"],
    ["from before the fleet had an id", store(undefined), whole, "refused"],
    ["another fleet's", store(OTHER), whole, "hopeless"],
    ["the keys are missing", store(OWN), older, "hopeless"],
    ["all keys are missing", store(OWN), nothing, "hopeless"],
  ];
  for (const [what, facts, kept, expected] of cases) {
    const verdict = judgeStore(facts, kept);
    const found = verdict.kind === "refused" && !verdict.isAcceptable ? "hopeless" : verdict.kind;
    assert.equal(found, expected, what);
  }
});

for (const [what, lose] of [
  ["removed", (path: string) => rmSync(path)],
  ["emptied", (path: string) => truncateSync(path, 0)],
  ["without its objects", (path: string) => new Database(path).exec("DELETE FROM objects").close()],
] as const) {
  test(`a store that is ${what} is no first start, and accepting it once accepts no other`, async () => {
    using folder = new TempFolder();
    const dataDir = folder.at("hub");
    const path = storePathIn(dataDir);
    await served(dataDir, "a");
    const { fleet } = guardOf(dataDir).keys;
    const before = guardOf(dataDir).kept.mark?.revision ?? 0;
    lose(path);
    const { message, code } = refusal(() => open(dataDir));
    assert.match(message, /boards then end every pod that is not in it/);
    assert.match(message, /picolet-hub restore/);
    assert.equal(existsSync(path), what !== "removed", "nothing was made in its place");
    assert.equal(refusal(() => open(dataDir, { accept: "00000000" })).code, code);
    {
      using store = open(dataDir, { accept: code });
      assert.deepEqual(names(store), []);
      assert.ok(put(store, "b") > before + 1_000_000, "revisions go on above those that were given out");
      await store.settled();
    }
    assert.equal(guardOf(dataDir).keys.fleet, fleet, "boards know it still");
    // The flag was left in the unit file.
    open(dataDir, { accept: code })[Symbol.dispose]();
    rmSync(path);
    assert.notEqual(refusal(() => open(dataDir, { accept: code })).code, code);
  });
}

test("an older copy of the store is refused: from before the last start, and from before the last half minute", async () => {
  using folder = new TempFolder();
  const dataDir = folder.at("hub");
  const path = storePathIn(dataDir);
  await served(dataDir, "a");
  copyFileSync(path, folder.at("start.db"));
  {
    using store = open(dataDir);
    await store.backup(folder.at("running.db"));
    put(store, "b");
    await store.settled();
    // Killed: what follows the round is not noted any more.
    store.maintain();
    copyFileSync(join(dataDir, "hub-mark.json"), folder.at("mark"));
    put(store, "c");
    await store.settled();
  }
  copyFileSync(folder.at("mark"), join(dataDir, "hub-mark.json"));
  open(dataDir)[Symbol.dispose]();
  for (const copy of ["start.db", "running.db"]) {
    copyFileSync(folder.at(copy), path);
    assert.match(refusal(() => open(dataDir)).message, /it is older/, copy);
  }
});

test("the store of another fleet is refused with any accepted code, and one without its keys", async () => {
  using folder = new TempFolder();
  const [one, two] = [folder.at("one"), folder.at("two")];
  await served(one, "a");
  await served(two, "b");
  copyFileSync(storePathIn(two), storePathIn(one));
  const { message, code } = refusal(() => open(one));
  assert.match(message, /the keys beside it to fleet/);
  assert.equal(code, undefined);
  rmSync(join(two, "hub-keys.json"));
  assert.match(refusal(() => open(two)).message, /hub-keys\.json is missing/);
});

test("a restore goes on above every revision that was given out, however often the same backup is restored", async () => {
  using folder = new TempFolder();
  const dataDir = folder.at("hub");
  const path = storePathIn(dataDir);
  await served(dataDir, "a");
  const backup = folder.at("backup.db");
  backupStoppedStore(path, backup);
  let last = 0;
  for (let round = 0; round < 3; round += 1) {
    {
      using store = open(dataDir);
      assert.deepEqual(names(store), ["a"]);
      const next = put(store, "b");
      assert.ok(next > last, `${next} after ${last}`);
      last = next;
      await store.settled();
    }
    const { setAside = "", lastChangeAt } = restoreStore(backup, path, clock, guardOf(dataDir));
    assert.ok(existsSync(setAside));
    assert.equal(lastChangeAt?.getTime(), clock.wall().getTime());
    rmSync(setAside);
  }
});

test("a backup of another fleet, of a hub before fleets, and one beside no keys", async () => {
  using folder = new TempFolder();
  const [one, two, empty] = [folder.at("one"), folder.at("two"), folder.at("empty")];
  await served(one, "a");
  await served(two, "b");
  mkdirSync(empty);
  backupStoppedStore(storePathIn(two), folder.at("two.db"));
  const restore = (backup: string, dataDir: string, accept?: string) => (): unknown =>
    restoreStore(folder.at(backup), storePathIn(dataDir), clock, guardOf(dataDir, { accept }));
  assert.equal(refusal(restore("two.db", one)).code, undefined);
  assert.match(refusal(restore("two.db", empty)).message, /hub-keys\.json is missing/);
  new Database(folder.at("old.db")).exec(readFileSync("test/golden/hub-store/format-1.sql", "utf8")).close();
  const { message, code } = refusal(restore("old.db", one));
  assert.match(message, /names no fleet/);
  restore("old.db", one, code)();
  using store = open(one);
  assert.deepEqual(names(store), ["kept", "other"]);
  // A hub that has never run may begin with it.
  restore("old.db", empty)();
  using begun = open(empty);
  assert.deepEqual(names(begun), ["kept", "other"]);
});

test("stores of a hub before fleets get their id at the next start, without a word from anyone", () => {
  using folder = new TempFolder();
  const dataDir = folder.at("hub");
  mkdirSync(dataDir);
  new Database(storePathIn(dataDir)).exec(readFileSync("test/golden/hub-store/format-1.sql", "utf8")).close();
  writeFileSync(join(dataDir, "hub-ca.json"), "{}");
  {
    using store = open(dataDir);
    assert.deepEqual(names(store), ["kept", "other"]);
    assert.equal(store.getMeta("service-account-key"), "key");
  }
  const { fleet, mark } = guardOf(dataDir).kept;
  assert.match(fleet ?? "", /^[0-9a-f-]{36}$/);
  assert.deepEqual(mark, { revision: 6, starts: 1 });
  using again = open(dataDir);
  assert.equal(again.revision, 6);
});

test("keys that cannot be read are never replaced by new ones", async () => {
  using folder = new TempFolder();
  const dataDir = folder.at("hub");
  await served(dataDir, "a");
  for (const name of ["hub-keys.json", "hub-mark.json"]) {
    const path = join(dataDir, name);
    const good = readFileSync(path);
    for (const bad of [
      "",
      "{}",
      "[]",
      good.toString().slice(0, -20),
      good.toString().replace(/"keys": \[[\s\S]*\]/, '"keys": []'),
    ]) {
      if (bad === good.toString()) continue;
      writeFileSync(path, bad);
      assert.throws(
        () => open(dataDir),
        (error) => isPicoletError(error, "corrupt") && error.message.includes(name),
        `${name}: ${bad}`,
      );
      assert.equal(readFileSync(path, "utf8"), bad);
    }
    writeFileSync(path, good);
  }
  open(dataDir)[Symbol.dispose]();
});

test("fleets that were adopted are remembered, and at most sixteen", async () => {
  using folder = new TempFolder();
  const dataDir = folder.at("hub");
  await served(dataDir, "a");
  open(dataDir, { adopt: [OTHER] })[Symbol.dispose]();
  assert.deepEqual(guardOf(dataDir).keys.formerFleets, [OTHER]);
  const many = Array.from({ length: 16 }, (_, n) => `${OWN.slice(0, -2)}${n + 10}`);
  assert.throws(
    () => guardOf(dataDir, { adopt: many }),
    (error) => isPicoletError(error, "invalid"),
  );
  assert.throws(
    () => guardOf(dataDir, { adopt: ["x y"] }),
    (error) => isPicoletError(error, "invalid"),
  );
});

test("one process has a data directory, even when the store's file is gone", () => {
  using folder = new TempFolder();
  const first = lockDataDir(folder.path);
  assert.throws(
    () => lockDataDir(folder.path),
    (error) => isPicoletError(error, "unavailable") && error.message.includes("another picolet-hub runs"),
  );
  first[Symbol.dispose]();
  lockDataDir(folder.path)[Symbol.dispose]();
});
