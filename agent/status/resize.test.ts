import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { Container, Pod, PodStatus, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import { millis } from "@picolet/protocol/ports.ts";
import {
  activeState,
  exited,
  failure,
  NOW,
  NOW_MS,
  removed,
  run,
  running,
  sandbox,
  viewOf,
} from "@picolet/test/support/unit/pods/pod-views.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { planPod } from "../plan/plan-pod.ts";
import type { PodView } from "../plan/pod-view.ts";
import { isResized, orderResizes, replaceResource } from "../plan/resize.ts";
import { transition } from "../plan/worker-transition.ts";
import { deriveStatus } from "./derive-status.ts";

const both = (cpu: string, memory: string): ResourceRequirements => ({
  requests: { cpu, memory },
  limits: { cpu, memory },
});
const OLD = both("100m", "32Mi");
const NEW = both("200m", "64Mi");

type Policy = NonNullable<Container["resizePolicy"]>;
const policy = (cpu: string, memory: string) =>
  [
    { resourceName: "cpu", restartPolicy: cpu },
    { resourceName: "memory", restartPolicy: memory },
  ] as Policy;

const app = (resources: ResourceRequirements, more: Partial<Container> = {}) => ({
  name: "app",
  image: "example/app:1",
  resources,
  ...more,
});

/** A pod that is granted `NEW`, whose container runs with `has`. */
function resizing(
  has: ResourceRequirements | undefined,
  pod: Pod = podOf({ containers: [app(NEW)] }),
  given: Partial<PodView> = {},
) {
  const containers = [run(pod, "app", 0, running, has === undefined ? {} : { resources: has })];
  const view = viewOf({ pod, sandboxes: [sandbox(0)], containers });
  return {
    ...view,
    worker: activeState({ uid: view.desired.uid, sandboxes: [sandbox(0)], containers, manifest: undefined }),
    ...given,
  };
}

const kinds = (view: PodView) => planPod(view).actions.map(({ kind }) => kind);

describe("a container that runs with other resources than it is granted", () => {
  test("is updated in place where nothing says otherwise", () => {
    const resize = { containerId: "app-0", name: "app", attempt: 0, from: OLD, to: NEW };
    assert.deepEqual(planPod(resizing(OLD)).actions, [{ kind: "resize", containers: [resize] }]);
  });

  test("with what it is granted is left alone; so is one of which nobody knows", () => {
    assert.deepEqual(kinds(resizing(NEW)), []);
    assert.deepEqual(kinds(resizing(both("0.2", "65536Ki"))), []);
    assert.deepEqual(kinds(resizing(undefined)), []);
  });

  for (const [name, cpu, memory, to, restarts] of [
    ["memory changes and takes a restart", "NotRequired", "RestartContainer", both("100m", "64Mi"), true],
    ["CPU changes and memory takes a restart", "NotRequired", "RestartContainer", both("200m", "32Mi"), false],
    ["CPU changes and takes a restart", "RestartContainer", "NotRequired", both("200m", "32Mi"), true],
    ["both change and one takes a restart", "RestartContainer", "NotRequired", NEW, true],
    [
      "a request changes and takes a restart",
      "RestartContainer",
      "NotRequired",
      { ...OLD, requests: { cpu: "50m", memory: "32Mi" } },
      true,
    ],
    [
      "only what is no resource of these changes",
      "RestartContainer",
      "RestartContainer",
      { ...OLD, limits: { ...OLD.limits, "ephemeral-storage": "1Gi" } },
      undefined,
    ],
  ] as const) {
    test(`${name}: ${restarts === undefined ? "nothing happens" : restarts ? "it is stopped" : "it is updated"}`, () => {
      const pod = podOf({ containers: [app(to, { resizePolicy: policy(cpu, memory) })] });
      const expected = restarts === undefined ? [] : [restarts ? "stopContainer" : "resize"];
      assert.deepEqual(kinds(resizing(OLD, pod)), expected);
    });
  }

  test("is stopped with the kubelet's words, and starts again at once, whatever its back-off", () => {
    const pod = podOf({ containers: [app(NEW, { resizePolicy: policy("NotRequired", "RestartContainer") })] });
    const view = resizing(OLD, pod, { resize: { pending: undefined, sized: false, generation: 2 } });
    const [stop] = planPod(view).actions;
    assert.equal(stop?.kind === "stopContainer" && stop.message, "Container app resize requires restart");
    const replacing = { kind: "replacing", name: "app", attempt: 0, why: "resized", monotonic: NOW } as const;
    const containers = [run(pod, "app", 0, exited(137), { resources: OLD, backoff: millis(300_000) })];
    const observed = { uid: view.desired.uid, sandboxes: [sandbox(0)], containers, manifest: undefined };
    const worker = transition(view.worker, replacing);
    // The pod's cgroup comes before what is to start in it.
    assert.deepEqual(kinds({ ...view, worker, observed }), ["resize", "startContainer"]);
  });

  test("waits while another one is stopped for the same change", () => {
    const restarting = { ...app(NEW, { resizePolicy: policy("NotRequired", "RestartContainer") }), name: "db" };
    const pod = podOf({ containers: [app(NEW), restarting] });
    const containers = ["app", "db"].map((name) => run(pod, name, 0, running, { resources: OLD }));
    const view = viewOf({ pod, sandboxes: [sandbox(0)], containers });
    const worker = activeState({ uid: view.desired.uid, sandboxes: [sandbox(0)], containers, manifest: undefined });
    assert.deepEqual(kinds({ ...view, worker }), ["stopContainer"]);
  });

  test("is not asked twice after it failed, until its time has come", () => {
    const failures = new Map([["resize", failure("Error", "no", 5000)]]);
    const plan = planPod(resizing(OLD, undefined, { failures }));
    assert.deepEqual([plan.actions, plan.held, plan.wakeAt], [[], ["resize"], NOW + 5000]);
  });

  test("of a pod that is over, or ends, stays as it is", () => {
    const view = resizing(OLD);
    assert.deepEqual(kinds({ ...view, worker: removed(view.worker) }), ["stopContainer"]);
  });

  test("an init container that is to end by itself is left alone", () => {
    const init = { ...app(OLD), name: "init" };
    const pod = podOf({ containers: [app(NEW)], initContainers: [init] });
    const containers = [run(pod, "init", 0, running, { resources: NEW })];
    const view = viewOf({ pod, sandboxes: [sandbox(0)], containers });
    assert.deepEqual(
      kinds({
        ...view,
        worker: activeState({ uid: view.desired.uid, sandboxes: [sandbox(0)], containers, manifest: undefined }),
      }),
      [],
    );
  });
});

describe("what a container has", () => {
  const told = (resources: ResourceRequirements, containerID = "containerd://app-0"): PodStatus => ({
    phase: "Running",
    containerStatuses: [
      {
        ...{ name: "app", ready: true, restartCount: 0, image: "", imageID: "", containerID, resources },
        ...{ state: { running: { startedAt: "2026-01-01T00:00:00Z" } }, lastState: {} },
      },
    ],
  });

  test("is what was told of it rather than what it was made with, if it is the same container", () => {
    assert.deepEqual(kinds(resizing(OLD, undefined, { previous: told(NEW) })), []);
    assert.deepEqual(kinds(resizing(OLD, undefined, { previous: told(NEW, "containerd://other") })), ["resize"]);
  });

  test("is what it was made with where a change takes a restart, whatever a runtime tells", () => {
    const pod = podOf({ containers: [app(NEW, { resizePolicy: policy("NotRequired", "RestartContainer") })] });
    const previous = told(both("200m", "60Mi"));
    assert.deepEqual(kinds(resizing(NEW, pod, { previous })), []);
    assert.deepEqual(kinds(resizing(OLD, pod, { previous })), ["stopContainer"]);
    assert.deepEqual(kinds(resizing(NEW, pod, { previous: told(both("150m", "60Mi")) })), ["resize"]);
  });

  test("is what this agent has updated it to rather than what was told", () => {
    const view = resizing(OLD, undefined, { previous: told(OLD) });
    const resized = { kind: "resized", name: "app", attempt: 0, resources: NEW, monotonic: NOW } as const;
    assert.deepEqual(kinds({ ...view, worker: transition(view.worker, resized) }), []);
    const older = { ...resized, attempt: 7 };
    assert.deepEqual(kinds({ ...view, worker: transition(view.worker, older) }), ["resize"]);
  });
});

describe("a status", () => {
  const statusOf = (view: PodView) => deriveStatus(view).containerStatuses?.[0];

  test("says what is granted, and what there is", () => {
    const { resources, allocatedResources } = statusOf(resizing(OLD)) ?? {};
    assert.deepEqual([allocatedResources, resources], [NEW.requests, OLD]);
    const done = statusOf(resizing(NEW));
    assert.deepEqual([done?.allocatedResources, done?.resources], [NEW.requests, NEW]);
  });

  for (const [name, cgroup, expected] of [
    ["the same", { cpuShares: 204, cpuQuotaUs: 20_000, cpuPeriodUs: 100_000, memoryLimitBytes: 64 * 2 ** 20 }, NEW],
    [
      "other amounts",
      { cpuShares: 102, cpuQuotaUs: 15_000, cpuPeriodUs: 100_000, memoryLimitBytes: 48 * 2 ** 20 },
      { requests: { cpu: "100m", memory: "64Mi" }, limits: { cpu: "150m", memory: "48Mi" } },
    ],
    ["whole pages", { memoryLimitBytes: 64 * 2 ** 20 - 100 }, NEW],
    ["no limits", { cpuQuotaUs: -1, cpuPeriodUs: 100_000, memoryLimitBytes: -1 }, NEW],
    ["nothing", {}, NEW],
  ] as readonly (readonly [string, CgroupValues, ResourceRequirements])[]) {
    test(`says what the runtime tells of the cgroup: ${name}`, () => {
      const view = resizing(NEW);
      const containers = (view.observed?.containers ?? []).map((each) => ({ ...each, cgroup }));
      const observed = { uid: view.desired.uid, sandboxes: [sandbox(0)], containers, manifest: undefined };
      assert.deepEqual(statusOf({ ...view, observed })?.resources, expected);
    });
  }

  test("below what the kernel counts it says what was asked for", () => {
    const least = both("1m", "4Mi");
    const view = resizing(least, podOf({ containers: [app(least)] }));
    const cgroup = { cpuShares: 2, cpuQuotaUs: 1000, cpuPeriodUs: 100_000 };
    const containers = (view.observed?.containers ?? []).map((each) => ({ ...each, cgroup }));
    const observed = { uid: view.desired.uid, sandboxes: [sandbox(0)], containers, manifest: undefined };
    assert.deepEqual(statusOf({ ...view, observed })?.resources, least);
  });

  const conditionsOf = (view: PodView) =>
    (deriveStatus(view).conditions ?? []).filter(({ type }) => type.startsWith("PodResize"));
  const at = new Date(NOW_MS).toISOString().replace(".000", "");
  const inProgress = { type: "PodResizeInProgress", status: "True", lastProbeTime: at, lastTransitionTime: at };

  test("tells of a change that is under way, and of its failure, with the generation that began it", () => {
    const resize = { pending: undefined, sized: false, generation: 4 };
    const begun = conditionsOf(resizing(OLD, undefined, { resize }));
    assert.deepEqual(begun, [{ ...inProgress, observedGeneration: 4 }]);
    const failures = new Map([["resize", failure("Error", "it is not possible", 5000)]]);
    const previous: PodStatus = { phase: "Running", conditions: begun };
    const later = conditionsOf(resizing(OLD, undefined, { failures, previous, wallMs: NOW_MS + 60_000 }));
    const [failed] = later;
    assert.deepEqual(
      [failed?.reason, failed?.message, failed?.observedGeneration, failed?.lastTransitionTime],
      ["Error", "it is not possible", 4, new Date(NOW_MS + 60_000).toISOString().replace(".000", "")],
    );
    assert.deepEqual(conditionsOf(resizing(NEW)), []);
  });

  test("tells what stands against a change, since when it does", () => {
    const pending = { reason: "Deferred", message: "not now", generation: 3 } as const;
    const resize = { pending, sized: true, generation: undefined };
    const [first] = conditionsOf(resizing(NEW, undefined, { resize }));
    const expected = { type: "PodResizePending", observedGeneration: 3, reason: "Deferred", message: "not now" };
    assert.deepEqual(first, { ...expected, status: "True", lastProbeTime: at, lastTransitionTime: at });
    const previous: PodStatus = { phase: "Running", conditions: first === undefined ? [] : [first] };
    const wallMs = NOW_MS + 60_000;
    const [same] = conditionsOf(resizing(NEW, undefined, { resize, previous, wallMs }));
    assert.deepEqual(same, first);
    const never = { ...resize, pending: { ...pending, reason: "Infeasible" as const } };
    const [other] = conditionsOf(resizing(NEW, undefined, { resize: never, previous, wallMs }));
    assert.notEqual(other?.lastTransitionTime, first?.lastTransitionTime);
  });
});

test("decreases come first, and only what changes is asked for", () => {
  const resize = (name: string, from: ResourceRequirements, to: ResourceRequirements) => ({
    ...{ containerId: name, name, attempt: 0, from, to },
  });
  const all = [
    resize("more", both("1", "1Mi"), both("2", "1Mi")),
    resize("less", both("2", "1Mi"), both("1", "1Mi")),
    resize("memory", both("1", "1Mi"), both("1", "2Mi")),
  ];
  const names = (resource: "cpu" | "memory") => orderResizes(resource, all).map(({ name }) => name);
  assert.deepEqual([names("cpu"), names("memory")], [["less", "more"], ["memory"]]);
});

test("one resource at a time: the other stays as it was, and what is neither is as it is to be", () => {
  const from = { requests: { cpu: "1", memory: "1Mi" }, limits: { memory: "1Mi" } };
  const to = { requests: { cpu: "2", memory: "2Mi" }, limits: { cpu: "2", memory: "2Mi", "hugepages-2Mi": "4Mi" } };
  assert.deepEqual(replaceResource("memory", from, to), {
    requests: { cpu: "1", memory: "2Mi" },
    limits: { memory: "2Mi", "hugepages-2Mi": "4Mi" },
  });
  assert.deepEqual(replaceResource("cpu", from, to), {
    requests: { cpu: "2", memory: "1Mi" },
    limits: { cpu: "2", memory: "1Mi", "hugepages-2Mi": "4Mi" },
  });
  assert.equal(isResized("cpu", from, to) && isResized("memory", from, to), true);
});
