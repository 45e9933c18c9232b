/** The fast sample of memory, on real cgroups of this machine: it agrees with the sample by which pods are evicted. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { cgroupFoldersOf, makeNodeUsageSampler } from "@picolet/agent/main/node/node-usage.ts";
import { usageObservations } from "@picolet/agent/plan/eviction/eviction-signals.ts";
import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { CgroupTree } from "@picolet/agent/resources/cgroup-tree.ts";
import { MemoryGauge } from "@picolet/agent/stats/memory-gauge.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";

const hierarchies = await detectCgroups();
const skip = hierarchies.kind !== "none" && process.geteuid?.() === 0 ? false : "needs root on a machine with cgroups";
const NEVER = new AbortController().signal;
const LIMIT = 256 * MEBIBYTE;
const HELD = 64 * MEBIBYTE;
const ROOT = `/picolet-test-gauge-${process.pid}`;
const MAX_PIDS = 1_000_000;

describe("the memory that is left by a fast look", { skip }, () => {
  const log = new RecordedLog();
  const tree = new CgroupTree({ log, clock: systemClock }, { hierarchies });
  const folder = new TempFolder("/var/tmp");
  const looks = makeNodeUsageSampler(
    { ...{ hierarchies, adapters: [], clock: systemClock, log }, pods: () => [], podCgroup: () => "" },
    { rootDir: folder.path, podLogsDir: folder.path, allPodsCgroup: ROOT, cgroupsPerQOS: true },
  );
  const gauge = new MemoryGauge(cgroupFoldersOf(hierarchies), { allPodsCgroup: ROOT, maxPids: MAX_PIDS });

  before(async () => {
    await tree.create(ROOT, { memoryLimitBytes: LIMIT });
  });
  after(async () => {
    await tree.kill(ROOT, NEVER);
    await tree.remove(ROOT);
    folder[Symbol.dispose]();
  });

  test("is that of the slow one, with what pods hold and what the kernel can take back", async () => {
    const cgroup = await tree.create(`${ROOT}/pod`, {});
    assert.ok(cgroup);
    const join = cgroup.procsFiles.map((file) => `echo $$ > ${file}`).join(" && ");
    const hold = `const held = Buffer.alloc(${HELD}, 1); console.log("ready"); setInterval(() => held, 1e6)`;
    const cache = `dd if=/dev/zero of=${folder.at("file")} bs=1M count=48 2>/dev/null && sync`;
    const child = spawn("sh", ["-c", `${join} && ${cache} && exec ${process.execPath} -e '${hold}'`], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    for await (const text of child.stdout) if (String(text).includes("ready")) break;

    const { pods, node, pids } = gauge.read({ near: Infinity, short: Infinity });
    const far = gauge.read({ near: 0, short: 0 }).pods;
    const observed = usageObservations(await looks.sample(millis(0), NEVER), MAX_PIDS);
    assert.ok(pods && node && pids && far);
    const seen = (signal: "memory.available" | "allocatableMemory.available" | "pid.available") => {
      const found = observed.get(signal);
      assert.ok(found, signal);
      return found;
    };
    const allPods = seen("allocatableMemory.available");
    assert.deepEqual([pods.capacity, allPods.capacity], [LIMIT, LIMIT]);
    assert.ok(Math.abs(pods.available - allPods.available) < MEBIBYTE, `${pods.available} ${allPods.available}`);
    assert.ok(pods.available < LIMIT - HELD && pods.available > LIMIT - 3 * HELD, `${pods.available}`);
    assert.ok(far.available < pods.available - 32 * MEBIBYTE, "page cache is left out only near to the limit");
    assert.equal(node.capacity, seen("memory.available").capacity);
    // Other processes of this machine go on between the two.
    assert.ok(Math.abs(node.available - seen("memory.available").available) < 512 * MEBIBYTE);
    assert.ok(Math.abs(pids.available - seen("pid.available").available) < 200);
  });
});
