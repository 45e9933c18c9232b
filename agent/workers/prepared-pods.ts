import { isDeepStrictEqual } from "node:util";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/**
 * Whether folders, volumes and cgroup that were made for the one are those of the other. A hub gives each pod
 * tolerations some time after its start, of which nothing on the node is made.
 */
export const hasSamePreparation = (one: DesiredPod, other: DesiredPod): boolean =>
  isDeepStrictEqual(comparable(one), comparable(other));

function comparable({ pod, conditions: _conditions, ...rest }: DesiredPod): unknown {
  const { status: _status, metadata, spec, ...kind } = pod;
  const { generation: _generation, resourceVersion: _revision, ...named } = metadata;
  const { tolerations: _tolerations, ...made } = spec;
  return { ...rest, ...kind, metadata: named, spec: made };
}
