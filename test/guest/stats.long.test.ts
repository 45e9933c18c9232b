/**
 * Figures of cgroup v2 on a real kernel, in a slice of systemd's: memory, processes, throttling, pressure; and the
 * kernel's events.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { MemoryReading } from "@picolet/agent/core/node/memory-reading.ts";
import type { ContainerUsage, FilesystemUsage, Usage } from "@picolet/agent/core/node/usage.ts";
import { ignore } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { build } from "esbuild";
import { Guest, guestMissing } from "../support/guest/guest.ts";

const ID = "c0ffee";
const SLICE = "/kubepods.slice/kubepods-podstats.slice";
const UNIT = `cri-containerd-${ID}.scope`;

interface Look {
  readonly node: Usage;
  readonly allPods: Usage;
  readonly pod: Usage;
  readonly containers: readonly ContainerUsage[];
  readonly nodefs: FilesystemUsage;
  readonly imagefs: FilesystemUsage;
}

const skip = guestMissing() ?? false;
let guest: Guest;

before(async () => {
  if (skip === false) guest = await Guest.start();
});

after(async () => {
  if (skip === false) await guest?.[Symbol.asyncDispose]();
});

/** Built of a file beside this one, and run in the guest. */
async function runProgram<T>(name: string, args: string): Promise<T> {
  await guest.upload(`/root/${name}.cjs`, await programOf(name));
  return JSON.parse(await guest.output(`/opt/picolet/dist/board/lib/node /root/${name}.cjs ${args}`)) as T;
}

async function programOf(name: string): Promise<Uint8Array> {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(`${name}.ts`, import.meta.url))],
    ...{ bundle: true, platform: "node", format: "cjs", write: false, logLevel: "error" },
  });
  const [file] = outputFiles;
  assert.ok(file);
  return file.contents;
}

/** Starts a line and waits for what follows from it. @throws what it said, when it ends before */
async function started(line: string, until: string): Promise<void> {
  let said = "";
  const command = await guest.command(line, (text) => {
    said += text;
  });
  const early = command.ended.then((code) => {
    throw new Error(`${line} ended with ${code}: ${said}`);
  });
  await Promise.race([guest.output(`until ${until}; do sleep 0.2; done 2>/dev/null`), early]);
  early.catch(ignore("it is stopped below"));
}

test("a pod in a slice of systemd's, with a quota and a limit", { skip }, async () => {
  const unit = ["CPUQuota=20%", "MemoryMax=200M", "MemoryAccounting=yes", "TasksAccounting=yes"].map(
    (each) => `-p ${each}`,
  );
  const load = `sh -c '/usr/lib/guest/load hold 64 & while :; do :; done'`;
  const folder = `/sys/fs/cgroup${SLICE}/${UNIT}`;
  const isUnderWay = `[ "$(cat ${folder}/memory.current)" -gt ${64 * MEBIBYTE} ] && ! grep -q 'nr_throttled 0' ${folder}/cpu.stat`;
  await started(
    `systemd-run --scope --slice=kubepods-podstats.slice --unit=${UNIT} ${unit.join(" ")} ${load}`,
    isUnderWay,
  );
  const look = await runProgram<Look>("stats-program", `${SLICE} ${ID}`);
  await guest.output(`systemctl stop ${UNIT}`);
  const [container] = look.containers;
  assert.equal(container?.path, `${SLICE}/${UNIT}`);
  const { usage } = container;
  assert.ok(usage.rssBytes >= 64 * MEBIBYTE && usage.rssBytes < 100 * MEBIBYTE, `${usage.rssBytes}`);
  assert.ok(usage.workingSetBytes >= usage.rssBytes && look.pod.workingSetBytes >= usage.workingSetBytes);
  assert.equal(usage.memoryLimitBytes, 200 * MEBIBYTE);
  assert.ok((usage.throttledNanoseconds ?? 0) > 0 && usage.cpuNanoseconds > 0);
  assert.ok((usage.pids ?? 0) >= 2, `${usage.pids}`);
  // It is kept from the CPU by its quota, which is a stall of its own.
  assert.ok((usage.pressure?.cpu?.some.totalUs ?? 0) > 0, JSON.stringify(usage.pressure));
  assert.ok(usage.pressure?.memory && usage.pressure.io && look.pod.pressure?.memory && look.node.pressure?.memory);
  assert.ok((look.allPods.pids ?? 0) >= 2 && look.node.workingSetBytes > usage.rssBytes);
  assert.ok(look.node.workingSetBytes < (look.node.memoryLimitBytes ?? 0));
  assert.ok(look.nodefs.capacityBytes > 1024 * MEBIBYTE && look.nodefs.inodes > 10_000);
  assert.deepEqual(look.imagefs, look.nodefs);
});

test("pods that are held at a limit are told of by the kernel, and that the machine stalls with it", {
  skip,
}, async () => {
  const inSlice = "systemd-run --quiet --scope --slice=kubepods-podheld.slice";
  await started(
    `${inSlice} --unit=other.scope /usr/lib/guest/load hold 8`,
    "[ -d /sys/fs/cgroup/kubepods.slice/kubepods-podheld.slice/other.scope ]",
  );
  await guest.output("systemctl set-property --runtime kubepods-podheld.slice MemoryMax=100M");
  const held = `${inSlice} --unit=held.scope -p MemoryHigh=16M /usr/lib/guest/load leak 0 64`;
  const seen = await runProgram<{ told: number; before: MemoryReading; after: MemoryReading }>(
    "memory-program",
    `/kubepods.slice/kubepods-podheld.slice ${held}`,
  );
  assert.ok(seen.told > 0, "memory.events of the cgroup above is told of");
  assert.ok((seen.after.stalledUs ?? 0) > (seen.before.stalledUs ?? Infinity), JSON.stringify(seen));
  const { node, pods, pids } = seen.after;
  assert.equal(pods?.capacity, 100 * MEBIBYTE);
  assert.ok(
    (pods?.available ?? 0) > 60 * MEBIBYTE && (pods?.available ?? 0) < 90 * MEBIBYTE,
    JSON.stringify(seen.after),
  );
  assert.ok((node?.available ?? 0) > 0 && (node?.available ?? Infinity) < (node?.capacity ?? 0));
  assert.ok((pids?.available ?? 0) > 500 && (pids?.available ?? 0) < 1_000);
});
