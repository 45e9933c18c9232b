/**
 * Tiers, reserved cgroups and what keeps all of them as they are: on this machine's own cgroups where it is root on v1.
 */

import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { cgroupNames } from "@picolet/protocol/cgroup/cgroup-names.ts";
import type { CgroupSettings, CgroupValues, NodeCgroupSettings } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import type { CgroupUnits, UnitProperty } from "../core/node/cgroup-units.ts";
import { isWritten, v1Files, v2Files } from "./cgroup-files.ts";
import { type CgroupHierarchies, detectCgroups } from "./cgroup-hierarchies.ts";
import { CgroupKeeper } from "./cgroup-keeper.ts";
import { CgroupTree } from "./cgroup-tree.ts";
import { PodCgroups } from "./pod-cgroups.ts";
import { type Reservation, ReservedCgroups } from "./reserved-cgroups.ts";
import { TierCgroups } from "./tier-cgroups.ts";
import { unitProperties } from "./unit-properties.ts";

const hierarchies = await detectCgroups();
const isRoot = process.geteuid?.() === 0;
const skip = hierarchies.kind === "v1" && isRoot ? false : "needs root on a machine with cgroup v1";
const NEVER = new AbortController().signal;
const ROOT = `/picolet-node-${process.pid}`;
const SETTINGS: CgroupSettings = {
  cpuCFSQuota: true,
  cpuPeriodUs: 100_000,
  podPidsLimit: 100,
};
const LIMITS = new Map([
  ["cpu", 1500n],
  ["memory", BigInt(512 * MEBIBYTE)],
  ["pid", 2000n],
]);

const podWith = (requests: Readonly<Record<string, string>>, limits: Readonly<Record<string, string>> = {}): Pod =>
  podOf({ containers: [{ name: "app", image: "example/app:1", resources: { requests, limits } }] });
const BURSTABLE = podWith({ cpu: "250m", memory: "64Mi" }, { memory: "128Mi" });

function setUp(on: CgroupHierarchies = hierarchies, node: NodeCgroupSettings = { limits: LIMITS }) {
  const log = new RecordedLog();
  const wanted: Pod[] = [];
  const enforced: (string | undefined)[] = [];
  const names = cgroupNames("cgroupfs", ROOT);
  const tree = new CgroupTree({ log, clock: systemClock }, { hierarchies: on });
  const onEnforced = (_: string, problem: string | undefined): void => void enforced.push(problem);
  const tiers = new TierCgroups(
    { cgroups: tree, pods: () => wanted, onEnforced, log },
    { names, settings: SETTINGS, node },
  );
  const pods = new PodCgroups(
    { cgroups: tree, tiers, clock: systemClock, log },
    { cgroupRoot: ROOT, names, cgroupsPerQOS: true, settings: SETTINGS },
  );
  return { tree, tiers, pods, log, wanted, enforced };
}

const mountOf = (controller: string): string =>
  (hierarchies.kind === "v1" ? hierarchies.controllers.get(controller) : undefined) ?? "";

describe("the node's cgroups on this machine", { skip }, () => {
  after(async () => {
    const { tree } = setUp();
    await tree.kill(ROOT, NEVER);
    await tree.remove(ROOT);
  });

  test("changes and removals by other processes are undone, and logged once", async () => {
    const { tree, tiers, pods, log, wanted } = setUp();
    wanted.push(BURSTABLE);
    const pod = desired(BURSTABLE, "tampered");
    await pods.ensure(pod);
    const path = pods.pathOf(pod);
    const write = (controller: string, cgroup: string, file: string, text: string): void =>
      writeFileSync(join(mountOf(controller), cgroup, file), text);
    for (let round = 0; round < 2; round += 1) {
      write("memory", path, "memory.limit_in_bytes", "-1");
      write("pids", path, "pids.max", "max");
      rmdirSync(join(mountOf("cpu"), path));
      write("cpu", `${ROOT}/kubepods/burstable`, "cpu.shares", "2");
      write("memory", `${ROOT}/kubepods`, "memory.limit_in_bytes", "-1");
      await pods.reconcile(() => [pod]);
      assert.equal(await tree.read(path, "memory", "memory.limit_in_bytes"), String(128 * MEBIBYTE));
      assert.equal(await tree.read(path, "pids", "pids.max"), "100");
      assert.equal(await tree.read(path, "cpu", "cpu.shares"), "256");
      assert.equal(await tree.read(`${ROOT}/kubepods/burstable`, "cpu", "cpu.shares"), "256");
      assert.equal(await tree.read(`${ROOT}/kubepods`, "memory", "memory.limit_in_bytes"), String(512 * MEBIBYTE));
    }
    assert.deepEqual(
      log.entries.map(({ message, fields }) => [message, fields?.found]),
      [
        ["another process changed a cgroup of pods: it is restored", "memory.limit_in_bytes 9223372036854771712"],
        ["another process changed a cgroup of pods: it is restored", "cpu.shares 2"],
        ["another process changed a pod's cgroup: it is restored", "it was removed"],
      ],
    );
    await pods.remove(pod, NEVER);
    rmdirSync(join(mountOf("pids"), `${ROOT}/kubepods/besteffort`));
    await tiers.reconcile();
    assert.ok(existsSync(join(mountOf("pids"), `${ROOT}/kubepods/besteffort`)));
  });

  test("a pod that is about to change is left alone, and nothing is made for one that has gone", async () => {
    const { tree, pods, wanted } = setUp();
    wanted.push(BURSTABLE);
    const pod = desired(BURSTABLE, "changing");
    await pods.ensure(pod);
    await pods.write(pod, { memoryLimitBytes: 256 * MEBIBYTE });
    await pods.reconcile(() => []);
    assert.equal(await tree.read(pods.pathOf(pod), "memory", "memory.limit_in_bytes"), String(256 * MEBIBYTE));
    let asked = 0;
    await pods.reconcile(() => (asked++ === 0 ? [pod] : []));
    assert.equal(await tree.read(pods.pathOf(pod), "memory", "memory.limit_in_bytes"), String(256 * MEBIBYTE));
    await pods.remove(pod, NEVER);
  });

  test("a limit below what is in use waits until there is room", async () => {
    const { tree, tiers, enforced, wanted } = setUp(hierarchies, { limits: new Map([["memory", 4096n]]) });
    wanted.push(BURSTABLE);
    const path = `${ROOT}/kubepods`;
    await tree.create(path, { memoryLimitBytes: -1 });
    const cgroup = await tree.create(`${path}/burstable`, {});
    for (const file of cgroup?.procsFiles ?? []) if (file.startsWith(mountOf("memory"))) writeFileSync(file, "0");
    const held = Buffer.alloc(4 * MEBIBYTE, 1);
    writeFileSync(join(mountOf("memory"), "cgroup.procs"), "0");
    assert.equal(held.length, 4 * MEBIBYTE);
    await tiers.ensure();
    assert.match(enforced[0] ?? "", /^the memory limit 4096 is below what is in use: \d+$/);
    assert.equal((await tree.value(path, "memoryLimitBytes")) ?? 0, -1);
    await tree.remove(path);
  });

  test("reserved cgroups get what is reserved, and must exist", async () => {
    const { tree } = setUp();
    const reservation = (name: string, isCompressible = false): Reservation => ({
      title: "System Reserved",
      path: `${ROOT}/${name}`,
      name: `/${name}`,
      amounts: new Map([
        ["cpu", 200n],
        ["memory", BigInt(32 * MEBIBYTE)],
        ["pid", 70n],
      ]),
      isCompressible,
    });
    const problems: (string | undefined)[] = [];
    const make = (...reservations: readonly Reservation[]): ReservedCgroups =>
      new ReservedCgroups(
        { cgroups: tree, onEnforced: (_, problem) => problems.push(problem) },
        { reservations, settings: SETTINGS },
      );
    await assert.rejects(make(reservation("system")).check(), (error) => {
      assert.ok(isPicoletError(error, "invalid"));
      assert.match(describeError(error), /cannot enforce System Reserved Cgroup Limits on "\/system".*missing paths/);
      return true;
    });
    // The other hierarchies are not needed.
    for (const name of ["system", "kube"])
      for (const controller of ["cpu", "cpuset", "memory", "pids", "hugetlb"])
        if (mountOf(controller) !== "") mkdirSync(join(mountOf(controller), ROOT, name), { recursive: true });
    const reserved = make(reservation("system"), reservation("kube", true));
    await reserved.check();
    await reserved.reconcile();
    await reserved.reconcile();
    assert.deepEqual(problems, [undefined, undefined]);
    const value = (name: string, file: string) => tree.read(`${ROOT}/${name}`, file.split(".")[0] ?? "", file);
    assert.equal(await value("system", "cpu.shares"), "204");
    assert.equal(await value("system", "memory.limit_in_bytes"), String(32 * MEBIBYTE));
    assert.equal(await value("system", "pids.max"), "70");
    assert.equal(await value("kube", "cpu.shares"), "204");
    assert.equal(await value("kube", "pids.max"), "max");
    writeFileSync(join(mountOf("cpu"), ROOT, "system", "cpu.shares"), "9");
    await reserved.reconcile();
    assert.equal(await value("system", "cpu.shares"), "204");
    await tree.remove(`${ROOT}/system`);
    await reserved.reconcile();
    assert.match(problems[2] ?? "", /is not there any more/);
  });
});

test("v1: huge pages are limited by size, also where they are only reserved", () => {
  assert.deepEqual(
    v1Files({ hugePageLimits: { "2MB": 4 * MEBIBYTE, "1GB": -1 } }).map(({ controller, file, content }) => [
      controller,
      `${file} ${content}`,
    ]),
    [
      ["hugetlb", `hugetlb.2MB.limit_in_bytes ${4 * MEBIBYTE}`],
      ["hugetlb", `hugetlb.2MB.rsvd.limit_in_bytes ${4 * MEBIBYTE}`],
      ["hugetlb", "hugetlb.1GB.limit_in_bytes -1"],
      ["hugetlb", "hugetlb.1GB.rsvd.limit_in_bytes -1"],
    ],
  );
});

test("the keeper checks at once, then every minute while there are pods, and goes on when a check fails", async () => {
  const clock = new VirtualClock();
  const log = new RecordedLog();
  const changes = new WatchSource<unknown>(undefined);
  const seen: number[] = [];
  let current: readonly DesiredPod[] = [];
  const cgroups = {
    reconcile: (pods: () => readonly DesiredPod[]) => {
      seen.push(clock.monotonic());
      return pods().length > 1 ? Promise.reject(new Error("no cgroups")) : Promise.resolve();
    },
  } as unknown as PodCgroups;
  const stop = new AbortController();
  const keeper = new CgroupKeeper({
    ...{ cgroups, reserved: undefined, units: undefined, changes, clock, log },
    pods: () => current,
  });
  const settled = async (): Promise<void> => {
    for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  };
  const running = endOfRun(keeper.run(stop.signal));
  await settled();
  assert.deepEqual([seen, clock.sleeping], [[], 0]);
  const pod = desired(BURSTABLE, "a");
  current = [pod, pod];
  changes.set(1);
  await settled();
  for (let round = 0; round < 2; round += 1) {
    await clock.advance(seconds(60));
    await settled();
  }
  assert.deepEqual(seen, [0, 60_000, 120_000]);
  assert.equal(log.problems.length, 1);
  current = [];
  await clock.advance(seconds(60));
  await settled();
  assert.equal(clock.sleeping, 0);
  stop.abort();
  await running;
});

/** cgroup v2 as a plain folder, on which slices are only noted. */
function systemdOnPlainFolder() {
  const root = mkdtempSync(join(tmpdir(), "cgroup-"));
  const said: [string, string, readonly UnitProperty[]][] = [];
  const units: CgroupUnits = {
    ensureSlice: async (name, properties) => void said.push(["ensure", name, properties]),
    removeSlice: async (name) => void said.push(["remove", name, []]),
  };
  const on: CgroupHierarchies = { kind: "v2", mountPoint: root, controllers: new Set(["cpu", "memory", "pids"]) };
  const tree = new CgroupTree({ log: new RecordedLog(), clock: systemClock }, { hierarchies: on, units });
  return { root, said, tree, [Symbol.dispose]: () => rmSync(root, { recursive: true }) };
}

test("systemd makes slices; what is below them is ours, with processes where systemd takes no controllers away", async () => {
  using here = systemdOnPlainFolder();
  const { root, said, tree } = here;
  const pod = cgroupNames("systemd", "/").pod("Burstable", "1-2");
  await tree.create(pod, { cpuShares: 1024, pidsLimit: -1 });
  const container = await tree.create(`${pod}/c1`, { memoryLimitBytes: 4096 });
  assert.deepEqual(said, [
    [
      "ensure",
      "kubepods-burstable-pod1_2.slice",
      [
        { name: "CPUWeight", type: "t", value: 39n },
        { name: "TasksMax", type: "t", value: 2n ** 64n - 1n },
      ],
    ],
  ]);
  assert.deepEqual(container?.procsFiles, [join(root, pod, "c1/processes/cgroup.procs")]);
  assert.equal(readFileSync(join(root, pod, "c1/cgroup.subtree_control"), "utf8"), "+cpu +memory +pids");
  assert.equal(readFileSync(join(root, pod, "c1/memory.max"), "utf8"), "4096");
  writeFileSync(join(root, pod, "c1/processes/cgroup.procs"), "4194305\n");
  await assert.rejects(tree.remove(pod), (error) => isPicoletError(error, "conflict"));
  assert.equal(said.length, 1, "systemd would end what is in it");
  mkdirSync(join(root, "other.slice"));
  await tree.remove("/other.slice");
  assert.deepEqual(said[1], ["remove", "other.slice", []]);
  assert.equal(existsSync(join(root, "other.slice")), false);
});

test("systemd receives every value that it has a property for", () => {
  const values: CgroupValues = {
    cpuShares: 2,
    cpuQuotaUs: 5000,
    cpuPeriodUs: 10_000,
    memoryLimitBytes: 7,
    memoryMinBytes: 1,
    memoryLowBytes: 2,
    memoryHighBytes: -1,
    swapLimitBytes: 0,
    pidsLimit: 3,
    oomGroup: true,
  };
  const numbers = (kind: "v1" | "v2", of: CgroupValues) =>
    Object.fromEntries(unitProperties(of, kind).map(({ name, value }) => [name, value]));
  const none = 2n ** 64n - 1n;
  assert.deepEqual(numbers("v2", values), {
    CPUWeight: 1n,
    CPUQuotaPerSecUSec: 500_000n,
    CPUQuotaPeriodUSec: 10_000n,
    MemoryMax: 7n,
    MemoryMin: 1n,
    MemoryLow: 2n,
    MemoryHigh: none,
    MemorySwapMax: 0n,
    TasksMax: 3n,
  });
  assert.deepEqual(numbers("v1", { ...values, cpuQuotaUs: -1 }), {
    CPUShares: 2n,
    CPUQuotaPerSecUSec: none,
    MemoryLimit: 7n,
    TasksMax: 3n,
  });
  assert.deepEqual(unitProperties({}, "v2"), []);
});

test("v2: every value has its file", () => {
  const values: CgroupValues = {
    memoryMinBytes: 1,
    memoryLowBytes: 2,
    memoryHighBytes: -1,
    memoryLimitBytes: 4,
    swapLimitBytes: 0,
    oomGroup: true,
    hugePageLimits: { "2MB": 0, "1GB": -1 },
    cpusetCpus: "0-1",
    cpusetMems: "0",
  };
  assert.deepEqual(
    v2Files(values).map(({ file, content }) => `${file} ${content}`),
    [
      ...["memory.min 1", "memory.low 2", "memory.high max", "memory.max 4", "memory.swap.max 0", "memory.oom.group 1"],
      ...["cpuset.mems 0", "cpuset.cpus 0-1"],
      ...["hugetlb.2MB.max 0", "hugetlb.2MB.rsvd.max 0", "hugetlb.1GB.max max", "hugetlb.1GB.rsvd.max max"],
    ],
  );
});

test("any text of a kernel file equals what was written, or does not", () => {
  for (const [file, wanted, text, is] of [
    ["memory", "100000", "98304", true],
    ["memory", "100000", "102400", false],
    ["memory", "-1", "9223372036854771712", true],
    ["memory", "max", "max\n", true],
    ["memory", "4096", "max", false],
    ["hugetlb", "max", "9223372036850581504", true],
    ["cpu", "512", "512\n", true],
    ["cpu", "max 100000", "max 100000\n", true],
    ["pids", "max", "100", false],
  ] as const)
    assert.equal(isWritten({ controller: file, content: wanted }, text), is, `${wanted} ${text}`);
  const bytes = fc.integer({ min: -1, max: Number.MAX_SAFE_INTEGER });
  fc.assert(
    fc.property(bytes, fc.string(), (memoryLimitBytes, text) => {
      const values = { memoryLimitBytes, cpuShares: 2, pidsLimit: memoryLimitBytes };
      for (const each of [...v1Files(values), ...v2Files(values)]) {
        assert.equal(typeof isWritten(each, text), "boolean");
        assert.ok(isWritten(each, `${each.content}\n`));
      }
    }),
  );
});
