import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { requiredValue } from "../api/field-errors.ts";
import type { ApiObject } from "../api/resource-definition.ts";
import { badRequest, conflict, invalidObject, successStatus } from "../api/status-error.ts";
import type { ResourceService, SubresourceHandler } from "../service/resource-service.ts";

type Fields = Record<string, unknown>;

const PODS = { group: "", plural: "pods" };

const asFields = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});

/** `pods/binding`: the scheduler's decision. A pod is bound once. */
export function podBinding(service: ResourceService, now: () => Date): SubresourceHandler {
  return {
    async create(request, input, params) {
      const { name: asked } = asFields(input.metadata);
      if (typeof asked === "string" && asked !== "" && asked !== request.name) {
        throw badRequest(`the name of the object (${asked}) does not match the name on the URL (${request.name})`);
      }
      const { kind, name: node } = asFields(input.target);
      if (kind !== undefined && kind !== "" && kind !== "Node") {
        throw invalidObject({ group: "", kind: "Binding" }, request.name, [
          requiredValue("target.kind", 'must be "Node"'),
        ]);
      }
      if (typeof node !== "string" || node === "") {
        throw invalidObject({ group: "", kind: "Binding" }, request.name, [requiredValue("target.name")]);
      }
      const { annotations, uid } = asFields(input.metadata);
      const change = (pod: ApiObject): void => {
        bind(pod, node, { annotations, uid }, now());
        request.definition.strategy.prepareForBinding?.(pod, service.lookup);
      };
      await service.modify(request, change, params);
      return successStatus(201) as unknown as ApiObject;
    },
  };
}

function bind(pod: ApiObject, node: string, { annotations, uid }: Fields, now: Date): void {
  const { metadata } = pod;
  const refuse = (why: string): never => {
    throw conflict({ ...PODS, plural: "pods/binding" }, metadata.name, why);
  };
  if (uid !== undefined && uid !== "" && uid !== metadata.uid) {
    refuse(`Precondition failed: UID in precondition: ${String(uid)}, UID in object meta: ${metadata.uid ?? ""}`);
  }
  if (metadata.deletionTimestamp !== undefined)
    refuse(`pod ${metadata.name} is being deleted, cannot be assigned to a host`);
  const spec = asFields(pod.spec);
  if (typeof spec.nodeName === "string" && spec.nodeName !== "") {
    refuse(`pod ${metadata.name} is already assigned to node ${JSON.stringify(spec.nodeName)}`);
  }
  if (Array.isArray(spec.schedulingGates) && spec.schedulingGates.length > 0) {
    refuse(`pod ${metadata.name} has non-empty .spec.schedulingGates`);
  }
  pod.spec = { ...spec, nodeName: node };
  for (const [key, value] of Object.entries(asFields(annotations))) {
    if (typeof value === "string") metadata.annotations = { ...metadata.annotations, [key]: value };
  }
  const status = asFields(pod.status);
  const conditions = Array.isArray(status.conditions) ? status.conditions.map(asFields) : [];
  const others = conditions.filter(({ type }) => type !== "PodScheduled");
  const scheduled = {
    type: "PodScheduled",
    status: "True",
    observedGeneration: metadata.generation,
    lastProbeTime: null,
    lastTransitionTime: kubeTime(now),
  };
  pod.status = { ...status, conditions: [...others, scheduled] };
}
