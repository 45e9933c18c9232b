import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CpuGroups, cpuKinds } from "./cpu-groups.ts";
import { cpuPolicyOptions } from "./cpu-policy-options.ts";
import { formatCpuSet, NO_CPUS } from "./cpu-set.ts";
import type { CpuState } from "./cpu-state.ts";
import { StaticCpus } from "./static-cpus.ts";
import { takeByKind, takePacked } from "./take-cpus.ts";

/** By CPU. */
type Capacities = readonly number[];

/** Four A55 and two pairs of A76, of which one is clocked a little lower. */
const RK3588: Capacities = [530, 530, 530, 530, 1003, 1003, 1024, 1024];
const S922X: Capacities = [381, 381, 1024, 1024, 1024, 1024];
const PI_5: Capacities = [1024, 1024, 1024, 1024];
const THREE_KINDS: Capacities = [250, 250, 250, 250, 620, 620, 620, 1024];

const ids = (capacities: Capacities): readonly number[] => capacities.map((_, cpu) => cpu);
const mapOf = (capacities: Capacities): ReadonlyMap<number, number> => new Map(capacities.entries());
const machineOf = (capacities: Capacities): CpuGroups => {
  const places = ids(capacities).map((cpu) => [cpu, { numaNode: 0, socket: 0, core: cpu, uncoreCache: 0 }] as const);
  return new CpuGroups(new Map(places), mapOf(capacities));
};

describe("kinds of CPUs", () => {
  for (const [what, capacities, kinds] of [
    ["RK3588: clusters of the same cores are one kind", RK3588, ["4-7", "0-3"]],
    ["S922X", S922X, ["2-5", "0-1"]],
    ["Raspberry Pi 5: all alike", PI_5, ["0-3"]],
    ["three kinds", THREE_KINDS, ["7", "4-6", "0-3"]],
  ] as const) {
    test(what, () => assert.deepEqual(cpuKinds(ids(capacities), mapOf(capacities)).map(formatCpuSet), kinds));
  }

  test("a kernel that reports the capacity of some CPUs alone makes one kind", () => {
    assert.deepEqual(cpuKinds([0, 1, 2], new Map([[0, 1024]])).map(formatCpuSet), ["0-2"]);
  });
});

describe("CPUs of one kind", () => {
  for (const [what, capacities, free, count, taken] of [
    ["the fastest that suffice", RK3588, [0, 1, 2, 3, 4, 5, 6, 7], 2, "4-5"],
    ["slower ones where the fastest are too few", RK3588, [0, 1, 2, 3, 7], 2, "0-1"],
    ["one is of the fastest while one is free", RK3588, [0, 1, 2, 3, 7], 1, "7"],
    ["the middle kind before the slowest", THREE_KINDS, [0, 1, 2, 3, 4, 5, 6, 7], 3, "4-6"],
    ["no kind suffices: the fastest first", RK3588, [0, 1, 2, 3, 6, 7], 5, "0-2,6-7"],
    ["all", S922X, [0, 1, 2, 3, 4, 5], 6, "0-5"],
    ["none", S922X, [0, 1], 0, ""],
    ["alike: as a kubelet", PI_5, [1, 2, 3], 2, "1-2"],
  ] as const) {
    test(`${what}: ${count} of ${formatCpuSet(free)}`, () => {
      const machine = machineOf(capacities);
      const options = { spread: false, preferUncoreCache: false };
      const result = takeByKind(machine.kinds, new Set(free), count, (own, wanted) =>
        takePacked(machine, own, wanted, options),
      );
      assert.equal(result.ok ? formatCpuSet(result.cpus) : result.problem, taken);
    });
  }

  test("more than there are is refused in the kubelet's words", () => {
    const machine = machineOf(S922X);
    const result = takeByKind(machine.kinds, new Set([0, 2]), 3, (own, count) =>
      takePacked(machine, own, count, { spread: false, preferUncoreCache: false }),
    );
    const problem = "not enough cpus available to satisfy request: requested=3, available=2";
    assert.deepEqual(result, { ok: false, problem });
  });
});

describe("reserved CPUs", () => {
  const reservedOf = (capacities: Capacities, reservedCount: number, state?: CpuState): string => {
    const machine = machineOf(capacities);
    const init = { machine, options: cpuPolicyOptions({}), reservedCount, reservedCpus: NO_CPUS, state };
    return formatCpuSet(new StaticCpus(init).reserved);
  };

  for (const [what, capacities, count, reserved] of [
    ["the slowest", [1024, 1024, 400, 400], 1, "2"],
    ["no more than there are slow ones, then the next faster", [1024, 1024, 400, 400], 3, "0,2-3"],
    ["alike: as a kubelet", PI_5, 1, "0"],
  ] as const) {
    test(`${what}: ${count} of ${capacities.join()}`, () => assert.equal(reservedOf(capacities, count), reserved));
  }

  test("a board whose containers have the slow ones from before keeps the reservation that fits", () => {
    const exclusive = new Map([["pod", new Map([["app", new Set([2, 3])]])]]);
    assert.equal(reservedOf([1024, 1024, 400, 400], 1, { shared: new Set([0, 1]), exclusive }), "0");
  });
});
