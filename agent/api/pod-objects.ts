/** The agent's pods as Kubernetes objects, and how a user's name for one is resolved. Pure. */

import { PicoletError } from "@picolet/protocol/errors.ts";
import { DEFAULT_NAMESPACE } from "@picolet/protocol/kubernetes/default-namespace.ts";
import type {
  HealthReport,
  PodReport,
  StatusAnswer,
  StatusReport,
  TunnelReport,
} from "@picolet/protocol/local-api/status.ts";
import { conditionIs, summarizePod } from "@picolet/protocol/pod/pod-summary.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { ActivePull } from "../core/pods/image-pulls.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import { PENDING_STATUS, podObject } from "../core/pods/pod-object.ts";
import type { EventRecord } from "../core/store/store-ports.ts";
import {
  isFault,
  isPodWell,
  judgeNode,
  NODE_STATES,
  type NodeFacts,
  notReadyReasons,
  summaryOf,
} from "../plan/node/judge-node.ts";
import { whyNotReady } from "../plan/why-not-ready.ts";
import type { AgentView } from "./agent-view.ts";

/** @param pulls what is being pulled: the best of reasons why a pod does not run yet */
export function statusAnswer(view: AgentView, pulls: readonly ActivePull[] = []): StatusAnswer {
  const { name, conditions } = view.node();
  const pods = sortPods(view.pods()).map((pod) => podReport(view, pod, pulls));
  const { health, ready } = judged(view, pods);
  return {
    node: name,
    ready,
    conditions: conditions.map(({ type, status, reason, message, lastTransitionTime }) => {
      return { type, status, reason, message, lastTransitionTime };
    }),
    runtimes: view.runtimes(),
    tunnel: view.tunnel(),
    pods,
    resources: view.resources(),
    agent: view.agent(),
    flash: view.flash(),
    telemetry: view.telemetry(),
    secretsAtRest: view.secretsAtRest(),
    problems: view.problems(),
    warnings: view.warnings(),
    health,
  } satisfies StatusReport;
}

/** By the agent's one judgement. */
function judged(
  view: AgentView,
  pods: StatusAnswer["pods"],
): { readonly health: HealthReport; readonly ready: boolean } {
  const { conditions } = view.node();
  const found = judgeNode({
    ...view.facts(),
    conditions,
    tunnel: tunnelFacts(view.tunnel()),
    memory: view.agent(),
    agentFlash: { bytes: view.flash().today.agentBytes, budgetBytes: view.flash().agentBudgetBytes },
    pods,
    manifestProblems: view.problems().map(({ origin, line, message }) => {
      return `${line === null ? origin : `${origin}:${line}`}: ${message}`;
    }),
  });
  const ready = notReadyReasons(found).length === 0;
  const notReady = conditions.find(({ type, status }) => type === "Ready" && status !== "True");
  const shown = notReady && `Ready is ${notReady.status}: ${notReady.reason}: ${notReady.message}`;
  const faults = found.filter(isFault);
  const others = faults.filter((each) => notReadyReasons([each]).length === 0).flatMap(({ details }) => details);
  const health: HealthReport = {
    healthy: faults.length === 0,
    summary: summaryOf(found, pods.length),
    details: [...(ready || shown === undefined ? [] : [shown]), ...others],
    findings: found.map(({ state, details }) => ({ state, level: NODE_STATES[state].level, details })),
  };
  return { health, ready };
}

function tunnelFacts({ certificate, ...tunnel }: TunnelReport): NodeFacts["tunnel"] {
  if (certificate === undefined) return tunnel;
  const { notBefore, notAfter } = certificate;
  return { ...tunnel, certificate: { notBeforeMs: Date.parse(notBefore), notAfterMs: Date.parse(notAfter) } };
}

function podReport(view: AgentView, agentPod: AgentPod, pulls: readonly ActivePull[]): StatusAnswer["pods"][number] {
  const pod = podObject(agentPod);
  const { desired } = agentPod;
  const status = pod.status ?? PENDING_STATUS;
  const ready = conditionIs(status.conditions, "Ready");
  const summary = summarizePod(pod);
  const isWell = isPodWell({
    ...{ ready, phase: status.phase },
    isTerminating: summary.status === "Terminating",
    isFailing: agentPod.endsAs === "Failed",
  });
  return {
    namespace: pod.metadata.namespace,
    name: pod.metadata.name,
    uid: apiUidOf(desired),
    source: desired.source,
    phase: status.phase,
    ready,
    restarts: summary.restarts,
    runtime: agentPod.runtime,
    message:
      (ready && isWell) || status.phase === "Succeeded"
        ? ""
        : whyNotReady({
            pod,
            pull: pulls.find(({ pods }) => pods.some(({ uid }) => uid === desired.uid)),
            runtime: view.runtimes().find(({ name }) => name === agentPod.runtime),
            warnings: () => warningsOf(view, agentPod),
          }),
    summary,
    isWell,
    createdAt: pod.metadata.creationTimestamp ?? status.startTime ?? null,
  } satisfies PodReport & Record<string, unknown>;
}

/** Read of one pod to find a Warning: those of ten restarts with their pulls and starts. */
const MAX_EVENTS_READ = 50;

/** Newest first. */
function warningsOf({ events }: AgentView, { desired }: AgentPod): readonly EventRecord[] {
  const { namespace, name } = desired.pod.metadata;
  const uids: readonly string[] = [desired.uid, apiUidOf(desired)];
  return events
    .list({ namespace, name, limit: MAX_EVENTS_READ })
    .filter(({ type, regarding }) => type === "Warning" && uids.includes(regarding.uid))
    .toReversed();
}

/** By namespace and name; of two incarnations of one name the one being ended last. */
export function sortPods(pods: readonly AgentPod[]): AgentPod[] {
  const key = (each: AgentPod): string => {
    const { namespace, name } = each.desired.pod.metadata;
    return `${namespace}\0${name}\0${each.terminatingSinceMs === undefined ? 0 : 1}`;
  };
  return pods
    .map((pod) => ({ pod, key: key(pod) }))
    .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0))
    .map(({ pod }) => pod);
}

/** Stands for any namespace in a path; it is no valid name of a namespace. */
export const ANY_NAMESPACE = "-";

/**
 * The pod a user means: by its name, or by a static pod's name without the node's. Without a namespace `default`
 * comes first, then any other.
 * @throws `not_found`, and `conflict` when several are meant; both name what they looked for.
 */
export function findPod(view: AgentView, namespace: string, name: string): AgentPod {
  const suffixed = `${name}-${view.node().name}`;
  const pods = sortPods(view.pods());
  for (const wanted of [name, suffixed]) {
    const named = pods.filter((each) => each.desired.pod.metadata.name === wanted);
    const here = namespace === ANY_NAMESPACE ? DEFAULT_NAMESPACE : namespace;
    const [first] = named.filter((each) => each.desired.pod.metadata.namespace === here);
    if (first !== undefined) return first;
    if (namespace !== ANY_NAMESPACE) continue;
    const namespaces = [...new Set(named.map((each) => each.desired.pod.metadata.namespace))];
    if (namespaces.length > 1) {
      const candidates = namespaces.map((each) => `${each}/${wanted}`).join(", ");
      throw new PicoletError("conflict", `pod name "${name}" is ambiguous: ${candidates}`);
    }
    const [only] = named;
    if (only !== undefined) return only;
  }
  const where = namespace === ANY_NAMESPACE ? "" : ` in namespace "${namespace}"`;
  throw new PicoletError("not_found", `pod "${name}" not found${where}`);
}
