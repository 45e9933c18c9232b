import {
  parseQuantity,
  type Quantity,
  quantityMilliValue,
  quantityValue,
} from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import { configError } from "./config-error.ts";

export interface ResourceSelector {
  readonly containerName?: string | undefined;
  /** `limits.cpu`, `requests.memory`, `limits.hugepages-2Mi` … */
  readonly resource: string;
  readonly divisor?: string | undefined;
}

type Texts = Readonly<Record<string, string>>;

/** Resources whose missing limit is the node's allocatable; others have no limit then. */
const BOUND_BY_NODE: ReadonlySet<string> = new Set(["cpu", "memory", "ephemeral-storage"]);

/**
 * Reads the value of a `resourceFieldRef`: the quantity in units of `divisor`, rounded up. A limit that is not set is
 * that of the pod as a whole, else what the node can give; but for another container's that is an init container, as in
 * Kubernetes.
 * @throws PicoletError with the reason `CreateContainerConfigError`
 */
export function resourceValue(selector: ResourceSelector, own: Container, pod: Pod, allocatable: Texts): string {
  const container = containerNamed(selector.containerName, own, pod);
  const [kind, name = ""] = splitOnce(selector.resource);
  const isHugePages = name.startsWith("hugepages-");
  if ((kind !== "limits" && kind !== "requests") || (!BOUND_BY_NODE.has(name) && !isHugePages))
    throw configError(`unsupported container resource : ${selector.resource}`);
  const set = quantityIn(container.resources[kind], name);
  const isInit = (pod.spec.initContainers ?? []).includes(container) && container !== own;
  const bound = kind === "limits" && (set === undefined || set.nano === 0n) && BOUND_BY_NODE.has(name) && !isInit;
  const quantity = bound ? (podLimit(pod, name) ?? quantityIn(allocatable, name) ?? set) : set;
  if (quantity === undefined) return "0";
  const count = name === "cpu" ? quantityMilliValue : quantityValue;
  return String(divideUp(count(quantity), count(divisorOf(selector.divisor))));
}

/** The limit of the pod as a whole, which disk does not have. */
function podLimit({ spec }: Pod, name: string): Quantity | undefined {
  const found = name === "ephemeral-storage" ? undefined : quantityIn(spec.resources?.limits, name);
  return found === undefined || found.nano === 0n ? undefined : found;
}

function containerNamed(name: string | undefined, own: Container, pod: Pod): Container {
  if (name === undefined || name === "") return own;
  const all = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
  const found = all.find((container) => container.name === name);
  if (found === undefined) throw configError(`container ${name} not found`);
  return found;
}

function splitOnce(text: string): readonly [string, string] {
  const dot = text.indexOf(".");
  return dot < 0 ? [text, ""] : [text.slice(0, dot), text.slice(dot + 1)];
}

function quantityIn(texts: Texts | undefined, name: string): Quantity | undefined {
  const text = texts?.[name];
  const result = text === undefined ? undefined : parseQuantity(text);
  return result?.ok === true ? result.quantity : undefined;
}

const ONE: Quantity = { nano: 1_000_000_000n, format: "DecimalSI" };

function divisorOf(text: string | undefined): Quantity {
  const result = text === undefined ? undefined : parseQuantity(text);
  return result?.ok === true && result.quantity.nano > 0n ? result.quantity : ONE;
}

const divideUp = (dividend: bigint, divisor: bigint): bigint => (dividend + divisor - 1n) / divisor;
