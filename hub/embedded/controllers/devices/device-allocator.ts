import { type KubeClient, type KubeObject, RESOURCE_CLAIMS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { Turns } from "../../api/turns.ts";
import type { NodeObject } from "../../api/typed-objects.ts";
import type { SelectorCompiler } from "../../expressions/selector-compiler.ts";
import type { ObjectCache } from "../object-cache.ts";
import { type ClaimNeeds, claimNeeds } from "./claim-needs.ts";
import { type ClaimRules, claimRules, isReserved, type ResourceClaim } from "./claims-of-pod.ts";
import { DeviceMatcher, MAX_POD_EXPRESSIONS } from "./device-matcher.ts";
import { DevicePools, deviceId } from "./device-pools.ts";
import { type Allocation, type AllocationPlan, planAllocation, TryBudget } from "./plan-allocation.ts";

/** Kubernetes' mark on a claim that its own scheduler allocated: it may be deallocated by its own controller. */
export const ALLOCATED_HERE = "resource.kubernetes.io/delete-protection";

export interface AllocatorCaches {
  readonly resourceClaims: ObjectCache;
  readonly deviceClasses: ObjectCache;
  readonly resourceSlices: ObjectCache;
}

/** A claim with the devices that are written into it before its pod is bound. */
export interface ClaimBinding {
  readonly claim: ResourceClaim;
  /** Undefined: it has one. */
  readonly allocation?: Allocation;
}

export type DeviceRules =
  | { readonly kind: "ready"; readonly rules: ClaimRules; bindings(node: string): readonly ClaimBinding[] }
  /** @property ready resolves when it is worth asking again */
  | { readonly kind: "evaluating"; readonly ready: Promise<void> };

/** Gives pods the devices that their claims ask for. What it has decided counts as taken until the cache shows it. */
export class DeviceAllocator {
  readonly #caches: AllocatorCaches;
  readonly #matcher: DeviceMatcher;
  readonly #client: KubeClient;
  /** Devices of claims, by the claim's uid: those that the cache shows, and those that are being written. */
  readonly #allocated = new Map<string, readonly string[]>();
  readonly #assumed = new Map<string, readonly string[]>();
  #pools: DevicePools | undefined;

  constructor(
    components: {
      readonly client: KubeClient;
      readonly clock: Clock;
      readonly compiler: SelectorCompiler;
      readonly turns: Turns;
    },
    init: { readonly caches: AllocatorCaches },
  ) {
    const { client, clock, compiler, turns } = components;
    this.#client = client;
    this.#caches = init.caches;
    this.#matcher = new DeviceMatcher({ turns, compiler, monotonic: () => clock.monotonic() });
    const { resourceClaims, resourceSlices } = init.caches;
    resourceSlices.onChange(() => {
      this.#pools = undefined;
    });
    resourceClaims.onChange(({ before, after }) => {
      if (before !== undefined && before.metadata.uid !== after?.metadata.uid) this.forget(before.metadata.uid ?? "");
      if (before !== undefined) this.#allocated.delete(before.metadata.uid ?? "");
      const devices = after === undefined ? undefined : devicesOf(after as ResourceClaim);
      if (after === undefined || devices === undefined) return;
      this.#allocated.set(after.metadata.uid ?? "", devices);
      this.#assumed.delete(after.metadata.uid ?? "");
    });
  }

  /** @param signal ends the evaluation of expressions */
  rules(pod: Pod, signal: AbortSignal): DeviceRules {
    const rules = claimRules(pod, this.#caches.resourceClaims);
    const { obstacle, unallocated, unreserved } = rules;
    const reserved = unreserved.map((claim) => ({ claim }));
    const ready = (more: Partial<ClaimRules>): DeviceRules => ({
      kind: "ready",
      rules: { ...rules, ...more },
      bindings: () => reserved,
    });
    if (obstacle !== undefined || unallocated.length === 0) return ready({});
    if (unallocated.some(({ metadata }) => this.#assumed.has(metadata.uid ?? "")))
      return ready({ obstacle: "waiting for a resourceclaim that is being allocated for another pod" });
    const needs: ClaimNeeds[] = [];
    for (const claim of unallocated) {
      const found = claimNeeds(claim, (name) => this.#caches.deviceClasses.get(name));
      if (!found.ok) return ready({ obstacle: found.problem });
      needs.push(found.needs);
    }
    this.#pools ??= new DevicePools(this.#caches.resourceSlices.list());
    const requests = needs.flatMap((each) => each.requests.flat());
    const expressions = new Set(requests.flatMap(({ selectors }) => selectors.map(({ expression }) => expression)));
    if (expressions.size > MAX_POD_EXPRESSIONS)
      return ready({ obstacle: `the pod's claims have more than ${MAX_POD_EXPRESSIONS} selectors` });
    for (const device of this.#pools.all()) {
      if (requests.some((request) => this.#matcher.suits(request, device) === undefined)) {
        const task = this.#matcher.evaluate(requests, this.#pools.all(), pod.metadata.namespace, signal);
        return { kind: "evaluating", ready: task };
      }
    }
    return this.#allocation(rules, unallocated, needs, this.#pools);
  }

  #allocation(
    rules: ClaimRules,
    unallocated: readonly ResourceClaim[],
    needs: readonly ClaimNeeds[],
    pools: DevicePools,
  ): DeviceRules {
    const taken = new Set([...this.#allocated.values(), ...this.#assumed.values()].flat());
    const plans = new Map<string, AllocationPlan>();
    const budget = new TryBudget();
    const nodeProblem = (node: NodeObject): string | undefined => {
      const problem = rules.nodeProblem?.(node);
      if (problem !== undefined) return problem;
      const plan = planAllocation({
        ...{ node: node.metadata.name, claims: needs, devices: pools.ofNode(node), taken, budget },
        updatingPool: pools.updatingPool(node),
        suits: (request, device) => this.#matcher.suits(request, device) ?? false,
      });
      plans.set(node.metadata.name, plan);
      return plan.kind === "none" ? plan.reason : undefined;
    };
    const bindings = (node: string): readonly ClaimBinding[] => {
      const plan = plans.get(node);
      const allocations = plan?.kind === "fits" ? plan.allocations : [];
      return [
        ...rules.unreserved.map((claim) => ({ claim })),
        ...unallocated.flatMap((claim, index) => {
          const allocation = allocations[index];
          return allocation === undefined ? [] : [{ claim, allocation }];
        }),
      ];
    };
    return { kind: "ready", rules: { ...rules, nodeProblem }, bindings };
  }

  /** The decision is made: its devices are taken from now on. */
  assume(bindings: readonly ClaimBinding[]): void {
    for (const { claim, allocation } of bindings) {
      if (allocation === undefined) continue;
      const devices = devicesOf({ ...claim, status: { allocation } }) ?? [];
      this.#assumed.set(claim.metadata.uid ?? "", devices);
    }
  }

  /** The decision was not carried out. */
  forget(uid: string): void {
    this.#assumed.delete(uid);
  }

  /**
   * Allocates the claim if need be, and makes the pod its user. Fails with `conflict` if another pod was quicker; then
   * the pod is tried again.
   */
  async bind({ claim, allocation }: ClaimBinding, pod: KubeObject, signal: AbortSignal): Promise<void> {
    const { name, namespace = "", uid } = claim.metadata;
    const ref = { namespace, name };
    let { resourceVersion, finalizers = [] } = claim.metadata;
    try {
      if (allocation !== undefined && !finalizers.includes(ALLOCATED_HERE)) {
        finalizers = [...finalizers, ALLOCATED_HERE];
        const marked = { metadata: { uid, resourceVersion, finalizers } };
        ({ resourceVersion } = (await this.#client.patch(RESOURCE_CLAIMS, ref, "merge", marked, {}, signal)).metadata);
      }
      const consumer = { resource: "pods", name: pod.metadata.name, uid: pod.metadata.uid };
      const reservedFor = [...(claim.status?.reservedFor ?? []), consumer];
      const status = { ...(allocation === undefined ? {} : { allocation }), reservedFor };
      const patch = { metadata: { uid, resourceVersion }, status };
      await this.#client.patch(RESOURCE_CLAIMS, ref, "merge", patch, { subresource: "status" }, signal);
    } catch (error) {
      // A write that was cut off may have been carried out: the cache will say.
      if (!isCancelled(error)) this.forget(uid ?? "");
      throw error;
    }
  }

  /**
   * Gives back one claim of a pod that fits nowhere, so that it may get other devices: as Kubernetes, one at a time,
   * and only what this API server has allocated and no other pod uses.
   */
  async giveBack(pod: Pod, signal: AbortSignal): Promise<void> {
    const { uid = "" } = pod.metadata;
    const { allocated } = claimRules(pod, this.#caches.resourceClaims);
    const claim = allocated.find(
      ({ metadata, status }) =>
        metadata.finalizers?.includes(ALLOCATED_HERE) === true &&
        (status?.reservedFor ?? []).every((consumer) => consumer.uid === uid),
    );
    if (claim === undefined) return;
    const { name, namespace = "", uid: claimUid, resourceVersion } = claim.metadata;
    const status = { allocation: null, ...(isReserved(claim, uid) ? { reservedFor: null } : {}) };
    const patch = { metadata: { uid: claimUid, resourceVersion }, status };
    const options = { subresource: "status" };
    await this.#client.patch(RESOURCE_CLAIMS, { namespace, name }, "merge", patch, options, signal);
  }
}

/** Devices that no other claim may have. Undefined: it is not allocated. */
function devicesOf({ status }: ResourceClaim): readonly string[] | undefined {
  return status?.allocation?.devices?.results
    ?.filter(({ adminAccess }) => adminAccess !== true)
    .map(({ driver, pool, device }) => deviceId(driver, pool, device));
}
