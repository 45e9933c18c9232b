import { isDeepStrictEqual } from "node:util";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/**
 * True when folders, volumes and cgroup of both are the same. A hub adds tolerations to each pod some time after its
 * start; nothing on the node depends on them.
 */
export const hasSamePreparation = (one: DesiredPod, other: DesiredPod): boolean =>
  isDeepStrictEqual(comparable(one), comparable(other));

function comparable({ pod, conditions: _conditions, ...rest }: DesiredPod): unknown {
  const { status: _status, metadata, spec, ...kind } = pod;
  const { generation: _generation, resourceVersion: _revision, ...named } = metadata;
  const { tolerations: _tolerations, ...made } = spec;
  return { ...rest, ...kind, metadata: named, spec: made };
}
