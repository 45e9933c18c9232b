import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type MonotonicMs, millis, podUid } from "@picolet/protocol/ports.ts";
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
  takenUp,
  type ViewOptions,
  viewOf,
} from "@picolet/test/support/unit/pods/pod-views.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { planPod } from "./plan-pod.ts";
import type { PlanAction } from "./pod-view.ts";
import { transition } from "./worker-transition.ts";

/** `start app/1 backoff=10000`: enough to tell one action from another. */
function say(action: PlanAction): string {
  switch (action.kind) {
    case "startContainer":
      return `start ${action.name}/${action.attempt} backoff=${action.backoff}`;
    case "createSandbox":
      return `createSandbox ${action.attempt}`;
    case "stopContainer":
      return `stop ${action.containerId} grace=${action.gracePeriod}`;
    case "removeContainer":
      return `remove ${action.containerId}`;
    case "stopSandbox":
    case "removeSandbox":
      return `${action.kind} ${action.sandboxId}`;
    default:
      return action.kind;
  }
}

const image = "example/app:1";
const app = { name: "app", image };
const alwaysPod = podOf({ containers: [app] });
const secretPod = podOf({ containers: [app], volumes: [{ name: "keys", secret: { secretName: "keys" } }] });
const onFailurePod = podOf({ restartPolicy: "OnFailure", containers: [app] });
const neverPod = podOf({ restartPolicy: "Never", containers: [app] });
const twoPod = (restartPolicy: Pod["spec"]["restartPolicy"]): Pod =>
  podOf({ restartPolicy, containers: [app, { name: "side", image }] });
const initPod = (restartPolicy: Pod["spec"]["restartPolicy"] = "Always"): Pod =>
  podOf({
    restartPolicy,
    initContainers: [
      { name: "one", image },
      { name: "two", image },
    ],
    containers: [app],
  });
const sidecarPod = podOf({
  initContainers: [
    { name: "proxy", image, restartPolicy: "Always" },
    { name: "one", image },
  ],
  containers: [app],
});
const ready = [sandbox(0)];
const dead = [sandbox(0, "notReady")];
const terminating = removed();
const removedAt = (monotonic: MonotonicMs) => transition(takenUp(), { kind: "removed", monotonic, wallMs: NOW_MS });

interface Row {
  readonly name: string;
  readonly view: ViewOptions;
  readonly actions: readonly string[];
  readonly next?: string;
  /** Milliseconds from now. */
  readonly wakeIn?: number;
}

const STARTING: readonly Row[] = [
  {
    name: "a new pod gets folders, a sandbox and its containers in one plan",
    view: { pod: twoPod("Always"), prepared: false },
    actions: ["prepare", "createSandbox 0", "start app/0 backoff=0", "start side/0 backoff=0"],
  },
  {
    name: "a pod of which the runtime could not be asked is left alone",
    view: { observed: undefined },
    actions: [],
    next: "waiting",
  },
  {
    name: "a pod waits while another incarnation of its name has traces",
    view: { blockedBy: podUid("older") },
    actions: [],
    next: "waiting",
  },
  {
    name: "a pod that runs as wanted needs nothing",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 0, running)] },
    actions: [],
    next: "active",
  },
  {
    name: "folders are made again before a container starts under a new agent",
    view: { pod: alwaysPod, prepared: false, sandboxes: ready },
    actions: ["prepare", "start app/0 backoff=0"],
  },
  {
    name: "a pod that runs has its volumes looked after by a new agent when they may change",
    view: { pod: secretPod, prepared: false, sandboxes: ready, containers: [run(secretPod, "app", 0, running)] },
    actions: ["prepare"],
    next: "active",
  },
  {
    name: "and else needs nothing",
    view: { pod: alwaysPod, prepared: false, sandboxes: ready, containers: [run(alwaysPod, "app", 0, running)] },
    actions: [],
    next: "active",
  },
  {
    name: "volumes that cannot be made hold up no other step",
    view: {
      pod: secretPod,
      prepared: false,
      sandboxes: [sandbox(1), sandbox(0)],
      containers: [run(secretPod, "app", 0, running, { sandboxId: "sandbox-1" })],
      failures: new Map([["prepare", failure("FailedMount", "no such secret", 700)]]),
    },
    actions: ["stopSandbox sandbox-0"],
    wakeIn: 700,
  },
  {
    name: "a container that was created only is started under the same attempt",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 2, { kind: "created" })] },
    actions: ["start app/2 backoff=20000"],
  },
  {
    name: "a container that the runtime has lost goes on counting its attempts",
    view: {
      pod: alwaysPod,
      sandboxes: ready,
      previous: {
        phase: "Running",
        containerStatuses: [
          {
            ...{ name: "app", state: {}, lastState: {}, ready: true, image, imageID: "" },
            restartCount: 4,
            containerID: "containerd://gone",
          },
        ],
      },
    },
    actions: ["start app/5 backoff=0"],
  },
];

const RESTARTING: readonly Row[] = [
  {
    name: "the first restart comes at once, and the next is to wait 10 s",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 0, exited(1))] },
    actions: ["start app/1 backoff=10000"],
  },
  {
    name: "Always restarts what succeeded, too",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 0, exited(0))] },
    actions: ["start app/1 backoff=10000"],
  },
  {
    name: "the second restart waits the 10 s of the run before it",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 1, exited(1, 4000))] },
    actions: [],
    wakeIn: 6000,
  },
  {
    name: "a wait that is over doubles the next",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 2, exited(1, 20_000))] },
    actions: ["start app/3 backoff=40000"],
  },
  {
    name: "the wait grows to 300 s and no further",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 9, exited(1, 300_000))] },
    actions: ["start app/10 backoff=300000"],
  },
  {
    name: "a run of ten minutes forgives those before it",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 5, exited(1, 0, 600_000))] },
    actions: ["start app/6 backoff=10000"],
  },
  {
    name: "a wall clock that was set back does not stretch the wait",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 1, exited(1, -86_400_000))] },
    actions: [],
    wakeIn: 10_000,
  },
  {
    name: "a changed definition restarts the container: it is stopped first",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 3, running, { hash: "old" })] },
    actions: ["stop app-3 grace=30000"],
  },
  {
    name: "a changed definition does not wait for the back-off of the old one",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 3, exited(143), { hash: "old" })] },
    actions: ["start app/4 backoff=0"],
  },
  {
    name: "a changed definition restarts a container even if the pod is never to restart: it is stopped",
    view: { pod: neverPod, sandboxes: ready, containers: [run(neverPod, "app", 0, running, { hash: "old" })] },
    actions: ["stop app-0 grace=30000"],
  },
  {
    name: "a container that was stopped for its changed definition starts again even if the pod is never to restart",
    view: {
      pod: neverPod,
      worker: transition(takenUp(), { kind: "replacing", name: "app", attempt: 0, why: "changed", monotonic: NOW }),
      sandboxes: ready,
      containers: [run(neverPod, "app", 0, exited(143), { hash: "old" })],
    },
    actions: ["start app/1 backoff=0"],
  },
  {
    name: "a container that ended by itself before its definition changed stays ended if the pod is never to restart",
    view: { pod: neverPod, sandboxes: ready, containers: [run(neverPod, "app", 0, exited(0), { hash: "old" })] },
    actions: ["stopSandbox sandbox-0"],
    next: "finished Succeeded",
  },
  {
    name: "a container in unknown state is stopped and taken away before its successor",
    view: { pod: alwaysPod, sandboxes: ready, containers: [run(alwaysPod, "app", 0, { kind: "unknown" })] },
    actions: ["stop app-0 grace=30000", "remove app-0"],
  },
  {
    name: "OnFailure leaves alone what succeeded and restarts what failed",
    view: {
      pod: twoPod("OnFailure"),
      sandboxes: ready,
      containers: [run(twoPod("OnFailure"), "app", 0, exited(0)), run(twoPod("OnFailure"), "side", 0, exited(2))],
    },
    actions: ["start side/1 backoff=10000"],
  },
  {
    name: "of dead runs the newest is kept, and the one before a running one",
    view: {
      pod: alwaysPod,
      sandboxes: ready,
      containers: [
        run(alwaysPod, "app", 3, running),
        run(alwaysPod, "app", 2, exited(1)),
        run(alwaysPod, "app", 1, exited(1)),
        run(alwaysPod, "app", 0, exited(1)),
      ],
    },
    actions: ["remove app-1", "remove app-0"],
  },
];

const SANDBOXES: readonly Row[] = [
  {
    name: "a dead sandbox is replaced by the next attempt, and all containers restart",
    view: {
      pod: twoPod("Always"),
      sandboxes: dead,
      containers: [run(twoPod("Always"), "app", 0, exited(137)), run(twoPod("Always"), "side", 0, exited(137))],
    },
    actions: ["stopSandbox sandbox-0", "createSandbox 1", "start app/1 backoff=10000", "start side/1 backoff=10000"],
  },
  {
    name: "what still runs in a dead sandbox is stopped before there is another",
    view: { pod: alwaysPod, sandboxes: dead, containers: [run(alwaysPod, "app", 0, running)] },
    actions: ["stop app-0 grace=30000"],
  },
  {
    name: "a dead sandbox is replaced even while its containers wait",
    view: { pod: alwaysPod, sandboxes: dead, containers: [run(alwaysPod, "app", 2, exited(137))] },
    actions: ["stopSandbox sandbox-0", "createSandbox 1"],
    wakeIn: 20_000,
  },
  {
    name: "OnFailure does not run again in a new sandbox what succeeded",
    view: {
      pod: twoPod("OnFailure"),
      sandboxes: dead,
      containers: [run(twoPod("OnFailure"), "app", 0, exited(0)), run(twoPod("OnFailure"), "side", 0, exited(137))],
    },
    actions: ["stopSandbox sandbox-0", "createSandbox 1", "start side/1 backoff=10000"],
  },
  {
    name: "Never makes no new sandbox for what has run",
    view: { pod: neverPod, sandboxes: dead, containers: [run(neverPod, "app", 0, exited(137))] },
    actions: [],
    next: "finished",
  },
  {
    name: "an older sandbox that is still up is stopped",
    view: {
      pod: alwaysPod,
      sandboxes: [sandbox(1), sandbox(0)],
      containers: [run(alwaysPod, "app", 1, running, { sandboxId: "sandbox-1" })],
    },
    actions: ["stopSandbox sandbox-0"],
  },
  {
    name: "an older sandbox goes when none of its runs is kept",
    view: {
      pod: alwaysPod,
      sandboxes: [sandbox(2), sandbox(1, "notReady"), sandbox(0, "notReady")],
      containers: [
        run(alwaysPod, "app", 1, running, { sandboxId: "sandbox-2" }),
        run(alwaysPod, "app", 0, exited(1), { sandboxId: "sandbox-1" }),
      ],
    },
    actions: ["removeSandbox sandbox-0"],
  },
  {
    name: "sandboxes that die one after the other are made ever more slowly",
    view: {
      pod: alwaysPod,
      sandboxes: [sandbox(3, "notReady")],
      worker: takenUp({ sandbox: { attempt: 3, since: (NOW - 500) as MonotonicMs, backoff: millis(4000) } }),
    },
    actions: [],
    wakeIn: 3500,
  },
];

const ENDS: readonly Row[] = [
  {
    name: "a pod whose containers are done for good stops its sandbox and keeps its containers",
    view: { pod: onFailurePod, sandboxes: ready, containers: [run(onFailurePod, "app", 0, exited(0))] },
    actions: ["stopSandbox sandbox-0"],
    next: "finished Succeeded",
  },
  {
    name: "drivers take back the claims of a pod whose containers are done",
    view: {
      pod: onFailurePod,
      sandboxes: dead,
      containers: [run(onFailurePod, "app", 0, exited(0))],
      holdsClaims: true,
    },
    actions: ["unprepare"],
    next: "finished Succeeded",
  },
  {
    name: "one failed container makes a pod that is never restarted fail",
    view: {
      pod: twoPod("Never"),
      sandboxes: dead,
      containers: [run(twoPod("Never"), "app", 0, exited(0)), run(twoPod("Never"), "side", 0, exited(1))],
    },
    actions: [],
    next: "finished Failed",
  },
  {
    name: "a pod is not over while one of its containers runs",
    view: {
      pod: twoPod("Never"),
      sandboxes: ready,
      containers: [run(twoPod("Never"), "app", 0, exited(0)), run(twoPod("Never"), "side", 0, running)],
    },
    actions: [],
    next: "active",
  },
  {
    name: "a pod that ended under an earlier agent does not run again in spite of a lost container",
    view: {
      pod: twoPod("Never"),
      sandboxes: dead,
      containers: [run(twoPod("Never"), "app", 0, exited(0))],
      previous: { phase: "Succeeded" },
    },
    actions: [],
    next: "finished Succeeded",
  },
  {
    name: "a status without any trace of the pod is of an earlier pod of the same manifest",
    view: { pod: neverPod, previous: { phase: "Succeeded" } },
    actions: ["createSandbox 0", "start app/0 backoff=0"],
    next: "active",
  },
  {
    name: "a pod that the agent itself failed stays failed",
    view: { pod: neverPod, previous: { phase: "Failed", reason: "DeadlineExceeded" } },
    actions: [],
    next: "finished Failed",
  },
];

const REMOVALS: readonly Row[] = [
  {
    name: "a pod that is not wanted has all its containers stopped at once, within its grace period",
    view: {
      pod: podOf({ terminationGracePeriodSeconds: 7, containers: [app, { name: "side", image }] }),
      wanted: false,
      sandboxes: ready,
      containers: [run(twoPod("Always"), "app", 0, running), run(twoPod("Always"), "side", 0, running)],
    },
    actions: ["stop app-0 grace=7000", "stop side-0 grace=7000"],
    next: "terminating",
  },
  {
    name: "nothing starts once the termination began, even if the pod is wanted again",
    view: { pod: alwaysPod, worker: terminating, sandboxes: ready, containers: [run(alwaysPod, "app", 0, exited(1))] },
    actions: ["stopSandbox sandbox-0", "removeSandbox sandbox-0"],
    next: "terminating",
  },
  {
    name: "all of its sandboxes are stopped and removed, the newest last",
    view: { pod: alwaysPod, wanted: false, sandboxes: [sandbox(1), sandbox(0, "notReady")] },
    actions: ["stopSandbox sandbox-0", "removeSandbox sandbox-0", "stopSandbox sandbox-1", "removeSandbox sandbox-1"],
  },
  {
    name: "claims are taken back when nothing of it runs, before its sandbox is removed",
    view: { pod: alwaysPod, worker: terminating, sandboxes: dead, holdsClaims: true },
    actions: ["unprepare"],
    next: "terminating",
  },
  {
    name: "claims stay while a container of it runs",
    view: {
      ...{ pod: alwaysPod, worker: terminating, sandboxes: ready, holdsClaims: true },
      containers: [run(alwaysPod, "app", 0, running)],
    },
    actions: ["stop app-0 grace=30000"],
    next: "terminating",
  },
  {
    name: "when the runtime has nothing of it any more, its folders go and it is forgotten",
    view: { pod: alwaysPod, wanted: false },
    actions: ["cleanup", "forget"],
  },
  {
    name: "a removal is noted even while the runtime cannot be asked",
    view: { pod: alwaysPod, wanted: false, observed: undefined },
    actions: [],
    next: "terminating",
  },
  {
    name: "a container that cannot be stopped goes with its sandbox",
    view: {
      pod: alwaysPod,
      wanted: false,
      sandboxes: ready,
      containers: [run(alwaysPod, "app", 0, running)],
      failures: new Map([["stopContainer app-0", { ...failure("FailedKillPod", "stuck", 60_000), count: 2 }]]),
    },
    actions: ["stopSandbox sandbox-0", "removeSandbox sandbox-0"],
  },
  {
    name: "sidecars that are left end with the whole grace period, which is counted from where their end began",
    view: {
      pod: sidecarPod,
      worker: removedAt((NOW - 12_000) as MonotonicMs),
      wanted: false,
      sandboxes: ready,
      containers: [run(sidecarPod, "app", 0, exited(0)), run(sidecarPod, "proxy", 0, running)],
    },
    actions: ["stop proxy-0 grace=30000"],
  },
];

const FAILURES: readonly Row[] = [
  {
    name: "a sandbox that failed is left alone until its time, with all that needs it",
    view: { pod: alwaysPod, failures: new Map([["createSandbox", failure("x", "y", 3000)]]) },
    actions: [],
    wakeIn: 3000,
  },
  {
    name: "a step whose time has come is tried again",
    view: { pod: alwaysPod, failures: new Map([["createSandbox", failure("x", "y", 0)]]) },
    actions: ["createSandbox 0", "start app/0 backoff=0"],
  },
  {
    name: "a container that cannot start does not keep the others from it",
    view: { pod: twoPod("Always"), sandboxes: ready, failures: new Map([["start app", failure("x", "y", 5000)]]) },
    actions: ["start side/0 backoff=0"],
    wakeIn: 5000,
  },
  {
    name: "a sandbox is not stopped again and again while its removal waits",
    view: {
      pod: alwaysPod,
      wanted: false,
      sandboxes: ready,
      failures: new Map([["removeSandbox sandbox-0", failure("x", "y", 2000)]]),
    },
    actions: [],
    wakeIn: 2000,
  },
  {
    name: "folders are not made while what needs them waits",
    view: {
      pod: alwaysPod,
      prepared: false,
      sandboxes: ready,
      failures: new Map([["start app", failure("x", "y", 900)]]),
    },
    actions: [],
    wakeIn: 900,
  },
];

const INIT: readonly Row[] = [
  {
    name: "init containers run one after the other before all others",
    view: { pod: initPod() },
    actions: ["createSandbox 0", "start one/0 backoff=0"],
  },
  {
    name: "the second starts when the first has succeeded",
    view: { pod: initPod(), sandboxes: ready, containers: [run(initPod(), "one", 0, exited(0))] },
    actions: ["start two/0 backoff=0"],
  },
  {
    name: "nothing else starts while one runs",
    view: { pod: initPod(), sandboxes: ready, containers: [run(initPod(), "one", 0, running)] },
    actions: [],
  },
  {
    name: "one that failed is restarted with back-off",
    view: { pod: initPod(), sandboxes: ready, containers: [run(initPod(), "one", 1, exited(1, 3000))] },
    actions: [],
    wakeIn: 7000,
  },
  {
    name: "one that failed ends a pod that is never to restart",
    view: { pod: initPod("Never"), sandboxes: ready, containers: [run(initPod("Never"), "one", 0, exited(1))] },
    actions: ["stopSandbox sandbox-0"],
    next: "finished Failed",
  },
  {
    name: "the containers start when all have succeeded",
    view: {
      pod: initPod(),
      sandboxes: ready,
      containers: [run(initPod(), "two", 0, exited(0)), run(initPod(), "one", 0, exited(0))],
    },
    actions: ["start app/0 backoff=0"],
  },
  {
    name: "they do not run again in the same sandbox once a container has run, even if their runs are gone",
    view: { pod: initPod(), sandboxes: ready, containers: [run(initPod(), "app", 0, exited(1))] },
    actions: ["start app/1 backoff=10000"],
  },
  {
    name: "they run again in a new sandbox",
    view: {
      pod: initPod(),
      sandboxes: dead,
      containers: [
        run(initPod(), "app", 0, exited(137)),
        run(initPod(), "two", 0, exited(0)),
        run(initPod(), "one", 0, exited(0)),
      ],
    },
    actions: ["stopSandbox sandbox-0", "createSandbox 1", "start one/1 backoff=0"],
  },
  {
    name: "a sidecar that runs lets the next begin",
    view: { pod: sidecarPod, sandboxes: ready, containers: [run(sidecarPod, "proxy", 0, running)] },
    actions: ["start one/0 backoff=0"],
  },
  {
    name: "a sidecar that ended is restarted while the pod runs",
    view: {
      pod: sidecarPod,
      sandboxes: ready,
      containers: [run(sidecarPod, "app", 0, running), run(sidecarPod, "proxy", 0, exited(0))],
    },
    actions: ["start proxy/1 backoff=10000"],
  },
];

const startupPod = podOf({
  initContainers: [{ name: "proxy", image, restartPolicy: "Always", startupProbe: { exec: { command: ["up"] } } }],
  containers: [app],
});
const debugPod = podOf({ containers: [app], ephemeralContainers: [{ name: "debug", image }] });
const deadlinePod = podOf({ activeDeadlineSeconds: 30, containers: [app] });
const unwell = { started: true, ready: false, failed: { probe: "liveness", gracePeriod: millis(3000) } } as const;
const activeFor = (durationMs: number) => takenUp({ since: (NOW - durationMs) as MonotonicMs });

const LIFECYCLE: readonly Row[] = [
  {
    name: "a sidecar with a start-up probe holds up the others until the probe has passed",
    view: { pod: startupPod, sandboxes: ready, containers: [run(startupPod, "proxy", 0, running)] },
    actions: [],
  },
  {
    name: "and lets them begin then",
    view: {
      pod: startupPod,
      sandboxes: ready,
      containers: [run(startupPod, "proxy", 0, running)],
      probes: new Map([["proxy-0", { started: true, ready: true }]]),
    },
    actions: ["start app/0 backoff=0"],
  },
  {
    name: "an init container that has run stands for those before it whose runs are gone",
    view: { pod: initPod(), sandboxes: ready, containers: [run(initPod(), "two", 0, exited(0))] },
    actions: ["start app/0 backoff=0"],
  },
  {
    name: "a container that fails its probe is stopped with the probe's grace period",
    view: {
      pod: alwaysPod,
      sandboxes: ready,
      containers: [run(alwaysPod, "app", 0, running)],
      probes: new Map([["app-0", unwell]]),
    },
    actions: ["stop app-0 grace=3000"],
  },
  {
    name: "a pod that never restarts gets no second sandbox once anything was in its first",
    view: { pod: initPod("Never"), sandboxes: dead, containers: [run(initPod("Never"), "one", 0, exited(137))] },
    actions: [],
    next: "finished Failed",
  },
  {
    name: "an ephemeral container starts beside what runs",
    view: { pod: debugPod, sandboxes: ready, containers: [run(debugPod, "app", 0, running)] },
    actions: ["start debug/0 backoff=10000"],
  },
  {
    name: "and not again, whatever has become of it",
    view: {
      pod: debugPod,
      sandboxes: ready,
      containers: [run(debugPod, "app", 0, running), run(debugPod, "debug", 0, exited(1))],
    },
    actions: [],
  },
  {
    name: "a deadline wakes the worker when it comes",
    view: {
      pod: deadlinePod,
      worker: activeFor(10_000),
      sandboxes: ready,
      containers: [run(deadlinePod, "app", 0, running)],
    },
    actions: [],
    wakeIn: 20_000,
  },
  {
    name: "and ends the pod once it has come",
    view: {
      pod: deadlinePod,
      worker: activeFor(30_000),
      sandboxes: ready,
      containers: [run(deadlinePod, "app", 0, running)],
    },
    actions: ["stop app-0 grace=30000"],
    next: "finished Failed",
  },
  {
    name: "a pod that the node does not take has nothing done for it",
    view: { pod: alwaysPod, prepared: false, rejection: { reason: "OutOfcpu", message: "none left" } },
    actions: [],
    next: "finished Failed",
  },
  {
    name: "a pod that is ended by the node gets no more time than that",
    view: {
      pod: alwaysPod,
      sandboxes: ready,
      containers: [run(alwaysPod, "app", 0, running)],
      end: { reason: "Evicted", message: "", gracePeriod: millis(1000) },
    },
    actions: ["stop app-0 grace=1000"],
    next: "finished Failed",
  },
  {
    name: "an eviction that an agent before this one began goes on",
    view: {
      pod: alwaysPod,
      sandboxes: ready,
      containers: [run(alwaysPod, "app", 0, running)],
      previous: { phase: "Running", reason: "Evicted", startTime: "2026-01-01T11:00:00Z" },
    },
    actions: ["stop app-0 grace=30000"],
    next: "finished Failed",
  },
  {
    name: "a pod that could not be read before and can be now starts",
    view: { pod: alwaysPod, previous: { phase: "Pending", reason: "FailedValidation", message: "spec: wrong" } },
    actions: ["createSandbox 0", "start app/0 backoff=0"],
    next: "active",
  },
];

const GROUPS = { LIFECYCLE, STARTING, RESTARTING, SANDBOXES, ENDS, REMOVALS, FAILURES, INIT };

for (const [group, rows] of Object.entries(GROUPS)) {
  describe(`planPod: ${group.toLowerCase()}`, () => {
    for (const row of rows) {
      test(row.name, () => {
        const plan = planPod(viewOf(row.view));
        assert.deepEqual(plan.actions.map(say), row.actions);
        assert.equal(plan.wakeAt === undefined ? undefined : plan.wakeAt - NOW, row.wakeIn);
        if (row.next === undefined) return;
        const { next } = plan;
        assert.equal(
          next.kind === "finished" && row.next.includes(" ") ? `finished ${next.outcome.phase}` : next.kind,
          row.next,
        );
      });
    }
  });
}

test("planPod: sidecars end after the regular containers, each after those that started later", () => {
  const own = podOf({
    initContainers: ["a", "b"].map((name) => ({ name, image, restartPolicy: "Always" })),
    containers: [app],
    ephemeralContainers: [{ name: "debug", image }],
  });
  const containers = ["a", "b", "app", "debug"].map((name) => run(own, name, 0, running));
  const { actions } = planPod(viewOf({ pod: own, wanted: false, sandboxes: ready, containers }));
  const order = actions.map((each) => (each.kind === "stopContainer" ? [each.name, each.after] : []));
  assert.deepEqual(order, [
    ["app", []],
    ["debug", []],
    ["b", ["app-0"]],
    ["a", ["app-0", "b-0"]],
  ]);
});

describe("planPod: container-level restart rules", () => {
  const rules = (operator: "In" | "NotIn", values: number[]) => ({
    restartPolicyRules: [{ action: "Restart", exitCodes: { operator, values } } as const],
  });
  const rows: readonly (readonly [what: string, container: object, exitCode: number, restarts: boolean])[] = [
    ["a listed exit code", { restartPolicy: "Never", ...rules("In", [42]) }, 42, true],
    ["another one", { restartPolicy: "Never", ...rules("In", [42]) }, 41, false],
    ["one that is not listed", { restartPolicy: "Never", ...rules("NotIn", [0]) }, 3, true],
    ["its own policy", { restartPolicy: "OnFailure" }, 1, true],
    ["its own policy and success", { restartPolicy: "OnFailure" }, 0, false],
    ["success of one that is always to run", { restartPolicy: "Always" }, 0, true],
  ];
  for (const [what, given, exitCode, restarts] of rows) {
    test(`${what}: ${restarts ? "restarts" : "does not restart"} although the pod never does`, () => {
      const own = podOf({ restartPolicy: "Never", containers: [{ ...app, ...given }] });
      const { next } = planPod(
        viewOf({ pod: own, sandboxes: ready, containers: [run(own, "app", 0, exited(exitCode))] }),
      );
      assert.equal(next.kind, restarts ? "active" : "finished");
    });
  }
});

describe("planPod: waits by the monotonic clock", () => {
  const crashed = run(alwaysPod, "app", 1, exited(1));
  const ran = { ...crashed, state: running };
  const views = (containers: readonly (typeof crashed)[]) => viewOf({ pod: alwaysPod, sandboxes: ready, containers });
  const seenRunning = activeState({ ...viewOf().desired, sandboxes: ready, containers: [ran], manifest: undefined });

  test("a jump of the wall clock to the future between exit and look takes nothing off the wait", () => {
    const plan = planPod({ ...views([crashed]), worker: seenRunning, wallMs: NOW_MS + 315_360_000_000 });
    assert.deepEqual(plan.actions, []);
    assert.equal(plan.wakeAt, NOW + 10_000);
  });

  test("a jump during the run does not make it look long enough to be forgiven", () => {
    const jumped = { ...crashed, state: { ...exited(1), startedAtMs: 0 } as typeof crashed.state };
    const started = planPod({ ...views([jumped]), worker: startedHere(), monotonic: (NOW + 5000) as MonotonicMs });
    assert.deepEqual(started.actions, []);
    assert.equal(started.wakeAt, NOW + 15_000);
  });

  test("the wait goes on from where it was when the wall clock jumps in the middle of it", () => {
    const first = planPod({ ...views([crashed]), worker: seenRunning });
    const later = { monotonic: (NOW + 4000) as MonotonicMs, wallMs: 0 };
    const second = planPod({ ...views([crashed]), worker: first.next, ...later });
    assert.deepEqual(second.actions, []);
    assert.equal(second.wakeAt, NOW + 10_000);
    const over = planPod({ ...views([crashed]), worker: second.next, monotonic: (NOW + 10_000) as MonotonicMs });
    assert.deepEqual(over.actions.map(say), ["start app/2 backoff=20000"]);
  });

  test("a run that began here and lasted ten minutes by the monotonic clock is forgiven whatever the wall clock says", () => {
    const plan = planPod({ ...views([crashed]), worker: startedHere(), monotonic: (NOW + 600_000) as MonotonicMs });
    assert.deepEqual(plan.actions.map(say), ["start app/2 backoff=10000"]);
  });

  function startedHere() {
    const memory = { attempt: 1, since: NOW, startedHere: true, replaced: "no" as const, ended: undefined };
    return takenUp({ runs: new Map([["app", memory]]) });
  }
});
