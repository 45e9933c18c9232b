/** Agents with one mistake each, which the simulation has to find. */
import { containersOf } from "@picolet/agent/plan/container-roles.ts";
import { planPod } from "@picolet/agent/plan/plan-pod.ts";
import type { Plan, PlanAction, PlanPod, PodView } from "@picolet/agent/plan/pod-view.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import { RESIZING_SEEDS } from "./scenario.ts";
import type { BoardInit } from "./sim-board.ts";
import { asPod } from "./sim-manifests.ts";

type Mutant = Pick<BoardInit, "planPod" | "parse" | "silent">;

const without = (plan: Plan, kind: PlanAction["kind"]): Plan => ({
  ...plan,
  actions: plan.actions.filter((each) => each.kind !== kind),
});

/** The stories in which a mistake is looked for; all of them, where nothing is said. */
interface StoryChoice {
  /** Only each so-manieth story is played, where others have nothing of the mistake. */
  readonly step?: number;
  /** The story that comes first: it found the mistake before. The ones before it come last. */
  readonly first?: number;
}

/** And what has to be found of it. */
export const CANARIES: readonly (readonly [mistake: string, mutant: Mutant, found: RegExp, stories?: StoryChoice])[] = [
  [
    "does not wait for the incarnation before",
    { planPod: (view) => planPod({ ...view, blockedBy: undefined }) },
    /of the same name runs/,
  ],
  [
    "takes every container for another one than was asked for",
    {
      planPod: (view) =>
        planPod({ ...view, hashes: new Map(containersOf(view.desired.pod).map(({ name }) => [name, "other"])) }),
    },
    /hits healthy container/,
  ],
  [
    "forgets the back-off",
    { planPod: (view) => planPod({ ...view, backoff: { ...view.backoff, max: view.backoff.initial } }) },
    /back-off/,
  ],
  ["waits by the wall clock", { planPod: waitsByWallClock }, /waited|back-off|has not been restarted|is exited/],
  ["leaves folders behind", { planPod: (view) => without(planPod(view), "cleanup") }, /on the disk/],
  [
    "leaves old runs behind",
    { planPod: (view) => without(planPod(view), "removeContainer") },
    /heaps up runs/,
    { first: 178 },
  ],
  [
    "leaves sandboxes behind",
    { planPod: (view) => without(planPod(view), "removeSandbox") },
    /heaps up|in the runtime|ready sandboxes|has not been restarted/,
  ],
  [
    "goes on with a pod that is not wanted",
    { planPod: (view) => (view.worker.kind === "terminating" ? { ...planPod(view), actions: [] } : planPod(view)) },
    /in the runtime|ready sandboxes|of the same name runs/,
  ],
  [
    "has nothing taken over by a pod with another UID",
    { parse: (object) => withEnvironment(asPod(object)) },
    /is wanted under another UID/,
  ],
  [
    "says that a pod is gone before it is",
    { planPod: (view) => withPrepareForCleanup(planPod(view)) },
    /told to be gone and is on the disk/,
  ],
  [
    "ends sidecars with the others",
    {
      planPod: (view) =>
        mapped(planPod(view), (each) => (each.kind === "stopContainer" ? { ...each, after: [] } : each)),
    },
    /is to end while/,
  ],
  [
    "does not wait for init containers",
    {
      planPod: (view) =>
        mapped(planPod(view), (each) => (each.kind === "startContainer" && each.init ? { ...each, name: "c0" } : each)),
    },
    /starts before/,
  ],
  [
    "does not heed what the node says to a pod",
    { planPod: (view) => planPod({ ...view, rejection: undefined }) },
    /rejected/,
  ],
  [
    "resizes nothing",
    { planPod: (view) => without(planPod(view), "resize") },
    /does not have its/,
    { step: RESIZING_SEEDS, first: 50 },
  ],
  [
    "restarts what it resizes",
    {
      planPod: (view) =>
        planPod(view.desired.pod.metadata.generation === undefined ? view : { ...view, hashes: new Map() }),
    },
    /hits healthy container/,
    { step: RESIZING_SEEDS },
  ],
  ["forgets deadlines", { planPod: (view) => planPod(withoutDeadline(view)) }, /sandbox is still there/],
  ["records no end of a container", { silent: "exited" }, /ended without a record/],
  ["records no removal", { silent: "removed" }, /is to go without a record/],
  ["does not say that a pod is gone", { planPod: (view) => without(planPod(view), "forget") }, /waits to hear/],
];

const mapped = (plan: Plan, change: (action: PlanAction) => PlanAction): Plan => ({
  ...plan,
  actions: plan.actions.map(change),
});

function withoutDeadline(view: PodView): PodView {
  const { activeDeadlineSeconds: _, ...spec } = view.desired.pod.spec;
  return { ...view, desired: { ...view.desired, pod: { ...view.desired.pod, spec } } };
}

/** The pod's own UID in its environment. */
function withEnvironment(pod: Pod): Pod {
  const env = [{ name: "UID", valueFrom: { fieldRef: { apiVersion: "v1", fieldPath: "metadata.uid" } } }];
  const containers = pod.spec.containers.map((each) => ({ ...each, env }));
  return { ...pod, spec: { ...pod.spec, containers } };
}

const withPrepareForCleanup = (plan: Plan): Plan => ({
  ...plan,
  actions: plan.actions.map((each) => (each.kind === "cleanup" ? { kind: "prepare" } : each)),
});

function waitsByWallClock(...[view]: Parameters<PlanPod>): Plan {
  const plan = planPod({ ...view, monotonic: view.wallMs as MonotonicMs });
  if (plan.wakeAt === undefined) return plan;
  return { ...plan, wakeAt: (plan.wakeAt - view.wallMs + view.monotonic) as MonotonicMs };
}
