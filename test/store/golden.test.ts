/** Stores of every format that was ever released open, with all that they held. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { Connection } from "@picolet/agent/store/connection.ts";
import { decode, encode } from "@picolet/agent/store/encoding.ts";
import { FORMAT, type Migration, migrate } from "@picolet/agent/store/schema.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import Database from "better-sqlite3";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { sealerOf } from "../support/unit/store/sealers.ts";
import { contentsOf } from "../support/unit/store/store-contents.ts";
import { TemporaryFolder } from "../support/unit/store/store-samples.ts";

const FOLDER = new URL("../golden/store/", import.meta.url);
const golden = (format: number, kind: "sql" | "json"): string =>
  readFileSync(new URL(`format-${format}.${kind}`, FOLDER), "utf8");

function open(path: string): Store {
  return new Store({ clock: new VirtualClock(), log: new RecordedLog(), sealer: sealerOf() }, { path });
}

function make(path: string, format: number): void {
  const database = new Database(path);
  database.exec(golden(format, "sql"));
  database.close();
}

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

test("there is a golden of every format", () => {
  const files = readdirSync(FOLDER).filter((name) => name.endsWith(".sql"));
  const formats = Array.from({ length: FORMAT }, (_, n) => `format-${n + 1}.sql`);
  assert.deepEqual(files.toSorted(), formats.toSorted());
});

for (let format = 1; format <= FORMAT; format += 1) {
  test(`a store of format ${format} opens with all that it held, and stays usable`, async () => {
    using folder = new TemporaryFolder();
    const path = folder.file("picolet.db");
    make(path, format);
    {
      await using store = open(path);
      assert.deepEqual(store.state.current, { kind: "durable", opening: { kind: "opened" } });
      assert.deepEqual(plain(contentsOf(store)), JSON.parse(golden(format, "json")));
      assert.equal(store.desired.replace("file", 5, []), "accepted");
    }
    await using again = open(path);
    assert.deepEqual(again.state.current, { kind: "durable", opening: { kind: "opened" } });
    assert.equal(again.desired.desired.current.removed.size, 3);
  });
}

test("equal content is written with the bytes it always had, whatever the order of its keys", () => {
  using folder = new TemporaryFolder();
  make(folder.file("golden.db"), FORMAT);
  const database = new Database(folder.file("golden.db"), { readonly: true });
  const bodies = database
    .prepare(
      "SELECT body FROM pods UNION ALL SELECT body FROM statuses " +
        "UNION ALL SELECT granted FROM pods WHERE granted NOT NULL UNION ALL SELECT value FROM kept " +
        "UNION ALL SELECT runtime FROM pods WHERE runtime NOT NULL",
    )
    .pluck()
    .all() as Buffer[];
  database.close();
  assert.ok(bodies.length > 0);
  for (const body of bodies) assert.ok(encode(turned(decode(body))).equals(body));
});

/** With the keys of every mapping in the opposite order. */
function turned(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(turned);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).toReversed();
  return Object.fromEntries(entries.map(([key, each]) => [key, turned(each)]));
}

const ADD: Migration = {
  format: FORMAT + 1,
  statements: ["ALTER TABLE pods ADD COLUMN note TEXT", "DELETE FROM events"],
};
const BREAK: Migration = { format: FORMAT + 2, statements: ["CREATE TABLE extra (a) STRICT", "SELECT nonsense"] };

test("migrations run in order, each whole or not at all", () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  make(path, FORMAT);
  const start: Migration = { format: FORMAT, statements: ["this one has been done"] };
  {
    using connection = new Connection(path);
    assert.throws(() => migrate(connection, [start, ADD, BREAK]));
  }
  using connection = new Connection(path);
  assert.equal(connection.pragma("user_version"), FORMAT + 1, "the first stands, the second left nothing");
  assert.equal(connection.row("SELECT count(*) AS n FROM events")?.n, 0);
  assert.equal(connection.row("SELECT 1 FROM sqlite_schema WHERE name = 'extra'"), undefined);
  migrate(connection, [start, ADD]);
  assert.throws(
    () => migrate(connection),
    (error) => isPicoletError(error, "conflict"),
  );
});
