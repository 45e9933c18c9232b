/**
 * Device plugins, dynamic resource allocation and the podresources API, with plugins and drivers written with gRPC's
 * own library. They run beside the node, in its root directory.
 */
import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { V1Node, V1Pod } from "@kubernetes/client-node";
import { callGrpc, serviceOf } from "../../support/unit/plugins/grpc-peer.ts";
import {
  type TestDevice,
  TestDevicePlugin,
  type TestDevicePluginInit,
} from "../../support/unit/plugins/test-device-plugin.ts";
import { TestDraDriver } from "../../support/unit/plugins/test-dra-driver.ts";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import { LiveSet } from "../framework/live-set.ts";
import type { TestContext } from "../framework/test-context.ts";
import type { TestPod } from "../framework/test-pod.ts";
import { STAYS } from "../framework/traces.ts";

/** CDI has no folder of a test's own. */
const CDI_FOLDER = "/var/run/cdi";
const RESOURCE_API = "/apis/resource.k8s.io/v1";

const kubeletRoot = (t: TestContext): string => {
  const { kubeletRoot: root } = t.target;
  return root === "" ? t.skip("--kubelet-root was not given: plugins cannot register") : root;
};

/** Distinct in the node, as the test's namespace is. */
const nameOf = (t: TestContext): string => t.namespace;

interface Plugged {
  readonly plugin: TestDevicePlugin;
  readonly resource: string;
}

const devices = (...ids: readonly string[]): readonly TestDevice[] => ids.map((ID) => ({ ID, health: "Healthy" }));

async function plug(
  t: TestContext,
  ids: readonly string[],
  more: Partial<TestDevicePluginInit> = {},
): Promise<Plugged> {
  const resource = `conformance.test/${nameOf(t)}`;
  const folder = join(kubeletRoot(t), "device-plugins");
  const plugin = new TestDevicePlugin({
    ...{ folder, resource, devices: devices(...ids) },
    allocate: (own) => ({ envs: { DEVICES: own.join(",") } }),
    ...more,
  });
  t.defer(async () => plugin.stop());
  await plugin.start();
  await offered(t, resource, [ids.length, ids.length]);
  return { plugin, resource };
}

/** Until the node's status counts so many devices, so many of them healthy. */
async function offered(t: TestContext, resource: string, [all, healthy]: readonly [number, number]): Promise<void> {
  const nodes = new LiveSet<V1Node>(t.api, "/api/v1/nodes", t.signal);
  await nodes.find(() => {
    const { capacity = {}, allocatable = {} } = nodes.get(t.node)?.status ?? {};
    return (capacity[resource] === String(all) && allocatable[resource] === String(healthy)) || undefined;
  });
}

const asking = (t: TestContext, resource: string, count: number) =>
  t.sh(`echo "has $DEVICES"; ${STAYS}`, { resources: { limits: { [resource]: String(count) } } });

const healthOf = (pod: V1Pod): Record<string, string> => {
  const [status] = pod.status?.containerStatuses?.[0]?.allocatedResourcesStatus ?? [];
  return Object.fromEntries((status?.resources ?? []).map(({ resourceID, health = "" }) => [resourceID, health]));
};

const PLUGINS = { group: "devicePlugins" };

const plugins = area("[sig-node] Device Plugin", (should) => {
  should(
    "have its devices counted in the node's capacity, and the healthy ones in allocatable",
    async (t) => {
      const { plugin, resource } = await plug(t, ["a", "b"]);
      plugin.devices = [...devices("a"), { ID: "b", health: "Unhealthy" }];
      await offered(t, resource, [2, 1]);
      plugin.devices = devices("a", "b", "c");
      await offered(t, resource, [3, 3]);
    },
    PLUGINS,
  );

  should(
    "allocate the devices that it prefers, and prepare each start",
    async (t) => {
      const preferred = (available: readonly string[], size: number) => available.toSorted().reverse().slice(0, size);
      const { plugin, resource } = await plug(t, ["a", "b", "c"], { preStart: true, preferred });
      const pod = await t.start({ containers: [asking(t, resource, 2)] });
      await pod.logged("has c,b");
      const calls = ["GetPreferredAllocation a,b,c", "Allocate c,b", "PreStartContainer c,b"];
      assert.deepEqual(plugin.calls, calls);
    },
    PLUGINS,
  );

  should(
    "give a container device nodes, mounts and variables",
    async (t) => {
      const mounts = [{ container_path: "/firmware", host_path: "/etc", read_only: true }];
      const nodes = [{ container_path: "/dev/conformance", host_path: "/dev/full", permissions: "rw" }];
      const allocate = (): object => ({ envs: { DEVICES: "one" }, mounts, devices: nodes });
      const { resource } = await plug(t, ["a"], { allocate });
      const pod = await t.start({ containers: [asking(t, resource, 1)] });
      await pod.logged("has one");
      const script = "ls /firmware/hostname; test -c /dev/conformance && echo node; touch /firmware/x 2>&1 || true";
      const { stdout } = await pod.exec(["/bin/sh", "-c", script]);
      assert.match(stdout, /^\/firmware\/hostname\nnode\n.*Read-only/);
    },
    PLUGINS,
  );

  should(
    "never give a device to two containers, and fail a pod when none is left",
    async (t) => {
      const { resource } = await plug(t, ["a"]);
      const first = await t.start({ containers: [asking(t, resource, 1)] });
      await first.running();
      const second = await t.start({ containers: [asking(t, resource, 1)] });
      const { status } = await second.phase("Failed");
      assert.match(status?.reason ?? "", /UnexpectedAdmissionError|OutOf/);
      await t.delete("pods", first.name);
      await first.gone();
      const third = await t.start({ containers: [asking(t, resource, 1)] });
      await third.logged("has a");
    },
    PLUGINS,
  );

  should(
    "report the health of allocated devices in the pod's status",
    async (t) => {
      const { plugin, resource } = await plug(t, ["a"]);
      const pod = await t.start({ containers: [asking(t, resource, 1)] });
      await pod.until("a healthy device", (each) => healthOf(each).a === "Healthy");
      plugin.devices = [{ ID: "a", health: "Unhealthy" }];
      await pod.until("an unhealthy device", (each) => healthOf(each).a === "Unhealthy");
    },
    PLUGINS,
  );

  should(
    "keep a container's devices while it is away, and offer the others when it is back",
    async (t) => {
      const { plugin, resource } = await plug(t, ["a", "b"]);
      const pod = await t.start({ containers: [asking(t, resource, 1)] });
      await pod.running();
      plugin.stop();
      await offered(t, resource, [2, 0]);
      await plugin.start();
      await offered(t, resource, [2, 2]);
      const other = await t.start({ containers: [asking(t, resource, 1)] });
      await other.running();
      const given = plugin.calls.filter((call) => call.startsWith("Allocate"));
      assert.deepEqual(given.toSorted(), ["Allocate a", "Allocate b"]);
      assert.equal(pod.latest?.status?.containerStatuses?.[0]?.restartCount, 0);
    },
    PLUGINS,
  );

  should(
    "fail a pod with its own words when it refuses to allocate",
    async (t) => {
      const { resource } = await plug(t, ["a"], { allocate: () => new Error("no film in it") });
      const pod = await t.start({ containers: [asking(t, resource, 1)] });
      const { status } = await pod.phase("Failed");
      assert.match(status?.message ?? "", /Allocate failed due to .*no film in it/);
    },
    PLUGINS,
  );
});

interface Claimed {
  readonly claim: string;
  readonly driver: TestDraDriver;
}

/** A driver that has registered, and a claim allocated to one of its devices. */
async function claimed(t: TestContext, version: "v1" | "v1beta1" = "v1"): Promise<Claimed> {
  const name = `${nameOf(t)}.conformance.test`;
  const driver = new TestDraDriver({ rootDir: kubeletRoot(t), name, version });
  driver.cdiKind = `conformance.test/${nameOf(t)}`;
  t.defer(async () => driver.stop());
  const registration = await driver.start();
  assert.deepEqual(await registration.reported(), { plugin_registered: true, error: "" });
  const claim = t.name("claim");
  writeCdi(t, driver.cdiKind, claim);
  const metadata = { name: claim };
  const spec = { devices: { requests: [{ name: "one", exactly: { deviceClassName: "conformance" } }] } };
  await t.api.call("POST", claimsOf(t), { apiVersion: "resource.k8s.io/v1", kind: "ResourceClaim", metadata, spec });
  const results = [{ request: "one", driver: name, pool: t.node, device: claim }];
  await t.api.patch(`${claimsOf(t)}/${claim}/status`, { status: { allocation: { devices: { results } } } }, "merge");
  return { claim, driver };
}

const claimsOf = (t: TestContext): string => `${RESOURCE_API}/namespaces/${t.namespace}/resourceclaims`;

/** Writes what a driver does when it prepares a claim. */
function writeCdi(t: TestContext, kind: string, claim: string): void {
  mkdirSync(CDI_FOLDER, { recursive: true });
  const path = join(CDI_FOLDER, `${nameOf(t)}.json`);
  t.defer(async () => rmSync(path, { force: true }));
  const edits = { env: [`CLAIM=${claim}`] };
  writeFileSync(path, JSON.stringify({ cdiVersion: "0.6.0", kind, devices: [{ name: claim, containerEdits: edits }] }));
}

/** Writes what a scheduler would: no test here is about its choice. */
const reserve = (t: TestContext, claim: string, ...pods: readonly TestPod[]): Promise<unknown> => {
  const reservedFor = pods.map(({ name, uid }) => ({ resource: "pods", name, uid }));
  return t.api.patch(`${claimsOf(t)}/${claim}/status`, { status: { reservedFor } }, "merge");
};

/** It ends before its driver does, which must unprepare the claim. */
async function using(t: TestContext, claim: string): Promise<TestPod> {
  const pod = await t.start({
    resourceClaims: [{ name: "device", resourceClaimName: claim }],
    containers: [t.sh(`echo "has $CLAIM"; ${STAYS}`, { resources: { claims: [{ name: "device" }] } })],
  });
  t.defer(async () => {
    if (pod.latest !== undefined) await t.delete("pods", pod.name);
    await pod.gone();
  });
  return pod;
}

const DRA = { group: "dra" };

const claims = area("[sig-node] Dynamic Resource Allocation", (should) => {
  for (const version of ["v1", "v1beta1"] as const) {
    should(
      `prepare a claim before its pod starts and unprepare it afterwards, with a driver of ${version}`,
      async (t) => {
        const { claim, driver } = await claimed(t, version);
        const pod = await using(t, claim);
        await reserve(t, claim, pod);
        await pod.logged(`has ${claim}`);
        assert.deepEqual(driver.calls, [`prepare ${claim}`]);
        await t.delete("pods", pod.name);
        await pod.gone();
        assert.deepEqual(driver.calls, [`prepare ${claim}`, `unprepare ${claim}`]);
      },
      DRA,
    );
  }

  should(
    "prepare a claim once for all its pods, and unprepare it after the last one",
    async (t) => {
      const { claim, driver } = await claimed(t);
      const [first, second] = [await using(t, claim), await using(t, claim)];
      await reserve(t, claim, first, second);
      await Promise.all([first.logged(`has ${claim}`), second.logged(`has ${claim}`)]);
      await t.delete("pods", first.name);
      await first.gone();
      assert.deepEqual(driver.calls, [`prepare ${claim}`]);
      await t.delete("pods", second.name);
      await second.gone();
      assert.deepEqual(driver.calls, [`prepare ${claim}`, `unprepare ${claim}`]);
    },
    DRA,
  );

  should(
    "start no pod while its driver refuses, and start it when the driver does not any more",
    async (t) => {
      const { claim, driver } = await claimed(t);
      driver.refusal = "the card is too hot";
      const pod = await using(t, claim);
      await reserve(t, claim, pod);
      const isRefusal = ({ reason, message }: { reason?: string; message?: string }): boolean =>
        reason === "FailedPrepareDynamicResources" && message?.includes("the card is too hot") === true;
      await t.events.find(() => t.events.all.find(isRefusal));
      assert.equal(pod.latest?.status?.phase, "Pending");
      driver.refusal = "";
      await pod.logged(`has ${claim}`);
    },
    { ...DRA, limitSeconds: 180 },
  );

  should(
    "start no pod that its claim is not reserved for",
    async (t) => {
      const { claim, driver } = await claimed(t);
      const pod = await using(t, claim);
      await t.events.find(() => t.events.all.find(({ reason }) => reason === "FailedPrepareDynamicResources"));
      assert.deepEqual(driver.calls, []);
      await reserve(t, claim, pod);
      await pod.logged(`has ${claim}`);
    },
    { ...DRA, limitSeconds: 180 },
  );
});

const POD_RESOURCES = { group: "podResources" };

const ask = (t: TestContext, method: string, request: object = {}): Promise<Record<string, unknown>> => {
  const lister = serviceOf("podresources.proto", "v1.PodResourcesLister");
  return callGrpc(join(kubeletRoot(t), "pod-resources", "kubelet.sock"), lister, method, request);
};

interface Resources {
  readonly name: string;
  readonly namespace: string;
  readonly containers: readonly {
    readonly devices: readonly { readonly resource_name: string; readonly device_ids: readonly string[] }[];
    readonly dynamic_resources: readonly { readonly claim_name: string; readonly claim_namespace: string }[];
  }[];
}

const podResources = area("[sig-node] POD Resources API", (should) => {
  should(
    "list pods with the devices of plugins and claims",
    async (t) => {
      const { resource } = await plug(t, ["a", "b"]);
      const { claim } = await claimed(t);
      const plain = await t.start({ containers: [asking(t, resource, 2)] });
      const claiming = await using(t, claim);
      await reserve(t, claim, claiming);
      await Promise.all([plain.running(), claiming.running()]);
      const { pod_resources: all } = (await ask(t, "List")) as { pod_resources: readonly Resources[] };
      const of = (pod: TestPod) => {
        return all.find(({ name, namespace }) => name === pod.name && namespace === t.namespace)?.containers[0];
      };
      const given = of(plain)?.devices.flatMap((each) => each.device_ids.map((id) => `${each.resource_name} ${id}`));
      assert.deepEqual(given?.toSorted(), [`${resource} a`, `${resource} b`]);
      const [dynamic] = of(claiming)?.dynamic_resources ?? [];
      assert.deepEqual([dynamic?.claim_name, dynamic?.claim_namespace], [claim, t.namespace]);
    },
    POD_RESOURCES,
  );

  should(
    "answer for one pod, and refuse one that is not there",
    async (t) => {
      const { resource } = await plug(t, ["a"]);
      const pod = await t.start({ containers: [asking(t, resource, 1)] });
      await pod.running();
      const { pod_resources: found } = (await ask(t, "Get", { pod_name: pod.name, pod_namespace: t.namespace })) as {
        pod_resources: Resources;
      };
      assert.equal(found.containers[0]?.devices[0]?.resource_name, resource);
      await assert.rejects(ask(t, "Get", { pod_name: "none", pod_namespace: t.namespace }), /none|not found/);
    },
    POD_RESOURCES,
  );

  should(
    "tell what can be allocated",
    async (t) => {
      const { resource } = await plug(t, ["a", "b"]);
      const { devices: all } = (await ask(t, "GetAllocatableResources")) as {
        devices: Resources["containers"][number]["devices"];
      };
      const ids = all.filter((each) => each.resource_name === resource).flatMap((each) => each.device_ids);
      assert.deepEqual(ids.toSorted(), ["a", "b"]);
    },
    POD_RESOURCES,
  );
});

export const deviceTests: readonly ConformanceTest[] = [...plugins, ...claims, ...podResources];
