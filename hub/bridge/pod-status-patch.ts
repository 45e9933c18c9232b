/** The strategic merge patch that brings a pod's status in the API server to what its node says. Pure. */
import { DISRUPTION_TARGET, isNodeConditionType } from "@picolet/protocol/pod/condition-owners.ts";
import { conditionsOf, defined, type Fields, type PodCondition } from "./remote-object.ts";

/** Lists that Kubernetes merges by a key, where a node means the whole list. */
const REPLACED_LISTS = ["podIPs", "hostIPs", "resourceClaimStatuses"] as const;
/** Of others; never written, never taken away. */
const FOREIGN_FIELDS: ReadonlySet<string> = new Set(["conditions", "nominatedNodeName", "resize"]);

export interface StatusPatchInput {
  readonly uid: string;
  /** The pod's whole status as the API server has it. */
  readonly current: Fields;
  /** What the node says. */
  readonly next: Fields;
  /** Of a mirror pod there is no scheduler to speak of its being scheduled: the node does. */
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
    isNodeConditionType(type) || type === DISRUPTION_TARGET || (isMirror && type === "PodScheduled");
  const said = [...conditionsOf(next).filter(({ type }) => isOwn(type)), ...(isMirror ? scheduled(current, next) : [])];
  const kept = new Set(said.map(({ type }) => type));
  const dropped = conditionsOf(current)
    .filter(({ type }) => isNodeConditionType(type) && !kept.has(type))
    .map(({ type }) => ({ $patch: "delete", type }));
  const before = new Map(conditionsOf(current).map((each) => [each.type, each]));
  const written = said.map((condition) => {
    // What an older version of a condition had beyond the new one goes.
    const gone = Object.keys(before.get(condition.type) ?? {}).filter((field) => !(field in condition));
    return { ...Object.fromEntries(gone.map((field) => [field, null])), ...defined(condition) };
  });
  return [...written, ...dropped];
}

/** A static pod is where it belongs from its start on. What was said of it once stays. */
function scheduled(current: Fields, next: Fields): readonly PodCondition[] {
  const isThere = (status: Fields): boolean => conditionsOf(status).some(({ type }) => type === "PodScheduled");
  if (isThere(current) || isThere(next)) return [];
  return [{ type: "PodScheduled", status: "True", lastTransitionTime: next.startTime }];
}
