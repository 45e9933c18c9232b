import type { Pod } from "@picolet/protocol/pod/pod.ts";

/** @returns the field path of a container for an event, as in Kubernetes: `spec.initContainers{name}` */
export function containerFieldPath({ spec }: Pod, name: string): string {
  const lists = ["initContainers", "ephemeralContainers"] as const;
  const list = lists.find((each) => spec[each]?.some((container) => container.name === name)) ?? "containers";
  return `spec.${list}{${name}}`;
}
