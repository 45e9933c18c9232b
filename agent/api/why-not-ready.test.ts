import assert from "node:assert/strict";
import { test } from "node:test";
import type { ContainerStatus, ContainerStatusState, PodStatus } from "@picolet/protocol/pod/pod-status.ts";
import { agentPod, FakeAgentView, NOW_MS } from "@picolet/test/support/unit/agent/fake-agent-view.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { statusAnswer } from "./pod-objects.ts";

const at = (secondsAgo: number): string => new Date(NOW_MS - secondsAgo * 1000).toISOString();
const UNREADY: PodStatus["conditions"] = [
  {
    ...{ type: "Ready", status: "False", reason: "ContainersNotReady" },
    message: "containers with unready status: [app]",
  },
];
const app = (state: ContainerStatusState): ContainerStatus => ({
  ...{ name: "app", state, lastState: {}, ready: false, restartCount: 0, image: "app:1", imageID: "", started: true },
});
const pending = (...statuses: ContainerStatus[]): PodStatus => ({
  ...{ phase: "Pending", conditions: UNREADY, containerStatuses: statuses },
});
const CREATING = pending(app({ waiting: { reason: "ContainerCreating" } }));
const RUNNING: PodStatus = { ...pending(app({ running: { startedAt: at(60) } })), phase: "Running" };

interface Case {
  readonly status: PodStatus | undefined;
  readonly warnings?: readonly (readonly [secondsAgo: number, reason: string, message: string, fieldPath?: string])[];
  readonly runtimeProblem?: string;
  readonly message: string;
}

const APP = "spec.containers{app}";
const FAILED_MOUNT = 'MountVolume.SetUp failed for volume "config": configmap "settings" not found';
const PROBE = "Readiness probe failed: HTTP probe failed with statuscode: 503";
const CASES: Readonly<Record<string, Case>> = {
  "an image that cannot be pulled": {
    status: pending(app({ waiting: { reason: "ImagePullBackOff", message: 'Back-off pulling image "app:1"' } })),
    warnings: [[1, "Failed", "Error: ImagePullBackOff"]],
    message: 'ImagePullBackOff: Back-off pulling image "app:1"',
  },
  "a pod that the node has refused": {
    status: { phase: "Failed", reason: "OutOfmemory", message: "Node didn't have enough resource: memory" },
    message: "OutOfmemory: Node didn't have enough resource: memory",
  },
  "a volume that is not there": {
    status: CREATING,
    warnings: [[5, "FailedMount", FAILED_MOUNT]],
    message: `FailedMount: ${FAILED_MOUNT}`,
  },
  "the newest of several": {
    status: CREATING,
    warnings: [
      [9, "FailedMount", FAILED_MOUNT],
      [2, "FailedCreatePodSandBox", "no network"],
    ],
    message: "FailedCreatePodSandBox: no network",
  },
  "a probe that fails": {
    status: RUNNING,
    warnings: [
      [5, "Unhealthy", PROBE, APP],
      [4, "Unhealthy", "Readiness probe failed: another container's", "spec.containers{side}"],
    ],
    message: `Unhealthy: ${PROBE}`,
  },
  "a probe that failed in the run before": {
    status: RUNNING,
    warnings: [[90, "Unhealthy", PROBE, APP]],
    message: "ContainersNotReady: containers with unready status: [app]",
  },
  "a runtime that is away": {
    status: CREATING,
    warnings: [[600, "FailedMount", FAILED_MOUNT]],
    runtimeProblem: "no container runtime answers",
    message: "RuntimeNotReady: cri: no container runtime answers",
  },
  "a pod of which nothing is known yet": { status: undefined, message: "Pending" },
};

for (const [name, { status, warnings = [], runtimeProblem, message }] of Object.entries(CASES)) {
  test(`why a pod is not ready: ${name}`, () => {
    const view = new FakeAgentView();
    const pod = agentPod(podOf(), status === undefined ? {} : { status });
    const { namespace, name: podName } = pod.desired.pod.metadata;
    view.setPods(pod);
    if (runtimeProblem !== undefined) {
      view.runtimeReports = [{ name: "cri", runtime: "", version: "", ready: false, message: runtimeProblem }];
    }
    for (const [ago, reason, text, fieldPath = ""] of warnings) {
      const regarding = { kind: "Pod", namespace, name: podName, uid: pod.desired.uid, fieldPath } as const;
      view.events.add({ regarding, type: "Warning", reason, message: text }, ago);
      view.events.add({ regarding: { ...regarding, uid: "before" }, type: "Warning", reason, message: "of another" });
    }
    assert.equal(statusAnswer(view).pods[0]?.message, message);
  });
}
