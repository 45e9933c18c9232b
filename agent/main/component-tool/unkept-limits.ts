/** The container's limits that are not enforced without a cgroup. A node enforces them. */
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { CgroupHierarchies } from "../../resources/cgroup-hierarchies.ts";

/** @param uid of this process. @returns one line; undefined: nothing is asked for that is not kept */
export function unkeptLimits(
  { resources }: Pick<Container, "resources">,
  hierarchies: CgroupHierarchies,
  uid: number,
): string | undefined {
  const { cpu, memory } = resources?.limits ?? {};
  const unkept = [
    ...(cpu === undefined ? [] : [`cpu ${cpu} is not kept`]),
    ...(memory === undefined
      ? []
      : [`memory ${memory} is kept of the component's own memory alone, not of its process`]),
  ];
  if (unkept.length === 0) return undefined;
  const refusal = uid === 0 ? "they cannot be changed here" : "it takes root";
  const why = hierarchies.kind === "none" ? hierarchies.why : refusal;
  return `no cgroup can be made for its limits (${why}): ${unkept.join("; ")}`;
}
