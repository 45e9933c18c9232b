/** On this machine's own cgroups where it is root on v1; v2 against a plain directory. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { CreatedCgroup } from "@picolet/runtime-contract/cgroup-port.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import fc from "fast-check";
import { v1Files, v2Files, weightOfShares } from "./cgroup-files.ts";
import { type CgroupHierarchies, detectCgroups } from "./cgroup-hierarchies.ts";
import { CgroupTree } from "./cgroup-tree.ts";

const hierarchies = await detectCgroups();
const isRoot = process.geteuid?.() === 0;
const skip = hierarchies.kind === "v1" && isRoot ? false : "needs root on a machine with cgroup v1";
const NEVER = new AbortController().signal;
const ROOT = `/picolet-test-${process.pid}`;

const treeOf = (on: CgroupHierarchies, log = new RecordedLog()): CgroupTree =>
  new CgroupTree({ log, clock: systemClock }, { hierarchies: on });

/** A shell script in the cgroup; resolves when it has joined. */
async function runIn(cgroup: CreatedCgroup | undefined, script: string): Promise<ChildProcess> {
  assert.ok(cgroup);
  const join = cgroup.procsFiles.map((file) => `echo $$ > ${file}`).join(" && ");
  const child = spawn("sh", ["-c", `${join} && echo joined && ${script}`], { stdio: ["ignore", "pipe", "ignore"] });
  assert.ok(child.stdout);
  await once(child.stdout, "data");
  return child;
}

/** The signal that ended it. */
async function ended(child: ChildProcess): Promise<NodeJS.Signals | null> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  return child.signalCode;
}

describe("cgroup v1 on this machine", { skip }, () => {
  const tree = treeOf(hierarchies);

  after(async () => {
    await tree.kill(ROOT, NEVER);
    await tree.remove(ROOT);
    for (const mount of hierarchies.kind === "v1" ? hierarchies.controllers.values() : [])
      assert.equal(existsSync(join(mount, ROOT)), false);
  });

  test("a cgroup is made in every hierarchy, with parents, and its values are the kernel's", async () => {
    const path = `${ROOT}/values/pod`;
    const values = {
      cpuShares: 512,
      cpuQuotaUs: 50_000,
      cpuPeriodUs: 100_000,
      memoryLimitBytes: 64 * 2 ** 20,
      pidsLimit: 99,
    };
    const made = await tree.create(path, values);
    assert.ok(hierarchies.kind === "v1");
    assert.equal(made?.procsFiles.length, new Set(hierarchies.controllers.values()).size);
    for (const file of made?.procsFiles ?? []) assert.equal(readFileSync(file, "utf8"), "");
    assert.equal(await tree.read(path, "cpu", "cpu.shares"), "512");
    assert.equal(await tree.read(path, "cpu", "cpu.cfs_quota_us"), "50000");
    assert.equal(await tree.read(path, "memory", "memory.limit_in_bytes"), String(64 * 2 ** 20));
    assert.equal(await tree.read(path, "pids", "pids.max"), "99");
  });

  test("making it again changes the values that are given and no other", async () => {
    const path = `${ROOT}/again`;
    await tree.create(path, { cpuShares: 100, pidsLimit: 10 });
    await tree.create(path, { pidsLimit: -1, memoryLimitBytes: 2 ** 24, cpuQuotaUs: -1 });
    assert.equal(await tree.read(path, "cpu", "cpu.shares"), "100");
    assert.equal(await tree.read(path, "pids", "pids.max"), "max");
    assert.equal(await tree.read(path, "memory", "memory.limit_in_bytes"), String(2 ** 24));
  });

  test("processes can join at once, in a cpuset that a crash left empty too", async () => {
    assert.ok(hierarchies.kind === "v1");
    const cpuset = hierarchies.controllers.get("cpuset");
    if (cpuset !== undefined) mkdirSync(join(cpuset, ROOT, "cpuset"), { recursive: true });
    const cgroup = await tree.create(`${ROOT}/cpuset/inner`, {});
    const child = await runIn(cgroup, "exec sleep 60");
    assert.deepEqual([...(await tree.pids(`${ROOT}/cpuset`))], [child.pid]);
    await tree.kill(`${ROOT}/cpuset`, NEVER);
    assert.equal(await ended(child), "SIGKILL");
    await tree.remove(`${ROOT}/cpuset`);
  });

  test("killing gets what forks meanwhile, in cgroups below too", async () => {
    const path = `${ROOT}/forks`;
    await tree.create(path, { pidsLimit: 200 });
    const cgroup = await tree.create(`${path}/container`, {});
    const child = await runIn(cgroup, "while :; do sleep 100 & sleep 0.001; done");
    await tree.kill(path, NEVER);
    assert.equal((await tree.pids(path)).size, 0);
    await ended(child);
    await tree.remove(path);
  });

  test("one with a process in it is not removed, and is when the process has gone", async () => {
    const path = `${ROOT}/busy`;
    const cgroup = await tree.create(path, {});
    const child = await runIn(cgroup, "exec sleep 60");
    await assert.rejects(tree.remove(path), (error) => isPicoletError(error, "conflict") && error.retryable);
    child.kill("SIGKILL");
    await ended(child);
    await tree.remove(path);
    assert.equal((await tree.children(ROOT)).has("busy"), false);
    await tree.remove(path);
  });

  test("an OOM kill is counted, in the cgroup below too", async () => {
    const path = `${ROOT}/oom`;
    await tree.create(path, {});
    const cgroup = await tree.create(`${path}/container`, { memoryLimitBytes: 8 * 2 ** 20 });
    assert.equal(await tree.oomKills(path), 0);
    const child = await runIn(cgroup, "exec tail /dev/zero");
    assert.equal(await ended(child), "SIGKILL");
    assert.equal(await tree.oomKills(path), 1);
    assert.equal(await tree.oomKills(`${ROOT}/never`), 0);
    await tree.remove(path);
  });

  test("a wait for what does not end is ended by the caller", async () => {
    const path = `${ROOT}/wait`;
    await tree.create(path, {});
    const stop = new AbortController();
    stop.abort();
    await tree.kill(path, stop.signal);
    const cgroup = await tree.create(path, {});
    const child = await runIn(cgroup, "exec sleep 60");
    await assert.rejects(tree.kill(path, stop.signal), (error) => isPicoletError(error, "cancelled"));
    await ended(child);
  });

  test("a value the kernel does not take is an error that names it", async () => {
    await assert.rejects(tree.create(`${ROOT}/wrong`, { cpuQuotaUs: 1 }), (error) => {
      assert.ok(isPicoletError(error, "failed"));
      assert.match(String(error.cause), /cpu\.cfs_quota_us/);
      return true;
    });
  });

  test("without rights that is logged once, and everything else goes on", async () => {
    const log = new RecordedLog();
    const tree = treeOf(hierarchies, log);
    process.seteuid?.(65_534);
    try {
      assert.equal(await tree.create(`${ROOT}-user/pod`, { cpuShares: 2 }), undefined);
      assert.equal(await tree.create(`${ROOT}-user/pod`, { cpuShares: 2 }), undefined);
    } finally {
      process.seteuid?.(0);
    }
    assert.equal(tree.usable, false);
    assert.deepEqual(log.problems, ["no cgroups here: pods run without resource limits"]);
    await tree.kill(`${ROOT}-user/pod`, NEVER);
    await tree.remove(`${ROOT}-user/pod`);
  });

  test("cgroups that root made and left are no more use to an ordinary user than none", async () => {
    const path = `${ROOT}/left/pod`;
    await treeOf(hierarchies).create(path, { cpuShares: 2 });
    const log = new RecordedLog();
    const tree = treeOf(hierarchies, log);
    process.seteuid?.(65_534);
    try {
      assert.equal(await tree.create(path, { cpuShares: 4 }), undefined);
    } finally {
      process.seteuid?.(0);
    }
    assert.deepEqual(log.problems, ["no cgroups here: pods run without resource limits"]);
  });
});

/** Not cgroupfs: what the kernel does by itself (cgroup.procs, values that appear with the folder) is not there. */
function plainV2(): { readonly hierarchies: CgroupHierarchies; readonly root: string } & Disposable {
  const root = mkdtempSync(join(tmpdir(), "cgroup2-"));
  const mount = `1 1 0:1 / ${root} rw - cgroup2 cgroup2 rw`;
  writeFileSync(join(root, "mountinfo"), mount);
  writeFileSync(join(root, "cgroup.controllers"), "cpuset cpu io memory pids misc\n");
  const hierarchies: CgroupHierarchies = {
    kind: "v2",
    mountPoint: root,
    controllers: new Set(["cpu", "memory", "pids"]),
  };
  return { hierarchies, root, [Symbol.dispose]: () => rmSync(root, { recursive: true }) };
}

test("v2: controllers are passed on at each level, values are v2's", async () => {
  using plain = plainV2();
  const tree = treeOf(plain.hierarchies);
  const path = "/kubepods/burstable/podx";
  const made = await tree.create(path, { cpuShares: 1024, cpuQuotaUs: 50_000, memoryLimitBytes: -1, pidsLimit: 9 });
  assert.deepEqual(made?.procsFiles, [join(plain.root, path, "cgroup.procs")]);
  const read = (file: string): string => readFileSync(join(plain.root, file), "utf8");
  for (const folder of ["", "kubepods", "kubepods/burstable"])
    assert.equal(read(join(folder, "cgroup.subtree_control")), "+cpu +memory +pids");
  assert.equal(read(`${path}/cpu.weight`), "39");
  assert.equal(read(`${path}/cpu.max`), "50000 100000");
  assert.equal(read(`${path}/memory.max`), "max");
  assert.equal(read(`${path}/pids.max`), "9");
  writeFileSync(join(plain.root, path, "memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
  assert.equal(await tree.oomKills(path), 2);
});

test("which cgroups there are is read from mountinfo", async () => {
  using plain = plainV2();
  const detected = await detectCgroups(join(plain.root, "mountinfo"));
  assert.deepEqual(detected, {
    kind: "v2",
    mountPoint: plain.root,
    controllers: new Set(["cpuset", "cpu", "io", "memory", "pids", "misc"]),
  });
  const hybrid = `${readFileSync(join(plain.root, "mountinfo"), "utf8")}
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
34 31 0:31 / /sys/fs/cgroup/net_cls rw,relatime - cgroup cgroup rw,net_cls`;
  writeFileSync(join(plain.root, "mountinfo"), hybrid);
  const mixed = await detectCgroups(join(plain.root, "mountinfo"));
  assert.ok(mixed.kind === "v1");
  assert.deepEqual(
    [...mixed.controllers],
    [
      ["cpu", "/sys/fs/cgroup/cpu,cpuacct"],
      ["cpuacct", "/sys/fs/cgroup/cpu,cpuacct"],
      ["systemd", "/sys/fs/cgroup/systemd"],
    ],
  );
  assert.deepEqual(new Set(mixed.runtimesOwn), new Set([plain.root, "/sys/fs/cgroup/net_cls"]));
  assert.equal((await detectCgroups(join(plain.root, "nothing"))).kind, "none");
});

test("no cgroups at all is said once", async () => {
  const log = new RecordedLog();
  const tree = treeOf({ kind: "none", why: "no cgroup file system is mounted" }, log);
  assert.equal(tree.usable, false);
  assert.equal(await tree.create("/kubepods/podx", {}), undefined);
  assert.equal(await tree.create("/kubepods/pody", {}), undefined);
  assert.equal(log.problems.length, 1);
  assert.equal(await tree.oomKills("/kubepods/podx"), 0);
  await tree.remove("/kubepods/podx");
});

test("values of a controller that the kernel does not have are left out", async () => {
  using plain = plainV2();
  const log = new RecordedLog();
  const tree = treeOf({ kind: "v1", controllers: new Map([["cpu", plain.root]]), runtimesOwn: [] }, log);
  await tree.create("/kubepods", { cpuShares: 2, memoryLimitBytes: 5, hugePageLimits: { "2MB": 0 } });
  assert.deepEqual(log.problems, []);
  assert.equal(readFileSync(join(plain.root, "kubepods/cpu.shares"), "utf8"), "2");
});

test("what a runtime left where it alone makes cgroups is removed with the pod's cgroup", async () => {
  using plain = plainV2();
  const [own, runtimes] = ["cpu", "unified"].map((name) => join(plain.root, name));
  assert.ok(own !== undefined && runtimes !== undefined);
  for (const folder of [own, join(runtimes, "kubepods", "pod1", "container")]) mkdirSync(folder, { recursive: true });
  const tree = treeOf({ kind: "v1", controllers: new Map([["cpu", own]]), runtimesOwn: [runtimes] });
  await tree.create("/kubepods/pod2", {});
  assert.equal(existsSync(join(runtimes, "kubepods", "pod2")), false);
  assert.deepEqual([...(await tree.children("/kubepods"))].sort(), ["pod1", "pod2"]);
  await tree.remove("/kubepods/pod1");
  assert.deepEqual([...(await tree.children("/kubepods"))], ["pod2"]);
});

test("no path leads out of the hierarchy", async () => {
  const tree = treeOf({ kind: "v1", controllers: new Map([["cpu", "/nowhere"]]), runtimesOwn: [] });
  await assert.rejects(tree.remove("/"), (error) => isPicoletError(error, "invalid"));
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom("..", ".", "a", "/", "\0")), async (parts) => {
      const path = `/${parts.join("/")}/../x`;
      await assert.rejects(tree.create(path, {}), (error) => isPicoletError(error, "invalid"));
      await assert.rejects(tree.kill(path, NEVER), (error) => isPicoletError(error, "invalid"));
      await assert.rejects(tree.remove(path), (error) => isPicoletError(error, "invalid"));
    }),
  );
});

test("shares and weights keep their order and their ends", () => {
  assert.deepEqual([2, 1024, 262_144].map(weightOfShares), [1, 39, 10_000]);
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 300_000 }), fc.integer({ min: 0, max: 300_000 }), (a, b) => {
      if (a <= b) assert.ok(weightOfShares(a) <= weightOfShares(b));
    }),
  );
});

test("what is not given is not written; no limit is each kernel's own word", () => {
  assert.deepEqual(v1Files({}), []);
  assert.deepEqual(v2Files({}), []);
  assert.deepEqual(
    v1Files({ memoryLimitBytes: -1, pidsLimit: -1, cpuQuotaUs: -1 }).map(({ content }) => content),
    ["-1", "-1", "max"],
  );
  assert.deepEqual(
    v2Files({ cpuQuotaUs: -1, pidsLimit: -1 }).map(({ content }) => content),
    ["max 100000", "max"],
  );
});
