/** In-place resize of running pods. */
import assert from "node:assert/strict";
import type { V1Container, V1Pod, V1ResourceRequirements } from "@kubernetes/client-node";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import { ApiError } from "../framework/kube-api.ts";
import type { TestContext } from "../framework/test-context.ts";
import { restartsOf, statusOf, type TestPod } from "../framework/test-pod.ts";
import { STAYS } from "../framework/traces.ts";

const MEMORY = "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes";
const CPU =
  "cat /sys/fs/cgroup/cpu.max 2>/dev/null || echo $(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us) $(cat /sys/fs/cgroup/cpu/cpu.cfs_period_us)";

const both = (cpu: string, memory: string): V1ResourceRequirements => ({
  requests: { cpu, memory },
  limits: { cpu, memory },
});

async function started(
  t: TestContext,
  resources: V1ResourceRequirements,
  more: Partial<V1Container> = {},
): Promise<TestPod> {
  const pod = await t.start({ restartPolicy: "Always", containers: [t.sh(STAYS, { resources, ...more })] });
  await pod.running();
  return pod;
}

const resize = async (pod: TestPod, resources: V1ResourceRequirements): Promise<V1Pod> =>
  await pod.patch({ spec: { containers: [{ name: "test", resources }] } }, "resize");

const limitOf = (pod: V1Pod, resource: string): string | undefined => statusOf(pod)?.resources?.limits?.[resource];

const done = (pod: V1Pod): boolean =>
  !(pod.status?.conditions ?? []).some(({ type }) => type === "PodResizePending" || type === "PodResizeInProgress");

const resizes = area("[sig-node] Pod InPlace Resize Container", (should) => {
  for (const [what, from, to] of [
    ["increase", both("100m", "32Mi"), both("200m", "64Mi")],
    ["decrease", both("200m", "64Mi"), both("100m", "32Mi")],
  ] as const) {
    should(`${what} cpu and memory of a Guaranteed pod without a restart`, async (t) => {
      const pod = await started(t, from);
      await resize(pod, to);
      const resized = await pod.until("the new limits in its status", (each) => {
        return limitOf(each, "memory") === to.limits?.memory && limitOf(each, "cpu") === to.limits?.cpu && done(each);
      });
      assert.equal(restartsOf(resized), 0);
      assert.deepEqual(statusOf(resized)?.allocatedResources, to.requests);
      const completed = await pod.event("ResizeCompleted", ({ reason }) => reason === "ResizeCompleted");
      const { requests, limits } = to;
      const summary = JSON.stringify({ containers: [{ name: "test", resources: { limits, requests } }] });
      assert.equal(completed.message, `Pod resize completed: ${summary}`);
      const mebibytes = Number.parseInt(to.limits?.memory ?? "", 10);
      assert.equal((await pod.shell(MEMORY)).trim(), String(mebibytes * MEBIBYTE));
      const [quota, period] = (await pod.shell(CPU)).trim().split(" ").map(Number);
      assert.equal(((quota ?? 0) / (period ?? 1)) * 1000, Number.parseInt(to.limits?.cpu ?? "", 10));
    });
  }

  should("change requests of a Burstable pod without a restart", async (t) => {
    const pod = await started(t, { requests: { cpu: "100m", memory: "16Mi" } });
    await resize(pod, { requests: { cpu: "150m", memory: "24Mi" } });
    const resized = await pod.until("the new requests in its status", (each) => {
      return statusOf(each)?.resources?.requests?.cpu === "150m" && done(each);
    });
    assert.equal(restartsOf(resized), 0);
    assert.deepEqual(statusOf(resized)?.allocatedResources, { cpu: "150m", memory: "24Mi" });
  });

  should("restart the container where its resizePolicy asks for it", async (t) => {
    const resizePolicy = [{ resourceName: "memory", restartPolicy: "RestartContainer" }];
    const pod = await started(t, both("100m", "32Mi"), { resizePolicy });
    await resize(pod, both("100m", "64Mi"));
    const resized = await pod.until("a restart with the new limit", (each) => {
      return (
        restartsOf(each) === 1 && limitOf(each, "memory") === "64Mi" && statusOf(each)?.state?.running !== undefined
      );
    });
    assert.equal(restartsOf(resized), 1);
    assert.equal((await pod.shell(MEMORY)).trim(), String(64 * MEBIBYTE));
  });

  should("change a sidecar without a restart", async (t) => {
    const side = { ...t.sh(STAYS, { name: "side", resources: both("50m", "24Mi") }), restartPolicy: "Always" };
    const app = t.sh(STAYS, { resources: both("50m", "24Mi") });
    const pod = await t.start({ restartPolicy: "Always", initContainers: [side], containers: [app] });
    await pod.running();
    const to = both("80m", "48Mi");
    await pod.patch({ spec: { initContainers: [{ name: "side", resources: to }] } }, "resize");
    const sidecarOf = ({ status }: V1Pod) => status?.initContainerStatuses?.[0];
    const resized = await pod.until("the sidecar's new limits in its status", (each) => {
      return sidecarOf(each)?.resources?.limits?.memory === "48Mi" && done(each);
    });
    assert.deepEqual(sidecarOf(resized)?.resources, to);
    assert.equal(sidecarOf(resized)?.restartCount, 0);
    assert.equal((await pod.shell(MEMORY, "side")).trim(), String(48 * MEBIBYTE));
  });

  should("not decrease a memory limit below what is in use, and take that back", async (t) => {
    const from = { requests: { memory: "32Mi" }, limits: { memory: "32Mi" } };
    const pod = await started(t, from);
    await resize(pod, { requests: { memory: "10Ki" }, limits: { memory: "10Ki" } });
    const stuck = await pod.until("PodResizeInProgress with an error", ({ status }) => {
      return (
        status?.conditions?.some((each) => each.type === "PodResizeInProgress" && each.reason === "Error") === true
      );
    });
    const condition = stuck.status?.conditions?.find(({ type }) => type === "PodResizeInProgress");
    assert.match(condition?.message ?? "", /memory limit \(10240\) below current usage \(\d+\)/);
    assert.equal(limitOf(stuck, "memory"), "32Mi");
    assert.deepEqual(statusOf(stuck)?.allocatedResources, { memory: "10Ki" });
    await resize(pod, from);
    const back = await pod.until("an end of the resize", done);
    assert.equal(limitOf(back, "memory"), "32Mi");
    assert.equal(restartsOf(back), 0);
    assert.equal((await pod.shell(MEMORY)).trim(), String(32 * MEBIBYTE));
  });

  should("say that a resize to more than the node has is infeasible", async (t) => {
    const pod = await started(t, { requests: { cpu: "100m" } });
    await resize(pod, { requests: { cpu: "100000" } });
    const pending = await pod.until("PodResizePending", ({ status }) => {
      return status?.conditions?.some(({ type }) => type === "PodResizePending") === true;
    });
    const condition = pending.status?.conditions?.find(({ type }) => type === "PodResizePending");
    assert.equal(condition?.reason, "Infeasible");
    assert.match(
      condition?.message ?? "",
      /^Node didn't have enough capacity: cpu, requested: 100000000, capacity: \d+$/,
    );
    assert.deepEqual(statusOf(pending)?.allocatedResources, { cpu: "100m" });
  });

  should("refuse a resize that would change the QoS class, and one outside of the subresource", async (t) => {
    const pod = await started(t, both("100m", "32Mi"));
    const isInvalid = (error: unknown) => error instanceof ApiError && error.code === 422;
    await assert.rejects(resize(pod, { requests: { cpu: "50m" } }), isInvalid);
    await assert.rejects(
      pod.patch({ spec: { containers: [{ name: "test", resources: both("200m", "32Mi") }] } }),
      isInvalid,
    );
  });
});

export const resizeTests: readonly ConformanceTest[] = resizes;
