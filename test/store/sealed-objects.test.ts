/** Secrets on a disk stay unreadable through updates, rotations, upgrades, damage and lost keys. */
import assert from "node:assert/strict";
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import type { Sealer } from "@picolet/agent/core/store/sealer.ts";
import { ROTATION_MS } from "@picolet/agent/keys/data-keys.ts";
import { parseKeyFile } from "@picolet/agent/keys/key-file.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import Database from "better-sqlite3";
import { filesWith } from "../support/unit/machine/raw-bytes.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { MemoryKeyFolder, sealerOf } from "../support/unit/store/sealers.ts";
import { remoteObject, remotePod, samplePod, TemporaryFolder } from "../support/unit/store/store-samples.ts";

const SECRET = "correct-horse-battery-staple-0123456789";
const NEXT_SECRET = "Tr0ub4dor-and-3-is-not-so-good-9876543210";

const secretOf = (name: string, text: string): RemoteObject =>
  remoteObject("Secret", name, { kind: "Secret", data: { password: Buffer.from(text).toString("base64"), text } });

function open(path: string, sealer?: Sealer): Store {
  return new Store({ clock: new VirtualClock(), log: new RecordedLog(), sealer }, { path });
}

/** As the hub brings them, with a pod of `api` that stays. */
function apply(store: Store, upserts: readonly RemoteObject[], deletes: readonly string[] = []): void {
  const digest = store.objects.digestAfter({ upserts, deletes });
  const revision = store.objects.cursor.revision + 1;
  const wanted = [samplePod("kept", { source: "api", origin: "" })];
  store.objects.apply(
    { cursor: { epoch: Uint8Array.of(1), revision, digest }, upserts, deletes },
    { wanted, removed: [] },
  );
}

/** Until nothing is kept back: each batch seals a slice. */
function drain(store: Store): void {
  for (let batch = 0; batch < 50; batch += 1) assert.ok(store.flush());
}

const keysIn = (store: Store): string[] => [...store.objects.inventory()].map(({ key }) => key).toSorted();
const textOf = (store: Store, name: string): unknown =>
  (store.objects.object(`Secret/default/${name}`) as { data?: { text?: string } } | undefined)?.data?.text;

test("no file holds a Secret after it was made, changed, deleted, and its key rotated", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  const clock = new VirtualClock();
  const sealer = sealerOf({ clock });
  const check = (step: string): void => {
    for (const secret of [SECRET, NEXT_SECRET]) assert.deepEqual(filesWith(folder.path, secret), [], step);
  };
  {
    await using store = open(path, sealer);
    apply(store, [secretOf("a", SECRET), secretOf("b", SECRET), remotePod("r")]);
    check("made");
    apply(store, [secretOf("a", NEXT_SECRET)]);
    check("changed");
    assert.equal(textOf(store, "a"), NEXT_SECRET);
    apply(store, [], ["Secret/default/b"]);
    drain(store);
    check("deleted");
    await clock.advance(millis(ROTATION_MS));
    apply(store, [secretOf("c", SECRET)]);
    assert.equal(sealer.generation, 2);
    drain(store);
    check("rotated");
  }
  check("closed");
  await using again = open(path, sealer);
  assert.deepEqual([textOf(again, "a"), textOf(again, "c")], [NEXT_SECRET, SECRET]);
  assert.equal(again.objects.cursor.revision, 4, "nothing is asked for again");
});

test("the search finds a Secret that is stored without keys", async () => {
  using folder = new TemporaryFolder();
  await using store = open(folder.file("picolet.db"));
  apply(store, [secretOf("a", SECRET)]);
  assert.notDeepEqual(filesWith(folder.path, SECRET), []);
});

test("neither hash nor digest on the disk lets a guess of a Secret be confirmed", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  const secret = secretOf("a", SECRET);
  let state: Uint8Array;
  {
    await using store = open(path, sealerOf());
    apply(store, [secret, remotePod("r")]);
    state = store.objects.cursor.digest;
    drain(store);
  }
  const bytes = readFileSync(path);
  assert.ok(!bytes.includes(Buffer.from(secret.hash)), "the object's hash");
  assert.ok(!bytes.includes(Buffer.from(state)), "the digest of all objects, from which the hash follows");
});

test("a store of an older picolet is encrypted in batches, and what it held in plain is overwritten", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  const many = Array.from({ length: 100 }, (_, n) => secretOf(`s-${n}`, `${SECRET}-${n}`));
  {
    await using store = open(path);
    apply(store, [...many, secretOf("gone", NEXT_SECRET)]);
    apply(store, [], ["Secret/default/gone"]);
  }
  writeFileSync(`${path}.damaged-20250101T000000Z`, `evidence with ${SECRET}`);
  assert.notDeepEqual(filesWith(folder.path, SECRET), []);
  const keyFolder = new MemoryKeyFolder();
  {
    await using store = open(path, sealerOf({ folder: keyFolder }));
    // A power cut after each batch: what is on the disk then opens with all that it held.
    for (let batch = 1; batch <= 5; batch += 1) {
      store.flush();
      using copy = new TemporaryFolder();
      cpSync(folder.path, copy.path, { recursive: true });
      await using after = open(copy.file("picolet.db"), sealerOf());
      assert.deepEqual(
        many.map((_, n) => textOf(after, `s-${n}`)),
        many.map((_, n) => `${SECRET}-${n}`),
        `after batch ${batch}`,
      );
      assert.equal(after.objects.cursor.revision, 2);
    }
    for (const secret of [SECRET, NEXT_SECRET]) assert.deepEqual(filesWith(folder.path, secret), []);
    assert.deepEqual(parseKeyFile(keyFolder.files.get("store-keys.json") ?? "").scrubbed, true);
  }
  assert.deepEqual(readdirSync(folder.path), ["picolet.db"]);
});

test("a store that is too large for memory is overwritten through a temporary file", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  const large = remoteObject("ConfigMap", "large", { data: { text: "x".repeat(3 * 1024 * 1024) } });
  {
    await using store = open(path);
    apply(store, [secretOf("a", SECRET), large]);
  }
  await using store = open(path, sealerOf());
  drain(store);
  assert.deepEqual(filesWith(folder.path, SECRET), []);
  assert.deepEqual(store.objects.object(large.key), large.object);
});

test("after a rotation rows are sealed again, and only then the old key goes; the one before stays for tokens", async () => {
  using folder = new TemporaryFolder();
  const clock = new VirtualClock();
  const keyFolder = new MemoryKeyFolder();
  const sealer = sealerOf({ clock, folder: keyFolder });
  const generations = (): number[] =>
    parseKeyFile(keyFolder.files.get("store-keys.json") ?? "").keys.map(({ generation }) => generation);
  await using store = open(folder.file("picolet.db"), sealer);
  apply(
    store,
    Array.from({ length: 70 }, (_, n) => secretOf(`s-${n}`, SECRET)),
  );
  drain(store);
  for (const generation of [2, 3]) {
    await clock.advance(millis(ROTATION_MS));
    apply(store, [secretOf("s-0", `${SECRET}-${generation}`)]);
    assert.equal(sealer.generation, generation);
    assert.ok(generations().includes(generation - 1), "needed by rows that are still to be sealed again");
    if (generation === 3) assert.deepEqual(generations(), [1, 2, 3]);
    drain(store);
    assert.deepEqual(generations(), [generation - 1, generation]);
  }
  assert.equal(textOf(store, "s-69"), SECRET);
});

test("with nothing to seal again nothing is written", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  const sealer = sealerOf();
  {
    await using store = open(path, sealer);
    apply(store, [secretOf("a", SECRET)]);
    drain(store);
  }
  const before = readFileSync(path);
  {
    await using store = open(path, sealer);
    drain(store);
  }
  assert.deepEqual(readFileSync(path), before);
});

/** Changes rows of the closed database as an attacker with the disk can. */
function tamper(path: string, ...statements: readonly string[]): void {
  const database = new Database(path);
  for (const statement of statements) database.exec(statement);
  database.close();
}

const HALF = "CREATE TEMP TABLE saved AS SELECT key, body FROM objects";
const swap = (to: string, from: string): string =>
  `UPDATE objects SET body = (SELECT body FROM saved WHERE key = 'Secret/default/${from}') WHERE key = 'Secret/default/${to}'`;

const DAMAGE: readonly (readonly [name: string, statements: readonly string[], lost: readonly string[]])[] = [
  [
    "a byte of the ciphertext",
    [
      "UPDATE objects SET body = unhex(replace(hex(body), substr(hex(body), 61, 40), hex(randomblob(20)))) WHERE key = 'Secret/default/a'",
    ],
    ["a"],
  ],
  [
    "a truncated box",
    ["UPDATE objects SET body = substr(body, 1, length(body) - 1) WHERE key = 'Secret/default/a'"],
    ["a"],
  ],
  ["an empty box", ["UPDATE objects SET body = x'' WHERE key = 'Secret/default/a'"], ["a"]],
  [
    "a generation that never was",
    ["UPDATE objects SET body = CAST(x'01000000ff' || substr(body, 6) AS BLOB) WHERE key = 'Secret/default/a'"],
    ["a"],
  ],
  ["boxes swapped between rows", [HALF, swap("a", "b"), swap("b", "a")], ["a", "b"]],
  ["a box copied to another row", [HALF, swap("a", "b")], ["a"]],
  ["a row under another name", ["UPDATE objects SET key = 'Secret/default/d' WHERE key = 'Secret/default/a'"], ["a"]],
];

for (const [name, statements, lost] of DAMAGE) {
  test(`${name}: that object alone is lost, is never another one, and is asked for again`, async () => {
    using folder = new TemporaryFolder();
    const path = folder.file("picolet.db");
    {
      await using store = open(path, sealerOf());
      apply(store, [secretOf("a", SECRET), secretOf("b", NEXT_SECRET), secretOf("c", SECRET)]);
      drain(store);
    }
    tamper(path, ...statements);
    await using store = open(path, sealerOf());
    assert.deepEqual(store.state.current, { kind: "durable", opening: { kind: "opened" } }, "the database is kept");
    const left = ["a", "b", "c"].filter((each) => !lost.includes(each));
    assert.deepEqual(
      keysIn(store),
      left.map((each) => `Secret/default/${each}`),
    );
    for (const each of lost) assert.equal(textOf(store, each), undefined);
    assert.equal(store.objects.cursor.epoch.length, 0, "the hub compares all");
    assert.equal(store.unreadable.current.size, lost.length);
    apply(
      store,
      lost.map((each) => secretOf(each, SECRET)),
    );
    assert.equal(store.unreadable.current.size, 0);
    assert.equal(keysIn(store).length, 3, "and no row of another name is left");
  });
}

test("an older box in the place of a row is not believed: the set is not the one that the cursor stands for", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  const sealer = sealerOf();
  const bodyOf = (): Buffer => {
    const database = new Database(path, { readonly: true });
    const { body } = database.prepare("SELECT body FROM objects").get() as { body: Buffer };
    database.close();
    return body;
  };
  for (const text of [SECRET, NEXT_SECRET]) {
    {
      await using store = open(path, sealer);
      apply(store, [secretOf("a", text)]);
      drain(store);
    }
    if (text === SECRET) writeFileSync(folder.file("old"), bodyOf());
  }
  tamper(path, `UPDATE objects SET body = x'${readFileSync(folder.file("old")).toString("hex")}'`);
  await using store = open(path, sealer);
  assert.equal(store.objects.cursor.epoch.length, 0);
});

test("with a lost key Secrets are not known, all else is, and the hub's word makes it whole again", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  {
    await using store = open(path, sealerOf());
    apply(store, [secretOf("a", SECRET), secretOf("b", SECRET), remoteObject("ConfigMap", "c", { kind: "ConfigMap" })]);
    drain(store);
  }
  const other = sealerOf({ seed: 99 });
  {
    await using store = open(path, other);
    assert.deepEqual(keysIn(store), ["ConfigMap/default/c"]);
    assert.deepEqual([...store.desired.desired.current.pods.keys()], ["uid-kept"], "pods go on");
    assert.equal(store.objects.cursor.epoch.length, 0);
    assert.equal(store.unreadable.current.size, 2);
    drain(store);
    apply(store, [secretOf("a", NEXT_SECRET)]);
    assert.equal(store.unreadable.current.size, 0);
  }
  await using again = open(path, other);
  assert.equal(textOf(again, "a"), NEXT_SECRET);
  assert.deepEqual(keysIn(again), ["ConfigMap/default/c", "Secret/default/a"]);
  assert.equal(again.objects.cursor.revision, 1);
});

test("a row that is damaged while the store is open is lost alone", async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  const sealer = sealerOf();
  let isBroken = false;
  const failing: Sealer = new Proxy(sealer, {
    get: (target, name) => {
      if (name === "open" && isBroken) return () => undefined;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  await using store = open(path, failing);
  apply(store, [secretOf("a", SECRET), remotePod("r")]);
  drain(store);
  isBroken = true;
  assert.equal(textOf(store, "a"), undefined);
  isBroken = false;
  assert.deepEqual([...store.unreadable.current], ["Secret/default/a"]);
  assert.equal(store.objects.cursor.epoch.length, 0);
  assert.deepEqual(keysIn(store), ["Pod/default/r"]);
  apply(store, [secretOf("a", SECRET)]);
  assert.equal(textOf(store, "a"), SECRET);
});
