/**
 * Writes test/golden/store/format-<n>.{sql,json}: a store as this picolet leaves it on disk, and what it holds. Run
 * once when a new format is made, before it is released. The files of a released format are never made again: that
 * boards out there wrote such files is what they stand for.
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { FORMAT } from "@picolet/agent/store/schema.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { sealerOf } from "@picolet/test/support/unit/store/sealers.ts";
import { dumpDatabase } from "@picolet/test/support/unit/store/sql-dump.ts";
import {
  contentsOf,
  fillKeptSample,
  fillRemoteSample,
  fillResizeSample,
  fillRuntimeSample,
  fillSample,
} from "@picolet/test/support/unit/store/store-contents.ts";
import { TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";

const FOLDER = "test/golden/store";

const stem = `${FOLDER}/format-${FORMAT}`;
if (existsSync(`${stem}.sql`)) {
  console.error(`${stem}.sql is there already; a released format stays as it is`);
  process.exit(1);
}
using folder = new TemporaryFolder();
const path = folder.file("picolet.db");
const open = (): Store => {
  const components = { clock: new VirtualClock(), log: new RecordedLog(), sealer: sealerOf() };
  return new Store(components, { path });
};
{
  await using store = open();
  for (const fill of [fillSample, fillRemoteSample, fillResizeSample, fillKeptSample, fillRuntimeSample]) fill(store);
}
mkdirSync(FOLDER, { recursive: true });
writeFileSync(`${stem}.sql`, dumpDatabase(path));
// In the order in which they come from the disk.
await using store = open();
writeFileSync(`${stem}.json`, `${JSON.stringify(contentsOf(store), undefined, 2)}\n`);
