/** A process that changes a store as fast as it can and says on stdout what has been accepted, until it is killed. */
import { writeSync } from "node:fs";
import { Store } from "@picolet/agent/store/store.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { samplePod, sampleStatus } from "../support/unit/store/store-samples.ts";
import { EPOCH, podsOf, remoteOf } from "./history.ts";

const [path] = process.argv.slice(2);
if (path === undefined) throw new Error("usage: writer.ts <database>");
const store = new Store({ clock: systemClock, log: new RecordedLog() }, { path });
for (let revision = store.desired.revision("file") + 1; ; revision += 1) {
  store.desired.replace("file", revision, podsOf(revision));
  const { upserts, deletes, pods } = remoteOf(revision);
  const digest = store.objects.digestAfter({ upserts, deletes });
  const cursor = { epoch: EPOCH, revision, digest };
  store.objects.apply({ cursor, upserts, deletes }, { wanted: pods, removed: [] });
  writeSync(1, `${revision}\n`);
  store.statuses.put(sampleStatus(samplePod("a").pod.metadata.name, `revision ${revision}`));
  for (const uid of store.desired.desired.current.removed.keys()) store.desired.forget(uid);
  if (revision % 3 === 0) store.flush();
}
