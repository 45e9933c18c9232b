/**
 * A process that seals what a store holds, and then changes Secrets and rotates their key as fast as it can. It says on
 * stdout what has been done, until it is killed.
 */
import { writeSync } from "node:fs";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { openSealedStore, sealedChange } from "./sealed-history.ts";

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: sealed-writer.ts <folder>");
const { store, keys } = await openSealedStore(folder, systemClock);
// As many batches as the Secrets of an older picolet take, and some that find nothing to do.
for (let batch = 0; batch < 6; batch += 1) {
  store.flush();
  writeSync(1, "batch\n");
}
for (let revision = store.objects.cursor.revision + 1; ; revision += 1) {
  const { upserts, deletes, wanted } = sealedChange(revision);
  const digest = store.objects.digestAfter({ upserts, deletes });
  store.objects.apply(
    { cursor: { epoch: Uint8Array.of(1), revision, digest }, upserts, deletes },
    { wanted, removed: [] },
  );
  writeSync(1, `${revision}\n`);
  if (revision % 5 === 0) keys.rotate();
  if (revision % 2 === 0) store.flush();
}
