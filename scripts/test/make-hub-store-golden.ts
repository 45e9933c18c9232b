/**
 * Writes test/golden/hub-store/format-<n>.sql and its hub-keys.json: the embedded API server's store as this
 * picolet-hub leaves it on disk, with a Secret sealed by keys that no hub uses. Run it once when a new format is made,
 * before it is released; the files of a released format are never made again.
 */
import { copyFileSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { FORMAT } from "@picolet/hub-embedded/store/database.ts";
import { FleetGuard, storePathIn } from "@picolet/hub-embedded/store/fleet-guard.ts";
import { ObjectStore } from "@picolet/hub-embedded/store/object-store.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { dumpDatabase } from "@picolet/test/support/unit/store/sql-dump.ts";
import Database from "better-sqlite3";

const FOLDER = "test/golden/hub-store";
const file = `${FOLDER}/format-${FORMAT}.sql`;
if (existsSync(file)) {
  console.error(`${file} exists already; a released format stays as it is`);
  process.exit(1);
}
using folder = new TempFolder();
const path = storePathIn(folder.path);
{
  const parts = { clock: new VirtualClock(), log: new RecordedLog() };
  using store = new ObjectStore({ ...parts, guard: new FleetGuard(parts, { dataDir: folder.path }) }, path);
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
  const sealed = { apiVersion: "v1", kind: "Secret", metadata: { name: "sealed", namespace: "default" }, data: {} };
  const key = { resource: "secrets", namespace: "default", name: "sealed" };
  store.put({ key, type: "ADDED", object: sealed, previous: undefined });
  store.setMeta("service-account-key", "key");
  await store.settled();
}
const database = new Database(path);
database.exec("INSERT INTO floors VALUES ('nodes', 1)");
database.close();
mkdirSync(FOLDER, { recursive: true });
writeFileSync(file, dumpDatabase(path));
copyFileSync(folder.at("hub-keys.json"), `${FOLDER}/format-${FORMAT}.keys.json`);
