/** Selectors in objects (`matchLabels`, `matchExpressions`); those in queries are the API server's. */
import { matchesRequirement } from "@picolet/protocol/kubernetes/selector-requirement.ts";
import type { LabelSelector } from "./typed-objects.ts";

type Labels = Readonly<Record<string, string>>;

export const hasLabels = (labels: Labels, wanted: Labels): boolean =>
  Object.entries(wanted).every(([key, value]) => Object.hasOwn(labels, key) && labels[key] === value);

/** A missing selector matches nothing, an empty one everything. */
export const selects = (selector: LabelSelector | undefined, labels: Labels | undefined): boolean =>
  selector !== undefined &&
  hasLabels(labels ?? {}, selector.matchLabels ?? {}) &&
  (selector.matchExpressions ?? []).every((requirement) => matchesRequirement(labels ?? {}, requirement));
