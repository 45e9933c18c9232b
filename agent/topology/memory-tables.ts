/**
 * The books of the memory manager: what of which NUMA node's memory is whose. They are changed in place. Pure
 * otherwise.
 */
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { NumaNode } from "./machine-topology.ts";
import type { MemoryBlock, MemoryEntries, NumaNodeState } from "./memory-state.ts";
import type { NodeReservation } from "./reserved-memory.ts";

export type MachineMemory = Record<number, NumaNodeState>;

export const MEMORY = "memory";
const UNITS = ["", "Ki", "Mi", "Gi", "Ti"];

/** As nothing of it is taken. Huge pages are memory that is had under their own name. */
export function emptyMachine(
  nodes: readonly NumaNode[],
  reserved: ReadonlyMap<number, NodeReservation>,
): MachineMemory {
  const machine: MachineMemory = {};
  for (const { id, memoryBytes, hugePages } of nodes) {
    const own = reserved.get(id);
    const memoryMap: NumaNodeState["memoryMap"] = {};
    let hugeBytes = 0;
    for (const { sizeBytes, count } of hugePages) {
      const resource = `hugepages-${binaryText(sizeBytes)}`;
      const bytes = sizeBytes * count;
      memoryMap[resource] = tableOf(bytes, own?.get(resource) ?? 0, 0);
      hugeBytes += bytes;
    }
    memoryMap[MEMORY] = tableOf(memoryBytes, own?.get(MEMORY) ?? 0, hugeBytes);
    machine[id] = { numberOfAssignments: 0, memoryMap, cells: [id] };
  }
  return machine;
}

function tableOf(total: number, systemReserved: number, others: number): NumaNodeState["memoryMap"][string] {
  const allocatable = Math.max(0, total - systemReserved - others);
  return { total, systemReserved, allocatable, reserved: 0, free: allocatable };
}

function binaryText(bytes: number): string {
  let [value, unit] = [bytes, 0];
  for (; value % KIBIBYTE === 0 && unit + 1 < UNITS.length; unit += 1) value /= KIBIBYTE;
  return `${value}${UNITS[unit]}`;
}

/** From the first of the nodes as much as it has, then from the next. @param size what of it is not there already */
export function reserveMemoryFrom(machine: MachineMemory, { numaAffinity, type }: MemoryBlock, size: number): void {
  let left = size;
  for (const node of numaAffinity) {
    const state = machine[node];
    if (state === undefined) continue;
    state.numberOfAssignments += 1;
    state.cells = [...numaAffinity];
    const table = state.memoryMap[type];
    if (table === undefined) continue;
    const part = Math.min(table.free, left);
    table.reserved += part;
    table.free -= part;
    left -= part;
  }
}

export function freeMemoryBlock(machine: MachineMemory, { numaAffinity, type, size }: MemoryBlock): void {
  let left = size;
  for (const node of numaAffinity) {
    const state = machine[node];
    if (state === undefined) continue;
    state.numberOfAssignments -= 1;
    if (state.numberOfAssignments === 0) state.cells = [node];
    const table = state.memoryMap[type];
    if (table === undefined) continue;
    const part = Math.min(table.reserved, left);
    table.free += part;
    table.reserved -= part;
    left -= part;
  }
}

export const isSameGroup = (left: readonly number[], right: readonly number[]): boolean =>
  left.length === right.length && left.every((node) => right.includes(node));

/** What is wrong with a state that was found, in the kubelet's words; undefined: nothing. */
export function stateProblem(found: MachineMemory, entries: MemoryEntries, empty: MachineMemory): string | undefined {
  const expected = structuredClone(empty);
  for (const [pod, containers] of Object.entries(entries)) {
    for (const [container, blocks] of Object.entries(containers)) {
      for (const block of blocks) {
        const who = `[memorymanager] (pod: ${pod}, container: ${container}) the memory assignment uses`;
        const states = block.numaAffinity.map((node) => expected[node]);
        if (states.includes(undefined)) return `${who} the NUMA that does not exist`;
        if (states.some((state) => state?.memoryMap[block.type] === undefined)) {
          return `${who} memory resource that does not exist`;
        }
        reserveMemoryFrom(expected, block, block.size);
      }
    }
  }
  const isSame = areMachinesEqual(found, expected);
  return isSame ? undefined : "[memorymanager] the expected machine state is different from the real one";
}

function areMachinesEqual(found: MachineMemory, expected: MachineMemory): boolean {
  const nodes = Object.keys(found).map(Number);
  if (nodes.length !== Object.keys(expected).length) return false;
  return nodes.every((node) => {
    const [left, right] = [found[node], expected[node]];
    if (left === undefined || right === undefined) return false;
    if (left.numberOfAssignments !== right.numberOfAssignments || !isSameGroup(left.cells, right.cells)) return false;
    const resources = Object.keys(left.memoryMap);
    if (resources.length !== Object.keys(right.memoryMap).length) return false;
    return resources.every((resource) => areTablesEqual(found, expected, node, resource));
  });
}

/** The table of nodes that provide memory together does not record from which of them a container has its share. */
function areTablesEqual(found: MachineMemory, expected: MachineMemory, node: number, resource: string): boolean {
  const [left, right] = [found[node]?.memoryMap[resource], expected[node]?.memoryMap[resource]];
  if (left === undefined || right === undefined) return false;
  const isFixedSame =
    left.total === right.total &&
    left.systemReserved === right.systemReserved &&
    left.allocatable === right.allocatable;
  const sum = (machine: MachineMemory, field: "free" | "reserved"): number =>
    (found[node]?.cells ?? []).reduce((total, cell) => total + (machine[cell]?.memoryMap[resource]?.[field] ?? 0), 0);
  return (
    isFixedSame && sum(found, "free") === sum(expected, "free") && sum(found, "reserved") === sum(expected, "reserved")
  );
}
