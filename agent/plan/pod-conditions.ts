/** A pod's conditions with the kubelet's reasons and messages (pkg/kubelet/status/generate.go). */
import type { ConditionStatus, ContainerStatus, PodCondition, PodConditionType, PodPhase } from "../../protocol/pod.ts";
import { roleOf } from "./judge-container.ts";
import { kubeTime } from "./kube-time.ts";
import type { PodView } from "./pod-view.ts";

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
  return entries.map(([type, judgement]) => condition(view, type, judgement));
}

/** Keeps the time of the last change of status, across agents. */
function condition(view: PodView, type: PodConditionType, judgement: Judgement): PodCondition {
  const { status, reason, message } = judgement;
  const before = view.previous?.conditions?.find((each) => each.type === type);
  const { generation } = view.desired.pod.metadata;
  const since = before?.status === status ? before.lastTransitionTime : undefined;
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

/** While the runtime cannot be asked, what was so is taken to be so still. */
function judgeSandbox(view: PodView): Judgement {
  const told = view.previous?.conditions?.find((each) => each.type === "PodReadyToStartContainers");
  if (view.observed === undefined) return { status: told?.status ?? "False" };
  return view.observed.sandboxes[0]?.state === "ready" ? TRUE : { status: "False" };
}

type Written = Parameters<typeof podConditions>[1];

function judgeInitialized(view: PodView, { phase, init, regular }: Written): Judgement {
  const { pod } = view.desired;
  const roles = new Map((pod.spec.initContainers ?? []).map((each) => [each.name, roleOf(pod, each)]));
  const incomplete = init.filter((each) => (roles.get(each.name) === "sidecar" ? each.started !== true : !each.ready));
  if (incomplete.length === 0) return TRUE;
  if (phase === "Succeeded") return { status: "True", reason: "PodCompleted" };
  if (regular.some((each) => each.containerID !== undefined)) return TRUE;
  const message = `containers with incomplete status: [${namesOf(incomplete)}]`;
  return { status: "False", reason: "ContainersNotInitialized", message };
}

function judgeContainersReady(view: PodView, { phase, init, regular }: Written): Judgement {
  if (phase === "Succeeded") return COMPLETED;
  if (phase === "Failed") return { status: "False", reason: "PodFailed" };
  const { pod } = view.desired;
  const sidecars = new Set(
    (pod.spec.initContainers ?? []).filter((each) => roleOf(pod, each) === "sidecar").map((each) => each.name),
  );
  const unready = [...init.filter((each) => sidecars.has(each.name)), ...regular].filter((each) => !each.ready);
  if (unready.length === 0) return TRUE;
  const message = `containers with unready status: [${namesOf(unready)}]`;
  return { status: "False", reason: "ContainersNotReady", message };
}

function judgeReady(view: PodView, containersReady: Judgement): Judgement {
  if (containersReady.status !== "True") return containersReady;
  const gates = view.desired.pod.spec.readinessGates ?? [];
  const known = view.previous?.conditions ?? [];
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
