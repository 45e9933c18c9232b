import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { millis, type PodUid, podUid, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { PodDiskUsage } from "../core/node/usage.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import { CgroupSampler } from "./cgroup-sampler.ts";
import type { CgroupFolders } from "./cgroup-usage.ts";
import { FilesystemSampler } from "./filesystem-sampler.ts";
import { machineUsage, maxProcesses, networkInterfaces } from "./machine-usage.ts";
import type { MountedVolume } from "./summary.ts";
import { UsageStats } from "./usage-stats.ts";

const NOW_MS = Date.parse("2026-11-20T12:00:00Z");
const POD_PATH = "/kubepods/podweb";

const NEVER = new AbortController().signal;

/** Folders of cgroups, and a /proc of a machine. */
class Machine implements Disposable {
  readonly folder = new TempFolder();
  readonly clock = new VirtualClock(NOW_MS);
  readonly stats: UsageStats;
  readonly disk = new Map<PodUid, PodDiskUsage>();
  readonly mounted: MountedVolume[] = [];
  pods: AgentPod[] = [];

  constructor(kind: CgroupFolders["kind"], volumePeriod = seconds(60)) {
    const root = this.folder.at("cgroups");
    const cgroups: CgroupFolders = { kind, folder: (controller) => (kind === "v1" ? `${root}/${controller}` : root) };
    const rootDir = this.folder.path;
    const sampler = new CgroupSampler(
      { cgroups, pods: () => this.pods, podCgroup: () => POD_PATH, clock: this.clock },
      { allPodsCgroup: "/kubepods", cgroupsPerQOS: true, proc: rootDir },
    );
    const log = new RecordedLog();
    const filesystems = new FilesystemSampler({ images: undefined, clock: this.clock, log }, { rootDir });
    this.stats = new UsageStats(
      {
        sampler: {
          sample: sampler.sample.bind(sampler),
          cgroup: sampler.cgroup.bind(sampler),
          processes: sampler.processes.bind(sampler),
          filesystems: filesystems.filesystems.bind(filesystems),
          disk: async () => this.disk,
          measuredDisk: () => this.disk,
        },
        mountedVolumes: async () => this.mounted,
        clock: this.clock,
        log,
      },
      { nodeName: "edge-1", startedAt: new Date(NOW_MS - 60_000), volumePeriod, proc: rootDir },
    );
    this.write("stat", "cpu  100 0 50 9000 10 0 5 0 0 0\ncpu0 1 1 1\n");
    this.write(
      "meminfo",
      "MemTotal:  1000 kB\nMemFree:  400 kB\nInactive(file):  100 kB\nAnonPages: 200 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n",
    );
    this.write("vmstat", "pgfault 77\npgmajfault 7\n");
    this.write("loadavg", "0.20 0.18 0.12 1/80 11206\n");
    this.write("sys/kernel/pid_max", "32768\n");
    this.write("sys/kernel/threads-max", "7000\n");
    this.write("uptime", "3600.25 7000.00\n");
    this.write("self/cgroup", "4:memory:/agent\n2:cpuacct:/\n0::/\n");
    this.write("self/status", "VmRSS:\t   64 kB\nRssAnon:\t   16 kB\nThreads:\t7\n");
    const header = "Inter-| Receive | Transmit\n face |bytes\n";
    this.write(
      "self/net/dev",
      `${header}    lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n  eth0: 1000 1 2 0 0 0 0 0 3000 4 5 0 0 0 0 0\nveth0a1b: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n`,
    );
    const pod = "  net1: 7 1 0 0 0 0 0 0 7 4 0 0 0 0 0 0\n  eth0: 10 1 0 0 0 0 0 0 30 4 0 0 0 0 0 0\n";
    this.write("4711/net/dev", `${header}${pod}`);
  }

  write(name: string, content: string): void {
    mkdirSync(dirname(join(this.folder.path, name)), { recursive: true });
    writeFileSync(join(this.folder.path, name), content);
  }

  v1(path: string, cpuNanoseconds: number): void {
    const files = {
      "cpuacct.usage": `${cpuNanoseconds}\n`,
      "memory.usage_in_bytes": `${10 * MEBIBYTE}\n`,
      "memory.stat": `inactive_file 1\ntotal_inactive_file ${2 * MEBIBYTE}\ntotal_rss ${6 * MEBIBYTE}\ntotal_swap 5\ntotal_pgfault 3\ntotal_pgmajfault 1\n`,
      "memory.limit_in_bytes": `${20 * MEBIBYTE}\n`,
      "cgroup.procs": "4711\n4712\n",
    };
    const controllers = new Map([
      ["cpuacct.usage", "cpuacct"],
      ["cpu.stat", "cpu"],
      ["pids.current", "pids"],
    ]);
    for (const [file, content] of Object.entries(files))
      this.write(`cgroups/${controllers.get(file) ?? "memory"}${path}/${file}`, content);
  }

  v2(path: string, cpuMicroseconds: number): void {
    const files = {
      "cpu.stat": `usage_usec ${cpuMicroseconds}\nuser_usec 1\n`,
      "memory.current": `${10 * MEBIBYTE}\n`,
      "memory.stat": `anon ${6 * MEBIBYTE}\ninactive_file ${2 * MEBIBYTE}\npgfault 3\npgmajfault 1\n`,
      "memory.max": "max\n",
      "memory.swap.current": "5\n",
    };
    for (const [file, content] of Object.entries(files)) this.write(`cgroups${path}/${file}`, content);
  }

  /** One running container `main` and one that has ended. */
  addPod(): void {
    const pod = podOf({ containers: [{ name: "main", image: "i" }] }, { name: "web" });
    const run = {
      ...{ id: "c1", name: "main", attempt: 0, sandboxId: "s", createdAtMs: NOW_MS, hash: "", backoff: millis(0) },
      ...{ image: "i", imageId: "i", logPath: "/log" },
    };
    const exited = { kind: "exited", startedAtMs: 1, finishedAtMs: 2, exitCode: 0, reason: "", message: "" } as const;
    this.pods = [
      {
        desired: {
          uid: podUid("node-uid"),
          source: "api",
          origin: "",
          pod: { ...pod, metadata: { ...pod.metadata, uid: "api-uid" } },
        },
        status: { phase: "Running", startTime: "2026-11-20T11:59:00Z" },
        terminatingSinceMs: undefined,
        runtime: "cri",
        containers: [
          { ...run, state: { kind: "running", startedAtMs: NOW_MS - 30_000 } },
          { ...run, id: "c0", state: exited },
        ],
        logDirectory: "/logs",
      },
    ];
  }

  async summary(onlyCpuAndMemory = false): Promise<Record<string, never>> {
    const summary = this.stats.summary({ onlyCpuAndMemory }, new AbortController().signal);
    return (await this.whileItLooks(summary)) as Record<string, never>;
  }

  /** A look that waits for the second one gets its time. */
  async whileItLooks<T>(task: Promise<T>, between: () => void = () => undefined): Promise<T> {
    let over = false;
    task.then(
      () => (over = true),
      () => (over = true),
    );
    while (!over) {
      await new Promise((resolve) => setImmediate(resolve));
      if (this.clock.sleeping === 0) continue;
      between();
      await this.clock.advance(millis(500));
    }
    return await task;
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

test("the summary has the kubelet's names, and rates from two sampler", async () => {
  using machine = new Machine("v1");
  machine.addPod();
  for (const path of [POD_PATH, `${POD_PATH}/c1`, `${POD_PATH}/c0`]) machine.v1(path, 1_000_000_000);
  const asked = machine.stats.summary({ onlyCpuAndMemory: false }, new AbortController().signal);
  const summary = (await machine.whileItLooks(asked, () => {
    machine.v1(`${POD_PATH}/c1`, 1_100_000_000);
    machine.v1(POD_PATH, 1_250_000_000);
    machine.write("stat", "cpu  150 0 50 9000 10 0 5 0 0 0\n");
  })) as { readonly node: Record<string, unknown>; readonly pods: readonly Record<string, unknown>[] };
  const time = "2026-11-20T12:00:00Z";
  assert.deepEqual(summary.node.cpu, { time, usageNanoCores: 1_000_000_000, usageCoreNanoSeconds: 2_050_000_000 });
  const KIB = 1024;
  assert.deepEqual(summary.node.memory, {
    ...{ time, availableBytes: 500 * KIB, usageBytes: 600 * KIB, workingSetBytes: 500 * KIB },
    ...{ rssBytes: 200 * KIB, pageFaults: 77, majorPageFaults: 7 },
  });
  const eth0 = { name: "eth0", rxBytes: 1000, rxErrors: 2, txBytes: 3000, txErrors: 5 };
  assert.deepEqual(summary.node.network, { time, ...eth0, interfaces: [eth0] });
  const memory = {
    ...{ time, availableBytes: 12 * MEBIBYTE, usageBytes: 10 * MEBIBYTE, workingSetBytes: 8 * MEBIBYTE },
    ...{ rssBytes: 6 * MEBIBYTE, pageFaults: 3, majorPageFaults: 1 },
  };
  const swap = { time, swapUsageBytes: 5 };
  const net1 = { name: "net1", rxBytes: 7, rxErrors: 0, txBytes: 7, txErrors: 0 };
  const inPod = { name: "eth0", rxBytes: 10, rxErrors: 0, txBytes: 30, txErrors: 0 };
  assert.deepEqual(summary.pods, [
    {
      podRef: { name: "web", namespace: "default", uid: "api-uid" },
      startTime: "2026-11-20T11:59:00Z",
      containers: [
        {
          name: "main",
          startTime: "2026-11-20T11:59:30Z",
          cpu: { time, usageNanoCores: 200_000_000, usageCoreNanoSeconds: 1_100_000_000 },
          memory,
          swap,
        },
      ],
      cpu: { time, usageNanoCores: 500_000_000, usageCoreNanoSeconds: 1_250_000_000 },
      memory,
      swap,
      network: { time, ...inPod, interfaces: [net1, inPod] },
      process_stats: { process_count: 2 },
    },
  ]);
});

test("the node's part: when it came up, swap, its file systems, the agent and all pods", async () => {
  using machine = new Machine("v1");
  machine.v1("/kubepods", 7_000_000_000);
  const { node } = (await machine.summary()) as unknown as { readonly node: Record<string, unknown> };
  const time = "2026-11-20T12:00:00Z";
  assert.equal(node.startTime, "2026-11-20T11:00:00Z");
  assert.deepEqual(node.swap, { time, swapAvailableBytes: 20 * 1024, swapUsageBytes: 30 * 1024 });
  assert.deepEqual(node.rlimit, { time, maxpid: 7000, curproc: 80 });
  const { fs, runtime } = node as unknown as Record<"fs" | "runtime", Record<string, unknown>>;
  assert.deepEqual(runtime, { imageFs: fs, containerFs: fs });
  const [kubelet, pods] = node.systemContainers as Record<string, Record<string, unknown>>[];
  // The agent is in several cgroups at once, so no single one has its usage.
  assert.equal(kubelet?.name, "kubelet");
  assert.deepEqual([kubelet?.memory?.workingSetBytes, kubelet?.memory?.rssBytes], [64 * 1024, 16 * 1024]);
  assert.ok(Number(kubelet?.cpu?.usageCoreNanoSeconds) > 0);
  assert.equal(pods?.name, "pods");
  assert.equal(pods?.cpu?.usageCoreNanoSeconds, 7_000_000_000);
});

test("what a pod has on disk: by container, by volume, and all of it", async () => {
  using machine = new Machine("v1");
  machine.addPod();
  for (const path of [POD_PATH, `${POD_PATH}/c1`]) machine.v1(path, 1);
  const atMs = NOW_MS - 5000;
  const of = (bytes: number, inodes: number) => new Map([["main", { bytes, inodes }]]);
  const volumes = new Map([["data", { bytes: 300, inodes: 3 }]]);
  machine.disk.set(podUid("node-uid"), { rootfs: of(1000, 10), logs: of(50, 2), volumes, otherBytes: 7, atMs });
  const inMemory = { capacityBytes: 90, availableBytes: 60, usedBytes: 30, inodes: 9, inodesFree: 6, inodesUsed: 3 };
  machine.mounted.push({ name: "token", usage: inMemory });
  const { node, pods } = (await machine.summary()) as unknown as {
    readonly node: { readonly fs: Record<string, unknown> };
    readonly pods: readonly Record<string, unknown>[];
  };
  const time = "2026-11-20T11:59:55Z";
  const onNode = (usedBytes: number, inodesUsed: number) => ({ ...node.fs, time, usedBytes, inodesUsed });
  const [web] = pods;
  const [main] = (web?.containers ?? []) as readonly Record<string, unknown>[];
  assert.deepEqual(main?.rootfs, onNode(1000, 10));
  assert.deepEqual(main?.logs, onNode(50, 2));
  assert.deepEqual(web?.["ephemeral-storage"], onNode(1357, 15));
  assert.deepEqual(web?.volume, [
    { ...onNode(300, 3), name: "data" },
    { ...inMemory, time: "2026-11-20T12:00:00Z", name: "token" },
  ]);
  using without = new Machine("v1", millis(-1));
  without.addPod();
  without.v1(POD_PATH, 1);
  without.disk.set(podUid("node-uid"), { rootfs: new Map(), logs: new Map(), volumes, otherBytes: 0, atMs });
  const answer = (await without.summary()) as unknown as { readonly pods: readonly Record<string, unknown>[] };
  assert.equal(answer.pods[0]?.volume, undefined);
  assert.ok(answer.pods[0]?.["ephemeral-storage"]);
});

test("pressure is shown where the kernel has it: of the machine, of pods and of containers", async () => {
  using machine = new Machine("v2");
  machine.addPod();
  const line = (name: string, total: number) => `${name} avg10=1.50 avg60=0.25 avg300=0.00 total=${total}\n`;
  for (const path of [POD_PATH, `${POD_PATH}/c1`]) {
    machine.v2(path, 5);
    for (const file of ["cpu", "memory", "io"])
      machine.write(`cgroups${path}/${file}.pressure`, line("some", 2) + line("full", 1));
  }
  for (const file of ["memory", "io"]) machine.write(`pressure/${file}`, line("some", 20) + line("full", 10));
  machine.write("pressure/cpu", line("some", 20));
  const { node, pods } = (await machine.summary()) as unknown as {
    readonly node: Record<"cpu" | "memory" | "io", { readonly psi: unknown }>;
    readonly pods: readonly Record<"cpu" | "memory" | "io", { readonly psi: unknown }>[];
  };
  const stall = (total: number) => ({ total, avg10: 1.5, avg60: 0.25, avg300: 0 });
  assert.deepEqual(node.memory.psi, { full: stall(10), some: stall(20) });
  assert.deepEqual(node.io.psi, { full: stall(10), some: stall(20) });
  assert.deepEqual(node.cpu.psi, { full: { total: 0, avg10: 0, avg60: 0, avg300: 0 }, some: stall(20) });
  const psi = { full: stall(1), some: stall(2) };
  for (const part of ["cpu", "memory", "io"] as const) {
    assert.deepEqual(pods[0]?.[part].psi, psi);
    const [main] = (pods[0] as unknown as { containers: readonly Record<string, { psi: unknown }>[] }).containers;
    assert.deepEqual(main?.[part]?.psi, psi);
  }
});

interface Rate {
  readonly cpu: { readonly usageNanoCores: number };
}

test("the wall clock jumps, a cgroup is made again: rates stay right", async () => {
  using machine = new Machine("v1");
  machine.addPod();
  machine.v1(POD_PATH, 5_000_000_000);
  machine.v1(`${POD_PATH}/c1`, 5_000_000_000);
  await machine.summary(true);
  await machine.clock.advance(millis(2000));
  machine.clock.setWall(Date.parse("1970-01-01T00:00:10Z"));
  machine.v1(POD_PATH, 6_000_000_000);
  machine.v1(`${POD_PATH}/c1`, 400_000_000);
  const { pods } = (await machine.summary(true)) as unknown as {
    readonly pods: readonly (Rate & { readonly containers: readonly Rate[] })[];
  };
  const [pod] = pods;
  // Half a second of the first answer is in it.
  assert.deepEqual(
    [pod?.cpu, pod?.containers[0]?.cpu].map((cpu) => cpu?.usageNanoCores),
    [400_000_000, 160_000_000],
  );
});

test("cgroup v2 gives the same figures; a limit of max is none", async () => {
  using machine = new Machine("v2");
  machine.addPod();
  machine.v2(POD_PATH, 5);
  machine.v2(`${POD_PATH}/c1`, 4);
  const { pods } = (await machine.summary(true)) as unknown as { readonly pods: readonly Record<string, unknown>[] };
  const time = "2026-11-20T12:00:00Z";
  assert.deepEqual(pods[0]?.cpu, { time, usageNanoCores: 0, usageCoreNanoSeconds: 5000 });
  assert.deepEqual(pods[0]?.memory, {
    ...{
      time,
      usageBytes: 10 * MEBIBYTE,
      workingSetBytes: 8 * MEBIBYTE,
      rssBytes: 6 * MEBIBYTE,
      pageFaults: 3,
      majorPageFaults: 1,
    },
  });
  assert.equal(pods[0]?.network, undefined);
});

test("a second answer does not wait, unless there is something new", async () => {
  using machine = new Machine("v1");
  await machine.summary();
  await machine.clock.advance(millis(1000));
  const again = machine.stats.summary({ onlyCpuAndMemory: true }, new AbortController().signal);
  await again;
  assert.equal(machine.clock.sleeping, 0);
  machine.addPod();
  machine.v1(POD_PATH, 1);
  const withPod = machine.stats.summary({ onlyCpuAndMemory: true }, new AbortController().signal);
  const { pods } = (await machine.whileItLooks(withPod)) as { readonly pods: readonly unknown[] };
  assert.equal(pods.length, 1);
});

test("the metrics that metrics-server reads, in Prometheus' text", async () => {
  using machine = new Machine("v1");
  machine.addPod();
  for (const path of [POD_PATH, `${POD_PATH}/c1`]) machine.v1(path, 1_500_000_000);
  const text = [...(await machine.stats.resourceMetrics(NEVER))].join("");
  for (const line of [
    `node_cpu_usage_seconds_total 1.55 ${NOW_MS}`,
    `node_memory_working_set_bytes 512000 ${NOW_MS}`,
    `node_swap_usage_bytes 30720 ${NOW_MS}`,
    `pod_cpu_usage_seconds_total{namespace="default",pod="web"} 1.5 ${NOW_MS}`,
    `container_cpu_usage_seconds_total{container="main",namespace="default",pod="web"} 1.5 ${NOW_MS}`,
    `container_memory_working_set_bytes{container="main",namespace="default",pod="web"} ${8 * MEBIBYTE} ${NOW_MS}`,
    `pod_swap_usage_bytes{namespace="default",pod="web"} 5 ${NOW_MS}`,
    `container_swap_usage_bytes{container="main",namespace="default",pod="web"} 5 ${NOW_MS}`,
    `container_start_time_seconds{container="main",namespace="default",pod="web"} ${(NOW_MS - 30_000) / 1000}`,
    "resource_scrape_error 0",
  ]) {
    assert.ok(text.includes(`${line}\n`), line);
  }
  for (const line of text.split("\n")) assert.match(line, /^(# (HELP|TYPE) \w+ .+|\w+(\{.*\})? [\d.e+]+( \d+)?|)$/);
});

test("without cgroups the node still has figures, and its pods have none", async () => {
  using machine = new Machine("none");
  machine.addPod();
  const { node, pods } = (await machine.summary(true)) as unknown as { node: Record<string, unknown>; pods: unknown[] };
  assert.ok(node.cpu);
  assert.deepEqual(pods, []);
});

test("this machine's own /proc is understood", () => {
  const usage = machineUsage("/proc");
  assert.ok(usage.cpuNanoseconds > 0 && usage.workingSetBytes > MEBIBYTE && usage.pageFaults > 0);
  assert.ok((usage.pids ?? 0) > 0 && (maxProcesses("/proc") ?? 0) > (usage.pids ?? 0));
  assert.ok(Array.isArray(networkInterfaces("/proc", process.pid)));
});
