import assert from "node:assert/strict";
import { test } from "node:test";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import type { ContainerStatus, PodStatus } from "./pod.ts";
import { type PodSummary, summarizePod } from "./pod-summary.ts";

const container = (name: string, fields: Partial<ContainerStatus> = {}): ContainerStatus => {
  return { name, state: {}, lastState: {}, ready: false, restartCount: 0, image: "x", imageID: "", ...fields };
};
const running = { state: { running: {} }, ready: true, started: true };
const ended = (exitCode: number, reason?: string, signal?: number) => {
  return { state: { terminated: { exitCode, reason, signal } } };
};
const waiting = (reason?: string) => {
  return { state: { waiting: { reason } } };
};
const initialized = [{ type: "Initialized", status: "True" as const }];

const ONE = { containers: [{ name: "a", image: "x" }] };
const TWO = { containers: [...ONE.containers, { name: "b", image: "x" }] };
const WITH_INIT = {
  ...ONE,
  initContainers: [
    { name: "i", image: "x" },
    { name: "j", image: "x" },
  ],
};
const WITH_SIDECAR = {
  ...ONE,
  initContainers: [
    { name: "s", image: "x", restartPolicy: "Always" as const },
    { name: "i", image: "x" },
  ],
};

const cases: readonly {
  readonly name: string;
  readonly spec?: Parameters<typeof podOf>[0];
  readonly status?: PodStatus;
  readonly deleted?: boolean;
  /** READY STATUS RESTARTS */
  readonly shows: string;
}[] = [
  { name: "nothing known", shows: "0/1 Pending 0" },
  { name: "the status' own reason", status: { phase: "Failed", reason: "Evicted" }, shows: "0/1 Evicted 0" },
  {
    name: "running",
    status: { phase: "Running", containerStatuses: [container("a", running)] },
    shows: "1/1 Running 0",
  },
  {
    name: "waiting with a reason",
    status: { phase: "Pending", containerStatuses: [container("a", waiting("ImagePullBackOff"))] },
    shows: "0/1 ImagePullBackOff 0",
  },
  {
    name: "waiting without",
    status: { phase: "Pending", containerStatuses: [container("a", waiting())] },
    shows: "0/1 Pending 0",
  },
  {
    name: "the first container's reason wins",
    spec: TWO,
    status: {
      phase: "Running",
      containerStatuses: [
        container("a", { ...waiting("CrashLoopBackOff"), restartCount: 3 }),
        container("b", ended(1, "Error")),
      ],
    },
    shows: "0/2 CrashLoopBackOff 3",
  },
  {
    name: "ended with an exit code and no reason",
    status: { phase: "Failed", containerStatuses: [container("a", ended(3))] },
    shows: "0/1 ExitCode:3 0",
  },
  {
    name: "ended by a signal",
    status: { phase: "Failed", containerStatuses: [container("a", ended(137, "", 9))] },
    shows: "0/1 Signal:9 0",
  },
  {
    name: "one has completed beside one that runs, and the pod is ready",
    spec: TWO,
    status: {
      phase: "Running",
      conditions: [{ type: "Ready", status: "True" }],
      containerStatuses: [container("a", ended(0, "Completed")), container("b", running)],
    },
    shows: "1/2 Running 0",
  },
  {
    name: "the same, and the pod is not ready",
    spec: TWO,
    status: { phase: "Running", containerStatuses: [container("a", ended(0, "Completed")), container("b", running)] },
    shows: "1/2 NotReady 0",
  },
  {
    name: "the second init container runs",
    spec: WITH_INIT,
    status: {
      phase: "Pending",
      initContainerStatuses: [container("i", ended(0)), container("j", { state: { running: {} }, restartCount: 2 })],
    },
    shows: "0/1 Init:1/2 2",
  },
  {
    name: "an init container has failed",
    spec: WITH_INIT,
    status: { phase: "Pending", initContainerStatuses: [container("i", ended(1, "Error"))] },
    shows: "0/1 Init:Error 0",
  },
  {
    name: "an init container has failed without a reason",
    spec: WITH_INIT,
    status: { phase: "Pending", initContainerStatuses: [container("i", ended(2))] },
    shows: "0/1 Init:ExitCode:2 0",
  },
  {
    name: "an init container waits",
    spec: WITH_INIT,
    status: { phase: "Pending", initContainerStatuses: [container("i", waiting("ErrImagePull"))] },
    shows: "0/1 Init:ErrImagePull 0",
  },
  {
    name: "init containers that wait for others are counted",
    spec: WITH_INIT,
    status: { phase: "Pending", initContainerStatuses: [container("i", waiting("PodInitializing"))] },
    shows: "0/1 Init:0/2 0",
  },
  {
    name: "restarts of init containers are forgotten once they are done",
    spec: WITH_INIT,
    status: {
      phase: "Running",
      conditions: initialized,
      initContainerStatuses: [container("i", { ...ended(0), restartCount: 4 }), container("j", ended(0))],
      containerStatuses: [container("a", { ...running, restartCount: 1 })],
    },
    shows: "1/1 Running 1",
  },
  {
    name: "a sidecar counts as a container",
    spec: WITH_SIDECAR,
    status: {
      phase: "Running",
      conditions: initialized,
      initContainerStatuses: [
        container("s", { ...running, restartCount: 2 }),
        container("i", { ...ended(0), restartCount: 5 }),
      ],
      containerStatuses: [container("a", running)],
    },
    shows: "2/2 Running 2",
  },
  {
    name: "being ended",
    deleted: true,
    status: { phase: "Running", containerStatuses: [container("a", running)] },
    shows: "1/1 Terminating 0",
  },
  {
    name: "ended and being removed",
    deleted: true,
    status: { phase: "Succeeded", containerStatuses: [container("a", ended(0, "Completed"))] },
    shows: "0/1 Completed 0",
  },
  { name: "on a lost node", deleted: true, status: { phase: "Running", reason: "NodeLost" }, shows: "0/1 Unknown 0" },
];

const summaryOf = (each: (typeof cases)[number]): PodSummary => {
  const pod = podOf(each.spec ?? ONE, each.deleted ? { deletionTimestamp: "2026-11-20T12:00:00Z" } : {});
  return summarizePod({ ...pod, status: each.status });
};

for (const each of cases) {
  test(`kubectl shows ${each.shows} for: ${each.name}`, () => {
    const { readyContainers, totalContainers, status, restarts } = summaryOf(each);
    assert.equal(`${readyContainers}/${totalContainers} ${status} ${restarts}`, each.shows);
  });
}

test("the last restart is the latest of all containers", () => {
  const at = (finishedAt: string) => {
    return { ...running, restartCount: 1, lastState: { terminated: { exitCode: 1, finishedAt } } };
  };
  const statuses = [container("a", at("2026-11-20T11:00:00Z")), container("b", at("2026-11-20T10:00:00Z"))];
  for (const containerStatuses of [statuses, statuses.toReversed()]) {
    const status = { phase: "Running", containerStatuses } as const;
    assert.equal(summaryOf({ name: "", spec: TWO, status, shows: "" }).lastRestartAt, "2026-11-20T11:00:00Z");
  }
  assert.equal(summaryOf({ name: "", shows: "" }).lastRestartAt, null);
});
