/** `kubectl get pods`. */
import type { ContainerStatus, Pod } from "@picolet/protocol/pod/pod.ts";
import { conditionIs, type PodSummary, summarizePod } from "@picolet/protocol/pod/pod-summary.ts";
import type { ApiObject, PrinterColumn } from "../api/resource-definition.ts";
import { ageOf } from "./age.ts";
import { ageColumn, column, field, NONE, nameColumn, wideColumn } from "./columns.ts";

/** A status that was written by hand may lack fields that a kubelet always writes. */
function complete(statuses: readonly ContainerStatus[] | undefined): readonly ContainerStatus[] | undefined {
  return statuses?.map((each) => ({
    ...each,
    state: each.state ?? {},
    lastState: each.lastState ?? {},
    restartCount: each.restartCount ?? 0,
  }));
}

export function podSummary(object: ApiObject): PodSummary {
  const pod = object as unknown as Pod;
  const { status } = pod;
  if (status === undefined) return summarizePod(pod);
  const summary = summarizePod({
    ...pod,
    status: {
      ...status,
      containerStatuses: complete(status.containerStatuses),
      initContainerStatuses: complete(status.initContainerStatuses),
    },
  });
  const isGated = status.conditions?.some(
    ({ type, reason }) => type === "PodScheduled" && reason === "SchedulingGated",
  );
  return summary.status === "Pending" && isGated === true ? { ...summary, status: "SchedulingGated" } : summary;
}

function restartsText({ restarts, lastRestartAt }: PodSummary, now: Date): string {
  return restarts === 0 || lastRestartAt === null ? String(restarts) : `${restarts} (${ageOf(lastRestartAt, now)} ago)`;
}

function readinessGates(object: ApiObject): string {
  const pod = object as unknown as Pod;
  const gates = pod.spec.readinessGates ?? [];
  if (gates.length === 0) return NONE;
  const ready = gates.filter(({ conditionType }) => conditionIs(pod.status?.conditions, conditionType));
  return `${ready.length}/${gates.length}`;
}

function podIp(object: ApiObject): string {
  const status = (object as unknown as Pod).status;
  return status?.podIPs?.[0]?.ip || status?.podIP || NONE;
}

export const POD_COLUMNS: readonly PrinterColumn[] = [
  nameColumn,
  column("Ready", (object) => {
    const { readyContainers, totalContainers } = podSummary(object);
    return `${readyContainers}/${totalContainers}`;
  }),
  column("Status", (object) => podSummary(object).status),
  column("Restarts", (object, now) => restartsText(podSummary(object), now)),
  ageColumn,
  wideColumn("IP", podIp),
  wideColumn("Node", field(NONE, "spec", "nodeName")),
  wideColumn("Nominated Node", field(NONE, "status", "nominatedNodeName")),
  wideColumn("Readiness Gates", readinessGates),
];
