/** The node itself, and objects of the API that belong to it: Node, Lease, PodTemplate, statistics. */
import assert from "node:assert/strict";
import type { V1Lease, V1Node, V1PodTemplate } from "@kubernetes/client-node";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import { LiveSet } from "../framework/live-set.ts";
import { timeOf } from "../framework/test-pod.ts";

const LEASES = "/apis/coordination.k8s.io/v1/namespaces";

const leases = area("[sig-node] Lease", (should) => {
  should("be available as an API", async (t) => {
    const path = `${LEASES}/${t.namespace}/leases`;
    const metadata = { name: "lease" };
    const spec = { holderIdentity: "holder", leaseDurationSeconds: 30, acquireTime: "2026-01-01T00:00:00.123456Z" };
    await t.api.call("POST", path, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec });
    const made = await t.api.get<V1Lease>(`${path}/lease`);
    assert.deepEqual(made.spec, spec);
    const patched = await t.api.patch<V1Lease>(`${path}/lease`, { spec: { leaseDurationSeconds: 60 } });
    assert.equal(patched.spec?.leaseDurationSeconds, 60);
    await t.api.call("DELETE", path);
    assert.deepEqual((await t.api.get<{ items: unknown[] }>(path)).items, []);
  });
});

const nodes = area("[sig-node] NodeLease", (should) => {
  const NODE_LEASES = `${LEASES}/kube-node-lease/leases`;

  should("the kubelet should create and update a lease in the kube-node-lease namespace", async (t) => {
    const all = new LiveSet<V1Lease>(t.api, NODE_LEASES, t.signal);
    const first = await all.find(() => all.get(t.node));
    assert.equal(first.spec?.holderIdentity, t.node);
    const duration = (first.spec?.leaseDurationSeconds ?? Number.NaN) * 1000;
    assert.ok(Date.now() - timeOf(first.spec?.renewTime) < duration, "it was renewed too long ago");
    const renewed = await all.find(() => {
      const lease = all.get(t.node);
      return lease?.spec?.renewTime === first.spec?.renewTime ? undefined : lease;
    });
    assert.ok(timeOf(renewed.spec?.renewTime) > timeOf(first.spec?.renewTime));
  });

  should("have OwnerReferences set", async (t) => {
    const lease = await t.api.get<V1Lease>(`${NODE_LEASES}/${t.node}`);
    const [owner] = lease.metadata?.ownerReferences ?? [];
    assert.equal(owner?.kind, "Node");
    assert.equal(owner?.name, t.node);
  });
});

const templates = area("[sig-node] PodTemplates", (should) => {
  const make = (name: string, labels: Record<string, string> = {}) => ({
    metadata: { name, labels },
    template: { metadata: { labels }, spec: { containers: [{ name: "a", image: "a:1" }] } },
  });
  type List = { items: V1PodTemplate[] };

  should("run the lifecycle of PodTemplates", async (t) => {
    await t.create("podtemplates", make("one"));
    const patched = await t.patch<V1PodTemplate>("podtemplates", "one", { metadata: { labels: { now: "patched" } } });
    assert.equal(patched.metadata?.labels?.now, "patched");
    await t.delete("podtemplates", "one");
    assert.deepEqual((await t.api.get<List>(t.path("podtemplates"))).items, []);
  });

  should("delete a collection of pod templates", async (t) => {
    for (const name of ["one", "two", "three"]) await t.create("podtemplates", make(name, { set: "yes" }));
    await t.create("podtemplates", make("other"));
    await t.api.call("DELETE", t.path("podtemplates"), undefined, { query: { labelSelector: "set=yes" } });
    const { items } = await t.api.get<List>(t.path("podtemplates"));
    assert.deepEqual(
      items.map(({ metadata }) => metadata?.name),
      ["other"],
    );
  });

  should("replace a pod template", async (t) => {
    const made = await t.create<V1PodTemplate>("podtemplates", make("one"));
    const changed = { ...made, metadata: { ...made.metadata, annotations: { updated: "true" } } };
    const replaced = await t.api.call<V1PodTemplate>("PUT", t.path("podtemplates", "one"), changed);
    assert.equal(replaced.metadata?.annotations?.updated, "true");
  });
});

const node = area("[sig-node] Node", (should) => {
  should("report that it is ready, its capacity, addresses and what it is", async (t) => {
    const { status } = await t.api.get<V1Node>(`/api/v1/nodes/${t.node}`);
    const ready = status?.conditions?.find(({ type }) => type === "Ready");
    assert.deepEqual(
      [ready?.status, ready?.reason, ready?.message],
      ["True", "KubeletReady", "kubelet is posting ready status"],
    );
    assert.ok(timeOf(ready?.lastHeartbeatTime) >= timeOf(ready?.lastTransitionTime));
    for (const resource of ["cpu", "memory", "ephemeral-storage", "pods"]) {
      assert.notEqual(status?.capacity?.[resource], undefined, resource);
      assert.notEqual(status?.allocatable?.[resource], undefined, resource);
    }
    assert.ok((status?.addresses?.length ?? 0) > 0);
    assert.ok((status?.images?.length ?? 0) > 0);
    const info = status?.nodeInfo;
    assert.match(info?.kubeletVersion ?? "", /^v\d+\.\d+/);
    assert.equal(info?.operatingSystem, "linux");
    assert.match(info?.containerRuntimeVersion ?? "", /^[a-z-]+:\/\//);
    for (const key of ["kernelVersion", "osImage", "machineID", "bootID", "architecture"] as const)
      assert.notEqual(info?.[key] ?? "", "", key);
  });

  should("report that it is short of neither memory nor disk nor processes", async (t) => {
    const { status } = await t.api.get<V1Node>(`/api/v1/nodes/${t.node}`);
    for (const [type, reason] of [
      ["MemoryPressure", "KubeletHasSufficientMemory"],
      ["DiskPressure", "KubeletHasNoDiskPressure"],
      ["PIDPressure", "KubeletHasSufficientPID"],
    ] as const) {
      const condition = status?.conditions?.find((each) => each.type === type);
      assert.deepEqual([type, condition?.status, condition?.reason], [type, "False", reason]);
    }
  });

  should("carry the labels that every node has", async (t) => {
    const { metadata } = await t.api.get<V1Node>(`/api/v1/nodes/${t.node}`);
    for (const label of ["kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch"])
      assert.notEqual(metadata?.labels?.[label], undefined, label);
  });
});

export const nodeObjectTests: readonly ConformanceTest[] = [...leases, ...nodes, ...templates, ...node];
