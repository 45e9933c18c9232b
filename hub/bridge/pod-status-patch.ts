/** The strategic merge patch that brings a pod's status in the API server to what its node says. Pure. */
import { DISRUPTION_TARGET, isNodeConditionType } from "@picolet/protocol/pod/condition-owners.ts";
import { conditionsOf, defined, type Fields, isScheduled, SCHEDULED } from "./remote-object.ts";

/** Lists that Kubernetes merges by a key, where a node means the whole list. */
const REPLACED_LISTS = ["podIPs", "hostIPs"] as const;
/** Fields of other writers: never written, never removed. NodeRestriction refuses a node that changes the claims'. */
const FOREIGN_FIELDS: ReadonlySet<string> = new Set([
  "conditions",
  "nominatedNodeName",
  "resize",
  "resourceClaimStatuses",
  "extendedResourceClaimStatus",
]);

export interface StatusPatchInput {
  readonly uid: string;
  /** The pod's whole status as the API server has it. */
  readonly current: Fields;
  /** The status that the node reported. */
  readonly next: Fields;
  /** A mirror pod has no scheduler: PodScheduled is as its node reports it. */
  readonly isMirror: boolean;
}

export function podStatusPatch({ uid, current, next, isMirror }: StatusPatchInput): Fields {
  const status: Record<string, unknown> = {};
  for (const field of Object.keys(current)) {
    if (!(field in next) && !FOREIGN_FIELDS.has(field)) status[field] = null;
  }
  for (const [field, value] of Object.entries(next)) {
    if (!FOREIGN_FIELDS.has(field)) status[field] = value;
  }
  for (const field of REPLACED_LISTS) {
    const list = status[field];
    if (Array.isArray(list)) status[field] = [{ $patch: "replace" }, ...list];
  }
  const conditions = conditionPatch(current, next, isMirror);
  if (conditions.length > 0) status.conditions = conditions;
  // The UID makes it fail on another pod of the same name.
  return { metadata: { uid }, status };
}

function conditionPatch(current: Fields, next: Fields, isMirror: boolean): readonly Fields[] {
  const isOwn = (type: string): boolean =>
    isNodeConditionType(type) || type === DISRUPTION_TARGET || (isMirror && type === SCHEDULED);
  const said = conditionsOf(next).filter(({ type }) => isOwn(type));
  const kept = new Set(said.map(({ type }) => type));
  const dropped = conditionsOf(current)
    .filter(({ type }) => isNodeConditionType(type) && !kept.has(type))
    .map(({ type }) => ({ $patch: "delete", type }));
  const scheduled = kept.has(SCHEDULED) ? [] : scheduledPatch(current, next);
  const before = new Map(conditionsOf(current).map((each) => [each.type, each]));
  const written = said.map((condition) => {
    // Fields that only the older version of a condition has are removed.
    const gone = Object.keys(before.get(condition.type) ?? {}).filter((field) => !(field in condition));
    return { ...Object.fromEntries(gone.map((field) => [field, null])), ...defined(condition) };
  });
  return [...written, ...scheduled, ...dropped];
}

/**
 * Writes PodScheduled as a kubelet does. The time of the binding stays. A pod without a binding (a static pod, one that
 * names its node when it is created) counts as scheduled from its start.
 */
function scheduledPatch(current: Fields, next: Fields): readonly Fields[] {
  const { observedGeneration, startTime } = next;
  const isKnown = isScheduled(current);
  if (isKnown && observedGeneration === undefined) return [];
  const lastTransitionTime = isKnown ? undefined : startTime;
  return [defined({ type: SCHEDULED, status: "True", observedGeneration, lastTransitionTime })];
}
