/**
 * Writes test/golden/store/format-<n>.{sql,json}: a store as this picolet leaves it on disk, and what it holds. Run once
 * when a new format is made, before it is released. The files of a released format are never made again: that boards
 * out there wrote such files is what they stand for.
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { FORMAT } from "../agent/store/schema.ts";
import { Store } from "../agent/store/store.ts";
import { RecordedLog } from "../test/support/recorders.ts";
import { sealerOf } from "../test/support/sealers.ts";
import { dumpDatabase } from "../test/support/sql-dump.ts";
import {
  contentsOf,
  fillKeptSample,
  fillRemoteSample,
  fillResizeSample,
  fillRuntimeSample,
  fillSample,
} from "../test/support/store-contents.ts";
import { TemporaryFolder } from "../test/support/store-samples.ts";
import { VirtualClock } from "../test/support/virtual-clock.ts";

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
