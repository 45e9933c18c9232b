/** This node's labels and taints, as admission of pods compares them. Pure. */
import type { NodeLabelsAndTaints, NodeTaint } from "../plan/admission/admission-node.ts";
import type { Machine } from "./machine.ts";
import { ownLabels } from "./node-report.ts";

export interface NodeLabelsInit {
  readonly nodeName: string;
  readonly machine: Machine;
  /** `nodeLabels` */
  readonly labels: Readonly<Record<string, string>>;
  /** `registerWithTaints` */
  readonly taints: readonly NodeTaint[];
}

/** @param remote the Node object as the API server has it: labels and taints may have been given to it there */
export function nodeLabelsAndTaints(
  init: NodeLabelsInit,
  remote: Readonly<Record<string, unknown>> | undefined,
): NodeLabelsAndTaints {
  const { nodeName: name, machine, labels, taints } = init;
  const own = { ...ownLabels(name, machine), ...labels };
  if (remote === undefined) return { name, labels: own, taints };
  const { metadata, spec } = remote as { readonly metadata?: unknown; readonly spec?: unknown };
  return {
    name,
    labels: { ...own, ...textsOf(fieldOf(metadata, "labels")) },
    taints: taintsOf(fieldOf(spec, "taints")),
  };
}

const fieldOf = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>)[name] : undefined;

function textsOf(value: unknown): Record<string, string> {
  if (typeof value !== "object" || value === null) return {};
  return Object.fromEntries(Object.entries(value).filter(([, each]) => typeof each === "string"));
}

function taintsOf(value: unknown): readonly NodeTaint[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((each: unknown) => {
    const [key, taintValue, effect] = ["key", "value", "effect"].map((name) => fieldOf(each, name));
    if (typeof key !== "string" || typeof effect !== "string") return [];
    return [{ key, effect, ...(typeof taintValue === "string" ? { value: taintValue } : {}) }];
  });
}
