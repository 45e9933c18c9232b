/** Checks the configurations with which the kubelet's CPU, memory and topology managers refuse to start. */
import type { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";
import { childPath } from "@picolet/protocol/kubernetes/plain-data.ts";
import { formatQuantity, parseQuantity, type Quantity } from "@picolet/protocol/kubernetes/quantity.ts";
import { unitHint } from "@picolet/protocol/kubernetes/quantity-hint.ts";
import type { Configuration } from "./configuration-defaults.ts";

/** By how far each is; alpha ones need a feature gate. */
const CPU_OPTIONS: ReadonlyMap<string, "alpha" | "beta" | "stable"> = new Map([
  ["full-pcpus-only", "stable"],
  ["distribute-cpus-across-numa", "beta"],
  ["strict-cpu-reservation", "beta"],
  ["prefer-align-cpus-by-uncorecache", "beta"],
  ["align-by-socket", "alpha"],
  ["distribute-cpus-across-cores", "alpha"],
]);
const EXCLUSIVE_CPU_OPTIONS = [
  ["full-pcpus-only", "distribute-cpus-across-cores"],
  ["distribute-cpus-across-numa", "distribute-cpus-across-cores"],
  ["prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"],
  ["prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"],
] as const;
const TOPOLOGY_OPTIONS = ["prefer-closest-numa-nodes", "max-allowable-numa-nodes"];
const LEAST_MAX_NUMA_NODES = 8;

export function validateTopology(configuration: Configuration, problems: FieldProblems): void {
  validateCpuOptions(configuration, problems);
  validateTopologyOptions(configuration, problems);
  validateReservedMemory(configuration, problems);
}

/** Go's. */
const TRUE = ["1", "t", "T", "TRUE", "true", "True"];
const FALSE = ["0", "f", "F", "FALSE", "false", "False"];

function validateCpuOptions(configuration: Configuration, problems: FieldProblems): void {
  const { cpuManagerPolicy: policy, cpuManagerPolicyOptions: options, featureGates } = configuration;
  const names = [...CPU_OPTIONS.keys()];
  for (const [name, value] of Object.entries(options)) {
    const path = childPath("cpuManagerPolicyOptions", name);
    const level = CPU_OPTIONS.get(name);
    if (level === undefined) problems.invalid(path, name, `unknown CPU Manager Policy option${hint(name, names)}`);
    else if (level === "alpha" && featureGates.CPUManagerPolicyAlphaOptions !== true) {
      problems.forbidden(path, "CPU Manager Policy Alpha-level Options not enabled (CPUManagerPolicyAlphaOptions)");
    } else validateFlag(path, value, problems);
    if (policy === "none") problems.forbidden(path, "cpuManagerPolicy none has no options");
  }
  const isOn = (name: string): boolean => TRUE.includes(options[name] ?? "");
  for (const [left, right] of EXCLUSIVE_CPU_OPTIONS) {
    if (!isOn(left) || !isOn(right)) continue;
    problems.forbidden(`cpuManagerPolicyOptions[${right}]`, `may not be specified together with ${left}`);
  }
  if (isOn("align-by-socket") && configuration.topologyManagerPolicy === "single-numa-node") {
    const detail = "topologyManagerPolicy single-numa-node is incompatible with it";
    problems.forbidden("cpuManagerPolicyOptions[align-by-socket]", detail);
  }
}

function validateFlag(path: string, value: string, problems: FieldProblems): void {
  if (![...TRUE, ...FALSE].includes(value)) problems.invalid(path, value, 'must be "true" or "false"');
}

const hint = (name: string, names: readonly string[]): string => {
  const nearest = nearestName(name, names);
  return nearest === undefined ? `; there are ${names.join(", ")}` : `, did you mean ${nearest}?`;
};

function validateTopologyOptions(
  { topologyManagerPolicyOptions: options }: Configuration,
  problems: FieldProblems,
): void {
  for (const [name, value] of Object.entries(options)) {
    const path = childPath("topologyManagerPolicyOptions", name);
    if (!TOPOLOGY_OPTIONS.includes(name)) {
      problems.invalid(path, name, `unknown Topology Manager Policy option${hint(name, TOPOLOGY_OPTIONS)}`);
    } else if (name === "prefer-closest-numa-nodes") validateFlag(path, value, problems);
    else if (!/^\d{1,9}$/.test(value) || Number(value) < LEAST_MAX_NUMA_NODES) {
      problems.invalid(path, value, `must be a whole number, and not less than ${LEAST_MAX_NUMA_NODES}`);
    }
  }
}

function validateReservedMemory({ reservedMemory }: Configuration, problems: FieldProblems): void {
  const seen = new Set<string>();
  reservedMemory.forEach(({ numaNode, limits }, index) => {
    const path = `reservedMemory[${index}]`;
    if (numaNode < 0) problems.invalid(`${path}.numaNode`, numaNode, "must be greater than or equal to 0");
    for (const [name, value] of Object.entries(limits)) {
      const at = childPath(`${path}.limits`, name);
      if (name !== "memory" && !/^hugepages-./.test(name)) {
        problems.unsupported(at, name, ["memory", "hugepages-<HugePageSize>"]);
      }
      const parsed = parseQuantity(String(value));
      if (!parsed.ok) problems.invalid(at, value, `${parsed.problem}${unitHint(value)}`);
      else if (parsed.quantity.nano <= 0n) problems.invalid(at, value, "reserved memory may not be zero or less");
      if (seen.has(`${numaNode}/${name}`)) problems.duplicate(at, `NUMA node ${numaNode}, ${name}`);
      seen.add(`${numaNode}/${name}`);
    }
  });
}

/**
 * Checks the reservations that the static policies need, once all of them can be read.
 * @param reserved CPU in thousandths, and memory in bytes with what hard eviction keeps free
 */
export function validateStaticPolicies(
  configuration: Configuration,
  reserved: { readonly milliCpu: bigint; readonly memoryBytes: bigint },
  problems: FieldProblems,
): void {
  const { cpuManagerPolicy, memoryManagerPolicy, reservedMemory } = configuration;
  if (cpuManagerPolicy === "static" && reserved.milliCpu === 0n) {
    const detail =
      "the static policy requires systemReserved.cpu + kubeReserved.cpu, or reservedSystemCPUs, to be greater than zero";
    problems.invalid("cpuManagerPolicy", cpuManagerPolicy, detail);
  }
  if (memoryManagerPolicy !== "Static") return;
  const totals = new Map<string, bigint>([["memory", 0n]]);
  for (const { limits } of reservedMemory) {
    for (const [name, value] of Object.entries(limits)) {
      const parsed = parseQuantity(String(value));
      totals.set(name, (totals.get(name) ?? 0n) + (parsed.ok ? parsed.quantity.nano : 0n));
    }
  }
  for (const [name, nano] of totals) {
    const needed = name === "memory" ? reserved.memoryBytes * NANO : 0n;
    if (nano === needed) continue;
    const detail =
      `the total amount "${text(nano)}" of type "${name}" is not equal to the value "${text(needed)}" determined by ` +
      "Node Allocatable feature (kubeReserved, systemReserved and evictionHard together)";
    problems.invalid("reservedMemory", text(nano), detail);
  }
}

const NANO = 1_000_000_000n;
const text = (nano: bigint): string => formatQuantity({ nano, format: "BinarySI" } satisfies Quantity);
