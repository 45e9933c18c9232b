/** Writes objects into a store forever and prints the number of each once it is acknowledged, until it is killed. */
import { ObjectStore } from "@picolet/hub-embedded/store/object-store.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { RecordedLog } from "../ports/recorders.ts";

const [path = "", first = "0"] = process.argv.slice(2);
const store = new ObjectStore({ clock: systemClock, log: new RecordedLog() }, path);
for (let n = Number(first); ; n += 1) {
  store.put({
    key: { resource: "configmaps", namespace: "default", name: `n${n}` },
    type: "ADDED",
    object: { apiVersion: "v1", kind: "ConfigMap", metadata: { name: `n${n}`, namespace: "default" } },
    previous: undefined,
  });
  await store.settled();
  process.stdout.write(`${n}\n`);
}
