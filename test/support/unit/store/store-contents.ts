/** Something of everything a store can hold, and a way to see all of it. */
import type { Store } from "@picolet/agent/store/store.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import { toHex } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { remoteObject, remotePod, samplePod, sampleReference, sampleStatus } from "./store-samples.ts";

export function fillSample(store: Store): void {
  const { desired, statuses, events } = store;
  desired.replace("file", 3, [samplePod("a"), samplePod("b"), samplePod("c")]);
  desired.replace("file", 4, [samplePod("a"), samplePod("b", { origin: "/manifests/elsewhere.yaml" })]);
  desired.replace("api", 77, [samplePod("d", { source: "api", origin: "" })]);
  statuses.put(sampleStatus("a", "first"));
  statuses.put(sampleStatus("b", "first"));
  statuses.put(sampleStatus("a", "second"));
  statuses.put(sampleStatus("d", "first"));
  statuses.ack(2, new Set());
  const event = { regarding: sampleReference("a"), reason: "BackOff" } as const;
  events.record({ ...event, type: "Warning", message: "Back-off restarting failed container" });
  events.record({ ...event, type: "Normal", message: "it isn't 'quoted'; grüß dich" });
  events.record({ ...event, type: "Warning", message: "Back-off restarting failed container" });
}

/** The tunnel's rows since format 2: one pod that runs, one of which nothing is left, and a Secret. */
export function fillRemoteSample(store: Store): void {
  const { desired, statuses, events, objects } = store;
  const pods = ["r", "s"].map((name) => remotePod(name));
  const secret = remoteObject("Secret", "db", { kind: "Secret", data: { password: "Z3LDvMOf" } });
  const [running, ending] = pods.map(
    ({ object }) => ({ ...samplePod("x"), source: "api", origin: "", pod: object }) as DesiredPod,
  );
  if (running === undefined || ending === undefined) throw new Error("two pods");
  const metadata = {
    ...ending.pod.metadata,
    deletionTimestamp: "2026-01-01T00:00:00Z",
    deletionGracePeriodSeconds: 30,
  };
  const deleted = { ...ending, uid: podUid("node-s"), pod: { ...ending.pod, metadata } };
  const upserts = [...pods.slice(0, 1), remoteObject("Pod", "s", deleted.pod), secret];
  const digest = objects.digestAfter({ upserts, deletes: [] });
  const cursor = { epoch: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8), revision: 12, digest };
  const wanted = [{ ...running, uid: podUid("node-r") }, samplePod("d", { source: "api", origin: "" })];
  objects.apply({ cursor, upserts, deletes: [] }, { wanted, removed: [deleted] });
  const status = sampleStatus("s", "last").status;
  statuses.finish({ uid: deleted.uid, apiUid: "api-s", namespace: "default", name: "s", status });
  desired.forget(deleted.uid);
  statuses.put({ uid: podUid("node-r"), apiUid: "api-r", namespace: "default", name: "r", status });
  events.ack(2);
}

/** Since format 3: a pod that is wanted with other resources than it was granted. */
export function fillResizeSample({ desired }: Store): void {
  const { pods } = desired.desired.current;
  const own = [...pods.values()].filter(({ source }) => source === "api");
  desired.replace(
    "api",
    78,
    own.map((each) => (each.uid === "uid-d" ? withCpu(each, "250m") : each)),
  );
}

/** Since format 4: records of two areas. */
export function fillKeptSample({ kept }: Store): void {
  kept.put("images", "sha256:0a", { usedAtMs: 1_767_225_600_000, tags: ["busybox:1", "grüß:dich"] });
  kept.put("images", "sha256:0b", { usedAtMs: 1_767_225_601_000, tags: [] });
  kept.put("days", "2026-01-01", [1, 2.5, true]);
}

/** Since format 5: pods that may be either, one of them with other resources than it was granted. */
export function fillRuntimeSample({ desired }: Store): void {
  desired.choose(podUid("uid-a"), { kind: "component", reason: "Preferred", message: "its images have it" });
  desired.choose(podUid("uid-d"), { kind: "container", reason: "OnlyForm", message: "grüß has no component" });
}

/** With this request of its first container. */
export function withCpu(desired: DesiredPod, cpu: string): DesiredPod {
  const [first, ...others] = desired.pod.spec.containers;
  if (first === undefined) throw new Error("a pod has a container");
  const containers = [{ ...first, resources: { ...first.resources, requests: { cpu } } }, ...others];
  return { ...desired, pod: { ...desired.pod, spec: { ...desired.pod.spec, containers } } };
}

/** As plain data. */
export function contentsOf({ desired, statuses, events, objects, kept }: Store): unknown {
  const { pods, removed, requested } = desired.desired.current;
  const records = ["days", "images"].flatMap((area) => [...kept.all(area)].map(([key, value]) => [area, key, value]));
  return {
    pods: [...pods.values()],
    removed: [...removed.values()],
    ...(records.length === 0 ? {} : { kept: records }),
    ...(requested.size === 0 ? {} : { requested: [...requested.values()] }),
    revisions: { file: desired.revision("file"), api: desired.revision("api"), push: desired.revision("push") },
    statuses: [...pods.keys()].map((uid) => statuses.get(uid) ?? null),
    pending: statuses.pending(100),
    gone: [...statuses.gone],
    events: events.list({ limit: 100 }),
    pendingEvents: events.pending(100).map(({ sequence }) => sequence),
    cursor: {
      revision: objects.cursor.revision,
      epoch: toHex(objects.cursor.epoch),
      digest: toHex(objects.cursor.digest),
    },
    objects: [...objects.inventory()].map(({ key, hash }) => ({ key, hash: toHex(hash), object: objects.object(key) })),
  };
}
