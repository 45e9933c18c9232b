/** What is kept from pods: that it can be read, and that the board has it. */
import type { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";
import { childPath } from "@picolet/protocol/kubernetes/plain-data.ts";
import { parseQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import { unitHint } from "@picolet/protocol/kubernetes/quantity-hint.ts";
import { evictionThresholds } from "../plan/eviction/eviction-thresholds.ts";
import { parseCpuList } from "../plan/node/cpu-list.ts";
import {
  effectiveReserved,
  type NodeAllocatable,
  nodeAllocatable,
  RESERVABLE_RESOURCES,
} from "../plan/node/node-allocatable.ts";
import type { Board } from "./board-defaults.ts";
import type { Configuration } from "./configuration-defaults.ts";

const LISTS = ["kubeReserved", "systemReserved"] as const;

export function validateReservations(configuration: Configuration, problems: FieldProblems): void {
  for (const field of LISTS) validateList(configuration, field, problems);
  validateQosReserved(configuration, problems);
  validateEnforcement(configuration, problems);
}

function validateList(configuration: Configuration, field: (typeof LISTS)[number], problems: FieldProblems): void {
  for (const [name, text] of Object.entries(configuration[field])) {
    const path = childPath(field, name);
    if (!(RESERVABLE_RESOURCES as readonly string[]).includes(name)) {
      const nearest = nearestName(name, RESERVABLE_RESOURCES);
      const hint = nearest === undefined ? `, only ${RESERVABLE_RESOURCES.join(", ")}` : `, did you mean ${nearest}?`;
      problems.invalid(path, name, `cannot reserve "${name}" resource${hint}`);
      continue;
    }
    const parsed = parseQuantity(text);
    if (!parsed.ok) problems.invalid(path, text, `${parsed.problem}${unitHint(text)}`);
    else if (parsed.quantity.nano < 0n) problems.invalid(path, text, "must not be negative");
  }
}

function validateQosReserved({ qosReserved }: Configuration, problems: FieldProblems): void {
  for (const [name, text] of Object.entries(qosReserved)) {
    const path = childPath("qosReserved", name);
    if (name !== "memory") problems.invalid(path, name, `cannot reserve "${name}" resource, only memory`);
    else if (!/^(?:\d{1,2}|100)%$/.test(text)) problems.invalid(path, text, "must be a percentage between 0% and 100%");
  }
}

export function validateReservedCpus(configuration: Configuration, board: Board, problems: FieldProblems): void {
  const { reservedSystemCPUs: text, systemReservedCgroup, kubeReservedCgroup } = configuration;
  const path = "reservedSystemCPUs";
  const cpus = parseCpuList(text);
  if (cpus === undefined) problems.invalid(path, text, 'must be a list of CPUs such as "0-1,3"');
  else if (board.cpus !== undefined && cpus.some((cpu) => cpu >= (board.cpus ?? 0))) {
    problems.invalid(path, text, `this machine has CPUs 0 to ${board.cpus - 1} only`);
  }
  if (text !== "" && (systemReservedCgroup !== "" || kubeReservedCgroup !== "")) {
    problems.forbidden(path, "may not be specified together with systemReservedCgroup or kubeReservedCgroup");
  }
}

/** Checks what each enforcement needs besides its cgroup, and which exclude each other. */
function validateEnforcement(configuration: Configuration, problems: FieldProblems): void {
  const { enforceNodeAllocatable: enforced } = configuration;
  enforced.forEach((each, index) => {
    const path = `enforceNodeAllocatable[${index}]`;
    if (enforced.indexOf(each) < index) problems.duplicate(path, each);
    const whole = each.replace(/-compressible$/, "");
    if (whole !== each && enforced.includes(whole))
      problems.invalid(path, each, `may not be specified together with ${whole}`);
    const list =
      whole === "system-reserved" ? "systemReserved" : whole === "kube-reserved" ? "kubeReserved" : undefined;
    if (list !== undefined && Object.keys(configuration[list]).length === 0) {
      problems.invalid(path, each, `there is nothing to enforce: ${list} is empty`);
    }
  });
}

export function validateSwap({ failSwapOn, memorySwap }: Configuration, board: Board, problems: FieldProblems): void {
  if (failSwapOn && (board.swapBytes ?? 0) > 0) {
    const detail = "running with swap on is not supported, please disable swap or set failSwapOn to false";
    problems.invalid("failSwapOn", true, detail);
  }
  if (memorySwap.swapBehavior === "LimitedSwap" && board.unifiedCgroups === false) {
    problems.invalid("memorySwap.swapBehavior", "LimitedSwap", "is only supported with cgroup v2");
  }
}

/** Kubernetes' sum: what is reserved and what hard eviction keeps free, both readable, are no more than there is. */
export function validateSums(
  configuration: Configuration,
  { excess }: Pick<NodeAllocatable, "excess">,
  problems: FieldProblems,
): void {
  for (const { resource, reservation, capacity } of excess) {
    const [list, key] = contributorOf(configuration, resource);
    const detail =
      `Resource "${resource}" has a reservation of ${reservation} but capacity of ${capacity}. ` +
      "Expected capacity >= reservation.";
    problems.invalid(childPath(list, key), configuration[list][key], detail);
  }
}

/** The field that the user should check first. */
function contributorOf(
  { kubeReserved, systemReserved }: Configuration,
  resource: string,
): readonly ["kubeReserved" | "systemReserved" | "evictionHard", string] {
  if (kubeReserved[resource] !== undefined) return ["kubeReserved", resource];
  if (systemReserved[resource] !== undefined) return ["systemReserved", resource];
  return ["evictionHard", resource === "memory" ? "memory.available" : "nodefs.available"];
}
/** Computes the share of the board for pods, as far as it is known. */
export function boardShare(configuration: Configuration, board: Board): NodeAllocatable {
  const { memoryBytes, cpus, ephemeralStorageBytes } = board;
  const capacity = {
    memory: kibibytes(memoryBytes),
    ...(cpus === undefined ? {} : { cpu: String(cpus) }),
    ...(ephemeralStorageBytes === undefined ? {} : { "ephemeral-storage": kibibytes(ephemeralStorageBytes) }),
  };
  // Enforcements that the machine lacks are reported elsewhere.
  const reservedCpus = (parseCpuList(configuration.reservedSystemCPUs) ?? []).filter((cpu) => cpu < (cpus ?? cpu + 1));
  const thresholds = evictionThresholds(configuration);
  return nodeAllocatable({
    capacity,
    maxPids: board.maxPids,
    ...effectiveReserved(configuration, reservedCpus.length),
    thresholds,
  });
}

/** As a node's status has them. */
const kibibytes = (bytes: number): string => `${Math.floor(bytes / 1024)}Ki`;
