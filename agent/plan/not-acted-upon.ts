import type { Container, Pod } from "../../protocol/pod.ts";

/**
 * Fields of a pod that this version reads, validates and does not act upon, so that whoever wrote them is told rather
 * than left to wonder. A field that is refused altogether fails where it is used, with its own reason.
 */
export function notActedUpon({ spec }: Pod): string[] {
  const initContainers = spec.initContainers ?? [];
  return [
    ...(spec.activeDeadlineSeconds === undefined ? [] : ["spec.activeDeadlineSeconds"]),
    ...((spec.readinessGates ?? []).length === 0 ? [] : ["spec.readinessGates"]),
    ...((spec.ephemeralContainers ?? []).length === 0 ? [] : ["spec.ephemeralContainers"]),
    ...initContainers.flatMap((container, index) => ofContainer(container, `spec.initContainers[${index}]`)),
    ...spec.containers.flatMap((container, index) => ofContainer(container, `spec.containers[${index}]`)),
  ];
}

function ofContainer(container: Container, path: string): string[] {
  const fields = ["startupProbe", "livenessProbe", "readinessProbe", "lifecycle"] as const;
  return fields.filter((field) => container[field] !== undefined).map((field) => `${path}.${field}`);
}
