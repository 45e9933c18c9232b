import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ContainerStatus, PodStatus } from "@picolet/protocol/pod/pod.ts";
import { type MonotonicMs, podUid } from "@picolet/protocol/ports.ts";
import {
  activeState,
  exited,
  failure,
  NOW,
  NOW_MS,
  run,
  running,
  sandbox,
  takenUp,
  type ViewOptions,
  viewOf,
} from "@picolet/test/support/unit/pods/pod-views.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { planPod } from "../plan/plan-pod.ts";
import { transition } from "../plan/worker-transition.ts";
import { deriveStatus } from "./derive-status.ts";

const image = "example/app:1";
const app = { name: "app", image };
const pod = podOf({ containers: [app] });
const two = podOf({ containers: [{ name: "zeta", image }, app] });
const never = podOf({ restartPolicy: "Never", containers: [app] });
const init = podOf({
  initContainers: [
    { name: "one", image },
    { name: "two", image },
  ],
  containers: [app],
});
const ready = [sandbox(0)];

/** As a worker publishes it: after planning. */
const statusOf = (options: ViewOptions): PodStatus => {
  const view = viewOf(options);
  return deriveStatus({ ...view, worker: planPod(view).next });
};

function first(status: PodStatus): ContainerStatus {
  const [container] = status.containerStatuses ?? [];
  assert.ok(container);
  return container;
}

/** `Ready=False ContainersNotReady: message` */
const conditions = (status: PodStatus): string[] =>
  (status.conditions ?? []).map(
    ({ type, status: value, reason, message }) =>
      `${type}=${value}${reason === undefined ? "" : ` ${reason}`}${message === undefined ? "" : `: ${message}`}`,
  );

test("a pod that runs: every field as a kubelet writes it", () => {
  const status = statusOf({ pod, sandboxes: ready, containers: [run(pod, "app", 0, running)] });
  const since = "2026-01-01T12:00:00Z";
  const isTrue = (type: string) => ({ type, status: "True", lastProbeTime: null, lastTransitionTime: since });
  assert.deepEqual(status, {
    phase: "Running",
    conditions: ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(isTrue),
    hostIP: "192.0.2.7",
    hostIPs: [{ ip: "192.0.2.7" }],
    podIP: "10.88.0.5",
    podIPs: [{ ip: "10.88.0.5" }],
    startTime: since,
    containerStatuses: [
      {
        name: "app",
        state: { running: { startedAt: "2026-01-01T11:59:30Z" } },
        lastState: {},
        ready: true,
        restartCount: 0,
        image,
        imageID: `sha256:${image}`,
        containerID: "containerd://app-0",
        started: true,
        resources: {},
      },
    ],
    qosClass: "BestEffort",
  });
});

test("a new pod waits for its container with reason ContainerCreating", () => {
  const status = statusOf({ pod });
  assert.equal(status.phase, "Pending");
  assert.deepEqual(first(status), {
    name: "app",
    state: { waiting: { reason: "ContainerCreating" } },
    lastState: {},
    ready: false,
    restartCount: 0,
    image,
    imageID: "",
    started: false,
  });
  assert.deepEqual(conditions(status), [
    "PodReadyToStartContainers=False",
    "Initialized=True",
    "Ready=False ContainersNotReady: containers with unready status: [app]",
    "ContainersReady=False ContainersNotReady: containers with unready status: [app]",
    "PodScheduled=True",
  ]);
});

describe("waiting containers", () => {
  const rows: readonly (readonly [name: string, options: ViewOptions, reason: string, message: string | undefined])[] =
    [
      [
        "a crash loop says how long it waits",
        { pod, sandboxes: ready, containers: [run(pod, "app", 4, exited(1))] },
        "CrashLoopBackOff",
        "back-off 1m20s restarting failed container=app pod=web_default(11111111-2222-3333-4444-555555555555)",
      ],
      [
        "the longest back-off is shown as Go shows it",
        { pod, sandboxes: ready, containers: [run(pod, "app", 9, exited(1))] },
        "CrashLoopBackOff",
        "back-off 5m0s restarting failed container=app pod=web_default(11111111-2222-3333-4444-555555555555)",
      ],
      [
        "an image that cannot be pulled is named",
        { pod, sandboxes: ready, failures: new Map([["start app", failure("ErrImagePull", "no such image", 5000)]]) },
        "ErrImagePull",
        "no such image",
      ],
      [
        "a container that cannot be restarted says why",
        {
          pod,
          sandboxes: ready,
          containers: [run(pod, "app", 0, exited(1))],
          failures: new Map([["start app", failure("RunContainerError", "no such file", 5000)]]),
        },
        "RunContainerError",
        "no such file",
      ],
      ["with init containers it is PodInitializing", { pod: init, sandboxes: ready }, "PodInitializing", undefined],
    ];
  for (const [name, options, reason, message] of rows) {
    test(name, () => {
      const { waiting } = first(statusOf(options)).state;
      assert.deepEqual(waiting, message === undefined ? { reason } : { reason, message });
    });
  }
});

test("a crash loop shows the last run as lastState and keeps its id and count", () => {
  const status = statusOf({ pod, sandboxes: ready, containers: [run(pod, "app", 1, exited(3))] });
  assert.equal(status.phase, "Running");
  const container = first(status);
  assert.deepEqual(container.lastState.terminated, {
    exitCode: 3,
    reason: "Error",
    startedAt: "2026-01-01T11:59:55Z",
    finishedAt: "2026-01-01T12:00:00Z",
    containerID: "containerd://app-1",
  });
  assert.deepEqual(
    [container.restartCount, container.containerID, container.ready, container.started],
    [1, "containerd://app-1", false, false],
  );
});

test("a container about to be restarted is shown as it ended", () => {
  const status = statusOf({ pod, sandboxes: ready, containers: [run(pod, "app", 0, exited(1))] });
  assert.equal(first(status).state.terminated?.exitCode, 1);
  assert.deepEqual(first(status).lastState, {});
});

test("a restarted container has the run before it as lastState, with its termination message", () => {
  const containers = [run(pod, "app", 1, running), run(pod, "app", 0, exited(2))];
  const status = statusOf({ pod, sandboxes: ready, containers, messages: new Map([["app-0", "out of cheese"]]) });
  assert.equal(first(status).restartCount, 1);
  assert.equal(first(status).lastState.terminated?.message, "out of cheese");
});

test("containers are in the order of their names, and one that waits keeps the pod Pending and not ready", () => {
  const status = statusOf({ pod: two, sandboxes: ready, containers: [run(two, "zeta", 0, running)] });
  assert.deepEqual(
    status.containerStatuses?.map((each) => each.name),
    ["app", "zeta"],
  );
  assert.equal(status.phase, "Pending");
  assert.equal(conditions(status)[2], "Ready=False ContainersNotReady: containers with unready status: [app]");
});

describe("phases", () => {
  const over = (...codes: number[]): ViewOptions => {
    const names = codes.map((_, index) => `c${index}`);
    const own = podOf({ restartPolicy: "Never", containers: names.map((name) => ({ name, image })) });
    return {
      pod: own,
      sandboxes: [sandbox(0, "notReady")],
      containers: codes.map((code, index) => run(own, `c${index}`, 0, exited(code))),
    };
  };
  const rows: readonly (readonly [name: string, options: ViewOptions, phase: string, readyCondition: string])[] = [
    ["all succeeded", over(0, 0), "Succeeded", "Ready=False PodCompleted"],
    ["one failed", over(0, 1), "Failed", "Ready=False PodFailed"],
    [
      "a pod being ended that still runs",
      { pod, wanted: false, sandboxes: ready, containers: [run(pod, "app", 0, running)] },
      "Running",
      "Ready=True",
    ],
    [
      "a pod being ended of which nothing runs any more",
      { pod, wanted: false, sandboxes: ready, containers: [run(pod, "app", 0, exited(143))] },
      "Failed",
      "Ready=False PodFailed",
    ],
    ["a pod being ended that never started", { pod, wanted: false }, "Failed", "Ready=False PodFailed"],
    [
      "a pod that waits for an older one of its name",
      { pod, blockedBy: podUid("older") },
      "Pending",
      "Ready=False ContainersNotReady: containers with unready status: [app]",
    ],
  ];
  for (const [name, options, phase, readyCondition] of rows) {
    test(`${name}: ${phase}`, () => {
      const status = statusOf(options);
      assert.equal(status.phase, phase);
      assert.equal(conditions(status)[2], readyCondition);
    });
  }
});

test("a pod that is over keeps the addresses it had, one with a dead sandbox has none", () => {
  const podIPs = [{ ip: "10.88.0.5" }];
  const containers = [run(never, "app", 0, exited(0))];
  const over = statusOf({
    pod: never,
    sandboxes: [sandbox(0, "notReady")],
    containers,
    previous: { phase: "Running", podIPs },
  });
  assert.deepEqual(over.podIPs, podIPs);
  const broken = statusOf({ pod, sandboxes: [sandbox(0, "notReady")], previous: { phase: "Running", podIPs } });
  assert.equal(broken.podIPs, undefined);
});

test("a pod on the host's network has the node's addresses", () => {
  const own = podOf({ hostNetwork: true, containers: [app] });
  const status = statusOf({ pod: own, sandboxes: [{ ...sandbox(0), ips: [] }] });
  assert.equal(status.podIP, "192.0.2.7");
});

test("times of transition and the start time stay until a status changes, also under a new agent", () => {
  const containers = [run(pod, "app", 0, running)];
  const before = statusOf({ pod, sandboxes: ready, containers });
  const later = { wallMs: NOW_MS + 3_600_000, monotonic: (NOW + 3_600_000) as MonotonicMs };
  assert.deepEqual(statusOf({ pod, sandboxes: ready, containers, previous: before, ...later }), before);
  const crashed = statusOf({
    pod,
    sandboxes: ready,
    containers: [run(pod, "app", 0, exited(1))],
    previous: before,
    ...later,
  });
  const since = (status: PodStatus) => status.conditions?.map((each) => each.lastTransitionTime?.slice(11, 13));
  assert.deepEqual(since(crashed), ["12", "12", "13", "13", "12"]);
});

test("while the runtime cannot be asked the status stays as it was written", () => {
  const before = statusOf({ pod, sandboxes: ready, containers: [run(pod, "app", 0, running)] });
  assert.deepEqual(statusOf({ pod, observed: undefined, previous: before, wallMs: NOW_MS + 60_000 }), before);
});

test("a pod whose containers are done is not over while a sidecar of it runs", () => {
  const sidecar = { name: "proxy", image, restartPolicy: "Always" } as const;
  const own = podOf({ restartPolicy: "Never", initContainers: [sidecar], containers: [app] });
  const containers = [run(own, "app", 0, exited(0)), run(own, "proxy", 0, running)];
  assert.equal(statusOf({ pod: own, sandboxes: ready, containers }).phase, "Running");
});

test("a pod is not over while a driver has its claims prepared", () => {
  const containers = [run(never, "app", 0, exited(0))];
  const given = { pod: never, sandboxes: ready, containers };
  assert.equal(statusOf({ ...given, holdsClaims: true }).phase, "Running");
  assert.equal(statusOf(given).phase, "Succeeded");
});

test("a container that the runtime has lost is shown as unknown when the pod is over", () => {
  const before = statusOf({ pod: never, sandboxes: ready, containers: [run(never, "app", 0, running)] });
  const outcome = { phase: "Failed", reason: "Evicted", message: "The node was low on memory." } as const;
  const worker = transition(takenUp(), { kind: "finished", outcome });
  const view = viewOf({ pod: never, previous: before, worker });
  const status = deriveStatus(view);
  assert.deepEqual([status.phase, status.reason, status.message], ["Failed", "Evicted", "The node was low on memory."]);
  assert.equal(first(status).state.terminated?.reason, "ContainerStatusUnknown");
  assert.equal(first(status).state.terminated?.exitCode, 137);
});

test("what a prober says decides whether a running container is started and ready", () => {
  const containers = [run(pod, "app", 0, running)];
  const probes = new Map([["app-0", { started: true, ready: false }]]);
  const status = statusOf({ pod, sandboxes: ready, containers, probes });
  assert.deepEqual([first(status).started, first(status).ready], [true, false]);
  assert.equal(conditions(status)[2], "Ready=False ContainersNotReady: containers with unready status: [app]");
});

test("a readiness gate that nobody has answered keeps the pod from being ready", () => {
  const own = podOf({ readinessGates: [{ conditionType: "example.com/warm" }], containers: [app] });
  const status = statusOf({ pod: own, sandboxes: ready, containers: [run(own, "app", 0, running)] });
  assert.deepEqual(conditions(status).slice(2, 4), [
    'Ready=False ReadinessGatesNotReady: corresponding condition of pod readiness gate "example.com/warm" does not exist.',
    "ContainersReady=True",
  ]);
});

test("init containers are told in the order of the spec, with the condition Initialized", () => {
  const status = statusOf({ pod: init, sandboxes: ready, containers: [run(init, "one", 0, exited(0))] });
  assert.deepEqual(
    status.initContainerStatuses?.map(({ name, ready: isReady, state }) => [name, isReady, Object.keys(state)[0]]),
    [
      ["one", true, "terminated"],
      ["two", false, "waiting"],
    ],
  );
  assert.equal(status.phase, "Pending");
  assert.equal(
    conditions(status)[1],
    "Initialized=False ContainersNotInitialized: containers with incomplete status: [two]",
  );
});

test("the generation of the pod is repeated", () => {
  const own = podOf({ containers: [app] }, { generation: 7 });
  const status = statusOf({ pod: own });
  assert.equal(status.observedGeneration, 7);
  assert.ok(status.conditions?.every((each) => each.observedGeneration === 7));
});

test("the wait of a crash loop is told from the worker's memory, not from the wall clock", () => {
  const containers = [run(pod, "app", 1, exited(1))];
  const { observed } = viewOf({ pod, sandboxes: ready, containers });
  assert.ok(observed);
  const worker = activeState(observed);
  const status = deriveStatus(viewOf({ pod, sandboxes: ready, containers, worker, wallMs: 0 }));
  assert.equal(first(status).state.waiting?.reason, "CrashLoopBackOff");
});

describe("what a kubelet adds to a container's status", () => {
  const own = podOf({
    volumes: [{ name: "data", emptyDir: {} }],
    containers: [
      {
        ...app,
        resources: { requests: { cpu: "100m" }, limits: { memory: "64Mi" } },
        volumeMounts: [
          { name: "data", mountPath: "/data" },
          { name: "data", mountPath: "/fixed", readOnly: true },
          { name: "data", mountPath: "/deep", readOnly: true, recursiveReadOnly: "IfPossible" },
        ],
      },
    ],
  });
  const user = { uid: 1000, gid: 1000, supplementalGroups: [7] };
  const containers = [run(own, "app", 0, running, { user })];

  test("what it was given, where its volumes are and who it is", () => {
    const {
      resources,
      allocatedResources,
      volumeMounts,
      user: shown,
    } = first(statusOf({ pod: own, sandboxes: ready, containers, recursiveReadOnly: true }));
    assert.deepEqual(resources, own.spec.containers[0]?.resources);
    assert.deepEqual(allocatedResources, own.spec.containers[0]?.resources.requests);
    assert.deepEqual(volumeMounts, [
      { name: "data", mountPath: "/data" },
      { name: "data", mountPath: "/fixed", readOnly: true, recursiveReadOnly: "Disabled" },
      { name: "data", mountPath: "/deep", readOnly: true, recursiveReadOnly: "Enabled" },
    ]);
    assert.deepEqual(shown, { linux: user });
  });

  test("its volumes before it runs, its resources not", () => {
    const waiting = first(statusOf({ pod: own }));
    assert.equal(waiting.volumeMounts?.length, 3);
    assert.equal(waiting.resources, undefined);
  });
});

describe("containers that have no end of their own", () => {
  const debug = { name: "debug", image };

  test("an init container that has done its work is shown so when its run is gone", () => {
    const containers = [run(init, "two", 0, exited(0)), run(init, "one", 0, exited(0))];
    const previous = statusOf({ pod: init, sandboxes: ready, containers });
    const later = statusOf({ pod: init, sandboxes: ready, containers: [run(init, "two", 0, exited(0))], previous });
    assert.equal(later.initContainerStatuses?.[0]?.state.terminated?.exitCode, 0);
    assert.equal(later.initContainerStatuses?.[0]?.ready, true);
    assert.equal(conditions(later)[1], "Initialized=True");
  });

  test("one that never ran is located no more when its pod is over", () => {
    const previous = statusOf({ pod });
    const [over] = [statusOf({ pod, wanted: false, previous })];
    assert.deepEqual(first(over).state.terminated, {
      exitCode: 137,
      reason: "ContainerStatusUnknown",
      message: "The container could not be located when the pod was terminated",
    });
  });

  test("one whose pod was never initialized waits for ever", () => {
    const own = podOf({ restartPolicy: "Never", initContainers: [{ name: "one", image }], containers: [app] });
    const over = statusOf({ pod: own, sandboxes: ready, containers: [run(own, "one", 0, exited(1))] });
    assert.equal(over.phase, "Failed");
    assert.equal(first(over).state.waiting?.reason, "PodInitializing");
  });

  test("an ephemeral one is in a list of its own, neither ready nor started", () => {
    const own = podOf({ containers: [app], ephemeralContainers: [debug] });
    const containers = [run(own, "app", 0, running), run(own, "debug", 0, exited(1))];
    const status = statusOf({ pod: own, sandboxes: ready, containers });
    const [told] = status.ephemeralContainerStatuses ?? [];
    assert.deepEqual([told?.ready, told?.started, told?.state.terminated?.exitCode], [false, undefined, 1]);
    assert.equal(status.phase, "Running");
    assert.equal(conditions(status)[2], "Ready=True");
  });

  test("a termination message comes after what the runtime says", () => {
    const killed = { ...exited(137), message: "out of memory" } as const;
    const messages = new Map([["app-0", "goodbye"]]);
    const status = statusOf({ pod: never, sandboxes: ready, containers: [run(never, "app", 0, killed)], messages });
    assert.equal(first(status).state.terminated?.message, "out of memory: goodbye");
  });
});

describe("what others say of a pod", () => {
  const gated = podOf({ readinessGates: [{ conditionType: "example.com/warm" }], containers: [app] });
  const said = (status: "True" | "False") => {
    const view = viewOf({ pod: gated, sandboxes: ready, containers: [run(gated, "app", 0, running)] });
    const desired = { ...view.desired, conditions: [{ type: "example.com/warm", status }] };
    return deriveStatus({ ...view, desired, worker: planPod({ ...view, desired }).next });
  };

  test("opens a readiness gate, and stays in the status", () => {
    assert.deepEqual(conditions(said("True")).slice(0, 4), [
      "example.com/warm=True",
      "PodReadyToStartContainers=True",
      "Initialized=True",
      "Ready=True",
    ]);
    assert.equal(
      conditions(said("False"))[3],
      'Ready=False ReadinessGatesNotReady: the status of pod readiness gate "example.com/warm" is not "True", but False',
    );
  });
});

describe("a pod that is being ended although it is wanted", () => {
  const end = {
    reason: "Evicted",
    message: "The node was low on resource: memory.",
    disruption: { reason: "TerminationByKubelet", message: "low on memory" },
  };

  test("says why while it runs, and fails when nothing runs any more; so it does under the next agent", () => {
    const running0 = [run(pod, "app", 0, running)];
    const ending = statusOf({ pod, sandboxes: ready, containers: running0, end });
    assert.deepEqual([ending.phase, ending.reason], ["Running", "Evicted"]);
    assert.equal(conditions(ending)[0], "DisruptionTarget=True TerminationByKubelet: low on memory");
    const ended = { pod, sandboxes: ready, containers: [run(pod, "app", 0, exited(143))] };
    for (const options of [
      { ...ended, end },
      { ...ended, previous: ending },
    ]) {
      const { phase, reason, message } = statusOf(options);
      assert.deepEqual([phase, reason, message], ["Failed", "Evicted", end.message]);
    }
    const unseen = statusOf({ pod, observed: undefined, previous: ending });
    assert.deepEqual([unseen.phase, unseen.reason], ["Running", "Evicted"]);
  });
});

test("a pod whose sidecar has yet to start in a new sandbox is Pending, whatever ran in the old one", () => {
  const sidecar = { name: "proxy", image, restartPolicy: "Always" } as const;
  const own = podOf({ initContainers: [sidecar], containers: [app] });
  const containers = [
    run(own, "proxy", 1, running, { sandboxId: "sandbox-1" }),
    run(own, "app", 0, exited(137)),
    run(own, "proxy", 0, exited(137)),
  ];
  const sandboxes = [sandbox(1), sandbox(0, "notReady")];
  const probes = new Map([["proxy-1", { started: false, ready: false }]]);
  assert.equal(statusOf({ pod: own, sandboxes, containers, probes }).phase, "Pending");
  assert.equal(statusOf({ pod: own, sandboxes, containers }).phase, "Running");
});

test("a pod that waits for another of its name has not been started", () => {
  assert.equal(statusOf({ pod, blockedBy: podUid("older") }).startTime, undefined);
});

test("a pod with addresses of both families shows one of each, the node's first family first", () => {
  const ips = ["fd00::5", "10.88.0.5", "10.88.0.6"];
  const status = statusOf({ pod, sandboxes: [{ ...sandbox(0), ips }] });
  assert.deepEqual(status.podIPs, [{ ip: "10.88.0.5" }, { ip: "fd00::5" }]);
});
