import { PicoletError } from "@picolet/protocol/errors.ts";
import {
  checksumOf,
  corrupt,
  type Fields,
  goJson,
  isFields,
  restoredState,
  SortedRecord,
  sortedKeys,
} from "./state-file.ts";

/** Bytes of memory, or of huge pages of one size, on one NUMA node. */
export interface MemoryTable {
  total: number;
  systemReserved: number;
  allocatable: number;
  reserved: number;
  free: number;
}

export interface NumaNodeState {
  /** The number of assignments of this node's memory, one for each resource of a container. */
  numberOfAssignments: number;
  /** By resource: `memory`, `hugepages-2Mi` … */
  memoryMap: Record<string, MemoryTable>;
  /** The nodes from which containers get memory together with it, itself among them. */
  cells: number[];
}

/** A container's share of one resource. */
export interface MemoryBlock {
  numaAffinity: number[];
  type: string;
  size: number;
}

/** By pod uid, then by container name. */
export type MemoryEntries = Record<string, Record<string, MemoryBlock[]>>;

export interface MemoryState {
  /** By NUMA node. */
  machine: Record<number, NumaNodeState>;
  entries: MemoryEntries;
}

/** The kubelet's name, in its root directory. */
export const MEMORY_STATE_FILE = "memory_manager_state";

const TABLE_FIELDS = ["total", "systemReserved", "allocatable", "reserved", "free"] as const;
const GO_TABLE_FIELDS = ["TotalMemSize", "SystemReserved", "Allocatable", "Reserved", "Free"] as const;

export function formatMemoryState(policy: string, state: MemoryState): string {
  const machine = mapped(state.machine, ({ numberOfAssignments, memoryMap, cells }) => ({
    numberOfAssignments,
    memoryMap: mapped(memoryMap, (table) => Object.fromEntries(TABLE_FIELDS.map((field) => [field, table[field]]))),
    cells,
  }));
  const entries = mapped(state.entries, (containers) =>
    mapped(containers, (blocks) => blocks.map(({ numaAffinity, type, size }) => ({ numaAffinity, type, size }))),
  );
  return goJson({
    policyName: policy,
    machineState: machine,
    ...(Object.keys(state.entries).length === 0 ? {} : { entries }),
    checksum: checksumOf(printed(policy, state)),
  });
}

const mapped = <T>(record: Readonly<Record<string, T>>, to: (value: T) => unknown): SortedRecord =>
  new SortedRecord(Object.fromEntries(Object.entries(record).map(([key, value]) => [key, to(value)])));

/**
 * @param policy the configured one
 * @returns undefined when there is no file. @throws `conflict` with what the kubelet says of such a file
 */
export function readMemoryState(path: string, policy: string): MemoryState | undefined {
  return restoredState(path, "memory", (fields) => stateOf(fields, policy));
}

function stateOf({ policyName, machineState, entries, checksum }: Fields, policy: string): MemoryState {
  if (typeof policyName !== "string") throw corrupt();
  const state = { machine: recordOf(machineState, nodeOf), entries: recordOf(entries, podOf) };
  if (Object.keys(state.machine).some((node) => !/^\d{1,4}$/.test(node))) throw corrupt();
  if (checksum !== checksumOf(printed(policyName, state))) throw corrupt();
  if (policyName === policy) return state;
  const [configured, found] = [JSON.stringify(policy), JSON.stringify(policyName)];
  throw new PicoletError(
    "conflict",
    `[memorymanager] configured policy ${configured} differs from state checkpoint policy ${found}`,
  );
}

/** Null or missing: empty. @throws `corrupt` */
function recordOf<T>(value: unknown, to: (value: unknown) => T): Record<string, T> {
  if (value === undefined || value === null) return {};
  if (!isFields(value)) throw corrupt();
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, to(each)]));
}

function nodeOf(value: unknown): NumaNodeState {
  if (!isFields(value)) throw corrupt();
  return {
    numberOfAssignments: wholeNumber(value.numberOfAssignments),
    memoryMap: recordOf(value.memoryMap, tableOf),
    cells: wholeNumbers(value.cells),
  };
}

function tableOf(value: unknown): MemoryTable {
  if (!isFields(value)) throw corrupt();
  const { total, systemReserved, allocatable, reserved, free } = value;
  return {
    total: wholeNumber(total),
    systemReserved: wholeNumber(systemReserved),
    allocatable: wholeNumber(allocatable),
    reserved: wholeNumber(reserved),
    free: wholeNumber(free),
  };
}

const podOf = (value: unknown): Record<string, MemoryBlock[]> => recordOf(value, blocksOf);

function blocksOf(value: unknown): MemoryBlock[] {
  if (!Array.isArray(value)) throw corrupt();
  return value.map((each: unknown) => {
    if (!isFields(each) || typeof each.type !== "string") throw corrupt();
    return { numaAffinity: wholeNumbers(each.numaAffinity), type: each.type, size: wholeNumber(each.size) };
  });
}

function wholeNumbers(value: unknown): number[] {
  if (!Array.isArray(value)) throw corrupt();
  return value.map(wholeNumber);
}

/** No board has more bytes than a number can count. */
function wholeNumber(value: unknown): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) throw corrupt();
  return value;
}

function printed(policy: string, { machine, entries }: MemoryState): string {
  const nodes = Object.entries(machine).map(([node, state]) => `${node}:<*>${printedNode(state)}`);
  const pods = sortedKeys(entries).map((uid) => `${uid}:${printedPod(entries[uid] ?? {})}`);
  return (
    `(*state.MemoryManagerCheckpoint){PolicyName:(string)${policy} MachineState:(state.NUMANodeMap)map[${nodes.join(" ")}] ` +
    `Entries:(state.ContainerMemoryAssignments)map[${pods.join(" ")}] Checksum:(checksum.Checksum)0}`
  );
}

function printedNode({ numberOfAssignments, memoryMap, cells }: NumaNodeState): string {
  const tables = sortedKeys(memoryMap).map((resource) => `${resource}:<*>{${printedTable(memoryMap[resource])}}`);
  return (
    `{NumberOfAssignments:(int)${numberOfAssignments} ` +
    `MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[${tables.join(" ")}] Cells:([]int)[${cells.join(" ")}]}`
  );
}

const printedTable = (table: MemoryTable | undefined): string =>
  TABLE_FIELDS.map((field, index) => `${GO_TABLE_FIELDS[index]}:(uint64)${table?.[field] ?? 0}`).join(" ");

const printedPod = (containers: Readonly<Record<string, readonly MemoryBlock[]>>): string =>
  `map[${sortedKeys(containers)
    .map((name) => `${name}:[${(containers[name] ?? []).map(printedBlock).join(" ")}]`)
    .join(" ")}]`;

const printedBlock = ({ numaAffinity, type, size }: MemoryBlock): string =>
  `{NUMAAffinity:([]int)[${numaAffinity.join(" ")}] Type:(v1.ResourceName)${type} Size:(uint64)${size}}`;
