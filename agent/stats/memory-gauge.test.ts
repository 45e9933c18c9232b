/** On folders, and on this machine's /proc; a real cgroup is in `test/stats`. */
import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { millis } from "@picolet/protocol/ports.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { usageObservations } from "../plan/eviction/eviction-signals.ts";
import { CgroupSampler } from "./cgroup-sampler.ts";
import type { CgroupFolders } from "./cgroup-usage.ts";
import { machineUsage } from "./machine-usage.ts";
import { MemoryGauge } from "./memory-gauge.ts";
import { ProtectedCache } from "./protected-cache.ts";

const NEVER = new AbortController().signal;
const FAR = { near: 0, short: 0 };
const NEAR = { near: Infinity, short: Infinity };
/** As the systemd driver names it. */
const SLICE = "/kubepods.slice";

/** /proc and cgroups of one kind, in one folder. */
class Kernel implements Disposable {
  readonly folder = new TempFolder();
  readonly folders: CgroupFolders;
  readonly clock = new VirtualClock();
  readonly gauge: MemoryGauge;

  constructor(kind: CgroupFolders["kind"], { allPodsCgroup = SLICE, hasMemory = true } = {}) {
    const { path } = this.folder;
    this.folders = { kind, folder: (name) => (name === "memory" && !hasMemory ? undefined : path) };
    const protectedCache = new ProtectedCache({ cgroups: this.folders, clock: this.clock }, { allPodsCgroup });
    this.gauge = new MemoryGauge(this.folders, { allPodsCgroup, maxPids: 1000, protectedCache, proc: path });
    this.write("meminfo", MEMINFO);
  }

  write(name: string, content: string | Uint8Array): void {
    mkdirSync(join(this.folder.at(name), ".."), { recursive: true });
    writeFileSync(this.folder.at(name), content);
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

const MEMINFO = "MemTotal: 1000 kB\nMemFree: 200 kB\nInactive(file): 50 kB\nSReclaimable: 30 kB\n";
/** Two zones, the second of them empty. */
const zoneinfo = (managed: number, ...counts: readonly number[]): string => `Node 0, zone      DMA
  per-node stats
      nr_free_pages 7
  pages free     50
        managed  ${managed}
  pagesets
${counts.map((count, cpu) => `    cpu: ${cpu}\n              count:    ${count}\n              high:     ${count + 9}\n`).join("")}  start_pfn:           1
Node 0, zone  Movable
  pages free     0
        managed  0
`;
/** A cgroup with `memory.min`, and what of its memory is inactive page cache. */
function protect(kernel: Kernel, path: string, min: string, used: number, cache: number): void {
  kernel.write(`${path}/memory.min`, `${min}\n`);
  if (path === SLICE) return;
  kernel.write(`${path}/memory.current`, `${used}\n`);
  kernel.write(`${path}/memory.stat`, `anon 5\ninactive_file ${cache}\n`);
}

const FILES = {
  v1: { used: "memory.usage_in_bytes", limit: "memory.limit_in_bytes", inactive: "total_inactive_file" },
  v2: { used: "memory.current", limit: "memory.max", inactive: "inactive_file" },
} as const;

test("what a driver takes and charges to no cgroup, as the GPU of a Jetson, counts for the node alone", () => {
  using kernel = new Kernel("v2");
  kernel.write(`${SLICE}/memory.current`, "4096\n");
  kernel.write(`${SLICE}/memory.max`, `${MEBIBYTE}\n`);
  kernel.write(`${SLICE}/memory.stat`, "inactive_file 0\n");
  const read = () => ({ ...kernel.gauge.read(NEAR), used: machineUsage(kernel.folder.path).workingSetBytes });
  const before = read();
  // Neither AnonPages nor page cache grows with the GPU's pages.
  kernel.write("meminfo", MEMINFO.replace("MemFree: 200", "MemFree: 80"));
  const after = read();
  assert.equal((before.node?.available ?? 0) - (after.node?.available ?? 0), 120 * KIBIBYTE);
  assert.equal(after.used - before.used, 120 * KIBIBYTE);
  assert.deepEqual(after.pods, before.pods);
});

for (const kind of ["v1", "v2"] as const) {
  const names = FILES[kind];
  /** Writes the files of the pods' cgroup; MiB. */
  const write = (kernel: Kernel, used: number, limit: string, inactive: number): void => {
    kernel.write(`${SLICE}/${names.used}`, `${used * MEBIBYTE}\n`);
    kernel.write(`${SLICE}/${names.limit}`, `${limit}\n`);
    kernel.write(
      `${SLICE}/memory.stat`,
      `inactive_anon 5\ninactive_file 4096\n${names.inactive} ${inactive * MEBIBYTE}\n`,
    );
  };

  test(`${kind}: what is left of the pods' limit is exact near to it, a lower bound far from it`, () => {
    using kernel = new Kernel(kind);
    if (kind === "v2") kernel.write(`${SLICE}/memory.stat`, "");
    write(kernel, 300, String(512 * MEBIBYTE), 40);
    if (kind === "v2") kernel.write(`${SLICE}/memory.stat`, `inactive_anon 5\ninactive_file ${40 * MEBIBYTE}\n`);
    assert.deepEqual(kernel.gauge.read(NEAR).pods, { capacity: 512 * MEBIBYTE, available: 252 * MEBIBYTE });
    assert.deepEqual(kernel.gauge.read({ near: 212 * MEBIBYTE, short: 0 }).pods, {
      capacity: 512 * MEBIBYTE,
      available: 252 * MEBIBYTE,
    });
    assert.deepEqual(kernel.gauge.read({ near: 212 * MEBIBYTE - 1, short: 0 }).pods, {
      capacity: 512 * MEBIBYTE,
      available: 212 * MEBIBYTE,
    });
  });

  test(`${kind}: what is used beyond the limit leaves nothing, and a cache larger than what is used all`, () => {
    using kernel = new Kernel(kind);
    write(kernel, 600, String(512 * MEBIBYTE), 0);
    assert.equal(kernel.gauge.read(FAR).pods?.available, 0);
    kernel.write(`${SLICE}/memory.stat`, `${names.inactive} ${700 * MEBIBYTE}\n`);
    assert.equal(kernel.gauge.read(NEAR).pods?.available, 512 * MEBIBYTE);
  });

  test(`${kind}: pods without a limit, or without a cgroup, have nothing that could run out`, () => {
    using kernel = new Kernel(kind);
    assert.equal(kernel.gauge.read(NEAR).pods, undefined);
    write(kernel, 300, kind === "v1" ? "9223372036854771712" : "max", 40);
    assert.equal(kernel.gauge.read(NEAR).pods, undefined);
    write(kernel, 300, String(512 * MEBIBYTE), 40);
    assert.ok(kernel.gauge.read(NEAR).pods);
    rmSync(kernel.folder.at(SLICE), { recursive: true });
    assert.equal(kernel.gauge.read(NEAR).pods, undefined);
  });

  test(`${kind}: the figures are those by which pods are evicted`, async () => {
    using kernel = new Kernel(kind);
    write(kernel, 300, String(512 * MEBIBYTE), 40);
    for (const name of ["cpu.stat", "cpuacct.usage"]) kernel.write(`${SLICE}/${name}`, "usage_usec 5\n");
    if (kind === "v1") kernel.write(`${SLICE}/cpuacct.usage`, "5\n");
    kernel.write("loadavg", "0.20 0.18 0.12 1/80 11206\n");
    kernel.write("zoneinfo", zoneinfo(250, 3, 2));
    if (kind === "v2") kernel.write(`${SLICE}/memory.stat`, `inactive_file ${40 * MEBIBYTE}\n`);
    protect(kernel, SLICE, "200000", 0, 0);
    protect(kernel, `${SLICE}/kubepods-pod1.slice`, "100000", 80_000, 25_000);
    const sampler = new CgroupSampler(
      { cgroups: kernel.folders, pods: () => [], podCgroup: () => "", clock: new VirtualClock() },
      { allPodsCgroup: SLICE, cgroupsPerQOS: true, proc: kernel.folder.path },
    );
    const observed = usageObservations(await sampler.sample(millis(0), NEVER), 1000);
    const { node, pods, pids } = kernel.gauge.read(NEAR);
    assert.ok(node && pods && pids);
    assert.deepEqual(observed.get("memory.available"), node);
    assert.deepEqual(observed.get("allocatableMemory.available"), pods);
    assert.deepEqual(observed.get("pid.available"), pids);
  });
}

test("the node: what is free, with what the kernel can give back; never more than there is", () => {
  using kernel = new Kernel("none");
  assert.deepEqual(kernel.gauge.read(NEAR).node, { capacity: 1000 * KIBIBYTE, available: 280 * KIBIBYTE });
  kernel.write("meminfo", `${MEMINFO.replace("MemFree: 200", "MemFree: 990")}`);
  assert.equal(kernel.gauge.read(NEAR).node?.available, 1000 * KIBIBYTE);
  for (const text of ["", "MemTotal: 0 kB\nMemFree: 0 kB\n", "MemTotal: 5 kB\n", "MemFree: 5 kB\n"]) {
    kernel.write("meminfo", text);
    assert.equal(kernel.gauge.read(NEAR).node, undefined, text);
  }
});

test("the node: free pages that CPUs keep count where it is short of memory, with any page size", () => {
  using kernel = new Kernel("none");
  const available = (short: number): number => (kernel.gauge.read({ near: 0, short }).node?.available ?? 0) / KIBIBYTE;
  kernel.write("zoneinfo", zoneinfo(250, 3, 2));
  assert.deepEqual([available(Infinity), available(280 * KIBIBYTE), available(280 * KIBIBYTE - 1)], [300, 300, 280]);
  kernel.write("zoneinfo", zoneinfo(62, 3, 2));
  assert.equal(available(Infinity), 360, "16 KiB");
  kernel.write("zoneinfo", zoneinfo(250, 999));
  assert.equal(available(Infinity), 1000, "no more than there is");
  for (const text of ["", "what it is not", zoneinfo(0, 5)]) {
    kernel.write("zoneinfo", text);
    assert.equal(available(Infinity), 280, text);
  }
});

const SERVICE = "picolet.slice/picolet.service";

/** Each with the part of the node's 50 KiB of inactive page cache that is not available, in KiB. */
const protectedCases: readonly [name: string, write: (kernel: Kernel) => void, unavailable: number][] = [
  ["nothing", (kernel) => protect(kernel, "a.slice", "0", 40 * KIBIBYTE, 30 * KIBIBYTE), 0],
  [
    "all of a cgroup that has less than its memory.min",
    (kernel) => protect(kernel, "a.slice", "40960", 40 * KIBIBYTE, 30 * KIBIBYTE),
    30,
  ],
  [
    "what is within memory.min beside memory in use",
    (kernel) => protect(kernel, "a.slice", "35840", 40 * KIBIBYTE, 30 * KIBIBYTE),
    25,
  ],
  [
    "nothing where memory in use alone is more",
    (kernel) => protect(kernel, "a.slice", "8192", 40 * KIBIBYTE, 30 * KIBIBYTE),
    0,
  ],
  ["all of `max`", (kernel) => protect(kernel, "a.slice", "max", 40 * KIBIBYTE, 30 * KIBIBYTE), 30],
  ["no more than there is", (kernel) => protect(kernel, "a.slice", "max", 90 * KIBIBYTE, 70 * KIBIBYTE), 50],
  [
    "that of a unit, as far as its slice has it too",
    (kernel) => {
      protect(kernel, "picolet.slice", "20480", 60 * KIBIBYTE, 50 * KIBIBYTE);
      protect(kernel, SERVICE, "81920", 30 * KIBIBYTE, 25 * KIBIBYTE);
    },
    15,
  ],
  [
    "nothing of a unit whose slice has none",
    (kernel) => {
      protect(kernel, "picolet.slice", "0", 60 * KIBIBYTE, 50 * KIBIBYTE);
      protect(kernel, SERVICE, "81920", 30 * KIBIBYTE, 25 * KIBIBYTE);
    },
    0,
  ],
  [
    "that of each guaranteed pod, whatever the other pods have",
    (kernel) => {
      protect(kernel, SLICE, "40960", 0, 0);
      for (const pod of ["1", "2"])
        protect(kernel, `${SLICE}/kubepods-pod${pod}.slice`, "20480", 18 * KIBIBYTE, 10 * KIBIBYTE);
      protect(kernel, `${SLICE}/kubepods-besteffort.slice`, "0", 900 * KIBIBYTE, 20 * KIBIBYTE);
    },
    20,
  ],
];

for (const [name, write, unavailable] of protectedCases) {
  test(`page cache that memory.min protects is not available: ${name}`, () => {
    using kernel = new Kernel("v2");
    write(kernel);
    assert.equal(280 - (kernel.gauge.read(NEAR).node?.available ?? 0) / KIBIBYTE, unavailable);
  });
}

test("what is protected is read once a second, and far from the threshold each ten seconds", async () => {
  using kernel = new Kernel("v2");
  const available = (short: number): number =>
    (kernel.gauge.read({ near: 0, short: short * KIBIBYTE }).node?.available ?? 0) / KIBIBYTE;
  assert.equal(available(60), 280);
  protect(kernel, "a.slice", "max", 40 * KIBIBYTE, 30 * KIBIBYTE);
  await kernel.clock.advance(millis(9_999));
  assert.equal(available(60), 280, "far");
  assert.equal(available(70), 250, "near");
  kernel.write("a.slice/memory.min", "0\n");
  await kernel.clock.advance(millis(999));
  assert.equal(available(70), 250);
  await kernel.clock.advance(millis(1));
  assert.equal(available(70), 280);
});

test("processes and stalls, where the kernel has them", () => {
  using kernel = new Kernel("none");
  assert.deepEqual([kernel.gauge.read(NEAR).pids, kernel.gauge.read(NEAR).stalledUs], [undefined, undefined]);
  kernel.write("loadavg", "0.20 0.18 0.12 1/80 11206\n");
  kernel.write("pressure/memory", "some avg10=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=345\n");
  const { pids, stalledUs } = kernel.gauge.read(NEAR);
  assert.deepEqual([pids, stalledUs], [{ capacity: 1000, available: 920 }, 345]);
  kernel.write("pressure/memory", "some avg10=0.00 total=12\n");
  assert.equal(kernel.gauge.read(NEAR).stalledUs, undefined);
  const without = new MemoryGauge(kernel.folders, { allPodsCgroup: "", proc: kernel.folder.path });
  assert.equal(without.read(NEAR).pids, undefined, "nobody asked");
});

test("no cgroup of all pods, and no controller: only the node is read", () => {
  for (const options of [{ allPodsCgroup: "" }, { hasMemory: false }]) {
    using kernel = new Kernel("v2", options);
    kernel.write("memory.current", "1\n");
    kernel.write("memory.max", "2\n");
    assert.equal(kernel.gauge.read(NEAR).pods, undefined);
  }
});

test("this machine's /proc", () => {
  const gauge = new MemoryGauge({ kind: "none", folder: () => undefined }, { allPodsCgroup: "", maxPids: 10_000_000 });
  const { node, pids } = gauge.read(NEAR);
  assert.ok(node && node.available > 0 && node.available <= node.capacity && node.capacity > 64 * MEBIBYTE);
  assert.ok(pids && pids.available < 10_000_000 && pids.available > 9_000_000);
});

test("with any bytes in the files, figures are numbers within bounds, or none", () => {
  const FIELDS = [
    "MemTotal:",
    "MemFree:",
    "Inactive(file):",
    "SReclaimable:",
    "total_inactive_file ",
    "full avg10=0 total=",
    "    count: ",
    "  managed ",
  ];
  const line = fc.tuple(
    fc.constantFrom(...FIELDS),
    fc.oneof(fc.bigInt({ min: -9n, max: 10n ** 30n }).map(String), fc.string()),
  );
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 64 }),
    fc.array(line).map((lines) => Buffer.from(lines.map(([name, value]) => `${name}${value}`).join("\n"))),
    fc.bigInt({ min: -9n, max: 10n ** 30n }).map((value) => Buffer.from(String(value))),
    fc.nat().map((value) => Buffer.from(`0.1 0.1 0.1 1/${value} 5`)),
  );
  const kinds = ["v1", "v2"] as const;
  for (const kind of kinds) {
    using kernel = new Kernel(kind);
    const names = Object.values(FILES[kind])
      .slice(0, 2)
      .map((name) => `${SLICE}/${name}`);
    const files = ["meminfo", "zoneinfo", "loadavg", "pressure/memory", `${SLICE}/memory.stat`, ...names];
    fc.assert(
      fc.property(fc.tuple(...files.map(() => bytes)), fc.constantFrom(FAR, NEAR), (contents, near) => {
        for (const [index, content] of contents.entries()) kernel.write(files[index] ?? "", content);
        const { node, pods, pids, stalledUs } = kernel.gauge.read(near);
        for (const space of [node, pods, pids]) {
          if (space === undefined) continue;
          const { available, capacity } = space;
          assert.ok(available >= 0 && available <= capacity && capacity < Infinity, JSON.stringify(space));
        }
        assert.ok(stalledUs === undefined || (stalledUs >= 0 && stalledUs < Infinity));
      }),
    );
  }
});
