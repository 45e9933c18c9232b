/**
 * Writes test/golden/store/format-<n>.{sql,json}: a store as this picolet leaves it on disk, and what it holds. Run once
 * when a new format is made, before it is released. The files of a released format are never made again: that boards
 * out there wrote such files is what they stand for.
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import Database from "better-sqlite3";
import { FORMAT } from "../agent/store/schema.ts";
import { Store } from "../agent/store/store.ts";
import { RecordedLog } from "../test/support/recorders.ts";
import { contentsOf, fillSample } from "../test/support/store-contents.ts";
import { TemporaryFolder } from "../test/support/store-samples.ts";
import { VirtualClock } from "../test/support/virtual-clock.ts";

const FOLDER = "test/golden/store";

function literal(value: unknown): string {
  if (value instanceof Buffer) return `X'${value.toString("hex")}'`;
  if (typeof value === "number") return String(value);
  return `'${String(value).replaceAll("'", "''")}'`;
}

/** The whole database as SQL, the settings in its header too. */
function dump(path: string): string {
  const database = new Database(path, { readonly: true });
  const tables = database
    .prepare<[], { name: string; sql: string }>(
      "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name",
    )
    .all();
  const lines = ["application_id", "user_version"].map(
    (name) => `PRAGMA ${name} = ${database.pragma(name, { simple: true })};`,
  );
  for (const { name, sql } of tables) {
    lines.push(`${sql};`);
    for (const row of database.prepare<[], unknown[]>(`SELECT * FROM ${name}`).raw().all() as unknown[][]) {
      lines.push(`INSERT INTO ${name} VALUES (${row.map(literal).join(", ")});`);
    }
  }
  database.close();
  return `${lines.join("\n")}\n`;
}

const stem = `${FOLDER}/format-${FORMAT}`;
if (existsSync(`${stem}.sql`)) {
  console.error(`${stem}.sql is there already; a released format stays as it is`);
  process.exit(1);
}
using folder = new TemporaryFolder();
const path = folder.file("picolet.db");
const store = new Store({ clock: new VirtualClock(), log: new RecordedLog() }, { path });
fillSample(store);
store.flush();
mkdirSync(FOLDER, { recursive: true });
writeFileSync(`${stem}.json`, `${JSON.stringify(contentsOf(store), undefined, 2)}\n`);
await store[Symbol.asyncDispose]();
writeFileSync(`${stem}.sql`, dump(path));
