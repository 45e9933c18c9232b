import type { Pod } from "@picolet/protocol/pod/pod.ts";

/** Which of a pod's containers an event is about, as Kubernetes writes it: `spec.initContainers{name}`. */
export function containerFieldPath({ spec }: Pod, name: string): string {
  const lists = ["initContainers", "ephemeralContainers"] as const;
  const list = lists.find((each) => spec[each]?.some((container) => container.name === name)) ?? "containers";
  return `spec.${list}{${name}}`;
}
