import { keyOf } from "@picolet/hub-core/kube-client/reflector.ts";
import { POD_DISRUPTION_BUDGETS } from "@picolet/hub-core/kube-client/resource-types.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import { selects } from "../../api/label-selector.ts";
import { podOf } from "../../api/typed-objects.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { ObjectCache, ObjectChange } from "../object-cache.ts";
import { type BudgetStatus, budgetStatus, coveredPods, type DisruptionBudget } from "./plan-disruption.ts";

/** While an eviction that was allowed has not been seen to happen. */
const RECHECK = seconds(30);

export interface DisruptionCaches {
  readonly budgets: ObjectCache;
  readonly pods: ObjectCache;
}

/** Keeps the status of PodDisruptionBudgets, by which evictions are allowed. */
export class DisruptionController extends Controller {
  readonly #ports: ControllerPorts;
  readonly #caches: DisruptionCaches;

  constructor({ caches, ...ports }: ControllerPorts & { readonly caches: DisruptionCaches }) {
    super(ports, { name: "disruption controller", needs: Object.values(caches) });
    this.#ports = ports;
    this.#caches = caches;
    caches.budgets.onChange(({ key }) => this.loop.add(key));
    caches.pods.onChange((change) => this.#podChanged(change));
  }

  #podChanged({ before, after }: ObjectChange): void {
    const { namespace = "" } = (after ?? before)?.metadata ?? {};
    for (const budget of this.#caches.budgets.list("namespace", namespace) as readonly DisruptionBudget[]) {
      const isCovered = [before, after].some(
        (pod) => pod !== undefined && selects(budget.spec?.selector, pod.metadata.labels),
      );
      if (isCovered) this.loop.add(keyOf(namespace, budget.metadata.name));
    }
  }

  protected async reconcile(key: string, signal: AbortSignal): Promise<Millis | undefined> {
    const budget = this.#caches.budgets.get(key) as DisruptionBudget | undefined;
    if (budget === undefined || budget.metadata.deletionTimestamp !== undefined) return undefined;
    const { namespace = "", name } = budget.metadata;
    const now = this.#ports.clock.wall();
    const pods = coveredPods(budget, this.#caches.pods.list("namespace", namespace).map(podOf));
    const status = withCondition(budgetStatus(budget, pods, now), budget.status, kubeTime(now));
    if (JSON.stringify(inOrder(status)) !== JSON.stringify(inOrder(budget.status))) {
      const update = { ...budget, status };
      const ref = { namespace, name };
      await this.#ports.client.update(POD_DISRUPTION_BUDGETS, ref, update, { subresource: "status" }, signal);
    }
    return status.disruptedPods === undefined ? undefined : RECHECK;
  }
}

function withCondition(status: BudgetStatus, before: BudgetStatus | undefined, now: string): BudgetStatus {
  const isAllowed = status.disruptionsAllowed > 0;
  const wanted = isAllowed ? "True" : "False";
  const existing = before?.conditions?.find(({ type }) => type === "DisruptionAllowed");
  const lastTransitionTime = existing?.status === wanted ? (existing.lastTransitionTime ?? now) : now;
  const condition = {
    type: "DisruptionAllowed",
    status: wanted,
    reason: isAllowed ? "SufficientPods" : "InsufficientPods",
    message: "",
    lastTransitionTime,
    observedGeneration: status.observedGeneration,
  };
  return { ...status, conditions: [condition] };
}

function inOrder(status: BudgetStatus | undefined): readonly unknown[] {
  const condition = status?.conditions?.[0];
  return [
    status?.observedGeneration,
    Object.entries(status?.disruptedPods ?? {}).sort(),
    status?.disruptionsAllowed,
    status?.currentHealthy,
    status?.desiredHealthy,
    status?.expectedPods,
    condition?.status,
    condition?.reason,
  ];
}
