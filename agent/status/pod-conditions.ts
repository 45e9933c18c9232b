/** A pod's conditions with the kubelet's reasons and messages (pkg/kubelet/status/generate.go). */

import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { DISRUPTION_TARGET, isNodeCondition, RUNTIME_CONDITION } from "@picolet/protocol/pod/condition-owners.ts";
import type {
  ConditionStatus,
  ContainerStatus,
  PodCondition,
  PodConditionType,
  PodPhase,
} from "@picolet/protocol/pod/pod.ts";
import type { ChosenRuntime } from "@picolet/runtime-contract/runtime-adapter.ts";
import { roleOf, sidecarsOf } from "../plan/container-roles.ts";
import type { PodView } from "../plan/pod-view.ts";
import { resizeConditions } from "../plan/resize-status.ts";
import type { Outcome } from "../plan/worker-state.ts";

interface Judgement {
  readonly status: ConditionStatus;
  readonly reason?: string;
  readonly message?: string;
}

const TRUE: Judgement = { status: "True" };
const COMPLETED: Judgement = { status: "False", reason: "PodCompleted" };

/** @param written with phase and container statuses. */
export function podConditions(
  view: PodView,
  written: {
    readonly phase: PodPhase;
    readonly init: readonly ContainerStatus[];
    readonly regular: readonly ContainerStatus[];
    readonly disruption: Outcome["disruption"];
  },
): PodCondition[] {
  const containersReady = judgeContainersReady(view, written);
  const entries: readonly (readonly [PodConditionType, Judgement])[] = [
    ["PodReadyToStartContainers", judgeSandbox(view)],
    ["Initialized", judgeInitialized(view, written)],
    ["Ready", judgeReady(view, containersReady)],
    ["ContainersReady", containersReady],
    ["PodScheduled", TRUE],
  ];
  const { disruption } = written;
  const { runtime } = view.desired;
  const own: typeof entries = [
    ...(disruption === undefined ? [] : [[DISRUPTION_TARGET, { status: "True", ...disruption }] as const]),
    ...(runtime === undefined ? [] : [[RUNTIME_CONDITION, judgeRuntime(runtime)] as const]),
    ...entries,
  ];
  const types = new Set<string>(own.map(([type]) => type));
  const others = othersOf(view).filter(({ type }) => !types.has(type));
  const isOver = written.phase === "Succeeded" || written.phase === "Failed";
  return [
    ...others,
    ...resizeConditions(view, isOver),
    ...own.map(([type, judgement]) => condition(view, type, judgement)),
  ];
}

/** Conditions of other owners stay as they are. */
const othersOf = ({ desired }: PodView): readonly PodCondition[] =>
  (desired.conditions ?? []).filter((each) => !isNodeCondition(each));

/** Keeps the time of the last change of status, across agents. */
function condition(view: PodView, type: PodConditionType, judgement: Judgement): PodCondition {
  const { status, reason, message } = judgement;
  const before = view.previous?.conditions?.find((each) => each.type === type);
  const { generation } = view.desired.pod.metadata;
  // The reason of RUNTIME_CONDITION names the runtime: a change of it is a transition too.
  const isSame = before?.status === status && (type !== RUNTIME_CONDITION || before.reason === reason);
  const since = isSame ? before.lastTransitionTime : undefined;
  return {
    type,
    ...(generation === undefined ? {} : { observedGeneration: generation }),
    status,
    lastProbeTime: null,
    lastTransitionTime: since ?? kubeTime(view.wallMs),
    ...(reason === undefined ? {} : { reason }),
    ...(message === undefined ? {} : { message }),
  };
}

const judgeRuntime = ({ kind, message }: ChosenRuntime): Judgement => ({
  status: "True",
  reason: kind === "component" ? "Component" : "Container",
  message,
});

/** While the runtime cannot be asked, what was so is taken to be so still. */
function judgeSandbox(view: PodView): Judgement {
  const reported = view.previous?.conditions?.find((each) => each.type === "PodReadyToStartContainers");
  if (view.observed === undefined) return { status: reported?.status ?? "False" };
  return view.observed.sandboxes[0]?.state === "ready" ? TRUE : { status: "False" };
}

type Written = Parameters<typeof podConditions>[1];

function judgeInitialized(view: PodView, { phase, init, regular }: Written): Judgement {
  const { pod } = view.desired;
  const roles = new Map((pod.spec.initContainers ?? []).map((each) => [each.name, roleOf(pod, each)]));
  const incomplete = init.filter((each) => (roles.get(each.name) === "sidecar" ? each.started !== true : !each.ready));
  if (incomplete.length === 0) return TRUE;
  if (phase === "Succeeded") return { status: "True", reason: "PodCompleted" };
  if (regular.some(({ state }) => state.running !== undefined || state.terminated !== undefined)) return TRUE;
  const message = `containers with incomplete status: [${namesOf(incomplete)}]`;
  return { status: "False", reason: "ContainersNotInitialized", message };
}

function judgeContainersReady(view: PodView, { phase, init, regular }: Written): Judgement {
  if (phase === "Succeeded") return COMPLETED;
  if (phase === "Failed") return { status: "False", reason: "PodFailed" };
  const sidecars = new Set(sidecarsOf(view.desired.pod).map((each) => each.name));
  const unready = [...init.filter((each) => sidecars.has(each.name)), ...regular].filter((each) => !each.ready);
  if (unready.length === 0) return TRUE;
  const message = `containers with unready status: [${namesOf(unready)}]`;
  return { status: "False", reason: "ContainersNotReady", message };
}

function judgeReady(view: PodView, containersReady: Judgement): Judgement {
  if (containersReady.status !== "True") return containersReady;
  const gates = view.desired.pod.spec.readinessGates ?? [];
  const known = othersOf(view);
  const messages = gates.flatMap(({ conditionType }) => {
    const found = known.find((each) => each.type === conditionType);
    if (found === undefined)
      return [`corresponding condition of pod readiness gate "${conditionType}" does not exist.`];
    if (found.status === "True") return [];
    return [`the status of pod readiness gate "${conditionType}" is not "True", but ${found.status}`];
  });
  if (messages.length === 0) return TRUE;
  return { status: "False", reason: "ReadinessGatesNotReady", message: messages.join(", ") };
}

const namesOf = (statuses: readonly ContainerStatus[]): string => statuses.map((each) => each.name).join(" ");
