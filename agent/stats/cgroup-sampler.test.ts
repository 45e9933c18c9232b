/** On folders; real cgroups are in `test/stats`. */
import assert from "node:assert/strict";
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { SharedUsage } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { usagePod } from "@picolet/test/support/unit/pods/usage-pods.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import { CgroupSampler } from "./cgroup-sampler.ts";

const NEVER = new AbortController().signal;
const NEW = millis(0);

/** A clock that advances with each read. */
class BusyClock extends VirtualClock {
  #reads = 0;

  override monotonic(): MonotonicMs {
    this.#reads += 1;
    return (super.monotonic() + this.#reads) as MonotonicMs;
  }
}

class Tree implements Disposable {
  readonly folder = new TempFolder();
  readonly pods: AgentPod[] = [];
  readonly sampler: CgroupSampler;
  /** Each time before a pod's cgroup is read. */
  beforeRead: () => void = () => undefined;

  /** The usage of containers that share a process. */
  readonly shared = new Map<string, SharedUsage>();

  constructor({ clock = new VirtualClock(), cgroupsPerQOS = true, memory = true, swap = false } = {}) {
    const { path } = this.folder;
    this.sampler = new CgroupSampler(
      {
        cgroups: { kind: "v2", folder: (name) => (name === "memory" && !memory ? undefined : path) },
        pods: () => this.pods,
        podCgroup: ({ uid }) => {
          this.beforeRead();
          if (uid === "unusable") throw new Error("no name of a cgroup");
          return cgroupsPerQOS ? `/kubepods.slice/${uid}` : "/shared";
        },
        shared: async () => this.shared,
        clock,
      },
      { allPodsCgroup: cgroupsPerQOS ? "/kubepods.slice" : "", cgroupsPerQOS, proc: path },
    );
    this.write("meminfo", `MemTotal: 1000 kB\nMemFree: 400 kB\n${swap ? "SwapTotal: 100 kB\nSwapFree: 60 kB\n" : ""}`);
  }

  write(name: string, content: string): void {
    mkdirSync(join(this.folder.path, name, ".."), { recursive: true });
    writeFileSync(this.folder.at(name), content);
  }

  cgroup(path: string, workingSetMiB: number): void {
    this.write(`${path}/cpu.stat`, "usage_usec 5\nnr_periods 10\nnr_throttled 3\nthrottled_usec 7\n");
    this.write(`${path}/memory.current`, `${(workingSetMiB + 1) * MEBIBYTE}\n`);
    this.write(`${path}/memory.stat`, `anon 3\nfile 4\ninactive_file ${MEBIBYTE}\npgfault 5\npgmajfault 6\n`);
    this.write(`${path}/memory.max`, "max\n");
    this.write(`${path}/memory.swap.current`, "4096\n");
    this.write(`${path}/memory.swap.max`, "8192\n");
    this.write(`${path}/pids.current`, "4\n");
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

const workingSets = ({
  containers,
}: {
  readonly containers: readonly { readonly usage: { workingSetBytes: number } }[];
}) => containers.map(({ usage }) => usage.workingSetBytes / MEBIBYTE);

test("a pod that the kernel kills during a sample does not appear small while memory appears short", async () => {
  using tree = new Tree();
  tree.pods.push(usagePod("leak", ["app"]));
  tree.cgroup("kubepods.slice", 300);
  tree.cgroup("kubepods.slice/leak", 300);
  tree.beforeRead = () => {
    tree.write("meminfo", "MemTotal: 1000 kB\nMemFree: 900 kB\n");
    tree.cgroup("kubepods.slice/leak", 1);
    tree.cgroup("kubepods.slice", 1);
  };
  for (const look of ["the first", "another"]) {
    tree.write("meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\n");
    const { node, allPods, pods } = await tree.sampler.sample(NEW, NEVER);
    assert.equal(pods[0]?.usage?.workingSetBytes, MEBIBYTE, look);
    assert.equal(node.workingSetBytes, 100 * 1024, look);
    assert.equal(allPods?.workingSetBytes, MEBIBYTE, look);
  }
});

test("containers are found by their ids, with the names of every driver and runtime", async () => {
  using tree = new Tree();
  for (const [index, name] of ["%", "cri-containerd-%.scope", "crio-%.scope", "crio-%"].entries()) {
    const [uid, id] = [`pod${index}`, `c0ffee${index}`];
    tree.pods.push(usagePod(uid, [id]));
    tree.cgroup(`kubepods.slice/${uid}`, 100);
    tree.cgroup(`kubepods.slice/${uid}/crio-conmon-${id}.scope`, 1);
    tree.cgroup(`kubepods.slice/${uid}/${name.replace("%", id)}`, 40 + index);
  }
  const { pods } = await tree.sampler.sample(NEW, NEVER);
  assert.deepEqual(pods.map(workingSets), [[40], [41], [42], [43]]);
  assert.equal(pods[1]?.containers[0]?.path, "/kubepods.slice/pod1/cri-containerd-c0ffee1.scope");
});

test("what a container uses of a process that it shares counts as its own, and as its pod's", async () => {
  using tree = new Tree();
  tree.pods.push(usagePod("alone", ["own"]), usagePod("pod", ["one", "other"]));
  for (const name of ["alone", "alone/own", "pod"]) tree.cgroup(`kubepods.slice/${name}`, 10);
  tree.shared.set("one", { cpuNanoseconds: 7, memoryBytes: 3 * MEBIBYTE });
  tree.shared.set("other", { cpuNanoseconds: 8, memoryBytes: 4 * MEBIBYTE });
  tree.shared.set("gone", { cpuNanoseconds: 9, memoryBytes: 5 * MEBIBYTE });
  const { pods } = await tree.sampler.sample(NEW, NEVER);
  assert.deepEqual(pods.map(workingSets), [[10], [3, 4]]);
  assert.deepEqual(
    pods.map(({ usage }) => [usage?.workingSetBytes, usage?.cpuNanoseconds]),
    [
      [10 * MEBIBYTE, 5000],
      [17 * MEBIBYTE, 5015],
    ],
  );
});

test("all figures of v2 for a cgroup and for all pods, and swap only where there is some", async () => {
  using tree = new Tree({ swap: true });
  tree.cgroup("kubepods.slice", 300);
  tree.pods.push(usagePod("pod", ["c"]));
  tree.cgroup("kubepods.slice/pod", 100);
  const usage = {
    ...{
      cpuNanoseconds: 5000,
      throttledNanoseconds: 7000,
      memoryBytes: 101 * MEBIBYTE,
      workingSetBytes: 100 * MEBIBYTE,
    },
    ...{ rssBytes: 3, swapBytes: 4096, swapLimitBytes: 8192, pageFaults: 5, majorPageFaults: 6 },
    ...{ memoryLimitBytes: undefined, pids: 4, pressure: undefined },
  };
  const { allPods, pods, node } = await tree.sampler.sample(NEW, NEVER);
  assert.deepEqual(pods[0]?.usage, usage);
  assert.equal(allPods?.workingSetBytes, 300 * MEBIBYTE);
  assert.equal(node.swapBytes, 40 * 1024);
  using without = new Tree();
  without.pods.push(usagePod("pod", []));
  without.cgroup("kubepods.slice/pod", 100);
  assert.equal((await without.sampler.sample(NEW, NEVER)).pods[0]?.usage?.swapBytes, 0);
});

test("a kernel that does not count memory still has CPU time", async () => {
  using tree = new Tree({ memory: false });
  tree.pods.push(usagePod("pod", ["c"]));
  tree.write("kubepods.slice/pod/cpu.stat", "usage_usec 5\n");
  const { pods } = await tree.sampler.sample(NEW, NEVER);
  assert.deepEqual([pods[0]?.usage?.cpuNanoseconds, pods[0]?.usage?.workingSetBytes], [5000, 0]);
  assert.equal(pods[0]?.usage?.throttledNanoseconds, undefined);
});

test("what is gone is left out, what comes back elsewhere is found again", async () => {
  using tree = new Tree();
  tree.pods.push(usagePod("pod", ["c1"]), usagePod("gone", ["c2"]), usagePod("unusable", ["c3"]));
  tree.cgroup("kubepods.slice/pod", 100);
  tree.cgroup("kubepods.slice/pod/c1", 40);
  assert.deepEqual((await tree.sampler.sample(NEW, NEVER)).pods.map(workingSets), [[40]]);
  renameSync(tree.folder.at("kubepods.slice/pod/c1"), tree.folder.at("kubepods.slice/pod/crio-c1.scope"));
  assert.deepEqual((await tree.sampler.sample(NEW, NEVER)).pods.map(workingSets), [[]]);
  assert.deepEqual((await tree.sampler.sample(NEW, NEVER)).pods.map(workingSets), [[40]]);
});

test("a cgroup that goes while it is read counts as gone, not as one that uses all of its page cache", async () => {
  using tree = new Tree();
  tree.pods.push(usagePod("pod", []));
  tree.cgroup("kubepods.slice/pod", 100);
  rmSync(tree.folder.at("kubepods.slice/pod/memory.stat"));
  assert.deepEqual((await tree.sampler.sample(NEW, NEVER)).pods, []);
});

test("without cgroups of their own nothing is said of pods but of their containers", async () => {
  using tree = new Tree({ cgroupsPerQOS: false });
  tree.cgroup("shared", 500);
  tree.pods.push(usagePod("one", ["c1"]), usagePod("two", ["c2"]));
  for (const id of ["c1", "c2"]) tree.cgroup(`shared/${id}`, 7);
  const { pods, allPods } = await tree.sampler.sample(NEW, NEVER);
  assert.deepEqual(pods.map(workingSets), [[7], [7]]);
  assert.deepEqual(
    pods.map(({ usage, path }) => ({ usage, path })),
    Array.from({ length: 2 }, () => ({ usage: undefined, path: "" })),
  );
  assert.equal(allPods, undefined);
});

test("a sample gives way to other work, and ends when no caller waits for it any more", async () => {
  using tree = new Tree({ clock: new BusyClock() });
  for (let index = 0; index < 20; index += 1) {
    tree.pods.push(usagePod(`pod${index}`, []));
    tree.cgroup(`kubepods.slice/pod${index}`, 1);
  }
  let turns = 0;
  let over = false;
  const count = async (): Promise<void> => {
    while (!over) {
      await new Promise((resolve) => setImmediate(resolve));
      turns += 1;
    }
  };
  const counting = count();
  const { pods } = await tree.sampler.sample(NEW, NEVER);
  over = true;
  await counting;
  assert.equal(pods.length, 20);
  assert.ok(turns >= 4, String(turns));
  const asker = new AbortController();
  const asked = tree.sampler.sample(NEW, asker.signal);
  asker.abort();
  await assert.rejects(asked, { code: "cancelled" });
});
