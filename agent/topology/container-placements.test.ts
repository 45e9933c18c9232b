/** Exclusive CPUs and memory are decided as a kubelet decides, through all changes. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { podUid } from "@picolet/protocol/ports.ts";
import {
  type BoardInit,
  type PlacementBoard,
  type PlacementScenario,
  type PlacementStep,
  placementBoard,
  type ScenarioMachine,
  scenarioPod,
} from "@picolet/test/support/unit/agent/placement-scenarios.ts";
import fc from "fast-check";
import { formatCpuSet, uniteCpus } from "./cpu-set.ts";
import { readCpuState } from "./cpu-state.ts";
import { readMemoryState } from "./memory-state.ts";

const GOLDEN = new URL("../../test/golden/topology/placements.json", import.meta.url);
const { machines, scenarios } = JSON.parse(readFileSync(GOLDEN, "utf8")) as {
  readonly machines: Readonly<Record<string, ScenarioMachine>>;
  readonly scenarios: readonly PlacementScenario[];
};

const machineNamed = (name: string): ScenarioMachine => machines[name] ?? assert.fail(`no machine ${name}`);
const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

const cpusOf = ({ cpus }: PlacementBoard): unknown =>
  Object.fromEntries(
    [...cpus.state.exclusive].map(([uid, containers]) => [
      uid,
      Object.fromEntries([...containers].map(([name, own]) => [name, formatCpuSet(own)])),
    ]),
  );

function take(board: PlacementBoard, { uid, admit }: PlacementStep): readonly [string, string] | null {
  if (admit === undefined) {
    board.placements.release(podUid(uid));
    return null;
  }
  const rejection = board.placements.admit(scenarioPod(uid, admit));
  return rejection === undefined ? null : [rejection.reason, rejection.message];
}

for (const [index, scenario] of scenarios.entries()) {
  const { machine, options, policy, scope } = scenario;
  const title = [machine, policy, scope, ...Object.keys(options)].join(", ");
  test(`a kubelet decided so, ${index}: ${title}`, () => {
    using board = placementBoard(machineNamed(machine), scenario);
    for (const step of scenario.steps) {
      assert.deepEqual(take(board, step), step.refused, step.uid);
      assert.deepEqual(cpusOf(board), step.cpus, step.uid);
      assert.equal(formatCpuSet(board.cpus.state.shared), step.shared, step.uid);
      if (step.memory !== undefined) assert.deepEqual(plain(board.memory.state.entries), step.memory);
      if (step.free !== undefined) assert.deepEqual(plain(board.memory.state.machine), step.free);
    }
  });
}

const OPTIONS = [
  "full-pcpus-only",
  "distribute-cpus-across-numa",
  "align-by-socket",
  "distribute-cpus-across-cores",
  "strict-cpu-reservation",
  "prefer-align-cpus-by-uncorecache",
];

const anyContainer = fc.record({
  kind: fc.constantFrom("app", "app", "init", "sidecar"),
  cpu: fc.constantFrom("1", "2", "3", "500m", "4"),
  memory: fc.constantFrom("64Mi", "1Gi", "3Gi"),
});

const anyInit: fc.Arbitrary<BoardInit & { readonly machine: string }> = fc.record({
  machine: fc.constantFrom(...Object.keys(machines)),
  options: fc
    .subarray(OPTIONS, { maxLength: 2 })
    .map((names) => Object.fromEntries(names.map((name) => [name, "true"]))),
  policy: fc.constantFrom("none", "best-effort", "restricted", "single-numa-node"),
  scope: fc.constantFrom("container", "pod"),
  closest: fc.boolean(),
  reservedCpus: fc.integer({ min: 1, max: 2 }),
});

test("no CPU is two pods' or a pod's and reserved, and all come back in the end, as do files to a next agent", () => {
  const pods = fc.array(fc.array(anyContainer, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 6 });
  const property = fc.property(anyInit, pods, fc.infiniteStream(fc.boolean()), (init, wanted, leaves) => {
    using board = placementBoard(machineNamed(init.machine), init);
    const [shared, free] = [formatCpuSet(board.cpus.state.shared), plain(board.memory.state.machine)];
    for (const [index, containers] of wanted.entries()) {
      const named = containers.map(
        ({ kind, ...limits }, at) => ({ name: `c${at}`, kind: at === 0 ? "app" : kind, limits }) as const,
      );
      board.placements.admit(scenarioPod(`u${index}`, named));
      judge(board, shared);
      const [holder] = board.placements.holders;
      if (holder !== undefined && leaves.next().value) board.placements.release(holder);
      judge(board, shared);
    }
    for (const uid of board.placements.holders) board.placements.release(uid);
    assert.equal(formatCpuSet(board.cpus.state.shared), shared);
    assert.deepEqual(plain(board.memory.state.machine), free);
  });
  fc.assert(property, { numRuns: 150 });
});

function judge(board: PlacementBoard, shared: string): void {
  const { cpus, memory, folder } = board;
  const given = new Map<number, string>();
  for (const [uid, containers] of cpus.state.exclusive) {
    for (const cpu of uniteCpus(...containers.values())) {
      assert.ok(!cpus.reserved.has(cpu), `reserved CPU ${cpu} given to ${uid}`);
      assert.equal(given.get(cpu), undefined, `CPU ${cpu}`);
      assert.ok(!cpus.state.shared.has(cpu), `CPU ${cpu} is shared as well`);
      given.set(cpu, uid);
    }
  }
  assert.equal(formatCpuSet(uniteCpus(cpus.state.shared, given.keys())), shared);
  const tables = Object.values(memory.state.machine).flatMap(({ memoryMap }) => Object.values(memoryMap));
  for (const table of tables) {
    assert.ok(table.free >= 0 && table.reserved >= 0 && table.free + table.reserved === table.allocatable);
  }
  assert.deepEqual(readCpuState(join(folder, "cpu_manager_state"), "static"), cpus.state);
  assert.deepEqual(plain(readMemoryState(join(folder, "memory_manager_state"), "Static")), plain(memory.state));
}
