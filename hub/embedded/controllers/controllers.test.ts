/** Every controller over the real API server, on virtual time. */
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { describe, test } from "node:test";
import {
  CONFIG_MAPS,
  CSI_DRIVERS,
  CSI_NODES,
  type DeleteOptions,
  type KubeClient,
  type KubeObject,
  NODES,
  type ObjectRef,
  PERSISTENT_VOLUME_CLAIMS,
  PERSISTENT_VOLUMES,
  PODS,
  RESOURCE_CLAIMS,
  type ResourceType,
  SECRETS,
  SERVICES,
  VOLUME_ATTACHMENTS,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import {
  CERTIFICATE_SIGNING_REQUESTS,
  CONTROLLER_REVISIONS,
  DAEMON_SETS,
  DEVICE_CLASSES,
  ENDPOINT_SLICES,
  ENDPOINTS,
  NAMESPACES,
  POD_DISRUPTION_BUDGETS,
  RESOURCE_CLAIM_TEMPLATES,
  RESOURCE_SLICES,
  SERVICE_ACCOUNTS,
  STORAGE_CLASSES,
} from "@picolet/hub-core/kube-client/resource-types.ts";
import { attachmentName, CONTROLLER_ATTACHES } from "@picolet/hub-core/volume-attachments.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { subjectAltName } from "@picolet/protocol/pki/extensions.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import { EmbeddedCluster } from "@picolet/test/support/unit/embedded/in-process-cluster.ts";
import {
  nodesRequest,
  requestWithExtensions,
} from "@picolet/test/support/unit/identity/sample-certificate-requests.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { nodeOf, podOf } from "../api/typed-objects.ts";
import { EVENTS } from "./event-recorder.ts";

const { signal } = new AbortController();
/**
 * Turns of the event loop in which every chain of requests and watch events that waits for no time comes to its end.
 */
const TURNS = 60;

/** A cluster with its clock, and short ways of saying things to it. */
class World implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly cluster: EmbeddedCluster;

  private constructor(start: (clock: VirtualClock) => EmbeddedCluster) {
    this.cluster = start(this.clock);
  }

  static start(...nodes: readonly string[]): Promise<World> {
    return World.open({}, ...nodes);
  }

  /** @param init.path the store's file, which may be that of another world before */
  static async open(init: { readonly path?: string }, ...nodes: readonly string[]): Promise<World> {
    const world = new World((clock) => new EmbeddedCluster({ ...init, clock }));
    await world.cluster.serve();
    for (const name of nodes) await world.cluster.addNode(name);
    await world.settle();
    return world;
  }

  async settle(): Promise<void> {
    for (let turn = 0; turn < TURNS; turn += 1) await this.clock.settle();
  }

  /** @param heard nodes whose agents go on renewing their leases */
  async pass(duration: Millis, heard: readonly string[] = []): Promise<void> {
    for (let left: number = duration; left > 0; left -= 10_000) {
      for (const name of heard) await this.cluster.heartbeat(name);
      await this.settle();
      await this.clock.advance(Math.min(left, 10_000) as Millis);
      await this.settle();
    }
  }

  create(type: ResourceType, ref: ObjectRef, object: object): Promise<KubeObject> {
    const { group, version, kind } = type;
    const apiVersion = group === "" ? version : `${group}/${version}`;
    return this.cluster.client.create(type, ref, { apiVersion, kind, metadata: ref, ...object }, {}, signal);
  }

  async get(type: ResourceType, ref: ObjectRef): Promise<KubeObject | undefined> {
    try {
      return await this.cluster.client.get(type, ref, signal);
    } catch (error) {
      if (isPicoletError(error, "not_found")) return undefined;
      throw error;
    }
  }

  async delete(type: ResourceType, ref: ObjectRef, options: DeleteOptions = {}): Promise<void> {
    await this.cluster.client.delete(type, ref, options, signal);
    await this.settle();
  }

  async createPod(name: string, spec: object = {}, metadata: object = {}): Promise<void> {
    const ref = { namespace: "default", name };
    const containers = [{ name: "app", image: "app:1" }];
    await this.create(PODS, ref, { metadata: { ...ref, ...metadata }, spec: { containers, ...spec } });
    await this.settle();
  }

  async pod(name: string): Promise<ReturnType<typeof podOf> | undefined> {
    const object = await this.get(PODS, { namespace: "default", name });
    return object === undefined ? undefined : podOf(object);
  }

  async reasons(): Promise<string[]> {
    const { items } = await this.cluster.client.list(EVENTS, {}, signal);
    return items.map(({ reason }) => String(reason)).sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cluster[Symbol.asyncDispose]();
    assert.deepEqual(this.cluster.log.problems, [], "nothing went wrong unseen");
  }
}

const conditionOf = (pod: ReturnType<typeof podOf> | undefined, type: string) =>
  pod?.status?.conditions?.find((each) => each.type === type);

describe("scheduler", () => {
  test("a pod that fits nowhere says why, and goes as soon as there is room", async () => {
    await using world = await World.start("a");
    const container = { name: "app", image: "app:1", resources: { requests: { memory: "2Gi" } } };
    await world.createPod("big", { containers: [container] });
    const message = "0/1 nodes are available: 1 Insufficient memory.";
    const waiting = conditionOf(await world.pod("big"), "PodScheduled");
    assert.deepEqual([waiting?.status, waiting?.reason, waiting?.message], ["False", "Unschedulable", message]);
    assert.deepEqual(await world.reasons(), ["FailedScheduling"]);
    await world.cluster.addNode("b", { allocatable: { cpu: "2", memory: "4Gi", pods: "10" } });
    await world.pass(seconds(10), ["a", "b"]);
    const placed = await world.pod("big");
    assert.equal(placed?.spec.nodeName, "b");
    assert.equal(conditionOf(placed, "PodScheduled")?.status, "True");
  });

  test("what was decided a moment ago counts", async () => {
    await using world = await World.start("a");
    const container = { name: "app", image: "app:1", resources: { requests: { memory: "600Mi" } } };
    const made = ["one", "two"].map((name) =>
      world.create(PODS, { namespace: "default", name }, { spec: { containers: [container] } }),
    );
    await Promise.all(made);
    await world.settle();
    const nodes = [await world.pod("one"), await world.pod("two")].map((pod) => pod?.spec.nodeName);
    assert.deepEqual(nodes.toSorted(), ["a", undefined]);
  });

  test("of several that wait the most important goes first", async () => {
    await using world = await World.start();
    const container = { name: "app", image: "app:1", resources: { requests: { cpu: "3" } } };
    await world.createPod("first", { containers: [container] });
    await world.createPod("vital", { containers: [container], priorityClassName: "system-node-critical" });
    await world.cluster.addNode("a");
    await world.pass(seconds(20), ["a"]);
    assert.equal((await world.pod("vital"))?.spec.nodeName, "a");
    assert.equal((await world.pod("first"))?.spec.nodeName, undefined);
  });

  test("a pod behind a gate waits until it is opened", async () => {
    await using world = await World.start("a");
    await world.createPod("gated", { schedulingGates: [{ name: "example.com/later" }] });
    assert.equal(conditionOf(await world.pod("gated"), "PodScheduled")?.reason, "SchedulingGated");
    const ref = { namespace: "default", name: "gated" };
    await world.cluster.client.patch(PODS, ref, "merge", { spec: { schedulingGates: null } }, {}, signal);
    await world.settle();
    assert.equal((await world.pod("gated"))?.spec.nodeName, "a");
  });
});

describe("null in a list", () => {
  const AWAY: ObjectRef = { namespace: "elsewhere", name: "later" };

  for (const [what, type, ref, object] of [
    [
      "a tenant's disruption budget",
      POD_DISRUPTION_BUDGETS,
      { namespace: "default", name: "odd" },
      { spec: { maxUnavailable: 1, selector: { matchExpressions: [null] } } },
    ],
    ["a board's Node", NODES, { namespace: "", name: "odd" }, { status: { conditions: [null] } }],
  ] as const) {
    test(`of ${what} holds up no other pod`, async () => {
      await using world = await World.start();
      await world.create(NAMESPACES, { namespace: "", name: AWAY.namespace }, {});
      await world.create(type, ref, object);
      await world.createPod("here");
      await world.create(PODS, AWAY, { spec: { containers: [{ name: "app", image: "app:1" }] } });
      await world.cluster.addNode("a");
      await world.pass(seconds(60), ["a"]);
      const { nodeName } = podOf((await world.get(PODS, AWAY)) ?? assert.fail()).spec;
      assert.equal(nodeName, "a");
    });
  }
});

describe("daemon sets", () => {
  const ref = { namespace: "default", name: "set" };
  const spec = (image: string, more: object = {}): object => ({
    selector: { matchLabels: { app: "x" } },
    template: { metadata: { labels: { app: "x" } }, spec: { containers: [{ name: "app", image }] } },
    ...more,
  });
  const pods = async (world: World) => (await world.cluster.client.list(PODS, {}, signal)).items.map(podOf);

  test("an orphan that it selects becomes its own; one that it no longer selects is let go, and replaced", async () => {
    await using world = await World.start("a");
    await world.createPod("stray", { nodeName: "a" }, { labels: { app: "x", "controller-revision-hash": "other" } });
    await world.create(DAEMON_SETS, ref, { spec: spec("app:1", { updateStrategy: { type: "OnDelete" } }) });
    await world.settle();
    const [stray, ...others] = await pods(world);
    assert.equal(others.length, 0);
    assert.deepEqual(
      stray?.metadata.ownerReferences?.map(({ kind, name }) => `${kind}/${name}`),
      ["DaemonSet/set"],
    );
    const place = { namespace: "default", name: "stray" };
    await world.cluster.client.patch(PODS, place, "merge", { metadata: { labels: { app: "y" } } }, {}, signal);
    await world.settle();
    assert.deepEqual((await world.pod("stray"))?.metadata.ownerReferences ?? [], []);
    assert.equal((await pods(world)).length, 2);
  });

  test("a hub that starts again makes nothing twice and loses nothing", async () => {
    using folder = new TempFolder();
    const path = folder.at("hub.db");
    const state = async (world: World): Promise<object[]> => {
      const revisions = (await world.cluster.client.list(CONTROLLER_REVISIONS, {}, signal)).items;
      return [...(await pods(world)), ...revisions].map(({ metadata }) => [metadata.name, metadata.uid]);
    };
    let before: object[];
    {
      await using world = await World.open({ path }, "a", "b", "c");
      world.cluster.playAgents();
      await world.create(DAEMON_SETS, ref, { spec: spec("app:1") });
      await world.settle();
      before = await state(world);
      assert.equal(before.length, 4);
    }
    await using world = await World.open({ path });
    await world.pass(seconds(300), ["a", "b", "c"]);
    assert.deepEqual(await state(world), before);
  });

  for (const [limits, tolerations] of [
    [{ maxUnavailable: 1, maxSurge: 0 }, []],
    [{ maxUnavailable: 1, maxSurge: 0 }, [{ operator: "Exists" }]],
    [{ maxUnavailable: 0, maxSurge: 1 }, [{ operator: "Exists" }]],
  ] as const) {
    const how = `maxSurge ${limits.maxSurge}, ${tolerations.length === 0 ? "no taint" : "every taint"} tolerated`;
    test(`a rollout goes on without a board that is away, and ends when it is back: ${how}`, async () => {
      await using world = await World.start("a", "b", "c");
      const { cluster } = world;
      cluster.playAgents();
      const updateStrategy = { type: "RollingUpdate", rollingUpdate: limits };
      const made = spec("app:1", { updateStrategy }) as { template: { spec: object } };
      Object.assign(made.template.spec, { tolerations });
      await world.create(DAEMON_SETS, ref, { spec: made });
      await world.settle();
      cluster.disconnect("a");
      await world.pass(seconds(120), ["b", "c"]);
      const images = async (): Promise<string[]> =>
        (await pods(world)).map(({ spec: own }) => `${own.nodeName} ${own.containers[0]?.image}`).sort();
      const before = (await pods(world)).find(({ spec: own }) => own.nodeName === "a");
      await cluster.client.patch(DAEMON_SETS, ref, "strategic", { spec: spec("app:2") }, {}, signal);
      await world.pass(seconds(60), ["b", "c"]);
      assert.deepEqual(await images(), ["a app:1", "b app:2", "c app:2"]);
      const left = (await pods(world)).find(({ spec: own }) => own.nodeName === "a");
      assert.equal(left?.metadata.uid, before?.metadata.uid);
      assert.equal(left?.metadata.deletionTimestamp, undefined, "the board goes on with it");
      const { items } = await cluster.client.list(EVENTS, {}, signal);
      const event = items.find(({ reason }) => reason === "NodesAway");
      assert.match(String(event?.message), /^1 node is away with a pod of an older revision/);
      await cluster.connect("a");
      await world.pass(seconds(60), ["a", "b", "c"]);
      assert.deepEqual(await images(), ["a app:2", "b app:2", "c app:2"]);
    });
  }

  test("no more revisions are kept than it asks for", async () => {
    await using world = await World.start("a");
    world.cluster.playAgents();
    await world.create(DAEMON_SETS, ref, { spec: spec("app:0", { revisionHistoryLimit: 2 }) });
    await world.settle();
    for (let image = 1; image <= 5; image += 1) {
      await world.cluster.client.patch(DAEMON_SETS, ref, "strategic", { spec: spec(`app:${image}`) }, {}, signal);
      await world.pass(seconds(5), ["a"]);
    }
    const { items } = await world.cluster.client.list(CONTROLLER_REVISIONS, {}, signal);
    assert.deepEqual(items.map(({ revision }) => revision).toSorted(), [4, 5, 6]);
  });

  test("a pod that fails again and again is replaced ever more slowly", async () => {
    await using world = await World.start("a");
    await world.create(DAEMON_SETS, ref, { spec: spec("app:1") });
    await world.settle();
    const uids = new Set<string>();
    for (let second = 0; second < 120; second += 1) {
      for (const pod of await pods(world)) {
        uids.add(pod.metadata.uid ?? "");
        const { namespace, name } = pod.metadata;
        if (pod.metadata.deletionTimestamp !== undefined) {
          await world.cluster.client.delete(PODS, { namespace, name }, { gracePeriodSeconds: 0 }, signal);
        } else if (pod.status?.phase !== "Failed") {
          const status = { phase: "Failed" };
          await world.cluster.client.patch(
            PODS,
            { namespace, name },
            "merge",
            { status },
            { subresource: "status" },
            signal,
          );
        }
      }
      await world.settle();
      await world.clock.advance(seconds(1));
    }
    assert.ok(uids.size >= 5 && uids.size <= 9, `${uids.size} pods in two minutes`);
  });
});

describe("node lifecycle", () => {
  test("a silent node becomes unknown; its pods leave after five minutes, but for those that bear with it", async () => {
    await using world = await World.start("a", "b");
    const enduring = ["not-ready", "unreachable"].map((name) => ({
      ...{ key: `node.kubernetes.io/${name}`, operator: "Exists", effect: "NoExecute" },
    }));
    await world.createPod("leaves", { nodeName: "a" });
    await world.createPod("stays", { nodeName: "a", tolerations: enduring });
    await world.pass(seconds(70), ["b"]);
    const node = await world.get(NODES, { namespace: "", name: "a" });
    const ready = nodeOf(node as KubeObject).status?.conditions?.find(({ type }) => type === "Ready");
    assert.deepEqual([ready?.status, ready?.reason], ["Unknown", "NodeStatusUnknown"]);
    const taints = nodeOf(node as KubeObject).spec?.taints?.map(({ key, effect }) => `${key}:${effect}`);
    assert.deepEqual(taints?.toSorted(), [
      "node.kubernetes.io/unreachable:NoExecute",
      "node.kubernetes.io/unreachable:NoSchedule",
    ]);
    await world.pass(seconds(240), ["b"]);
    assert.equal((await world.pod("leaves"))?.metadata.deletionTimestamp, undefined);
    await world.pass(seconds(90), ["b"]);
    const gone = await world.pod("leaves");
    assert.notEqual(gone?.metadata.deletionTimestamp, undefined);
    assert.equal(conditionOf(gone, "DisruptionTarget")?.reason, "DeletionByTaintManager");
    await world.pass(seconds(3600), ["b"]);
    assert.equal((await world.pod("stays"))?.metadata.deletionTimestamp, undefined);
    await world.pass(seconds(20), ["a", "b"]);
    const back = nodeOf((await world.get(NODES, { namespace: "", name: "a" })) as KubeObject);
    assert.deepEqual(back.spec?.taints, []);
  });

  test("when every node is away it is we who are cut off: nothing leaves", async () => {
    await using world = await World.start("a", "b");
    await world.createPod("one", { nodeName: "a" });
    await world.pass(seconds(1200));
    const node = nodeOf((await world.get(NODES, { namespace: "", name: "a" })) as KubeObject);
    assert.deepEqual(
      node.spec?.taints?.map(({ effect }) => effect),
      ["NoSchedule"],
    );
    assert.equal((await world.pod("one"))?.metadata.deletionTimestamp, undefined);
  });

  test("controllers that start again give silent nodes their whole time again", async () => {
    await using world = await World.start("a", "b");
    await world.pass(seconds(40), ["b"]);
    await world.cluster.stopControllers();
    await world.clock.advance(seconds(600));
    world.cluster.startControllers();
    await world.pass(seconds(40), ["b"]);
    const ready = async (): Promise<string | undefined> => {
      const node = nodeOf((await world.get(NODES, { namespace: "", name: "a" })) as KubeObject);
      return node.status?.conditions?.find(({ type }) => type === "Ready")?.status;
    };
    assert.equal(await ready(), "True");
    await world.pass(seconds(30), ["b"]);
    assert.equal(await ready(), "Unknown");
  });

  test("a cordoned node is tainted, a pressed one too", async () => {
    await using world = await World.start("a");
    const ref = { namespace: "", name: "a" };
    await world.cluster.client.patch(NODES, ref, "merge", { spec: { unschedulable: true } }, {}, signal);
    const pressed = { status: { conditions: [{ type: "DiskPressure", status: "True" }] } };
    await world.cluster.client.patch(NODES, ref, "strategic", pressed, { subresource: "status" }, signal);
    await world.settle();
    const node = nodeOf((await world.get(NODES, ref)) as KubeObject);
    const keys = node.spec?.taints?.map(({ key }) => key).toSorted();
    assert.deepEqual(keys, ["node.kubernetes.io/disk-pressure", "node.kubernetes.io/unschedulable"]);
  });

  test("pods of a node that was deleted go, those of one that registered again at once do not", async () => {
    await using world = await World.start("a", "b");
    await world.createPod("one", { nodeName: "a" });
    await world.createPod("two", { nodeName: "b" });
    for (const name of ["a", "b"]) await world.delete(NODES, { namespace: "", name });
    await world.pass(seconds(30));
    await world.cluster.addNode("b");
    await world.pass(seconds(100), ["b"]);
    assert.equal(await world.pod("one"), undefined);
    assert.notEqual(await world.pod("two"), undefined);
  });
});

describe("namespaces", () => {
  test("each has its service account and the CA, also after they were deleted", async () => {
    await using world = await World.start();
    await world.create(NAMESPACES, { namespace: "", name: "team" }, {});
    await world.settle();
    const account = { namespace: "team", name: "default" };
    const ca = { namespace: "team", name: "kube-root-ca.crt" };
    await world.delete(SERVICE_ACCOUNTS, account);
    await world.delete(CONFIG_MAPS, ca);
    assert.notEqual(await world.get(SERVICE_ACCOUNTS, account), undefined);
    const map = await world.get(CONFIG_MAPS, ca);
    assert.match(JSON.stringify(map?.data), /ca.crt.*BEGIN CERTIFICATE/);
    world.cluster.caBundle.set("another CA");
    await world.settle();
    assert.deepEqual((await world.get(CONFIG_MAPS, ca))?.data, { "ca.crt": "another CA" });
  });

  test("one that is deleted is emptied, says what it waits for, and goes", async () => {
    await using world = await World.start();
    await world.create(NAMESPACES, { namespace: "", name: "team" }, {});
    const ref = { namespace: "team", name: "held" };
    await world.create(CONFIG_MAPS, ref, { metadata: { ...ref, finalizers: ["example.com/wait"] } });
    await world.create(SECRETS, { namespace: "team", name: "free" }, {});
    await world.delete(NAMESPACES, { namespace: "", name: "team" });
    await world.pass(seconds(5));
    assert.equal(await world.get(SECRETS, { namespace: "team", name: "free" }), undefined);
    const namespace = await world.get(NAMESPACES, { namespace: "", name: "team" });
    const status = namespace?.status as { phase: string; conditions: { type: string; message: string }[] } | undefined;
    assert.equal(status?.phase, "Terminating");
    const remaining = status.conditions.find(({ type }) => type === "NamespaceContentRemaining");
    assert.equal(remaining?.message, "Some resources are remaining: configmaps. has 1 resource instances");
    await world.cluster.client.patch(CONFIG_MAPS, ref, "merge", { metadata: { finalizers: null } }, {}, signal);
    await world.pass(seconds(5));
    assert.equal(await world.get(NAMESPACES, { namespace: "", name: "team" }), undefined);
  });
});

describe("garbage collector", () => {
  async function family(world: World, more: object = {}): Promise<void> {
    const owner = await world.create(CONFIG_MAPS, { namespace: "default", name: "owner" }, {});
    const reference = { apiVersion: "v1", kind: "ConfigMap", name: "owner", uid: owner.metadata.uid, ...more };
    const child = { namespace: "default", name: "child" };
    await world.create(SECRETS, child, { metadata: { ...child, ownerReferences: [reference] } });
    await world.settle();
  }
  const owner = { namespace: "default", name: "owner" };
  const child = { namespace: "default", name: "child" };

  test("what has lost its owner goes", async () => {
    await using world = await World.start();
    await family(world);
    assert.notEqual(await world.get(SECRETS, child), undefined);
    await world.delete(CONFIG_MAPS, owner);
    assert.equal(await world.get(SECRETS, child), undefined);
  });

  test("an object with an owner that never existed is deleted, also when it was made while the controller was away", async () => {
    await using world = await World.start();
    await world.cluster.stopControllers();
    const reference = { apiVersion: "v1", kind: "ConfigMap", name: "owner", uid: "never" };
    await world.create(SECRETS, child, { metadata: { ...child, ownerReferences: [reference] } });
    world.cluster.startControllers();
    await world.settle();
    assert.equal(await world.get(SECRETS, child), undefined);
  });

  test("another owner of the same name is not the owner", async () => {
    await using world = await World.start();
    await world.cluster.stopControllers();
    await family(world);
    await world.delete(CONFIG_MAPS, owner);
    await world.create(CONFIG_MAPS, owner, {});
    world.cluster.startControllers();
    await world.settle();
    assert.equal(await world.get(SECRETS, child), undefined);
  });

  test("an orphan stays, and is free", async () => {
    await using world = await World.start();
    await family(world);
    await world.delete(CONFIG_MAPS, owner, { propagationPolicy: "Orphan" });
    assert.equal(await world.get(CONFIG_MAPS, owner), undefined);
    assert.deepEqual((await world.get(SECRETS, child))?.metadata.ownerReferences ?? [], []);
  });

  test("in the foreground the owner waits for what blocks it", async () => {
    await using world = await World.start();
    await family(world, { blockOwnerDeletion: true });
    const hold = { metadata: { finalizers: ["example.com/wait"] } };
    await world.cluster.client.patch(SECRETS, child, "merge", hold, {}, signal);
    await world.delete(CONFIG_MAPS, owner, { propagationPolicy: "Foreground" });
    assert.notEqual((await world.get(CONFIG_MAPS, owner))?.metadata.deletionTimestamp, undefined);
    assert.notEqual((await world.get(SECRETS, child))?.metadata.deletionTimestamp, undefined);
    await world.cluster.client.patch(SECRETS, child, "merge", { metadata: { finalizers: null } }, {}, signal);
    await world.settle();
    assert.equal(await world.get(CONFIG_MAPS, owner), undefined);
  });

  test("who has another owner left loses only the reference", async () => {
    await using world = await World.start();
    await family(world);
    const other = await world.create(CONFIG_MAPS, { namespace: "default", name: "other" }, {});
    const references = (await world.get(SECRETS, child))?.metadata.ownerReferences ?? [];
    const ownerReferences = [
      ...references,
      { apiVersion: "v1", kind: "ConfigMap", name: "other", uid: other.metadata.uid },
    ];
    await world.cluster.client.patch(SECRETS, child, "merge", { metadata: { ownerReferences } }, {}, signal);
    await world.delete(CONFIG_MAPS, owner);
    assert.deepEqual(
      (await world.get(SECRETS, child))?.metadata.ownerReferences?.map(({ name }) => name),
      ["other"],
    );
  });

  test("a daemon set takes its pods and revisions along", async () => {
    await using world = await World.start("a");
    const template = { metadata: { labels: { app: "x" } }, spec: { containers: [{ name: "app", image: "app:1" }] } };
    const ref = { namespace: "default", name: "set" };
    await world.create(DAEMON_SETS, ref, { spec: { selector: { matchLabels: { app: "x" } }, template } });
    world.cluster.playAgents();
    await world.settle();
    assert.equal((await world.cluster.client.list(PODS, {}, signal)).items.length, 1);
    await world.delete(DAEMON_SETS, ref, { propagationPolicy: "Background" });
    assert.equal((await world.cluster.client.list(PODS, {}, signal)).items.length, 0);
  });
});

describe("certificates", () => {
  const PEM = (label: string, body: string): string => `-----BEGIN ${label}-----\n${body}\n-----END ${label}-----\n`;
  const spec = (pem: string, signerName = "kubernetes.io/kube-apiserver-client-kubelet"): object => ({
    request: Buffer.from(pem).toString("base64"),
    signerName,
    usages: ["client auth", "digital signature"],
  });
  const name = { namespace: "", name: "node-a" };
  const asToken = (world: World) => world.cluster.client.as("system:bootstrap:abcdef", ["system:bootstrappers"]);

  async function ask(world: World, request: object): Promise<KubeObject> {
    const { kind } = CERTIFICATE_SIGNING_REQUESTS;
    const object = { apiVersion: "certificates.k8s.io/v1", kind, metadata: { name: "node-a" }, spec: request };
    await asToken(world).create(CERTIFICATE_SIGNING_REQUESTS, name, object, {}, signal);
    await world.settle();
    return (await world.get(CERTIFICATE_SIGNING_REQUESTS, name)) as KubeObject;
  }

  test("a node's request by a join token is approved and signed, and is cleaned up in time", async () => {
    await using world = await World.start();
    const signed = await ask(world, spec(nodesRequest("system:node:a")));
    const { certificate, conditions } = signed.status as {
      certificate: string;
      conditions: { type: string; reason: string }[];
    };
    assert.deepEqual(
      conditions.map(({ type, reason }) => [type, reason]),
      [["Approved", "AutoApproved"]],
    );
    assert.match(Buffer.from(certificate, "base64").toString(), /BEGIN CERTIFICATE/);
    await world.pass(seconds(3700));
    assert.equal(await world.get(CERTIFICATE_SIGNING_REQUESTS, name), undefined);
  });

  test("another subject waits for a human", async () => {
    await using world = await World.start();
    const waiting = await ask(world, spec(nodesRequest("admin")));
    assert.deepEqual(waiting.status, {});
  });

  test("what is no request at all is refused or left alone", async () => {
    await using world = await World.start();
    await assert.rejects(ask(world, spec("nonsense")), (error) => isPicoletError(error, "invalid"));
    const waiting = await ask(world, spec(PEM("CERTIFICATE REQUEST", "AAAA")));
    assert.deepEqual(waiting.status, {});
  });

  const servingOf = (name: string): object => ({
    request: Buffer.from(
      requestWithExtensions("system:node:a", [
        subjectAltName({ dns: [name], addresses: [Uint8Array.of(10, 0, 0, 7)] }),
      ]),
    ).toString("base64"),
    signerName: "kubernetes.io/kubelet-serving",
    usages: ["digital signature", "server auth"],
  });
  const asNode = (world: World, node: string) => world.cluster.client.as(`system:node:${node}`, ["system:nodes"]);

  async function askServing(world: World, client: KubeClient, request: object): Promise<void> {
    const { kind } = CERTIFICATE_SIGNING_REQUESTS;
    const object = { apiVersion: "certificates.k8s.io/v1", kind, metadata: { name: "node-a" }, spec: request };
    await client.create(CERTIFICATE_SIGNING_REQUESTS, name, object, {}, signal);
    await world.settle();
  }

  async function approved(
    world: World,
  ): Promise<{ certificate?: string; conditions: { type: string; message: string }[] }> {
    const request = (await world.get(CERTIFICATE_SIGNING_REQUESTS, name)) as KubeObject;
    assert.deepEqual(request.status, {});
    const conditions = [{ type: "Approved", status: "True", reason: "Checked", message: "" }];
    const options = { subresource: "approval" };
    await world.cluster.client.update(
      CERTIFICATE_SIGNING_REQUESTS,
      name,
      { ...request, status: { conditions } },
      options,
      signal,
    );
    await world.settle();
    const { status } = (await world.get(CERTIFICATE_SIGNING_REQUESTS, name)) as KubeObject;
    return status as { certificate?: string; conditions: { type: string; message: string }[] };
  }

  test("a kubelet's serving certificate is signed once it is approved, with the names of the request", async () => {
    await using world = await World.start("a");
    await askServing(world, asNode(world, "a"), servingOf("a.farm.example"));
    const { certificate = "" } = await approved(world);
    const issued = new X509Certificate(Buffer.from(certificate, "base64").toString());
    assert.equal(issued.subject, "O=system:nodes\nCN=system:node:a");
    assert.equal(issued.subjectAltName, "DNS:a.farm.example, IP Address:10.0.0.7");
    assert.deepEqual(issued.keyUsage, ["1.3.6.1.5.5.7.3.1"]);
    const ca = new X509Certificate(world.cluster.caBundle.current);
    assert.ok(issued.checkIssued(ca) && issued.verify(ca.publicKey));
  });

  test("a node does not get a serving certificate of another node, nor of the hub's names", async () => {
    await using world = await World.start("a", "b");
    await assert.rejects(
      askServing(world, asNode(world, "b"), servingOf("a")),
      /can only create a node CSR with CN=system:node:b/,
    );
    await askServing(world, world.cluster.client, servingOf("a"));
    const byOther = await approved(world);
    assert.equal(byOther.certificate, undefined);
    assert.match(byOther.conditions[1]?.message ?? "", /requestor kubernetes-admin is not system:node:a/);
    await world.delete(CERTIFICATE_SIGNING_REQUESTS, name);
    await askServing(world, asNode(world, "a"), servingOf("hub.example"));
    const ofHub = await approved(world);
    assert.equal(ofHub.certificate, undefined);
    assert.match(ofHub.conditions[1]?.message ?? "", /subjectAltName hub.example is not allowed: it is the hub's own/);
  });

  test("an expired bootstrap token is deleted", async () => {
    await using world = await World.start();
    const ref = { namespace: "kube-system", name: "bootstrap-token-abcdef" };
    const expiration = new Date(world.clock.wall().getTime() + 60_000).toISOString();
    const type = "bootstrap.kubernetes.io/token";
    await world.create(SECRETS, ref, { type, stringData: { "token-id": "abcdef", expiration } });
    await world.pass(seconds(50));
    assert.notEqual(await world.get(SECRETS, ref), undefined);
    await world.pass(seconds(20));
    assert.equal(await world.get(SECRETS, ref), undefined);
  });
});

describe("disruption budgets", () => {
  test("an eviction that leaves too few is refused until another pod is ready", async () => {
    await using world = await World.start("a");
    world.cluster.playAgents();
    const budget = { namespace: "default", name: "budget" };
    await world.create(POD_DISRUPTION_BUDGETS, budget, {
      spec: { minAvailable: 1, selector: { matchLabels: { app: "x" } } },
    });
    const evict = (name: string): Promise<KubeObject> =>
      world.cluster.client.create(
        PODS,
        { namespace: "default", name },
        { apiVersion: "policy/v1", kind: "Eviction", metadata: { name } },
        { subresource: "eviction" },
        signal,
      );
    await world.createPod("one", {}, { labels: { app: "x" } });
    await assert.rejects(evict("one"), /Cannot evict pod as it would violate the pod's disruption budget/);
    await world.createPod("two", {}, { labels: { app: "x" } });
    const { status } = (await world.get(POD_DISRUPTION_BUDGETS, budget)) as KubeObject;
    const { disruptionsAllowed, currentHealthy, desiredHealthy } = status as Record<string, number>;
    assert.deepEqual([disruptionsAllowed, currentHealthy, desiredHealthy], [1, 2, 1]);
    const { resourceVersion } = await world.cluster.client.list(PODS, { namespace: "default" }, signal);
    const fieldSelector = "metadata.name=one";
    const gone = world.cluster.client.watch(PODS, { namespace: "default", fieldSelector, resourceVersion }, signal);
    await evict("one");
    await world.settle();
    assert.equal(await world.pod("one"), undefined);
    for await (const event of gone) {
      if (event.type !== "DELETED") continue;
      const { reason, message } = conditionOf(podOf(event.object), "DisruptionTarget") ?? {};
      assert.deepEqual([reason, message], ["EvictionByEvictionAPI", "Eviction API: evicting"]);
      break;
    }
    await assert.rejects(evict("two"), /Cannot evict/);
  });
});

describe("volumes", () => {
  const claimSpec = (more: object = {}): object => ({
    accessModes: ["ReadWriteOnce"],
    resources: { requests: { storage: "1Gi" } },
    storageClassName: "",
    ...more,
  });
  const volumeSpec = (storage: string, more: object = {}): object => ({
    accessModes: ["ReadWriteOnce", "ReadOnlyMany"],
    capacity: { storage },
    hostPath: { path: "/srv" },
    ...more,
  });
  const claimRef = (name: string): ObjectRef => ({ namespace: "default", name });
  const volumeRef = (name: string): ObjectRef => ({ namespace: "", name });
  const phase = async (world: World, type: ResourceType, ref: ObjectRef): Promise<unknown> =>
    ((await world.get(type, ref))?.status as { phase?: string } | undefined)?.phase;
  const chosen = async (world: World, name: string): Promise<unknown> =>
    ((await world.get(PERSISTENT_VOLUME_CLAIMS, claimRef(name)))?.spec as { volumeName?: string } | undefined)
      ?.volumeName;

  test("a claim gets the smallest volume that suits it, and no other claim gets it afterwards", async () => {
    await using world = await World.start("a");
    await world.create(PERSISTENT_VOLUME_CLAIMS, claimRef("data"), { spec: claimSpec() });
    await world.settle();
    assert.equal(await phase(world, PERSISTENT_VOLUME_CLAIMS, claimRef("data")), "Pending");
    assert.deepEqual(await world.reasons(), ["FailedBinding"]);
    await world.delete(PERSISTENT_VOLUME_CLAIMS, claimRef("data"));
    for (const [name, storage, more] of [
      ["small", "500Mi", {}],
      ["large", "5Gi", {}],
      ["right", "2Gi", {}],
      ["larger", "6Gi", {}],
      ["block", "1Gi", { volumeMode: "Block" }],
      ["other", "1Gi", { storageClassName: "fast" }],
      ["read", "1Gi", { accessModes: ["ReadOnlyMany"] }],
      ["kept", "1Gi", { claimRef: { namespace: "default", name: "somebody" } }],
    ] as const) {
      await world.create(PERSISTENT_VOLUMES, volumeRef(name), { spec: volumeSpec(storage, more) });
    }
    await world.settle();
    await world.create(PERSISTENT_VOLUME_CLAIMS, claimRef("data"), { spec: claimSpec() });
    await world.settle();
    const volume = "right";
    assert.equal(await chosen(world, "data"), volume);
    assert.equal(await phase(world, PERSISTENT_VOLUME_CLAIMS, claimRef("data")), "Bound");
    assert.equal(await phase(world, PERSISTENT_VOLUMES, volumeRef(volume)), "Bound");
    assert.equal(await phase(world, PERSISTENT_VOLUMES, volumeRef("small")), "Available");
    await world.create(PERSISTENT_VOLUME_CLAIMS, claimRef("somebody"), { spec: claimSpec() });
    await world.settle();
    assert.equal(await chosen(world, "somebody"), "kept");
    await world.delete(PERSISTENT_VOLUME_CLAIMS, claimRef("data"));
    assert.equal(await phase(world, PERSISTENT_VOLUMES, volumeRef(volume)), "Released");
    await world.create(PERSISTENT_VOLUME_CLAIMS, claimRef("next"), { spec: claimSpec({ volumeName: volume }) });
    await world.settle();
    assert.equal(await phase(world, PERSISTENT_VOLUME_CLAIMS, claimRef("next")), "Pending");
  });

  test("a claim that waits for its first pod is bound to a volume of the node where that pod goes", async () => {
    await using world = await World.start("a", "b", "c", "d");
    await world.create(STORAGE_CLASSES, volumeRef("local"), {
      provisioner: "kubernetes.io/no-provisioner",
      volumeBindingMode: "WaitForFirstConsumer",
    });
    const matchExpressions = [{ key: "kubernetes.io/hostname", operator: "In", values: ["b"] }];
    const nodeAffinity = { required: { nodeSelectorTerms: [{ matchExpressions }] } };
    const local = { hostPath: undefined, local: { path: "/srv" }, storageClassName: "local", nodeAffinity };
    await world.create(PERSISTENT_VOLUMES, volumeRef("on-b"), { spec: volumeSpec("1Gi", local) });
    await world.create(PERSISTENT_VOLUME_CLAIMS, claimRef("data"), { spec: claimSpec({ storageClassName: "local" }) });
    await world.settle();
    assert.equal(await chosen(world, "data"), undefined);
    assert.deepEqual(await world.reasons(), ["WaitForFirstConsumer"]);
    const volumes = [{ name: "v", persistentVolumeClaim: { claimName: "data" } }];
    await world.createPod("app", { volumes });
    assert.equal((await world.pod("app"))?.spec.nodeName, "b");
    assert.equal(await chosen(world, "data"), "on-b");
    await world.createPod("second", { volumes: [{ name: "v", persistentVolumeClaim: { claimName: "none" } }] });
    assert.equal(
      conditionOf(await world.pod("second"), "PodScheduled")?.message,
      '0/4 nodes are available: persistentvolumeclaim "none" not found.',
    );
  });

  test("a claim for one pod alone is for one pod on all nodes, until that pod has ended", async () => {
    await using world = await World.start("a", "b");
    const accessModes = ["ReadWriteOncePod"];
    await world.create(PERSISTENT_VOLUMES, volumeRef("one"), { spec: volumeSpec("1Gi", { accessModes }) });
    await world.create(PERSISTENT_VOLUME_CLAIMS, claimRef("data"), { spec: claimSpec({ accessModes }) });
    await world.settle();
    const volumes = [{ name: "v", persistentVolumeClaim: { claimName: "data" } }];
    await world.createPod("first", { volumes });
    await world.createPod("second", { volumes });
    assert.notEqual((await world.pod("first"))?.spec.nodeName, undefined);
    assert.equal(
      conditionOf(await world.pod("second"), "PodScheduled")?.message,
      "0/2 nodes are available: 2 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode.",
    );
    const ended = { status: { phase: "Succeeded" } };
    const ref = { namespace: "default", name: "first" };
    await world.cluster.client.patch(PODS, ref, "merge", ended, { subresource: "status" }, signal);
    await world.pass(seconds(20), ["a", "b"]);
    assert.notEqual((await world.pod("second"))?.spec.nodeName, undefined);
  });

  test("what a pod uses is not let go before the pod is gone; the claim of an ephemeral volume goes with its pod", async () => {
    await using world = await World.start("a");
    world.cluster.playAgents();
    await world.create(PERSISTENT_VOLUMES, volumeRef("one"), { spec: volumeSpec("1Gi") });
    const volumeClaimTemplate = { metadata: { labels: { a: "b" } }, spec: claimSpec() };
    await world.createPod("app", { volumes: [{ name: "v", ephemeral: { volumeClaimTemplate } }] });
    await world.pass(seconds(20), ["a"]);
    assert.equal((await world.pod("app"))?.spec.nodeName, "a");
    const claim = await world.get(PERSISTENT_VOLUME_CLAIMS, claimRef("app-v"));
    assert.deepEqual([claim?.metadata.labels, claim?.metadata.ownerReferences?.[0]?.kind], [{ a: "b" }, "Pod"]);
    await world.delete(PERSISTENT_VOLUME_CLAIMS, claimRef("app-v"));
    await world.delete(PERSISTENT_VOLUMES, volumeRef("one"));
    assert.notEqual(await world.get(PERSISTENT_VOLUME_CLAIMS, claimRef("app-v")), undefined);
    assert.notEqual(await world.get(PERSISTENT_VOLUMES, volumeRef("one")), undefined);
    await world.delete(PODS, { namespace: "default", name: "app" }, { gracePeriodSeconds: 0 });
    await world.pass(seconds(1), ["a"]);
    assert.equal(await world.get(PERSISTENT_VOLUME_CLAIMS, claimRef("app-v")), undefined);
    assert.equal(await world.get(PERSISTENT_VOLUMES, volumeRef("one")), undefined);
  });
});

describe("attachments", () => {
  const DRIVER = "disk.example";
  const id = (volume: string): string => `kubernetes.io/csi/${DRIVER}^handle-${volume}`;
  const nameOn = (volume: string, node: string): string => attachmentName(DRIVER, `handle-${volume}`, node);
  const clusterRef = (name: string): ObjectRef => ({ namespace: "", name });
  const claimed = (...names: readonly string[]): object => ({
    volumes: names.map((claimName) => ({ name: claimName, persistentVolumeClaim: { claimName } })),
  });

  interface AttachmentObject extends KubeObject {
    readonly spec?: { readonly attacher: string; readonly nodeName: string; readonly source: object };
  }

  /** Nodes whose volumes a controller attaches, a driver, and claims of the same names as their volumes. */
  async function openWorld(
    claims: readonly string[],
    modes = ["ReadWriteOnce"],
    spec: object = {},
    handleOf = (name: string): string => `handle-${name}`,
  ): Promise<World> {
    const world = await World.start("a", "b");
    for (const node of ["a", "b"]) await patchNode(world, node, { metadata: { annotations: ATTACHED_BY_CONTROLLER } });
    await world.create(CSI_DRIVERS, clusterRef(DRIVER), { spec });
    for (const name of claims) {
      const csi = { driver: DRIVER, volumeHandle: handleOf(name) };
      const claimRef = { namespace: "default", name };
      const storage = { capacity: { storage: "1Gi" }, accessModes: modes, storageClassName: "" };
      await world.create(PERSISTENT_VOLUMES, clusterRef(name), { spec: { ...storage, csi, claimRef } });
      const resources = { requests: { storage: "1Gi" } };
      await world.create(PERSISTENT_VOLUME_CLAIMS, claimRef, {
        spec: { accessModes: modes, storageClassName: "", volumeName: name, resources },
      });
    }
    await world.settle();
    return world;
  }

  const ATTACHED_BY_CONTROLLER = { "volumes.kubernetes.io/controller-managed-attach-detach": "true" };

  async function patchNode(world: World, name: string, patch: object, subresource?: "status"): Promise<void> {
    const options = subresource === undefined ? {} : { subresource };
    await world.cluster.client.patch(NODES, clusterRef(name), "strategic", patch, options, signal);
    await world.settle();
  }

  const setInUse = (world: World, node: string, ...volumes: readonly string[]): Promise<void> =>
    patchNode(world, node, { status: { volumesInUse: volumes.map(id) } }, "status");

  const shown = async (world: World, node: string): Promise<readonly string[]> => {
    const status = (await world.get(NODES, clusterRef(node)))?.status as {
      volumesAttached?: readonly { name: string }[];
    };
    return (status.volumesAttached ?? []).map(({ name }) => name);
  };

  const attachment = async (world: World, volume: string, node: string): Promise<AttachmentObject | undefined> =>
    (await world.get(VOLUME_ATTACHMENTS, clusterRef(nameOn(volume, node)))) as AttachmentObject | undefined;

  /** The part of the driver's attacher. */
  async function answer(world: World, volume: string, node: string, status: object): Promise<void> {
    const ref = clusterRef(nameOn(volume, node));
    const finalizers = { metadata: { finalizers: ["external-attacher/disk-example"] } };
    await world.cluster.client.patch(VOLUME_ATTACHMENTS, ref, "merge", finalizers, {}, signal);
    await world.cluster.client.patch(VOLUME_ATTACHMENTS, ref, "merge", { status }, { subresource: "status" }, signal);
    await world.settle();
  }

  async function confirmDetached(world: World, volume: string, node: string): Promise<void> {
    const ref = clusterRef(nameOn(volume, node));
    await world.cluster.client.patch(VOLUME_ATTACHMENTS, ref, "merge", { metadata: { finalizers: null } }, {}, signal);
    await world.settle();
  }

  const events = async (world: World, reason: string): Promise<readonly string[]> =>
    (await world.cluster.client.list(EVENTS, {}, signal)).items
      .filter((event) => event.reason === reason)
      .map((event) => `${(event.involvedObject as { name: string }).name}: ${event.message}`)
      .sort();

  const remove = (world: World, pod: string): Promise<void> =>
    world.delete(PODS, { namespace: "default", name: pod }, { gracePeriodSeconds: 0 });

  test("a volume is attached for the first pod of a node, and detached when the node has unmounted it", async () => {
    await using world = await openWorld(["data"]);
    await world.createPod("first", { nodeName: "a", ...claimed("data") });
    const made = await attachment(world, "data", "a");
    assert.deepEqual(made?.spec, { attacher: DRIVER, nodeName: "a", source: { persistentVolumeName: "data" } });
    assert.deepEqual(await shown(world, "a"), []);
    await answer(world, "data", "a", { attached: true });
    assert.deepEqual(await shown(world, "a"), [id("data")]);
    await world.createPod("second", { nodeName: "a", ...claimed("data") });
    await setInUse(world, "a", "data");
    await remove(world, "first");
    assert.deepEqual(await shown(world, "a"), [id("data")]);
    await remove(world, "second");
    await world.pass(seconds(900), ["a", "b"]);
    assert.equal((await attachment(world, "data", "a"))?.metadata.deletionTimestamp, undefined);
    assert.deepEqual(await shown(world, "a"), [id("data")]);
    await setInUse(world, "a");
    assert.deepEqual(await shown(world, "a"), []);
    assert.notEqual((await attachment(world, "data", "a"))?.metadata.deletionTimestamp, undefined);
    await confirmDetached(world, "data", "a");
    assert.equal(await attachment(world, "data", "a"), undefined);
    assert.deepEqual(await events(world, "SuccessfulAttachVolume"), [
      'first: AttachVolume.Attach succeeded for volume "data" ',
    ]);
  });

  test("nothing is attached for a driver that needs none, for a pod that has ended, or on a foreign node", async () => {
    await using world = await openWorld(["plain"], undefined, { attachRequired: false });
    await world.createPod("plain", { nodeName: "a", ...claimed("plain") });
    await using other = await openWorld(["data"]);
    await patchNode(other, "b", { metadata: { annotations: { [CONTROLLER_ATTACHES]: null } } });
    await other.createPod("foreign", { nodeName: "b", ...claimed("data") });
    await other.createPod("free", { nodeName: "a" });
    for (const each of [world, other])
      assert.deepEqual((await each.cluster.client.list(VOLUME_ATTACHMENTS, {}, signal)).items, []);
    await patchNode(other, "b", { metadata: { annotations: ATTACHED_BY_CONTROLLER } });
    assert.notEqual(await attachment(other, "data", "b"), undefined);
    await answer(other, "data", "b", { attached: true });
    const ref = { namespace: "default", name: "foreign" };
    const options = { subresource: "status" } as const;
    await other.cluster.client.patch(PODS, ref, "merge", { status: { phase: "Succeeded" } }, options, signal);
    await other.settle();
    assert.notEqual((await attachment(other, "data", "b"))?.metadata.deletionTimestamp, undefined);
  });

  test("a volume of one node is refused to another until it is detached, with the pods that have it", async () => {
    await using world = await openWorld(["data"]);
    await world.createPod("owner", { nodeName: "a", ...claimed("data") });
    await world.createPod("next", { nodeName: "b", ...claimed("data") });
    assert.equal(await attachment(world, "data", "b"), undefined);
    assert.deepEqual(await events(world, "FailedAttachVolume"), [
      'next: Multi-Attach error for volume "data" Volume is already used by pod(s) owner',
    ]);
    await answer(world, "data", "a", { attached: true });
    await setInUse(world, "a", "data");
    await remove(world, "owner");
    assert.equal(await attachment(world, "data", "b"), undefined);
    await setInUse(world, "a");
    await confirmDetached(world, "data", "a");
    assert.notEqual(await attachment(world, "data", "b"), undefined);
  });

  test("a disk that two persistent volumes name is attached to one node", async () => {
    await using world = await openWorld(["data", "same"], ["ReadWriteOnce"], {}, () => "handle-data");
    await world.createPod("owner", { nodeName: "a", ...claimed("data") });
    await world.createPod("next", { nodeName: "b", ...claimed("same") });
    assert.equal(await attachment(world, "data", "b"), undefined);
    assert.deepEqual(await events(world, "FailedAttachVolume"), [
      'next: Multi-Attach error for volume "same" Volume is already used by pod(s) owner',
    ]);
    await answer(world, "data", "a", { attached: true });
    await remove(world, "owner");
    assert.equal(await attachment(world, "data", "b"), undefined);
    await confirmDetached(world, "data", "a");
    const { spec } = (await attachment(world, "data", "b")) ?? {};
    assert.deepEqual(spec?.source, { persistentVolumeName: "same" });
  });

  test("of two nodes that ask at once one has the volume; a shared one both have", async () => {
    const both = (world: World): Promise<readonly (AttachmentObject | undefined)[]> =>
      Promise.all(["a", "b"].map((node) => attachment(world, "data", node)));
    for (const [mode, count] of [
      ["ReadWriteOnce", 1],
      ["ReadWriteOncePod", 1],
      ["ReadWriteMany", 2],
      ["ReadOnlyMany", 2],
    ] as const) {
      await using world = await openWorld(["data"], [mode]);
      const containers = [{ name: "app", image: "app:1" }];
      const pods = ["a", "b"].map((nodeName) =>
        world.create(
          PODS,
          { namespace: "default", name: nodeName },
          { spec: { containers, nodeName, ...claimed("data") } },
        ),
      );
      await Promise.all(pods);
      await world.settle();
      assert.equal((await both(world)).filter((each) => each !== undefined).length, count, mode);
    }
  });

  test("a board that is away keeps its volumes; a pod removed by force costs them after six minutes", async () => {
    await using world = await openWorld(["data"]);
    const tolerations = ["not-ready", "unreachable"].map((key) => ({
      ...{ key: `node.kubernetes.io/${key}`, operator: "Exists", effect: "NoExecute" },
    }));
    await world.createPod("app", { nodeName: "a", tolerations, ...claimed("data") });
    await answer(world, "data", "a", { attached: true });
    await setInUse(world, "a", "data");
    await world.pass(seconds(900), ["b"]);
    assert.deepEqual(await shown(world, "a"), [id("data")]);
    await remove(world, "app");
    await world.pass(seconds(350), ["b"]);
    assert.deepEqual(await shown(world, "a"), [id("data")]);
    await world.pass(seconds(20), ["b"]);
    assert.deepEqual(await shown(world, "a"), []);
    assert.notEqual((await attachment(world, "data", "a"))?.metadata.deletionTimestamp, undefined);
  });

  test("a node that is out of service loses its volumes at once when its pods are gone", async () => {
    await using world = await openWorld(["data"]);
    const tolerations = [{ operator: "Exists" }];
    await world.createPod("app", { nodeName: "a", tolerations, ...claimed("data") });
    await answer(world, "data", "a", { attached: true });
    await setInUse(world, "a", "data");
    const taints = [{ key: "node.kubernetes.io/out-of-service", effect: "NoExecute", value: "nodeshutdown" }];
    await patchNode(world, "a", { spec: { taints } });
    await remove(world, "app");
    assert.notEqual((await attachment(world, "data", "a"))?.metadata.deletionTimestamp, undefined);
  });

  test("a node that shows a volume without a name loses its volumes, too", async () => {
    await using world = await openWorld(["data"]);
    await world.createPod("app", { nodeName: "a", tolerations: [{ operator: "Exists" }], ...claimed("data") });
    await answer(world, "data", "a", { attached: true });
    await patchNode(world, "a", { status: { volumesAttached: [{}] } }, "status");
    const taints = [{ key: "node.kubernetes.io/out-of-service", effect: "NoExecute", value: "nodeshutdown" }];
    await patchNode(world, "a", { spec: { taints } });
    await remove(world, "app");
    assert.notEqual((await attachment(world, "data", "a"))?.metadata.deletionTimestamp, undefined);
  });

  test("a refusal of the attacher and its silence are events of the pod", async () => {
    await using world = await openWorld(["bad", "slow"]);
    await world.createPod("app", { nodeName: "a", ...claimed("bad", "slow") });
    const attachError = { time: "2026-01-01T00:00:00Z", message: "rpc error: no such disk" };
    await answer(world, "bad", "a", { attached: false, attachError });
    await world.pass(seconds(130), ["a", "b"]);
    const failed = "app: AttachVolume.Attach failed for volume";
    assert.deepEqual(await events(world, "FailedAttachVolume"), [
      `${failed} "bad" : rpc error: no such disk`,
      `${failed} "slow" : timed out waiting for external-attacher of ${DRIVER} CSI driver to attach volume handle-slow`,
    ]);
    await remove(world, "app");
    assert.equal(await attachment(world, "slow", "a"), undefined);
  });

  test("controllers that start again take back what is no longer wanted, and nothing else", async () => {
    await using world = await openWorld(["data", "left"]);
    await world.createPod("app", { nodeName: "a", ...claimed("data") });
    await world.createPod("gone", { nodeName: "a", ...claimed("left") });
    for (const volume of ["data", "left"]) await answer(world, volume, "a", { attached: true });
    await world.cluster.stopControllers();
    const spec = { attacher: DRIVER, nodeName: "a", source: { persistentVolumeName: "left" } };
    await world.create(VOLUME_ATTACHMENTS, clusterRef("of-someone-else"), { spec });
    await remove(world, "gone");
    world.cluster.startControllers();
    await world.settle();
    assert.deepEqual(await shown(world, "a"), [id("data")]);
    assert.equal((await attachment(world, "data", "a"))?.metadata.deletionTimestamp, undefined);
    assert.notEqual((await attachment(world, "left", "a"))?.metadata.deletionTimestamp, undefined);
    const foreign = await world.get(VOLUME_ATTACHMENTS, clusterRef("of-someone-else"));
    assert.equal(foreign?.metadata.deletionTimestamp, undefined);
    assert.equal((await events(world, "SuccessfulAttachVolume")).length, 2);
  });

  test("no node gets more volumes of a driver than its CSINode takes", async () => {
    await using world = await openWorld(["one", "two", "three"]);
    for (const [name, count] of [
      ["a", 1],
      ["b", 1],
    ] as const)
      await world.create(CSI_NODES, clusterRef(name), {
        spec: { drivers: [{ name: DRIVER, nodeID: name, topologyKeys: null, allocatable: { count } }] },
      });
    await world.settle();
    for (const name of ["one", "two", "three"]) await world.createPod(name, claimed(name));
    const nodes = await Promise.all(["one", "two", "three"].map((name) => world.pod(name)));
    assert.deepEqual(nodes.map((pod) => pod?.spec.nodeName ?? "none").toSorted(), ["a", "b", "none"]);
    const message = "0/2 nodes are available: 2 node(s) exceed max volume count.";
    assert.equal(conditionOf(await world.pod("three"), "PodScheduled")?.message, message);
    // A pod that shares a volume of the node adds none.
    const spec = { nodeSelector: { "kubernetes.io/hostname": nodes[0]?.spec.nodeName ?? "" } };
    await world.createPod("again", { ...spec, ...claimed("one") });
    assert.equal((await world.pod("again"))?.spec.nodeName, nodes[0]?.spec.nodeName);
    // The volume is taken until it is detached.
    await answer(world, "two", nodes[1]?.spec.nodeName ?? "", { attached: true });
    await remove(world, "two");
    await world.pass(seconds(20), ["a", "b"]);
    assert.equal((await world.pod("three"))?.spec.nodeName, undefined);
    await confirmDetached(world, "two", nodes[1]?.spec.nodeName ?? "");
    await world.pass(seconds(20), ["a", "b"]);
    assert.equal((await world.pod("three"))?.spec.nodeName, nodes[1]?.spec.nodeName);
  });
});

describe("resource claims", () => {
  const template = { namespace: "default", name: "gpus" };
  const spec = { devices: { requests: [{ name: "one", exactly: { deviceClassName: "gpu" } }] } };
  const matchFields = [{ key: "metadata.name", operator: "In", values: ["b"] }];
  const allocation = {
    devices: { results: [{ request: "one", driver: "gpu.example.com", pool: "b", device: "0" }] },
    nodeSelector: { nodeSelectorTerms: [{ matchFields }] },
  };
  const podSpec = { resourceClaims: [{ name: "gpu", resourceClaimTemplateName: "gpus" }] };
  const allocate = (world: World, ref: ObjectRef) => {
    const options = { subresource: "status" };
    return world.cluster.client.patch(RESOURCE_CLAIMS, ref, "merge", { status: { allocation } }, options, signal);
  };
  const why = async (world: World, pod: string) => conditionOf(await world.pod(pod), "PodScheduled")?.message;
  const claimOf = async (world: World, pod: string) => {
    const name = (await world.pod(pod))?.status?.resourceClaimStatuses?.[0]?.resourceClaimName ?? "";
    return {
      ref: { namespace: "default", name },
      claim: await world.get(RESOURCE_CLAIMS, { namespace: "default", name }),
    };
  };

  test("a pod waits for its claim to be made and allocated, goes where the devices are, and takes it with it", async () => {
    await using world = await World.start("a", "b", "c");
    world.cluster.playAgents();
    await world.createPod("app", podSpec);
    assert.match((await why(world, "app")) ?? "", /waiting for a resourceclaim to be created from template "gpus"/);
    assert.deepEqual([...new Set(await world.reasons())].sort(), ["FailedResourceClaimCreation", "FailedScheduling"]);
    await world.create(RESOURCE_CLAIM_TEMPLATES, template, { spec: { metadata: { labels: { a: "b" } }, spec } });
    await world.pass(seconds(20), ["a", "b", "c"]);
    const { ref, claim } = await claimOf(world, "app");
    assert.deepEqual([claim?.metadata.labels, claim?.metadata.ownerReferences?.[0]?.kind], [{ a: "b" }, "Pod"]);
    assert.match(ref.name, /^app-gpu-/);
    assert.equal(await why(world, "app"), "0/3 nodes are available: request one: device class gpu does not exist.");
    await allocate(world, ref);
    await world.pass(seconds(20), ["a", "b", "c"]);
    const pod = await world.pod("app");
    assert.equal(pod?.spec.nodeName, "b");
    const users = async () => (await world.get(RESOURCE_CLAIMS, ref))?.status as { reservedFor?: unknown };
    assert.deepEqual((await users()).reservedFor, [{ resource: "pods", name: "app", uid: pod?.metadata.uid }]);
    await world.delete(PODS, { namespace: "default", name: "app" }, { gracePeriodSeconds: 0 });
    await world.pass(seconds(20), ["a", "b", "c"]);
    assert.equal(await world.get(RESOURCE_CLAIMS, ref), undefined);
  });

  test("a claim that pods name is shared, and is released by those that have ended", async () => {
    await using world = await World.start("b");
    world.cluster.playAgents();
    const ref = { namespace: "default", name: "shared" };
    await world.create(RESOURCE_CLAIMS, ref, { spec });
    await allocate(world, ref);
    const named = { resourceClaims: [{ name: "gpu", resourceClaimName: "shared" }] };
    for (const name of ["one", "two"]) await world.createPod(name, named);
    await world.pass(seconds(20), ["b"]);
    const users = async () => {
      const status = (await world.get(RESOURCE_CLAIMS, ref))?.status;
      const { reservedFor = [] } = (status ?? {}) as { reservedFor?: { name: string }[] };
      return reservedFor.map(({ name }) => name).sort();
    };
    assert.deepEqual(await users(), ["one", "two"]);
    await world.delete(PODS, { namespace: "default", name: "one" }, { gracePeriodSeconds: 0 });
    await world.pass(seconds(20), ["b"]);
    assert.deepEqual(await users(), ["two"]);
  });

  const sliceOf = (node: string, ...models: readonly string[]) => ({
    spec: {
      driver: "gpu.example.com",
      nodeName: node,
      pool: { name: node, generation: 1, resourceSliceCount: 1 },
      devices: models.map((model, index) => ({ name: `card-${index}`, attributes: { model: { string: model } } })),
    },
  });
  const ofModel = (model: string) => ({
    spec: {
      spec: {
        devices: {
          requests: [
            {
              name: "one",
              exactly: {
                deviceClassName: "gpu",
                selectors: [{ cel: { expression: `device.attributes["gpu.example.com"].model == "${model}"` } }],
              },
            },
          ],
        },
      },
    },
  });
  /** A class of the driver's devices, a board `b` with one large card, and templates for cards of each size. */
  const withCards = async (world: World): Promise<void> => {
    world.cluster.playAgents();
    const selectors = [{ cel: { expression: 'device.driver == "gpu.example.com"' } }];
    await world.create(DEVICE_CLASSES, { namespace: "", name: "gpu" }, { spec: { selectors } });
    await world.create(RESOURCE_SLICES, { namespace: "", name: "b-cards" }, sliceOf("b", "large"));
    for (const model of ["large", "small"])
      await world.create(RESOURCE_CLAIM_TEMPLATES, { namespace: "default", name: model }, ofModel(model));
  };
  const wanting = (model: string) => ({ resourceClaims: [{ name: "gpu", resourceClaimTemplateName: model }] });

  test("the scheduler gives a pod the device that it asks for, and the next pod has it when the first has ended", async () => {
    await using world = await World.start("a", "b");
    await withCards(world);
    await world.createPod("first", wanting("large"));
    await world.pass(seconds(5), ["a", "b"]);
    assert.equal((await world.pod("first"))?.spec.nodeName, "b");
    const { ref, claim } = await claimOf(world, "first");
    assert.deepEqual(claim?.metadata.finalizers, ["resource.kubernetes.io/delete-protection"]);
    assert.deepEqual(claim?.status, {
      allocation: {
        devices: { results: [{ request: "one", driver: "gpu.example.com", pool: "b", device: "card-0" }] },
        nodeSelector: { nodeSelectorTerms: [{ matchFields }] },
      },
      reservedFor: [{ resource: "pods", name: "first", uid: (await world.pod("first"))?.metadata.uid }],
    });
    await world.createPod("second", wanting("large"));
    await world.pass(seconds(20), ["a", "b"]);
    assert.equal(await why(world, "second"), "0/2 nodes are available: 2 cannot allocate all claims.");
    const status = { phase: "Succeeded" };
    const first = { namespace: "default", name: "first" };
    await world.cluster.client.patch(PODS, first, "merge", { status }, { subresource: "status" }, signal);
    await world.pass(seconds(20), ["a", "b"]);
    assert.equal((await world.pod("second"))?.spec.nodeName, "b");
    const released = await world.get(RESOURCE_CLAIMS, ref);
    assert.deepEqual([released?.status ?? {}, released?.metadata.finalizers ?? []], [{}, []]);
    await world.delete(PODS, { namespace: "default", name: "second" }, { gracePeriodSeconds: 0 });
    const other = await claimOf(world, "second");
    await world.pass(seconds(20), ["a", "b"]);
    assert.equal(await world.get(RESOURCE_CLAIMS, other.ref), undefined);
  });

  test("a pod waits for a device that suits it, gets one that appears later, and is told when its expression fails", async () => {
    await using world = await World.start("a", "b");
    await withCards(world);
    await world.createPod("app", wanting("small"));
    await world.pass(seconds(5), ["a", "b"]);
    assert.equal(await why(world, "app"), "0/2 nodes are available: 2 cannot allocate all claims.");
    await world.create(RESOURCE_SLICES, { namespace: "", name: "a-cards" }, sliceOf("a", "large", "small"));
    await world.pass(seconds(20), ["a", "b"]);
    assert.equal((await world.pod("app"))?.spec.nodeName, "a");
    const failing = ofModel("x");
    const [request] = failing.spec.spec.devices.requests;
    if (request !== undefined)
      request.exactly.selectors = [{ cel: { expression: 'device.attributes["gpu.example.com"].speed > 3' } }];
    await world.create(RESOURCE_CLAIM_TEMPLATES, { namespace: "default", name: "fast" }, failing);
    await world.createPod("fast", wanting("fast"));
    await world.pass(seconds(5), ["a", "b"]);
    const { name } = (await claimOf(world, "fast")).ref;
    assert.equal(
      await why(world, "fast"),
      `0/2 nodes are available: 2 claim default/${name}: selector #0: CEL runtime error: No such key: speed.`,
    );
  });

  test("a pod with more expressions than a pod may have waits, and holds up no other", async () => {
    await using world = await World.start("b");
    await withCards(world);
    const requests = Array.from({ length: 9 }, (_, request) => ({
      name: `r${request}`,
      exactly: {
        deviceClassName: "gpu",
        selectors: Array.from({ length: 32 }, (_, index) => ({ cel: { expression: `${request * 32 + index} >= 0` } })),
      },
    }));
    const spec = { spec: { devices: { requests } } };
    await world.create(RESOURCE_CLAIM_TEMPLATES, { namespace: "default", name: "many" }, { spec });
    await world.createPod("greedy", wanting("many"));
    await world.createPod("modest", wanting("large"));
    await world.pass(seconds(10), ["b"]);
    assert.equal(await why(world, "greedy"), "0/1 nodes are available: the pod's claims have more than 256 selectors.");
    assert.equal((await world.pod("modest"))?.spec.nodeName, "b");
  });

  test("of pods that want the last device at once, one gets it", async () => {
    await using world = await World.start("b");
    await withCards(world);
    for (const name of ["one", "two", "three"]) void world.createPod(name, wanting("large"));
    await world.pass(seconds(30), ["b"]);
    const placed = await Promise.all(
      ["one", "two", "three"].map(async (name) => (await world.pod(name))?.spec.nodeName),
    );
    assert.deepEqual(
      placed.filter((node) => node !== undefined),
      ["b"],
    );
  });
});

describe("endpoints", () => {
  const ref = { namespace: "default", name: "web" };
  const subsets = async (world: World) =>
    (await world.get(ENDPOINTS, ref))?.subsets as readonly Record<string, readonly Record<string, unknown>[]>[];

  test("a service has the pods that it selects, those that are ready apart from those that are not", async () => {
    await using world = await World.start("a");
    world.cluster.playAgents();
    await world.create(SERVICES, ref, {
      spec: { selector: { app: "x" }, ports: [{ name: "http", port: 80, targetPort: "serve" }] },
    });
    const containers = [{ name: "app", image: "app:1", ports: [{ name: "serve", containerPort: 8080 }] }];
    await world.createPod("one", { containers }, { labels: { app: "x" } });
    await world.createPod("else", { containers }, { labels: { app: "y" } });
    const status = { podIP: "10.1.2.3", podIPs: [{ ip: "10.1.2.3" }] };
    const pod = { namespace: "default", name: "one" };
    await world.cluster.client.patch(PODS, pod, "merge", { status }, { subresource: "status" }, signal);
    await world.settle();
    const [subset, ...others] = await subsets(world);
    assert.equal(others.length, 0);
    assert.deepEqual(subset?.ports, [{ name: "http", port: 8080, protocol: "TCP" }]);
    assert.deepEqual(
      subset?.addresses?.map(({ ip, nodeName }) => [ip, nodeName]),
      [["10.1.2.3", "a"]],
    );
    const { items } = await world.cluster.client.list(ENDPOINT_SLICES, {}, signal);
    assert.deepEqual(
      items.map(({ metadata }) => metadata.labels?.["kubernetes.io/service-name"]),
      ["web"],
    );
    const [endpoint] = (items[0]?.endpoints ?? []) as readonly { conditions: object }[];
    assert.deepEqual(endpoint?.conditions, { ready: true, serving: true, terminating: false });
    const unready = { status: { conditions: [{ type: "Ready", status: "False" }] } };
    await world.cluster.client.patch(PODS, pod, "strategic", unready, { subresource: "status" }, signal);
    await world.settle();
    const [after] = await subsets(world);
    assert.deepEqual([after?.addresses, after?.notReadyAddresses?.length], [undefined, 1]);
    await world.delete(SERVICES, ref);
    await world.pass(seconds(1), ["a"]);
    assert.equal(await world.get(ENDPOINTS, ref), undefined);
    assert.equal((await world.cluster.client.list(ENDPOINT_SLICES, {}, signal)).items.length, 0);
  });
});
