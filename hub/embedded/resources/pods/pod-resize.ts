/** `pods/resize`: CPU and memory of containers, as long as the QoS class stays (Kubernetes 1.34). */

import { isMirrorPod } from "@picolet/hub-core/pod-references.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { qosClass } from "@picolet/protocol/pod/qos.ts";
import { type FieldError, forbiddenValue, invalidValue } from "../../api/field-errors.ts";
import { fieldAt, listAt, mappingAt, sameValue, section, textAt } from "../../api/object-fields.ts";
import type { ApiObject } from "../../api/resource-definition.ts";

type Fields = Record<string, unknown>;

const LISTS = ["containers", "initContainers"] as const;
const RESIZABLE: readonly string[] = ["cpu", "memory"];

/**
 * The old spec with the resources that are asked for, everything else that was changed is dropped. What adds, removes
 * or renames containers is left as it came, for validation to refuse.
 */
export function resizedSpec(spec: Readonly<Fields>, old: Readonly<Fields>): Fields {
  const isReordered = LISTS.some((field) => !sameValue(namesIn(spec, field), namesIn(old, field)));
  if (isReordered) return { ...structuredClone(old), containers: spec.containers, initContainers: spec.initContainers };
  const next = structuredClone(old);
  for (const field of LISTS) {
    listAt(next, field).forEach((container, index) => {
      for (const name of ["resources", "resizePolicy"]) {
        const wanted = fieldAt(listAt(spec, field)[index], name);
        if (wanted === undefined) delete (container as Fields)[name];
        else (container as Fields)[name] = structuredClone(wanted);
      }
    });
  }
  return next;
}

const namesIn = (spec: Readonly<Fields>, field: string): readonly string[] =>
  listAt(spec, field).map((each) => textAt(each, "name"));

export function validateResize(pod: ApiObject, old: ApiObject): readonly FieldError[] {
  const refusal = unresizable(pod, old);
  if (refusal !== undefined) return [forbiddenValue("", refusal)];
  const errors: FieldError[] = [];
  const classes = [pod, old].map((each) => qosClass(each as unknown as Pod));
  if (classes[0] !== classes[1]) {
    errors.push(
      invalidValue("spec", textAt(old, "status", "qosClass"), "Pod QOS Class may not change as a result of resizing"),
    );
  }
  if (!nodeResizes(old)) errors.push(forbiddenValue("spec", "Pod running on node without support for resize"));
  const reordered = LISTS.flatMap((field) => orderErrors(pod, old, field));
  if (reordered.length > 0) return [...errors, ...reordered];
  for (const field of [...LISTS].reverse()) errors.push(...removalErrors(pod, old, field));
  return [...errors, ...mutationErrors(pod, old)];
}

function unresizable(pod: ApiObject, old: ApiObject): string | undefined {
  const ofPod = [pod, old].some((each) =>
    ["requests", "limits"].some((kind) => Object.keys(mappingAt(each, "spec", "resources", kind)).length > 0),
  );
  if (ofPod) return "pods with pod-level resources cannot be resized";
  return isMirrorPod(old) ? "static pods cannot be resized" : undefined;
}

/** A node that can resize reports the resources of its running containers. */
function nodeResizes(old: ApiObject): boolean {
  const running = listAt(old, "status", "containerStatuses").find(
    (each) => fieldAt(each, "state", "running") !== undefined,
  );
  return running === undefined || fieldAt(running, "resources") !== undefined;
}

function orderErrors(pod: ApiObject, old: ApiObject, field: (typeof LISTS)[number]): readonly FieldError[] {
  const [now, before] = [pod, old].map((each) => namesIn(section(each, "spec"), field));
  if (now?.length !== before?.length) {
    return [forbiddenValue(`spec.${field}`, `${field} may not be added or removed on resize`)];
  }
  return (before ?? []).flatMap((name, index) =>
    now?.[index] === name
      ? []
      : [forbiddenValue(`spec.${field}[${index}].name`, `${field} may not be renamed or reordered on resize`)],
  );
}

const isSidecar = (container: unknown): boolean => textAt(container, "restartPolicy") === "Always";

function removalErrors(pod: ApiObject, old: ApiObject, field: (typeof LISTS)[number]): readonly FieldError[] {
  return listAt(old, "spec", field).flatMap((before, index) => {
    if (field === "initContainers" && !isSidecar(before)) return [];
    const after = listAt(pod, "spec", field)[index];
    return ["requests", "limits"].flatMap((kind) => {
      const kept = mappingAt(after, "resources", kind);
      const isRemoved = Object.keys(mappingAt(before, "resources", kind)).some((name) => !Object.hasOwn(kept, name));
      const path = `spec.${field}[${index}].resources.${kind}`;
      return isRemoved ? [forbiddenValue(path, `resource ${kind} cannot be removed`)] : [];
    });
  });
}

function mutationErrors(pod: ApiObject, old: ApiObject): readonly FieldError[] {
  const errorsOf = (field: (typeof LISTS)[number], whyOf: (container: unknown) => string): readonly FieldError[] =>
    listAt(old, "spec", field).flatMap((before, index) => {
      const after = listAt(pod, "spec", field)[index];
      const isWhole = field === "initContainers" && !isSidecar(before);
      const same = isWhole ? sameValue(after, before) : sameValue(withoutAmounts(after), withoutAmounts(before));
      return same ? [] : [forbiddenValue("spec", whyOf(before))];
    });
  return [
    ...errorsOf("containers", () => "only cpu and memory resources are mutable"),
    ...errorsOf("initContainers", (container) =>
      isSidecar(container)
        ? "only cpu and memory resources for sidecar containers are mutable"
        : "resources for non-sidecar init containers are immutable",
    ),
  ];
}

function withoutAmounts(container: unknown): unknown {
  const copy = structuredClone(container) as Fields;
  const resources = { ...mappingAt(copy, "resources") };
  for (const kind of ["requests", "limits"]) {
    const left = Object.entries(mappingAt(resources, kind)).filter(([name]) => !RESIZABLE.includes(name));
    resources[kind] = Object.fromEntries(left);
  }
  return { ...copy, resources };
}
