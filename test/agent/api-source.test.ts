import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_VANISHED_PODS } from "@picolet/agent/sources/api-pods.ts";
import { ApiSource } from "@picolet/agent/sources/api-source.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import fc from "fast-check";
import { LOADED_PARSER } from "../support/unit/pods/pod-parser.ts";
import { RecordedEvents, RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { samplePod, TemporaryFolder } from "../support/unit/store/store-samples.ts";
import { type PodObject, RemoteHub } from "../support/unit/tunnel/remote-hub.ts";

const TOKEN_VOLUME = "kube-api-access-";

interface PodInit {
  readonly uid?: string;
  readonly image?: string;
  /** Part of the token volume's name. */
  readonly suffix?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  /** The source of an environment variable. */
  readonly fieldPath?: string;
}

function podObject(name: string, init: PodInit = {}): PodObject {
  const { uid = `uid-${name}`, image = "busybox:1", suffix = "abcde", labels = {}, annotations = {}, fieldPath } = init;
  const volume = `${TOKEN_VOLUME}${suffix}`;
  const env =
    fieldPath === undefined ? [] : [{ name: "SEEN", valueFrom: { fieldRef: { apiVersion: "v1", fieldPath } } }];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", uid, labels, annotations },
    spec: {
      nodeName: "n",
      terminationGracePeriodSeconds: 30,
      volumes: [{ name: volume, emptyDir: {} }],
      containers: [{ name: "app", image, env, volumeMounts: [{ name: volume, mountPath: "/var/run/secrets" }] }],
    },
  };
}

class Bench implements AsyncDisposable {
  readonly folder = new TemporaryFolder();
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly hub = new RemoteHub();
  events = new RecordedEvents();
  store: Store;
  source: ApiSource;

  constructor() {
    [this.store, this.source] = this.#open();
  }

  async reopen(): Promise<void> {
    await this.store[Symbol.asyncDispose]();
    [this.store, this.source] = this.#open();
  }

  /** The agent learns what the hub has. */
  sync(): void {
    this.hub.bringTo(this.source);
  }

  /** `web uid-web/node-uid grace`, of those to be ended with a minus before it. */
  get pods(): string[] {
    const { pods, removed } = this.store.desired.desired.current;
    const show = ({ uid, pod }: DesiredPod): string => {
      const { name, uid: apiUid, deletionGracePeriodSeconds: grace } = pod.metadata;
      return `${name} ${apiUid}${uid === apiUid ? "" : `/${uid}`}${grace === undefined ? "" : ` ${grace}s`}`;
    };
    return [...[...pods.values()].map(show), ...[...removed.values()].map((each) => `-${show(each)}`)].toSorted();
  }

  get told(): string[] {
    return this.store.statuses.pending(99).map(({ value: { name, uid, gone, status } }) => {
      return `${name} ${uid} ${String(status.phase)}${gone ? " gone" : ""}`;
    });
  }

  desired(name: string): DesiredPod {
    const { pods, removed } = this.store.desired.desired.current;
    const found = [...pods.values(), ...removed.values()].find(({ pod }) => pod.metadata.name === name);
    assert.ok(found !== undefined);
    return found;
  }

  /** Ends the pod as its worker does when nothing is left. */
  end(name: string): void {
    const { uid, pod } = this.desired(name);
    const { namespace, uid: apiUid = "" } = pod.metadata;
    this.store.statuses.finish({ uid, apiUid, namespace, name, status: { phase: "Failed" } });
    this.store.desired.forget(uid);
  }

  report(name: string, phase: PodStatus["phase"]): void {
    const { uid, pod } = this.desired(name);
    const { namespace, uid: apiUid = "" } = pod.metadata;
    this.store.statuses.put({ uid, apiUid, namespace, name, status: { phase } });
  }

  #open(): [Store, ApiSource] {
    const { clock, log, events } = this;
    const store = new Store({ clock, log }, { path: this.folder.file("picolet.db") });
    const { desired, statuses, objects } = store;
    const source = new ApiSource(
      { clock, log, parser: LOADED_PARSER, objects, store: desired, statuses, events },
      { nodeName: "n" },
    );
    return [store, source];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.store[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}

test("objects, cursor and pods change together, and are there again after a restart, with the source not synced", async () => {
  await using bench = new Bench();
  const { hub } = bench;
  hub.put(podObject("web"));
  hub.set("Secret/default/db", { kind: "Secret", data: { a: "Yg==" } });
  assert.equal(bench.source.cursor.epoch.length, 0);
  bench.sync();
  await bench.reopen();
  const { source, store } = bench;
  assert.deepEqual(bench.pods, ["web uid-web"]);
  assert.equal(store.desired.desired.current.synced.has("api"), false);
  assert.deepEqual([...source.inventory()].map(({ key }) => key).toSorted(), ["Pod/default/web", "Secret/default/db"]);
  assert.deepEqual(source.object("Secret/default/db"), { kind: "Secret", data: { a: "Yg==" } });
  assert.equal(source.object("Secret/default/other"), undefined);
  assert.deepEqual(source.changes.current, 0);
  assert.equal(source.cursor.revision, hub.revision);
  assert.deepEqual([...source.cursor.epoch], [...hub.epoch]);
  bench.sync();
  assert.equal(store.desired.desired.current.synced.has("api"), true);
  assert.equal(source.changes.current, 0);
});

test("what others say of a pod comes and goes with its object, over restarts, and makes no other pod of it", async () => {
  await using bench = new Bench();
  const gate = { type: "example.org/ready", status: "True" };
  const withGate = (...conditions: unknown[]): PodObject => ({ ...podObject("web"), status: { conditions } });
  bench.hub.put(withGate());
  bench.sync();
  assert.equal(bench.desired("web").conditions, undefined);
  bench.hub.put(withGate(gate, { type: "no status" }, 7));
  bench.sync();
  assert.deepEqual(bench.desired("web").conditions, [gate]);
  assert.equal(bench.desired("web").pod.status, undefined);
  await bench.reopen();
  assert.deepEqual(bench.desired("web").conditions, [gate]);
  assert.equal(bench.desired("web").pod.status, undefined);
  bench.sync();
  bench.hub.put(withGate({ ...gate, status: "False" }));
  bench.sync();
  assert.deepEqual(bench.desired("web").conditions, [{ ...gate, status: "False" }]);
  bench.hub.put(withGate());
  bench.sync();
  assert.equal(bench.desired("web").conditions, undefined);
  bench.hub.put(withGate(gate));
  bench.hub.deletePod("web", 30);
  bench.sync();
  bench.hub.put({ ...(bench.hub.pod("web") ?? podObject("web")), status: { conditions: [gate, gate] } });
  bench.sync();
  assert.deepEqual([bench.pods, bench.desired("web").conditions?.length], [["-web uid-web 30s"], 2]);
});

test("objects are found by kind and namespace", async () => {
  await using bench = new Bench();
  for (const key of ["Service/default/a", "Service/default-2/b", "ServiceOther/default/c", "PersistentVolume//d"]) {
    bench.hub.set(key, {});
  }
  bench.sync();
  assert.deepEqual(bench.source.keys("Service", "default"), ["Service/default/a"]);
  assert.deepEqual(bench.source.keys("PersistentVolume", ""), ["PersistentVolume//d"]);
});

test("a change that does not start from what is here changes nothing", async () => {
  await using bench = new Bench();
  bench.hub.put(podObject("web"));
  bench.sync();
  const change = bench.hub.changeFor(bench.source);
  const wrong = { ...change, deletes: ["Pod/default/web"] };
  assert.throws(
    () => bench.source.apply(wrong),
    (error) => isPicoletError(error, "conflict"),
  );
  assert.deepEqual(bench.pods, ["web uid-web"]);
});

test("a deletion takes the pod's grace with it, a later one a shorter one, and gone is told until it is acknowledged", async () => {
  await using bench = new Bench();
  const { hub } = bench;
  hub.put(podObject("web"));
  bench.sync();
  bench.report("web", "Running");
  hub.deletePod("web", 30);
  bench.sync();
  assert.deepEqual(bench.pods, ["-web uid-web 30s"]);
  hub.deletePod("web", 5);
  bench.sync();
  assert.deepEqual(bench.pods, ["-web uid-web 5s"]);
  await bench.reopen();
  assert.deepEqual(bench.pods, ["-web uid-web 5s"]);
  bench.sync();
  assert.deepEqual(bench.told, ["web uid-web Running"]);
  bench.end("web");
  assert.deepEqual(bench.told, ["web uid-web Failed gone"]);
  await bench.reopen();
  bench.sync();
  assert.deepEqual([bench.pods, bench.told], [[], ["web uid-web Failed gone"]]);
  bench.store.statuses.ack(bench.store.statuses.latest.current, new Set());
  assert.equal(bench.store.statuses.gone.size, 1, "its object is still there");
  await bench.reopen();
  bench.sync();
  assert.deepEqual([bench.pods, bench.told], [[], []], "it does not come back");
  bench.store.statuses.repeatGone();
  assert.deepEqual(bench.told, ["web uid-web Failed gone"], "a hub that was restored may not have kept it");
  bench.store.statuses.ack(bench.store.statuses.latest.current, new Set());
  hub.removePod("web");
  bench.sync();
  assert.equal(bench.store.statuses.gone.size, 0);
});

test("an end that was not acknowledged is told even when the object is gone by then", async () => {
  await using bench = new Bench();
  bench.hub.put(podObject("web"));
  bench.sync();
  bench.hub.deletePod("web", 30);
  bench.sync();
  bench.end("web");
  bench.hub.removePod("web");
  bench.sync();
  await bench.reopen();
  assert.deepEqual(bench.told, ["web uid-web Failed gone"]);
  bench.store.statuses.ack(bench.store.statuses.latest.current, new Set());
  assert.deepEqual([bench.told, bench.store.statuses.gone.size], [[], 0]);
});

test("a pod that is deleted before the node heard of it is ended like any other", async () => {
  await using bench = new Bench();
  bench.hub.put(podObject("web"));
  bench.hub.deletePod("web", 30);
  bench.sync();
  assert.deepEqual(bench.pods, ["-web uid-web 30s"]);
  bench.end("web");
  assert.deepEqual(bench.told, ["web uid-web Failed gone"]);
});

test("a pod whose object is gone is ended quickly, and nobody is told that it is gone", async () => {
  await using bench = new Bench();
  const { hub } = bench;
  for (const name of ["a", "b"]) hub.put(podObject(name));
  bench.sync();
  hub.deletePod("b", 30);
  bench.sync();
  hub.removePod("a");
  hub.removePod("b");
  bench.sync();
  assert.deepEqual(bench.pods, ["-a uid-a 2s", "-b uid-b 2s"]);
  bench.end("a");
  bench.end("b");
  assert.deepEqual([bench.pods, bench.told], [[], []]);
});

test("a pod that comes back under another UID takes over what runs, over restarts too", async () => {
  await using bench = new Bench();
  const { hub } = bench;
  hub.put(podObject("web", { uid: "first", labels: { app: "web" } }));
  bench.sync();
  hub.put(podObject("web", { uid: "second", suffix: "vwxyz", labels: { app: "other" } }));
  bench.sync();
  assert.deepEqual(bench.pods, ["web second/first"]);
  await bench.reopen();
  assert.deepEqual(bench.pods, ["web second/first"]);
  const { spec, metadata } = bench.desired("web").pod;
  assert.deepEqual(
    [spec.volumes?.[0]?.name, spec.containers[0]?.volumeMounts?.[0]?.name, metadata.labels],
    [`${TOKEN_VOLUME}abcde`, `${TOKEN_VOLUME}abcde`, { app: "other" }],
    "what runs has mounted the volume under the old name",
  );
  hub.put(podObject("web", { uid: "second", suffix: "vwxyz", image: "busybox:2" }));
  bench.sync();
  assert.deepEqual(bench.pods, ["web second/first"]);
  assert.equal(bench.desired("web").pod.spec.volumes?.[0]?.name, `${TOKEN_VOLUME}abcde`);
  hub.restart();
  hub.put(podObject("web", { uid: "third", image: "busybox:2" }));
  hub.deletePod("web", 7);
  bench.sync();
  assert.deepEqual(bench.pods, ["-web third/first 7s"], "and is deleted as what it is now");
});

const NOT_TAKEN_OVER: readonly (readonly [why: string, before: PodInit, after: PodInit])[] = [
  ["another spec", {}, { image: "busybox:2" }],
  [
    "a label that its environment holds",
    { fieldPath: "metadata.labels['app']", labels: { app: "a" } },
    { fieldPath: "metadata.labels['app']", labels: { app: "b" } },
  ],
  [
    "an annotation that its environment holds",
    { fieldPath: "metadata.annotations['x/y']" },
    { fieldPath: "metadata.annotations['x/y']", annotations: { "x/y": "b" } },
  ],
  ["its UID in its environment", { fieldPath: "metadata.uid" }, { fieldPath: "metadata.uid" }],
];

for (const [why, before, after] of NOT_TAKEN_OVER) {
  test(`a pod with ${why} takes over nothing`, async () => {
    await using bench = new Bench();
    bench.hub.put(podObject("web", { ...before, uid: "first" }));
    bench.sync();
    bench.hub.put(podObject("web", { ...after, uid: "second" }));
    bench.sync();
    assert.deepEqual(bench.pods, ["-web first 2s", "web second"]);
  });
}

test("what is ending or has ended is not taken over", async () => {
  await using bench = new Bench();
  const { hub } = bench;
  hub.put(podObject("ending", { uid: "first" }));
  hub.put(podObject("over", { uid: "one" }));
  bench.sync();
  bench.report("over", "Succeeded");
  hub.deletePod("ending", 30);
  bench.sync();
  hub.put(podObject("ending", { uid: "second" }));
  hub.put(podObject("over", { uid: "two" }));
  bench.sync();
  assert.deepEqual(bench.pods, ["-ending first 2s", "-over one 2s", "ending second", "over two"]);
});

test("a pod that is deleted and, by a backup, is not after all starts anew beside the one that ends", async () => {
  await using bench = new Bench();
  const { hub } = bench;
  hub.put(podObject("web"));
  bench.sync();
  const backup = new Map(hub.objects);
  hub.deletePod("web", 30);
  bench.sync();
  hub.restart(backup);
  bench.sync();
  assert.deepEqual(bench.pods, ["-web uid-web 30s", "web uid-web/uid-web.1"]);
  hub.deletePod("web", 9);
  bench.sync();
  assert.deepEqual(bench.pods, ["-web uid-web 9s", "-web uid-web/uid-web.1 9s"]);
  const [first, second] = [...bench.store.desired.desired.current.removed.keys()];
  assert.ok(first !== undefined && second !== undefined);
  for (const uid of [second, first]) {
    assert.deepEqual(bench.told, []);
    bench.store.statuses.finish({
      uid,
      apiUid: "uid-web",
      namespace: "default",
      name: "web",
      status: { phase: "Failed" },
    });
    bench.store.desired.forget(uid);
  }
  assert.deepEqual(bench.told, ["web uid-web Failed gone"]);
  hub.restart(backup);
  bench.sync();
  assert.deepEqual([bench.pods, bench.told], [["web uid-web"], []], "what is wanted again is not reported as gone");
});

test("a pod that cannot be run says so, harms no other, and runs once it can", async () => {
  await using bench = new Bench();
  const { hub } = bench;
  hub.put({ ...podObject("bad"), spec: { containers: [] } });
  hub.put(podObject("good"));
  bench.sync();
  assert.deepEqual(bench.pods, ["good uid-good"]);
  assert.deepEqual(bench.told, ["bad uid-bad Pending"]);
  assert.match(bench.events.lines.join("\n"), /^Warning FailedValidation: spec.containers: Required value$/);
  assert.deepEqual(
    bench.source.problems.current.map(({ source, origin }) => `${source} ${origin}`),
    ["api Pod/default/bad"],
  );
  await bench.reopen();
  assert.equal(bench.source.problems.current.length, 1);
  hub.put(podObject("bad"));
  bench.sync();
  assert.deepEqual(bench.pods, ["bad uid-bad", "good uid-good"]);
  assert.equal(bench.source.problems.current.length, 0);
  hub.put({ ...podObject("good"), spec: { containers: [{ name: "app", image: "" }] } });
  bench.sync();
  assert.equal(bench.desired("good").pod.spec.containers[0]?.image, "busybox:1", "what it was runs on");
  hub.deletePod("good", 3);
  bench.sync();
  assert.deepEqual(bench.pods, ["-good uid-good 3s", "bad uid-bad"]);
});

test("a pod that cannot be run and is deleted is gone at once; one whose object goes leaves nothing", async () => {
  await using bench = new Bench();
  const { hub } = bench;
  for (const name of ["a", "b"]) hub.put({ ...podObject(name), spec: { containers: [] } });
  bench.sync();
  hub.deletePod("a", 30);
  hub.removePod("b");
  bench.sync();
  assert.deepEqual([bench.pods, bench.told], [[], ["a uid-a Pending gone"]]);
  await bench.reopen();
  assert.deepEqual(bench.told, ["a uid-a Pending gone"]);
});

test("whatever an object holds, it changes nothing of another pod", async () => {
  await using bench = new Bench();
  bench.hub.put(podObject("good"));
  bench.sync();
  const good = bench.desired("good");
  const anything = fc.oneof(
    fc.object({ withNullPrototype: false, maxDepth: 4 }),
    fc.record({
      apiVersion: fc.constant("v1"),
      kind: fc.constant("Pod"),
      metadata: fc.record({
        name: fc.constant("odd"),
        uid: fc.oneof(fc.string(), fc.constant("uid-good"), fc.anything()),
      }),
      spec: fc.object({ maxDepth: 3 }),
    }),
  );
  fc.assert(
    fc.property(anything, fc.boolean(), (object, isDeleted) => {
      const plain = JSON.parse(JSON.stringify(object)) as Record<string, unknown>;
      const metadata = isDeleted ? { metadata: { ...Object(plain.metadata), deletionTimestamp: "x" } } : {};
      bench.hub.set(objectKey("Pod", "default", "odd"), { ...plain, ...metadata });
      bench.sync();
      assert.equal(bench.desired("good"), good);
    }),
    { numRuns: 150 },
  );
  bench.hub.removePod("odd");
  bench.sync();
  assert.deepEqual(bench.pods, ["good uid-good"]);
  assert.equal(bench.source.problems.current.length, 0);
});

test("pods that come and go by force while nothing can be ended are bounded", async () => {
  await using bench = new Bench();
  for (let n = 0; n < MAX_VANISHED_PODS + 20; n += 1) {
    bench.hub.put(podObject("web", { uid: `uid-${n}`, image: `busybox:${n}` }));
    bench.sync();
  }
  const { removed, pods } = bench.store.desired.desired.current;
  assert.equal(removed.size, MAX_VANISHED_PODS);
  assert.equal(pods.size, 1);
  assert.ok(removed.has(podUid(`uid-${MAX_VANISHED_PODS + 18}`)), "the oldest are dropped");
});

test("a mirror pod, and one under names that are not its own, is not run", async () => {
  await using bench = new Bench();
  bench.hub.put(podObject("static-n", { annotations: { "kubernetes.io/config.mirror": "x" } }));
  bench.hub.set(objectKey("Pod", "default", "other"), podObject("web"));
  bench.hub.put(podObject("path", { uid: "../../etc" }));
  bench.sync();
  assert.deepEqual(bench.pods, []);
  assert.deepEqual(
    bench.source.problems.current.map(({ message }) => message.split(":")[0]),
    ["metadata.name", "metadata.uid"],
  );
});

test("the Node object is told of when it comes, changes or goes", async () => {
  await using bench = new Bench();
  assert.equal(bench.source.node.current, undefined);
  const node = { kind: "Node", spec: { podCIDR: "10.1.2.0/24" } };
  bench.hub.set("Node//n", node);
  bench.sync();
  assert.deepEqual(bench.source.node.current, node);
  await bench.reopen();
  assert.deepEqual(bench.source.node.current, node);
  bench.hub.objects.delete("Node//n");
  bench.sync();
  assert.equal(bench.source.node.current, undefined);
});

test("pods of other sources are left alone, and so is their uid", async () => {
  await using bench = new Bench();
  const own = samplePod("taken");
  const pod = { ...own.pod, metadata: { ...own.pod.metadata, uid: "taken" } };
  bench.store.desired.replace("file", 1, [{ ...own, uid: podUid("taken"), pod }]);
  bench.hub.put(podObject("web", { uid: "taken" }));
  bench.sync();
  assert.deepEqual(bench.pods, ["taken taken", "web taken/taken.1"]);
  bench.hub.removePod("web");
  bench.sync();
  assert.deepEqual(bench.pods, ["-web taken/taken.1 2s", "taken taken"]);
  assert.equal(bench.store.desired.desired.current.pods.get(podUid("taken"))?.source, "file");
});

test("what is asked for beyond what was granted stays asked for when other objects change, also in a successor", async () => {
  await using bench = new Bench();
  const web = (cpu: string, uid = "uid-web") => {
    const object = podObject("web", { uid });
    const spec = object.spec as { readonly containers: readonly object[] };
    const containers = spec.containers.map((each) => ({ ...each, resources: { requests: { cpu } } }));
    return { ...object, spec: { ...spec, containers } };
  };
  const seen = () => {
    const { pods, requested } = bench.store.desired.desired.current;
    const cpuOf = (all: ReadonlyMap<unknown, DesiredPod>) =>
      [...all.values()]
        .filter(({ pod }) => pod.metadata.name === "web")
        .map(({ uid, pod }) => `${uid} ${pod.spec.containers[0]?.resources.requests?.cpu}`);
    return [cpuOf(pods), cpuOf(requested)];
  };
  bench.hub.put(web("100m"));
  bench.sync();
  bench.hub.put(web("200m"));
  bench.sync();
  assert.deepEqual(seen(), [["uid-web 100m"], ["uid-web 200m"]]);
  bench.hub.put(podObject("db"));
  bench.sync();
  assert.deepEqual(seen(), [["uid-web 100m"], ["uid-web 200m"]]);
  // The same wish under another UID takes over what runs.
  bench.hub.put(web("200m", "uid-new"));
  bench.sync();
  assert.deepEqual(seen(), [["uid-web 100m"], ["uid-web 200m"]]);
  assert.equal(bench.desired("web").pod.metadata.uid, "uid-new");
});
