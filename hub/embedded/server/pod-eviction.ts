import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { selects } from "../api/label-selector.ts";
import type { ApiObject, ResourceDefinition } from "../api/resource-definition.ts";
import type { ResourceTable } from "../api/resource-table.ts";
import { badRequest, notFound, pathNotFound, StatusError, successStatus } from "../api/status-error.ts";
import type { LabelSelector } from "../api/typed-objects.ts";
import { deleteParams } from "../service/params.ts";
import type { ResourceRequest, WriteParams } from "../service/resource-request.ts";
import type { ResourceService, SubresourceHandler } from "../service/resource-service.ts";
import { checkPreconditions } from "../service/resource-writer.ts";

type Fields = Record<string, unknown>;

const asFields = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
const asCount = (value: unknown): number => (typeof value === "number" ? value : 0);

const BUDGETS = "poddisruptionbudgets.policy";
const REFUSED = "Cannot evict pod as it would violate the pod's disruption budget.";
/** Time after which a client may ask again for a budget that the controller has not counted yet. */
const RETRY_SECONDS = 10;

/**
 * `pods/eviction`: a deletion that the PodDisruptionBudget of the pod allows. Everything that may refuse it is checked
 * before the first write, for three objects are written one after the other.
 */
export function podEviction(service: ResourceService, table: ResourceTable, now: () => Date): SubresourceHandler {
  return {
    async create(request, input, params) {
      const { name } = asFields(input.metadata);
      if (typeof name === "string" && name !== "" && name !== request.name) {
        throw badRequest(`name in URL does not match name in Eviction object`);
      }
      const pod = service.lookup.get("pods", request.namespace, request.name);
      if (pod === undefined) throw notFound(request.definition, request.name);
      const options = deleteParams(new URLSearchParams(), asFields(input.deleteOptions));
      checkPreconditions(request.definition, request.name, pod, options);
      // Either place may say so.
      const isDryRun = options.isDryRun || params.isDryRun;
      const write = { ...params, isDryRun };
      const budget = needsNoBudget(pod) ? undefined : budgetOf(service, pod);
      if (budget !== undefined && takesFromBudget(budget, pod)) {
        await spend(service, table, request, { budget, pod, now: now() }, write);
      }
      await markEvicted(service, request, { pod, now: now() }, write);
      // This very pod; its version is another since it was marked.
      const exact = { ...options, isDryRun, uid: pod.metadata.uid, resourceVersion: undefined };
      await service.delete({ ...request, subresource: "" }, exact);
      return successStatus(201) as unknown as ApiObject;
    },
  };
}

/** Marks the pod, so that its controller does not count it as failed. */
async function markEvicted(
  service: ResourceService,
  request: ResourceRequest,
  { pod, now }: { readonly pod: ApiObject; readonly now: Date },
  params: WriteParams,
): Promise<void> {
  const condition = {
    type: "DisruptionTarget",
    status: "True",
    reason: "EvictionByEvictionAPI",
    message: "Eviction API: evicting",
    lastTransitionTime: kubeTime(now),
  };
  const mark = (stored: ApiObject): void => {
    checkPreconditions(request.definition, request.name, stored, { uid: pod.metadata.uid, resourceVersion: undefined });
    const status = asFields(stored.status);
    const conditions: readonly unknown[] = Array.isArray(status.conditions) ? status.conditions : [];
    const others = conditions.filter((each) => asFields(each).type !== condition.type);
    stored.status = { ...status, conditions: [...others, condition] };
  };
  await service.modify({ ...request, subresource: "status" }, mark, params);
}

/** True for a pod that ends anyway, so that its eviction disrupts nothing. */
function needsNoBudget(pod: ApiObject): boolean {
  const { phase } = asFields(pod.status);
  return (
    pod.metadata.deletionTimestamp !== undefined || phase === "Succeeded" || phase === "Failed" || phase === "Pending"
  );
}

function budgetOf(service: ResourceService, pod: ApiObject): ApiObject | undefined {
  const { namespace = "", labels } = pod.metadata;
  const matching = service.lookup
    .list(BUDGETS, namespace)
    .filter((budget) => selects(asFields(budget.spec).selector as LabelSelector | undefined, labels));
  if (matching.length > 1) {
    const message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    throw new StatusError("InternalError", message);
  }
  return matching[0];
}

function isReady(pod: ApiObject): boolean {
  const { conditions } = asFields(pod.status);
  return (
    Array.isArray(conditions) &&
    conditions.some((each) => asFields(each).type === "Ready" && asFields(each).status === "True")
  );
}

/** True when the eviction counts. A pod that is not ready may go without. @throws StatusError 429 */
function takesFromBudget(budget: ApiObject, pod: ApiObject): boolean {
  const { name, generation = 0 } = budget.metadata;
  const status = asFields(budget.status);
  const [healthy, desired] = [asCount(status.currentHealthy), asCount(status.desiredHealthy)];
  if (!isReady(pod)) {
    const policy = asFields(budget.spec).unhealthyPodEvictionPolicy;
    if (policy === "AlwaysAllow" || (healthy >= desired && desired > 0)) return false;
  }
  if (asCount(status.observedGeneration) < generation) {
    throw refused(`The disruption budget ${name} is still being processed by the server.`);
  }
  if (asCount(status.disruptionsAllowed) > 0) return true;
  throw refused(`The disruption budget ${name} needs ${desired} healthy pods and has ${healthy} currently`);
}

const refused = (message: string): StatusError =>
  new StatusError("TooManyRequests", REFUSED, {
    causes: [{ reason: "DisruptionBudget", message }],
    retryAfterSeconds: RETRY_SECONDS,
  });

async function spend(
  service: ResourceService,
  table: ResourceTable,
  request: ResourceRequest,
  { budget, pod, now }: { readonly budget: ApiObject; readonly pod: ApiObject; readonly now: Date },
  params: WriteParams,
): Promise<void> {
  const definition: ResourceDefinition | undefined = table.named(BUDGETS);
  if (definition === undefined) throw pathNotFound();
  const change = (object: ApiObject): void => {
    const status = asFields(object.status);
    object.status = {
      ...status,
      disruptionsAllowed: asCount(status.disruptionsAllowed) - 1,
      // The controller counts the pod as gone as long as it is seen here.
      disruptedPods: { ...asFields(status.disruptedPods), [pod.metadata.name]: kubeTime(now) },
    };
  };
  await service.modify({ ...request, definition, subresource: "status", name: budget.metadata.name }, change, params);
}
