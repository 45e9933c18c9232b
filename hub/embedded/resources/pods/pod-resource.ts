import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { qosClass } from "@picolet/protocol/pod/qos.ts";
import { forbiddenValue } from "../../api/field-errors.ts";
import { listAt, section, textAt } from "../../api/object-fields.ts";
import type { ApiObject, ResourceDefinition, StrategyContext } from "../../api/resource-definition.ts";
import { invalidObject } from "../../api/status-error.ts";
import { POD_COLUMNS } from "../../printing/pod-columns.ts";
import { admitPlacement, admitPod, admitTolerations, type PodAdmissionInit } from "./pod-admission.ts";
import { resizedSpec, validateResize } from "./pod-resize.ts";
import { defaultPod, validatePodObject } from "./pod-template.ts";
import { validateEphemeralContainers, validateMirrorAnnotation, validatePodUpdate } from "./pod-update.ts";

const SELECTABLE = [
  "spec.nodeName",
  "spec.restartPolicy",
  "spec.schedulerName",
  "spec.serviceAccountName",
  "spec.hostNetwork",
  "status.phase",
  "status.podIP",
  "status.nominatedNodeName",
];

const EVICTION = { group: "policy", version: "v1", kind: "Eviction" };
const BINDING = { group: "", version: "v1", kind: "Binding" };

export function podResource(init: PodAdmissionInit): ResourceDefinition {
  return {
    group: "",
    version: "v1",
    plural: "pods",
    singular: "pod",
    kind: "Pod",
    namespaced: true,
    shortNames: ["po"],
    categories: ["all"],
    model: "V1Pod",
    columns: POD_COLUMNS,
    subresources: [
      { name: "attach", kind: optionsKind("Attach"), verbs: ["get", "create"] },
      { name: "binding", kind: BINDING, verbs: ["create"] },
      { name: "ephemeralcontainers", verbs: ["get", "patch", "update"] },
      { name: "eviction", kind: EVICTION, verbs: ["create"] },
      { name: "exec", kind: optionsKind("Exec"), verbs: ["get", "create"] },
      { name: "log", verbs: ["get"] },
      { name: "portforward", kind: optionsKind("PortForward"), verbs: ["get", "create"] },
      { name: "resize", verbs: ["get", "patch", "update"] },
      { name: "status", verbs: ["get", "patch", "update"] },
    ],
    selectableFields: Object.fromEntries(
      SELECTABLE.map((path) => [path, (pod: ApiObject) => textAt(pod, ...path.split(".")) || emptyOf(path)]),
    ),
    strategy: {
      default: defaultPod,
      hasGeneration: true,
      prepareForCreate(pod, context) {
        if (listAt(pod, "spec", "ephemeralContainers").length > 0) {
          const error = forbiddenValue("spec.ephemeralContainers", "cannot be set on create");
          throw invalidObject({ group: "", kind: "Pod" }, pod.metadata.name, [error]);
        }
        admitPod(pod, context, init);
        pod.status = { phase: "Pending", qosClass: qosClass(pod as unknown as Pod), ...gatedCondition(pod) };
      },
      prepareForUpdate(pod, old, context) {
        pod.status = old.status;
        admitTolerations(section(pod, "spec"));
        admitPlacement(pod, context, init);
      },
      prepareForBinding: (pod, lookup) => admitPlacement(pod, { lookup }, init),
      prepareForSubresource: preparePodSubresource,
      validate: (pod, { subresource }) => (subresource === "status" ? [] : validatePodObject(pod)),
      validateUpdate(pod, old, { subresource }) {
        const errors = validateMirrorAnnotation(pod, old);
        if (errors.length > 0) return errors;
        if (subresource === "") return validatePodUpdate(pod, old);
        if (subresource === "ephemeralcontainers") return validateEphemeralContainers(pod, old);
        return subresource === "resize" ? validateResize(pod, old) : [];
      },
      gracePeriod: podGracePeriod,
    },
  };
}

const optionsKind = (verb: string) => ({ group: "", version: "v1", kind: `Pod${verb}Options` });

/** A boolean field that is not set is `false` to a selector. */
const emptyOf = (path: string): string => (path === "spec.hostNetwork" ? "false" : "");

const GATED = {
  type: "PodScheduled",
  status: "False",
  reason: "SchedulingGated",
  message: "Scheduling is blocked due to non-empty scheduling gates",
};

const gatedCondition = (pod: ApiObject): object =>
  listAt(pod, "spec", "schedulingGates").length === 0 ? {} : { conditions: [{ ...GATED, lastTransitionTime: null }] };

function preparePodSubresource(pod: ApiObject, old: ApiObject, context: StrategyContext): void {
  const { subresource } = context;
  const spec = section(pod, "spec");
  const status = section(pod, "status");
  if (old.metadata.ownerReferences === undefined) delete pod.metadata.ownerReferences;
  else pod.metadata.ownerReferences = structuredClone(old.metadata.ownerReferences);
  pod.spec = structuredClone(section(old, "spec"));
  pod.status = structuredClone(section(old, "status"));
  if (subresource === "status") {
    // Clients from before a field was known leave it out; the class of a pod never changes.
    pod.status = { ...status, qosClass: qosClass(old as unknown as Pod) };
  } else if (subresource === "ephemeralcontainers") {
    section(pod, "spec").ephemeralContainers = spec.ephemeralContainers;
  } else if (subresource === "resize") {
    pod.spec = resizedSpec(spec, section(old, "spec"));
  }
}

/** @returns seconds; at once what no kubelet has to end */
export function podGracePeriod(pod: ApiObject, requested: number | undefined): number {
  if (textAt(pod, "spec", "nodeName") === "") return 0;
  if (["Succeeded", "Failed"].includes(textAt(pod, "status", "phase"))) return 0;
  const own = section(pod, "spec").terminationGracePeriodSeconds;
  const period = requested ?? (typeof own === "number" ? own : 30);
  return period < 0 ? 1 : period;
}
