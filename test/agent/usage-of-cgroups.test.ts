/**
 * What is collected of real cgroups of this machine: processes whose use is known, and cgroups that come and go
 * meanwhile.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import type { Usage } from "@picolet/agent/core/node/usage.ts";
import type { AgentPod } from "@picolet/agent/core/pods/agent-pod.ts";
import { makeNodeUsageSampler } from "@picolet/agent/main/node/node-usage.ts";
import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { CgroupTree } from "@picolet/agent/resources/cgroup-tree.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { usagePod } from "../support/unit/pods/usage-pods.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";

const hierarchies = await detectCgroups();
const skip = hierarchies.kind === "v1" && process.geteuid?.() === 0 ? false : "needs root on a machine with cgroup v1";
const NEVER = new AbortController().signal;
const NEW = millis(0);
/** The kernel's own two seconds, on a busy machine. */
const FLUSH_LIMIT_MS = 10_000;
const ROOT = `/picolet-test-stats-${process.pid}`;
const RACES = 1000;

describe("what real cgroups use", { skip }, () => {
  const tree = new CgroupTree({ log: new RecordedLog(), clock: systemClock }, { hierarchies });
  const folder = new TempFolder();
  const pods: AgentPod[] = [];
  const looks = makeNodeUsageSampler(
    {
      ...{ hierarchies, adapters: [], clock: systemClock, log: new RecordedLog() },
      pods: () => pods,
      podCgroup: ({ uid }) => `${ROOT}/${uid}`,
    },
    { rootDir: folder.path, podLogsDir: folder.path, allPodsCgroup: ROOT, cgroupsPerQOS: true },
  );

  before(async () => {
    await tree.create(ROOT, {});
  });
  after(async () => {
    await tree.kill(ROOT, NEVER);
    await tree.remove(ROOT);
    folder[Symbol.dispose]();
  });

  /** A script in the one container of a pod of its own; resolves when it says that it is ready. */
  async function run(uid: string, values: CgroupValues, script: string): Promise<ChildProcess> {
    await tree.create(`${ROOT}/${uid}`, values);
    const cgroup = await tree.create(`${ROOT}/${uid}/${uid}-c`, values);
    assert.ok(cgroup);
    const join = cgroup.procsFiles.map((file) => `echo $$ > ${file}`).join(" && ");
    const child = spawn("sh", ["-c", `${join} && { ${script}; }`], { stdio: ["ignore", "pipe", "ignore"] });
    pods.push(usagePod(uid, [`${uid}-c`]));
    for await (const text of child.stdout) if (String(text).includes("ready")) break;
    return child;
  }

  /** The usage of a pod and of its container. */
  async function usageOf(uid: string): Promise<readonly Usage[]> {
    const look = await looks.sample(NEW, NEVER);
    const found = look.pods.find(({ pod }) => pod.desired.uid === uid);
    assert.ok(found?.usage, `${uid} is not there`);
    return [found.usage, ...found.containers.map(({ usage }) => usage)];
  }

  test("memory: what a process holds, its limit, its faults; all pods together hold it too", async () => {
    const hold = `const held = Buffer.alloc(${64 * MEBIBYTE}, 1); console.log("ready"); setInterval(() => held, 1e6)`;
    await run("holds", { memoryLimitBytes: 256 * MEBIBYTE }, `exec ${process.execPath} -e '${hold}'`);
    for (const usage of await usageOf("holds")) {
      assert.ok(usage.rssBytes >= 64 * MEBIBYTE && usage.rssBytes < 160 * MEBIBYTE, `${usage.rssBytes}`);
      assert.ok(usage.workingSetBytes >= usage.rssBytes - MEBIBYTE && usage.workingSetBytes <= usage.memoryBytes);
      assert.equal(usage.memoryLimitBytes, 256 * MEBIBYTE);
      assert.ok(usage.pageFaults >= (64 * MEBIBYTE) / 4096 && usage.cpuNanoseconds > 0);
      assert.equal(usage.throttledNanoseconds, undefined);
    }
    let { allPods, node } = await looks.sample(NEW, NEVER);
    // The kernel adds what cgroups below hold within two seconds.
    for (const begun = performance.now(); performance.now() - begun < FLUSH_LIMIT_MS; ) {
      if (allPods !== undefined && allPods.rssBytes >= 64 * MEBIBYTE) break;
      ({ allPods, node } = await looks.sample(NEW, NEVER));
    }
    assert.ok(allPods && allPods.rssBytes >= 64 * MEBIBYTE, JSON.stringify(allPods));
    assert.equal(allPods.memoryLimitBytes, undefined);
    assert.ok(node.workingSetBytes > allPods.rssBytes && (node.pids ?? 0) > 1);
  });

  test("page cache that was read once does not count as in use", async () => {
    const read = `dd if=/dev/zero of=${folder.at("file")} bs=1M count=48 2>/dev/null && sync && echo ready && exec sleep 1000`;
    await run("reads", {}, read);
    const [pod] = await usageOf("reads");
    assert.ok(pod && pod.memoryBytes >= 40 * MEBIBYTE, `${pod?.memoryBytes}`);
    assert.ok(pod.workingSetBytes < 16 * MEBIBYTE, `${pod.workingSetBytes}`);
  });

  test("processes are counted", async () => {
    await run("forks", {}, "sleep 1000 & sleep 1000 & sleep 1000 & echo ready; wait");
    assert.deepEqual(
      (await usageOf("forks")).map(({ pids }) => pids),
      [4, 4],
    );
    assert.equal(looks.processes(`${ROOT}/forks/forks-c`).length, 4);
  });

  test("CPU time, and what a quota kept from it", async () => {
    const spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo ready; exec sleep 1000";
    // Less than the scheduler gives at once: it is kept from some of it whenever it has its turn, also where others
    // want the CPU.
    await run("spins", { cpuPeriodUs: 10_000, cpuQuotaUs: 1000 }, spin);
    const [pod, container] = await usageOf("spins");
    assert.ok(pod && container);
    assert.ok(container.cpuNanoseconds > 20_000_000, `${container.cpuNanoseconds}`);
    const throttled = (pod.throttledNanoseconds ?? 0) + (container.throttledNanoseconds ?? 0);
    assert.ok(throttled > 10_000_000, `${throttled}`);
  });

  test("cgroups that come and go while they are read are left out or whole, never an error", async () => {
    const memory = hierarchies.kind === "v1" ? hierarchies.controllers.get("memory") : undefined;
    const cpuacct = hierarchies.kind === "v1" ? hierarchies.controllers.get("cpuacct") : undefined;
    const folders = [memory, cpuacct].map((mount) => `${mount}${ROOT}/races`);
    for (const each of folders) await tree.create(each.slice(each.indexOf(ROOT)), {});
    // Moves as fast as it can: each round takes about as long as a sample of one cgroup.
    const names = JSON.stringify(folders.map((each) => `${each}/c`));
    const loop = `const fs = require("fs"); for (;;) { ${names}.forEach((f) => fs.mkdirSync(f)); ${names}.forEach((f) => fs.rmdirSync(f)); }`;
    const child = spawn(process.execPath, ["-e", loop], { stdio: "ignore" });
    pods.push(usagePod("races", ["c"]));
    let seen = 0;
    for (let race = 0; race < RACES; race += 1) {
      const look = await looks.sample(NEW, NEVER);
      const races = look.pods.find(({ pod }) => pod.desired.uid === "races");
      seen += races?.containers.length ?? 0;
      for (const { usage } of races?.containers ?? [])
        assert.ok(Object.values(usage).every((value) => value === undefined || Number.isFinite(value)));
    }
    child.kill("SIGKILL");
    await once(child, "exit");
    assert.ok(seen > 0 && seen < RACES, `${seen}`);
  });

  test("pods whose cgroups have gone are not shown", async () => {
    await tree.kill(`${ROOT}/forks`, NEVER);
    await tree.remove(`${ROOT}/forks`);
    const { pods: shown } = await looks.sample(NEW, NEVER);
    assert.equal(
      shown.some(({ pod }) => pod.desired.uid === "forks"),
      false,
    );
  });
});
