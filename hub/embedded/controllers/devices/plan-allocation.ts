/**
 * Chooses devices for the claims of one pod on one node, as Kubernetes 1.34 does
 * (k8s.io/dynamic-resource-allocation/structured). Pure.
 */
import { untoleratedTaint } from "../../api/typed-objects.ts";
import type { AttributeFields } from "../../expressions/device-selector.ts";
import type { NodeSelectorTerm } from "../node-affinity.ts";
import type { ClaimNeeds, Constraint, RequestNeeds } from "./claim-needs.ts";
import type { PoolDevice } from "./device-pools.ts";

/** Kubernetes' limit of the devices of one claim. */
const MAX_RESULTS = 32;
/**
 * Devices that are tried on one node, 1 us each on a busy core. A board has some devices, and the first that suit are
 * mostly right; constraints that nothing meets would make it try all combinations.
 */
const MAX_TRIES = 5_000;
/** Devices that suit and are tried for one pod on all nodes: 30 ms. A thousand boards have thirty devices each. */
const MAX_POD_TRIES = 30_000;

/** Counts the tries for one pod, over all nodes. */
export class TryBudget {
  #left = MAX_POD_TRIES;

  /** @returns false when there are none left */
  spend(): boolean {
    this.#left -= 1;
    return this.#left >= 0;
  }
}

export interface AllocationResult {
  readonly request: string;
  readonly driver: string;
  readonly pool: string;
  readonly device: string;
  readonly adminAccess?: true;
  readonly tolerations?: readonly object[];
}

export interface Allocation {
  readonly devices: { readonly results: readonly AllocationResult[]; readonly config?: readonly object[] };
  readonly nodeSelector?: { readonly nodeSelectorTerms: readonly NodeSelectorTerm[] };
}

export type AllocationPlan =
  /** @property allocations in the order of the claims */
  | { readonly kind: "fits"; readonly allocations: readonly Allocation[] }
  /** @property reason in Kubernetes' words, where it has them */
  | { readonly kind: "none"; readonly reason: string };

export interface AllocationInput {
  readonly node: string;
  readonly claims: readonly ClaimNeeds[];
  /** Those that the node reaches. */
  readonly devices: readonly PoolDevice[];
  /** A pool with devices for the node that is incomplete. */
  readonly updatingPool?: string | undefined;
  /** Ids of devices that claims have. */
  readonly taken: ReadonlySet<string>;
  readonly budget: TryBudget;
  /** True when the device suits the request's selectors; an error: one of them failed. */
  readonly suits: (request: RequestNeeds, device: PoolDevice) => boolean | Error;
}

interface Choice {
  readonly request: RequestNeeds;
  readonly device: PoolDevice;
}

const TIMED_OUT = "timed out trying to allocate devices";

class Impossible extends Error {}

export function planAllocation(input: AllocationInput): AllocationPlan {
  const search = new Search(input);
  try {
    if (!search.find(0, 0)) return { kind: "none", reason: "cannot allocate all claims" };
  } catch (error) {
    if (error instanceof Impossible) return { kind: "none", reason: error.message };
    throw error;
  }
  const allocations = input.claims.map((claim, index) => allocationOf(claim, search.chosen[index] ?? [], input.node));
  return { kind: "fits", allocations };
}

/** Tries devices in their order, and goes back where the rest cannot be met. */
class Search {
  /** By claim. */
  readonly chosen: Choice[][];
  readonly #input: AllocationInput;
  readonly #taking = new Set<string>();
  #tries = 0;

  constructor(input: AllocationInput) {
    this.#input = input;
    this.chosen = input.claims.map(() => []);
  }

  /** Meets the requests from this one on. */
  find(claim: number, request: number): boolean {
    const needs = this.#input.claims[claim];
    if (needs === undefined) return true;
    const choices = needs.requests[request];
    if (choices === undefined) return this.find(claim + 1, 0);
    return choices.some((each) =>
      each.mode === "All" ? this.#takeAll(claim, request, each) : this.#takeSome(claim, request, each, each.count, 0),
    );
  }

  #takeAll(claim: number, request: number, needs: RequestNeeds): boolean {
    const { devices, updatingPool, claims } = this.#input;
    if (updatingPool !== undefined) {
      const { namespace = "", name = "" } = claims[claim] ?? {};
      const why = `asks for all devices, but resource pool ${updatingPool} is currently being updated`;
      throw new Impossible(`claim ${namespace}/${name}, request ${needs.name}: ${why}`);
    }
    const suitable = devices.filter((device) => this.#suits(claim, needs, device));
    const chosen = this.chosen[claim] ?? [];
    const before = chosen.length;
    const areTaken = suitable.length > 0 && suitable.every((device) => this.#take(claim, needs, device));
    if (areTaken && this.find(claim, request + 1)) return true;
    while (chosen.length > before) this.#release(claim);
    return false;
  }

  /** @param from the first device that may be taken: a request takes its devices in order */
  #takeSome(claim: number, request: number, needs: RequestNeeds, count: number, from: number): boolean {
    if (count === 0) return this.find(claim, request + 1);
    const { devices } = this.#input;
    for (let index = from; index <= devices.length - count; index += 1) {
      const device = devices[index];
      if (device === undefined || !this.#suits(claim, needs, device) || !this.#take(claim, needs, device)) continue;
      if (this.#takeSome(claim, request, needs, count - 1, index + 1)) return true;
      this.#release(claim);
    }
    return false;
  }

  #suits(claim: number, needs: RequestNeeds, device: PoolDevice): boolean {
    this.#tries += 1;
    if (this.#tries > MAX_TRIES) throw new Impossible(TIMED_OUT);
    const suits = this.#input.suits(needs, device);
    if (suits instanceof Error) {
      const { namespace, name } = this.#input.claims[claim] ?? { namespace: "", name: "" };
      throw new Impossible(`claim ${namespace}/${name}: ${suits.message}`);
    }
    if (!suits) return false;
    if (!this.#input.budget.spend()) throw new Impossible(TIMED_OUT);
    return untoleratedTaint(device.spec.taints ?? [], needs.tolerations, ["NoSchedule", "NoExecute"]) === undefined;
  }

  /** False: it is in use, or breaks a constraint. */
  #take(claim: number, needs: RequestNeeds, device: PoolDevice): boolean {
    const chosen = this.chosen[claim] ?? [];
    const isInUse = this.#taking.has(device.id) || this.#input.taken.has(device.id);
    if ((isInUse && !needs.adminAccess) || chosen.length >= MAX_RESULTS) return false;
    const constraints = this.#input.claims[claim]?.constraints ?? [];
    if (!constraints.every((each) => isMet(each, chosen, { request: needs, device }))) return false;
    chosen.push({ request: needs, device });
    if (!needs.adminAccess) this.#taking.add(device.id);
    return true;
  }

  #release(claim: number): void {
    const last = this.chosen[claim]?.pop();
    if (last !== undefined && !last.request.adminAccess) this.#taking.delete(last.device.id);
  }
}

const concerns = ({ requests }: Constraint, { name, parent }: RequestNeeds): boolean =>
  requests.length === 0 || requests.includes(name) || requests.includes(parent);

function isMet(constraint: Constraint, chosen: readonly Choice[], next: Choice): boolean {
  if (!concerns(constraint, next.request)) return true;
  const value = attributeText(next.device, constraint.attribute);
  if (value === undefined) return false;
  const others = chosen.filter(({ request }) => concerns(constraint, request));
  return others.every(({ device }) => (attributeText(device, constraint.attribute) === value) === constraint.isSame);
}

/** The attribute with its type; a name without the driver's domain is in that domain. */
function attributeText({ driver, spec: { attributes = {} } }: PoolDevice, name: string): string | undefined {
  const short = name.startsWith(`${driver}/`) ? name.slice(driver.length + 1) : name;
  const value: AttributeFields | undefined = Object.hasOwn(attributes, name)
    ? attributes[name]
    : Object.hasOwn(attributes, short)
      ? attributes[short]
      : undefined;
  return value === undefined ? undefined : JSON.stringify(value);
}

function allocationOf(claim: ClaimNeeds, chosen: readonly Choice[], node: string): Allocation {
  const results = chosen.map(({ request, device: { driver, pool, name } }) => ({
    ...{ request: request.name, driver, pool, device: name },
    ...(request.adminAccess ? { adminAccess: true as const } : {}),
    ...(request.tolerations.length > 0 ? { tolerations: request.tolerations } : {}),
  }));
  const requests = [...new Set(chosen.map(({ request }) => request))];
  const config = [
    ...requests.flatMap(({ name, classConfig }) =>
      classConfig.map((each) => ({ source: "FromClass", requests: [name], ...each })),
    ),
    ...claim.config
      .filter(({ requests: names = [] }) => {
        return (
          names.length === 0 || requests.some(({ name, parent }) => names.includes(name) || names.includes(parent))
        );
      })
      .map((each) => ({ source: "FromClaim", ...each })),
  ];
  const nodeSelector = nodeSelectorOf(chosen, node);
  return {
    devices: { results, ...(config.length > 0 ? { config } : {}) },
    ...(nodeSelector === undefined ? {} : { nodeSelector }),
  };
}

/** The nodes that reach all chosen devices. Undefined: all nodes. */
function nodeSelectorOf(chosen: readonly Choice[], node: string): Allocation["nodeSelector"] {
  const places = chosen.map(({ device }) => device.place);
  if (places.some(({ nodeName = "" }) => nodeName !== "")) {
    const matchFields = [{ key: "metadata.name", operator: "In" as const, values: [node] }];
    return { nodeSelectorTerms: [{ matchFields }] };
  }
  // Kubernetes allows one term to a slice, so that all of them can be met together.
  const terms = places.flatMap(({ nodeSelector }) => nodeSelector?.nodeSelectorTerms?.slice(0, 1) ?? []);
  if (terms.length === 0) return undefined;
  const merged = (field: "matchExpressions" | "matchFields") => {
    const all = terms.flatMap((term) => term[field] ?? []);
    const unique = [...new Map(all.map((each) => [JSON.stringify(each), each])).values()];
    return unique.length === 0 ? {} : { [field]: unique };
  };
  return { nodeSelectorTerms: [{ ...merged("matchExpressions"), ...merged("matchFields") }] };
}
