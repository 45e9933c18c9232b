/** Something of everything a store can hold, and a way to see all of it. */
import type { Store } from "../../agent/store/store.ts";
import { samplePod, sampleReference, sampleStatus } from "./store-samples.ts";

export function fillSample(store: Store): void {
  const { desired, statuses, events } = store;
  desired.replace("file", 3, [samplePod("a"), samplePod("b"), samplePod("c")]);
  desired.replace("file", 4, [samplePod("a"), samplePod("b", { origin: "/manifests/elsewhere.yaml" })]);
  desired.replace("api", 77, [samplePod("d", { source: "api", origin: "" })]);
  statuses.put(sampleStatus("a", "first"));
  statuses.put(sampleStatus("b", "first"));
  statuses.put(sampleStatus("a", "second"));
  statuses.put(sampleStatus("d", "first"));
  statuses.ack(2);
  const event = { regarding: sampleReference("a"), reason: "BackOff" } as const;
  events.record({ ...event, type: "Warning", message: "Back-off restarting failed container" });
  events.record({ ...event, type: "Normal", message: "it isn't 'quoted'; grüß dich" });
  events.record({ ...event, type: "Warning", message: "Back-off restarting failed container" });
}

/** As plain data. */
export function contentsOf({ desired, statuses, events }: Store): unknown {
  const { pods, removed } = desired.desired.current;
  return {
    pods: [...pods.values()],
    removed: [...removed.values()],
    revisions: { file: desired.revision("file"), api: desired.revision("api"), push: desired.revision("push") },
    statuses: [...pods.keys()].map((uid) => statuses.get(uid) ?? null),
    pending: statuses.pending(100),
    events: events.list({ limit: 100 }),
  };
}
