/** On this machine's own cgroups where it is root on v1. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { cgroupNames } from "@picolet/protocol/cgroup/cgroup-names.ts";
import type { CgroupSettings, NodeCgroupSettings } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { type CgroupHierarchies, detectCgroups } from "./cgroup-hierarchies.ts";
import { CgroupTree } from "./cgroup-tree.ts";
import { PodCgroups, type PodCgroupsInit } from "./pod-cgroups.ts";
import { TierCgroups } from "./tier-cgroups.ts";

const hierarchies = await detectCgroups();
const isRoot = process.geteuid?.() === 0;
const skip = hierarchies.kind === "v1" && isRoot ? false : "needs root on a machine with cgroup v1";
const NEVER = new AbortController().signal;
const ROOT = `/picolet-pods-${process.pid}`;
const SETTINGS: CgroupSettings = { cpuCFSQuota: true, cpuPeriodUs: 100_000, podPidsLimit: 500 };
const LIMITS = new Map([
  ["cpu", 4000n],
  ["memory", 2n ** 30n],
  ["pid", 4096n],
]);

type Quantities = Readonly<Record<string, string>>;
const podWith = (resources: { readonly requests?: Quantities; readonly limits?: Quantities }): Pod =>
  podOf({ containers: [{ name: "app", image: "example/app:1", resources }] });

const GUARANTEED = podWith({ limits: { cpu: "500m", memory: "64Mi" } });
const BURSTABLE = podWith({ requests: { cpu: "250m" }, limits: { memory: "32Mi" } });
const BEST_EFFORT = podWith({});

interface Setup {
  readonly tree: CgroupTree;
  readonly cgroups: PodCgroups;
  readonly log: RecordedLog;
  readonly wanted: Pod[];
  readonly enforced: string[];
}

interface SetupInit extends Partial<PodCgroupsInit> {
  readonly node?: NodeCgroupSettings;
  readonly clock?: Clock;
}

function setUp(init: SetupInit = {}, on: CgroupHierarchies = hierarchies): Setup {
  const { cgroupRoot = ROOT, cgroupsPerQOS = true, settings = SETTINGS, node = { limits: LIMITS } } = init;
  const { names = cgroupNames("cgroupfs", cgroupRoot), clock = systemClock } = init;
  const log = new RecordedLog();
  const wanted: Pod[] = [];
  const enforced: string[] = [];
  const tree = new CgroupTree({ log, clock }, { hierarchies: on });
  const onEnforced = (path: string, problem: string | undefined): void => void enforced.push(`${path} ${problem}`);
  const tiers = new TierCgroups({ cgroups: tree, pods: () => wanted, onEnforced, log }, { names, settings, node });
  const cgroups = new PodCgroups({ cgroups: tree, tiers, clock, log }, { cgroupRoot, names, cgroupsPerQOS, settings });
  return { tree, cgroups, log, wanted, enforced };
}

describe("pod cgroups on this machine", { skip }, () => {
  after(async () => {
    const { tree } = setUp();
    await tree.kill(ROOT, NEVER);
    await tree.remove(ROOT);
  });

  test("each QoS class has its place and its values, as the kubelet writes them", async () => {
    const { tree, cgroups, wanted } = setUp();
    wanted.push(GUARANTEED, BURSTABLE, BURSTABLE, BEST_EFFORT);
    const pods = [desired(GUARANTEED, "g"), desired(BURSTABLE, "b"), desired(BEST_EFFORT, "e")] as const;
    for (const pod of pods) await cgroups.ensure(pod);
    assert.deepEqual(
      pods.map((pod) => cgroups.pathOf(pod)),
      [`${ROOT}/kubepods/podg`, `${ROOT}/kubepods/burstable/podb`, `${ROOT}/kubepods/besteffort/pode`],
    );
    const value = (path: string, file: string): Promise<string | undefined> =>
      tree.read(`${ROOT}/kubepods${path}`, file.split(".")[0] ?? "", file);
    const unlimited = await value("/besteffort", "memory.limit_in_bytes");
    const expected: readonly (readonly [string, string, string | undefined])[] = [
      ["", "cpu.shares", "4096"],
      ["", "memory.limit_in_bytes", String(2 ** 30)],
      ["", "pids.max", "4096"],
      ["/burstable", "cpu.shares", "512"],
      ["/besteffort", "cpu.shares", "2"],
      ["/podg", "cpu.shares", "512"],
      ["/podg", "cpu.cfs_quota_us", "50000"],
      ["/podg", "memory.limit_in_bytes", String(64 * 2 ** 20)],
      ["/podg", "pids.max", "500"],
      ["/burstable/podb", "cpu.shares", "256"],
      ["/burstable/podb", "cpu.cfs_quota_us", "-1"],
      ["/burstable/podb", "memory.limit_in_bytes", String(32 * 2 ** 20)],
      ["/besteffort/pode", "cpu.shares", "2"],
      ["/besteffort/pode", "memory.limit_in_bytes", unlimited],
    ];
    for (const [path, file, content] of expected) assert.equal(await value(path, file), content, `${path} ${file}`);
    wanted.splice(1, 1);
    for (const pod of pods) await cgroups.remove(pod, NEVER);
    assert.equal(await value("/burstable", "cpu.shares"), "256");
    assert.deepEqual([...(await tree.children(`${ROOT}/kubepods`))].sort(), ["besteffort", "burstable"]);
    for (const pod of pods) await cgroups.remove(pod, NEVER);
  });

  test("a pod's values are read back and change while something runs in it; a preparation leaves them alone then", async () => {
    const { tree, cgroups, wanted } = setUp();
    wanted.push(GUARANTEED);
    const pod = desired(GUARANTEED, "resized");
    assert.equal(await cgroups.current(pod), undefined);
    await cgroups.ensure(pod);
    const made = { cpuShares: 512, cpuQuotaUs: 50_000, memoryLimitBytes: 64 * 2 ** 20 };
    assert.deepEqual(await cgroups.current(pod), made);
    assert.equal(await cgroups.memoryUsage(pod, "container"), undefined);
    const container = await tree.create(`${cgroups.pathOf(pod)}/crio-container`, {});
    const child = joining(container?.procsFiles ?? []);
    await once(child.stdout, "data");
    assert.ok(((await cgroups.memoryUsage(pod, "container")) ?? 0) > 0);
    assert.ok(((await cgroups.memoryUsage(pod)) ?? 0) >= ((await cgroups.memoryUsage(pod, "container")) ?? 0));
    await cgroups.write(pod, { memoryLimitBytes: 128 * 2 ** 20 });
    await cgroups.write(pod, { cpuQuotaUs: -1, cpuPeriodUs: 100_000 });
    const changed = { cpuShares: 512, cpuQuotaUs: -1, memoryLimitBytes: 128 * 2 ** 20 };
    assert.deepEqual(await cgroups.current(pod), changed);
    await cgroups.ensure(pod);
    assert.deepEqual(await cgroups.current(pod), changed);
    // The kernel gives no less than what is in use and cannot be had back.
    await assert.rejects(cgroups.write(pod, { memoryLimitBytes: 4096 }));
    const exit = once(child, "exit");
    await cgroups.remove(pod, NEVER);
    await exit;
    await cgroups.ensure(pod);
    assert.deepEqual(await cgroups.current(pod), made);
    await cgroups.remove(pod, NEVER);
  });

  test("what outlived its pod is killed, with a word in the log", async () => {
    const { tree, cgroups, log } = setUp();
    const pod = desired(BEST_EFFORT, "outlived");
    await cgroups.ensure(pod);
    const container = await tree.create(`${cgroups.pathOf(pod)}/container`, {});
    const child = joining(container?.procsFiles ?? []);
    await once(child.stdout, "data");
    const exit = once(child, "exit");
    await cgroups.remove(pod, NEVER);
    assert.equal((await exit)[1], "SIGKILL");
    assert.ok(log.entries.some(({ message }) => message === "killing processes that outlived their pod"));
    assert.equal((await tree.children(`${ROOT}/kubepods/besteffort`)).has("podoutlived"), false);
  });

  test("orphans go, but for those that are known or still run", async () => {
    const { tree, cgroups, log } = setUp();
    for (const uid of ["known", "orphan", "runs"]) await cgroups.ensure(desired(BEST_EFFORT, uid));
    await cgroups.ensure(desired(GUARANTEED, "guaranteed"));
    await tree.create(`${ROOT}/kubepods/besteffort/podorphan/container`, {});
    await tree.create(`${ROOT}/kubepods/somebody-else`, {});
    const running = await tree.create(`${ROOT}/kubepods/besteffort/podruns`, {});
    const child = joining(running?.procsFiles ?? []);
    await once(child.stdout, "data");
    assert.deepEqual([...(await cgroups.sweep(new Set(["known"])))].sort(), ["guaranteed", "orphan"]);
    assert.deepEqual([...(await tree.children(`${ROOT}/kubepods/besteffort`))].sort(), ["podknown", "podruns"]);
    assert.equal((await tree.children(`${ROOT}/kubepods`)).has("somebody-else"), true);
    assert.deepEqual(log.problems, [], "one that runs is nothing to report");
    const exit = once(child, "exit");
    await tree.kill(`${ROOT}/kubepods/besteffort/podruns`, NEVER);
    await exit;
  });
});

/** A process that joins a cgroup, says so, and stays. */
function joining(procsFiles: readonly string[]) {
  const join = procsFiles.map((file) => `echo $$ > ${file}`).join(" && ");
  return spawn("sh", ["-c", `${join} && echo joined && exec sleep 60`], { stdio: ["ignore", "pipe", "ignore"] });
}

test("on cgroup v2 values are read back in v1's units", async () => {
  const root = mkdtempSync(join(tmpdir(), "cgroup-"));
  try {
    const folder = join(root, "kubepods/podv2");
    mkdirSync(folder, { recursive: true });
    const plain: CgroupHierarchies = { kind: "v2", mountPoint: root, controllers: new Set(["cpu", "memory"]) };
    const { cgroups } = setUp({ cgroupRoot: "/" }, plain);
    const pod = desired(GUARANTEED, "v2");
    const write = (values: Readonly<Record<string, string>>): void => {
      for (const [file, text] of Object.entries(values)) writeFileSync(join(folder, file), `${text}\n`);
    };
    write({ "cpu.weight": "20", "cpu.max": "50000 100000", "memory.max": "67108864", "memory.current": "4096" });
    assert.deepEqual(await cgroups.current(pod), {
      cpuShares: 501,
      cpuQuotaUs: 50_000,
      memoryLimitBytes: 64 * 2 ** 20,
    });
    assert.equal(await cgroups.memoryUsage(pod), 4096);
    write({ "cpu.weight": "1", "cpu.max": "max 100000", "memory.max": "max" });
    assert.deepEqual(await cgroups.current(pod), { cpuShares: 2, cpuQuotaUs: -1, memoryLimitBytes: -1 });
  } finally {
    rmSync(root, { recursive: true });
  }
});

test("a process that cannot be killed is waited for 5 s, then the removal fails as retryable", async () => {
  // A plain folder in place of cgroupfs, whose list of processes never gets shorter.
  const root = mkdtempSync(join(tmpdir(), "cgroup-"));
  try {
    mkdirSync(join(root, "kubepods/besteffort/podstuck"), { recursive: true });
    // No process has this pid: the largest that Linux gives is 2^22.
    writeFileSync(join(root, "kubepods/besteffort/podstuck/cgroup.procs"), "4194305\n");
    const clock = new VirtualClock();
    const plain: CgroupHierarchies = { kind: "v2", mountPoint: root, controllers: new Set(["cpu"]) };
    const { cgroups } = setUp({ cgroupRoot: "/", clock }, plain);
    const failed = assert.rejects(
      cgroups.remove(desired(BEST_EFFORT, "stuck"), NEVER),
      (error) => isPicoletError(error, "deadline_exceeded") && error.retryable,
    );
    let over = false;
    const done = failed.then(() => {
      over = true;
    });
    // Real file system calls lie between the virtual waits, so time is let go on step by step.
    while (!over) {
      await new Promise((resolve) => setImmediate(resolve));
      if (clock.sleeping > 1) await clock.step();
    }
    await done;
    assert.ok(clock.monotonic() >= seconds(5));
    assert.equal(clock.sleeping, 0);
  } finally {
    rmSync(root, { recursive: true });
  }
});

test("without cgroups per QoS class, containers go right below the root", async () => {
  const { cgroups } = setUp(
    { cgroupsPerQOS: false, cgroupRoot: "/edge/" },
    { kind: "v2", mountPoint: "/nowhere", controllers: new Set() },
  );
  const pod = desired(BURSTABLE, "b");
  await cgroups.ensure(pod);
  assert.equal(cgroups.pathOf(pod), "/edge");
  await cgroups.remove(pod, NEVER);
});

test("where there are no cgroups, that is said once and nothing fails", async () => {
  const { cgroups, log } = setUp({}, { kind: "none", why: "not mounted" });
  const pod = desired(BURSTABLE, "b");
  await cgroups.ensure(pod);
  await cgroups.ensure(pod);
  assert.equal(cgroups.pathOf(pod), "");
  await cgroups.remove(pod, NEVER);
  assert.deepEqual(await cgroups.sweep(new Set()), []);
  assert.deepEqual(log.problems, ["no cgroups here: pods run without resource limits"]);
});

test("a uid that is no name of a folder is refused", () => {
  const { cgroups } = setUp({}, { kind: "v2", mountPoint: "/nowhere", controllers: new Set() });
  for (const uid of ["", "..", "a/b", "a\0"])
    assert.throws(
      () => cgroups.pathOf(desired(BURSTABLE, uid)),
      (error) => isPicoletError(error, "invalid"),
    );
});
