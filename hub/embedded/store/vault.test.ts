/** Secrets at rest: the store's files never contain them, after any operation. */
import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import Database from "better-sqlite3";
import type { ApiObject } from "../api/resource-definition.ts";
import { backupStoppedStore, restoreStore } from "./backup.ts";
import { FORMAT, openDatabase } from "./database.ts";
import { FleetGuard, storePathIn } from "./fleet-guard.ts";
import { ObjectStore } from "./object-store.ts";
import type { ChangeType } from "./recent-events.ts";

/** In base64 as Secrets have it, in clear as `stringData` and annotations may. */
const SECRET = "hunter2-correct-horse";
const ENCODED = Buffer.from(SECRET).toString("base64");
const PEM = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n";
const DAY_MS = 86_400_000;

class Hub {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly folder = new TempFolder();
  readonly dataDir = this.folder.at("hub");
  readonly path = storePathIn(this.dataDir);
  credential: Uint8Array | undefined;

  guard(): FleetGuard {
    return new FleetGuard(this, { dataDir: this.dataDir, credential: this.credential });
  }

  open(): ObjectStore {
    return new ObjectStore({ ...this, guard: this.guard() }, this.path);
  }

  /** A store as a hub before format 2 left it. */
  openPlain(): ObjectStore {
    mkdirSync(this.dataDir);
    const { clock, log } = this;
    return new ObjectStore({ clock, log }, this.path);
  }

  get keysPath(): string {
    return join(this.dataDir, "hub-keys.json");
  }

  /** Files of the data directory and of `folder` in which `text` is. */
  filesWith(...texts: readonly string[]): readonly string[] {
    const files = [this.folder.path, this.dataDir].flatMap((folder) =>
      readdirSync(folder, { withFileTypes: true })
        .filter((each) => each.isFile())
        .map(({ name }) => join(folder, name)),
    );
    return files.filter((file) => texts.some((text) => readFileSync(file).includes(text)));
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

const secret = (name: string, value = SECRET): ApiObject => ({
  apiVersion: "v1",
  kind: "Secret",
  metadata: { name, namespace: "default", annotations: { "last-applied": value } },
  data: { password: Buffer.from(value).toString("base64") },
});

function put(store: ObjectStore, name: string, type: ChangeType = "ADDED", value = SECRET): void {
  const key = { resource: "secrets", namespace: "default", name };
  const previous = type === "MODIFIED" ? JSON.stringify(secret(name)) : undefined;
  store.put({ key, type, object: secret(name, value), previous });
}

const keyOf = (name: string) => ({ resource: "secrets", namespace: "default", name });
const passwordOf = (store: ObjectStore, name: string): unknown => {
  const body = store.get(keyOf(name))?.body;
  return body === undefined ? undefined : (JSON.parse(body) as ApiObject).metadata.annotations?.["last-applied"];
};

test("no secret is in the database, its log or a backup: made, changed, deleted, after a checkpoint, by the next hub", async () => {
  using hub = new Hub();
  const look = (when: string): void => assert.deepEqual(hub.filesWith(SECRET, ENCODED, PEM), [], when);
  {
    using store = hub.open();
    store.setMeta("service-account-key", PEM);
    for (const name of ["a", "b", "gone"]) put(store, name);
    await store.settled();
    assert.ok(existsSync(`${hub.path}-wal`));
    look("made");
    put(store, "a", "MODIFIED", `${SECRET}-2`);
    put(store, "gone", "DELETED");
    await store.settled();
    look("changed and deleted");
    await store.backup(hub.folder.at("backup.db"));
    look("backed up");
    assert.equal(passwordOf(store, "a"), `${SECRET}-2`);
    await hub.clock.advance(millis(2 * 3_600_000));
    store.compact();
    await store.settled();
    look("compacted");
  }
  look("closed: all of the log is in the database");
  using store = hub.open();
  assert.equal(passwordOf(store, "a"), `${SECRET}-2`);
  assert.equal(store.getMeta("service-account-key"), PEM);
  assert.equal([...store.list("secrets", "")].length, 2);
  look("opened again");
});

test("watchers that come back read what was sealed", async () => {
  using hub = new Hub();
  {
    using store = hub.open();
    put(store, "a");
    put(store, "a", "MODIFIED", "new");
    await store.settled();
  }
  using store = hub.open();
  const events = store.eventsAfter("secrets", 1);
  assert.deepEqual(
    events.map(({ type, object }) => [type, object.metadata.annotations?.["last-applied"]]),
    [
      ["ADDED", SECRET],
      ["MODIFIED", "new"],
    ],
  );
  assert.ok(events[1]?.previous?.includes(SECRET));
});

test("a store that kept Secrets in clear is sealed at the next start, and nothing stays behind in free pages", async () => {
  using hub = new Hub();
  {
    using store = hub.openPlain();
    store.setMeta("service-account-key", PEM);
    for (let n = 0; n < 450; n += 1) put(store, `s${n}`);
    await store.settled();
  }
  // That hub did not overwrite what it deleted.
  const database = new Database(hub.path);
  database.pragma("secure_delete = OFF");
  database.exec("DELETE FROM objects WHERE id > 100; DELETE FROM history WHERE revision < 300");
  database.close();
  const freed = readFileSync(hub.path).toString("latin1").split(ENCODED).length - 1;
  assert.ok(freed > 100 + 450 - 300, `${freed} copies, those in free pages among them`);
  using store = hub.open();
  assert.deepEqual(hub.filesWith(SECRET, ENCODED, PEM), []);
  assert.equal([...store.list("secrets", "")].length, 100);
  assert.equal(passwordOf(store, "s7"), SECRET);
  assert.equal(store.eventsAfter("secrets", 400)[0]?.object.metadata.annotations?.["last-applied"], SECRET);
  assert.equal(store.getMeta("service-account-key"), PEM);
});

test("keys are rotated by age and on demand, in slices; backups from before can still be restored", async () => {
  using hub = new Hub();
  const idsIn = (): string[] => {
    const database = openDatabase(hub.path);
    const sql =
      "SELECT DISTINCT substr(body, 1, 17) FROM objects UNION SELECT DISTINCT substr(body, 1, 17) FROM history";
    const ids = database.prepare(sql).pluck().all() as string[];
    database.close();
    return ids;
  };
  const backup = hub.folder.at("backup.db");
  {
    using store = hub.open();
    for (let n = 0; n < 450; n += 1) put(store, `s${n}`);
    await store.settled();
    await store.backup(backup);
    await hub.clock.advance(millis(91 * DAY_MS));
    store.maintain();
    assert.equal(passwordOf(store, "s449"), SECRET, "not sealed again yet");
  }
  const first = idsIn();
  assert.equal(first.length, 2);
  {
    using store = hub.open();
    for (let round = 0; round < 30; round += 1) store.maintain();
  }
  const second = idsIn();
  assert.equal(second.length, 1);
  assert.ok(first.includes(second[0] ?? ""));
  const root = hub.guard().keys.current.id;
  {
    using store = hub.open();
    store.rotateKeys();
    put(store, "new");
    await store.settled();
    for (let round = 0; round < 30; round += 1) store.maintain();
  }
  assert.notEqual(hub.guard().keys.current.id, root);
  assert.notDeepEqual(idsIn(), second);
  restoreStore(backup, hub.path, hub.clock, hub.guard());
  using store = hub.open();
  assert.equal(passwordOf(store, "s449"), SECRET);
  assert.equal(passwordOf(store, "new"), undefined);
});

test("a damaged Secret is named, and holds up no other", async () => {
  using hub = new Hub();
  {
    using store = hub.open();
    for (const name of ["a", "b", "c"]) put(store, name);
    await store.settled();
  }
  const database = openDatabase(hub.path);
  const half = database.prepare("SELECT body FROM objects WHERE name = 'b'").pluck().get() as string;
  database.prepare("UPDATE objects SET body = ? WHERE name = 'b'").run(half.replace(/.{8}$/, "AAAAAAAA"));
  database.close();
  using store = hub.open();
  assert.equal(passwordOf(store, "a"), SECRET);
  assert.throws(
    () => store.get(keyOf("b")),
    (error) => isPicoletError(error, "corrupt") && error.message.includes("Secret default/b"),
  );
  for (let round = 0; round < 2; round += 1) assert.equal([...store.list("secrets", "")].length, 2);
  const reports = hub.log.entries.filter(({ message }) => message === "a Secret is damaged and left out");
  assert.equal(reports.length, 1);
  assert.match(String(reports[0]?.fields.error), /default\/b/);
  store.rotateKeys();
  for (let round = 0; round < 30; round += 1) store.maintain();
  assert.equal(passwordOf(store, "c"), SECRET);
});

test("over the API a damaged Secret is an error that names it; it can be deleted, and made again", async () => {
  using hub = new Hub();
  const path = "/api/v1/namespaces/default/secrets";
  const start = () => TestApiServer.start({ clock: systemClock, storePath: hub.path, guard: hub.guard() });
  {
    await using api = await start();
    for (const name of ["a", "b"]) await api.expect(201, "POST", path, { body: secret(name) });
  }
  const database = openDatabase(hub.path);
  database.exec("UPDATE objects SET body = substr(body, 1, 60) WHERE resource = 'secrets' AND name = 'b'");
  database.close();
  await using api = await start();
  const { items } = (await api.expect(200, "GET", path)) as { items: readonly ApiObject[] };
  assert.deepEqual(
    items.map(({ metadata }) => metadata.name),
    ["a"],
  );
  const { message } = (await api.expect(500, "GET", `${path}/b`)) as { message: string };
  assert.match(message, /cannot read Secret default\/b: what the store keeps of it is damaged; delete it/);
  await api.expect(500, "PUT", `${path}/b`, { body: secret("b") });
  await api.expect(200, "DELETE", `${path}/b`);
  await api.expect(201, "POST", path, { body: secret("b") });
  await api.expect(200, "GET", `${path}/b`);
});

test("rows cannot be exchanged, put back under another revision, or copied between stores", async () => {
  using hub = new Hub();
  using other = new Hub();
  for (const each of [hub, other]) {
    using store = each.open();
    put(store, "a", "ADDED", "of a");
    put(store, "b", "ADDED", "of b");
    await store.settled();
  }
  const bodyOf = (of: Hub, name: string): unknown => {
    const database = openDatabase(of.path);
    const body = database.prepare("SELECT body FROM objects WHERE name = ?").pluck().get(name);
    database.close();
    return body;
  };
  const original = bodyOf(hub, "a");
  for (const [what, sql, value] of [
    ["the body of another", "UPDATE objects SET body = ? WHERE name = 'a'", bodyOf(hub, "b")],
    ["of another store", "UPDATE objects SET body = ? WHERE name = 'a'", bodyOf(other, "a")],
    ["another revision", "UPDATE objects SET revision = revision + 10, body = ? WHERE name = 'a'", original],
  ] as const) {
    const database = openDatabase(hub.path);
    database.prepare(sql).run(value);
    database.close();
    using store = hub.open();
    assert.throws(
      () => store.get(keyOf("a")),
      (error) => isPicoletError(error, "corrupt"),
      what,
    );
    assert.equal(passwordOf(store, "b"), "of b");
  }
});

test("a store without its keys shows nothing, and does not start", async () => {
  using hub = new Hub();
  {
    using store = hub.open();
    put(store, "a");
    await store.settled();
  }
  backupStoppedStore(hub.path, hub.folder.at("backup.db"));
  const keys = JSON.parse(readFileSync(hub.keysPath, "utf8")) as { keys: { key: string }[] };
  for (const each of keys.keys) each.key = Buffer.alloc(32).toString("base64");
  writeFileSync(hub.keysPath, JSON.stringify(keys));
  const isRefused = (error: unknown): boolean =>
    isPicoletError(error, "corrupt") && error.message.includes(hub.keysPath);
  assert.throws(() => hub.open(), isRefused);
  assert.throws(() => restoreStore(hub.folder.at("backup.db"), hub.path, hub.clock, hub.guard()), isRefused);
});

test("with a systemd credential the file of the keys opens nothing by itself", async () => {
  using hub = new Hub();
  {
    using store = hub.open();
    put(store, "a");
    await store.settled();
  }
  hub.credential = Buffer.alloc(32, 7);
  {
    using store = hub.open();
    assert.equal(passwordOf(store, "a"), SECRET, "keys that were made before are sealed with it");
  }
  assert.doesNotMatch(readFileSync(hub.keysPath, "utf8"), /"key":/);
  for (const credential of [undefined, Buffer.alloc(32, 8)]) {
    hub.credential = credential;
    assert.throws(
      () => hub.open(),
      (error) => isPicoletError(error, "permission_denied") && error.message.includes("picolet-hub-key"),
    );
  }
  hub.credential = Buffer.alloc(32, 7);
  using store = hub.open();
  assert.equal(passwordOf(store, "a"), SECRET);
});

/** Stores of format 1 have no sealed Secrets. */
const FIRST_SEALED_FORMAT = 2;

test("sealed stores of every released format can still be read", () => {
  const golden = "test/golden/hub-store/format";
  for (let format = FIRST_SEALED_FORMAT; format <= FORMAT; format += 1) {
    using hub = new Hub();
    mkdirSync(hub.dataDir);
    copyFileSync(`${golden}-${format}.keys.json`, hub.keysPath);
    new Database(hub.path).exec(readFileSync(`${golden}-${format}.sql`, "utf8")).close();
    using store = hub.open();
    assert.deepEqual(
      [...store.list("configmaps", "")].map(({ body }) => (JSON.parse(body) as ApiObject).metadata.name),
      ["kept", "other"],
    );
    assert.equal((JSON.parse(store.get(keyOf("sealed"))?.body ?? "") as ApiObject).kind, "Secret");
    assert.equal(store.eventsAfter("secrets", 6)[0]?.object.metadata.name, "sealed");
    assert.equal(store.getMeta("service-account-key"), "key");
  }
});
