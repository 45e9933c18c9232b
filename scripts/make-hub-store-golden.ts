/**
 * Writes test/golden/hub-store/format-<n>.sql: the embedded API server's store as this picolet-hub leaves it on disk. Run
 * once when a new format is made, before it is released; the files of a released format are never made again.
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import Database from "better-sqlite3";
import { ObjectStore } from "../hub/embedded/store/object-store.ts";
import { FORMAT } from "../hub/embedded/store/schema.ts";
import { RecordedLog } from "../test/support/recorders.ts";
import { dumpDatabase } from "../test/support/sql-dump.ts";
import { TempFolder } from "../test/support/temp-folder.ts";
import { VirtualClock } from "../test/support/virtual-clock.ts";

const FOLDER = "test/golden/hub-store";
const file = `${FOLDER}/format-${FORMAT}.sql`;
if (existsSync(file)) {
  console.error(`${file} is there already; a released format stays as it is`);
  process.exit(1);
}
using folder = new TempFolder();
const path = folder.at("hub.db");
{
  using store = new ObjectStore({ clock: new VirtualClock(), log: new RecordedLog() }, path);
  const put = (name: string, type: "ADDED" | "MODIFIED" | "DELETED", value: string): void => {
    const object = { apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace: "default" }, data: { value } };
    const key = { resource: "configmaps", namespace: "default", name };
    store.put({
      key,
      type,
      object,
      previous: type === "MODIFIED" ? "{}" : undefined,
      expiresAt: name === "other" ? 1 : undefined,
    });
  };
  put("kept", "ADDED", "it's");
  put("gone", "ADDED", "");
  put("other", "ADDED", "");
  put("kept", "MODIFIED", "é");
  put("gone", "DELETED", "");
  store.setMeta("service-account-key", "key");
  await store.settled();
}
const database = new Database(path);
database.exec("INSERT INTO floors VALUES ('secrets', 1)");
database.close();
mkdirSync(FOLDER, { recursive: true });
writeFileSync(file, dumpDatabase(path));
