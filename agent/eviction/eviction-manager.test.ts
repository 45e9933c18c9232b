import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, millis, podUid, seconds } from "@picolet/protocol/ports.ts";
import { GIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { FilesystemUsage, NodeUsage, PodDiskUsage, PodUsage, Usage } from "../core/node/usage.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { PodEnd } from "../core/pods/pod-admission.ts";
import type { EvictionThreshold } from "../plan/eviction/eviction-thresholds.ts";
import { EvictionManager } from "./eviction-manager.ts";

const threshold = (
  signal: EvictionThreshold["signal"],
  mib: number,
  rest: Partial<EvictionThreshold> = {},
): EvictionThreshold => ({
  ...{ signal, gracePeriod: undefined, minReclaim: undefined },
  value: { kind: "quantity", value: mib * MEBIBYTE, text: `${mib}Mi` },
  ...rest,
});

interface PodOptions {
  readonly source?: "api" | "file";
  readonly disk?: number;
  /** It is being ended, and has so many seconds for it. */
  readonly terminating?: number;
}

/** A board of 1 GiB with pods that take of it what a test says, on virtual time. */
class Board implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly manager: EvictionManager;
  readonly calls: string[] = [];
  readonly ends = new Map<string, PodEnd>();
  /** MiB, by pod. */
  readonly memory = new Map<string, number>();
  readonly disk = new Map<string, number>();
  readonly pods: AgentPod[] = [];
  /** MiB of images that nothing uses. */
  unusedImages = 0;
  isBlind = false;
  /** A runtime that does not answer. */
  isStuck = false;
  areDisksStuck = false;
  /** True once every running pod has been observed. */
  isSettled = true;
  cannotRelease = false;
  /** Processes of each pod; 1000 are all that there may be. */
  readonly pids = new Map<string, number>();
  stalledUs: number | undefined;
  /** The part of `stalledUs` that pods at limits of their own cause. */
  heldUs = 0;
  /** Reports, as the kernel does, that pods have hit a memory limit; undefined: there is no listener. */
  notify: (() => void) | undefined;
  /** At memory alone. */
  samples = 0;
  /** At what each pod uses. */
  measurements = 0;
  diskSamples = 0;
  /** Just before pods are measured. */
  measuring: () => void = () => undefined;
  readonly #life = new AbortController();
  readonly #running: Promise<void>;

  constructor(thresholds: readonly EvictionThreshold[], maxGracePeriod: Millis = millis(0)) {
    const { clock, events, log, pods } = this;
    this.manager = new EvictionManager(
      {
        ...{ clock, events, log },
        pods: () => pods,
        usage: {
          sample: async () => {
            this.measurements += 1;
            this.measuring();
            return this.#usage();
          },
          filesystems: async () => {
            this.diskSamples += 1;
            return await this.#filesystems();
          },
          disk: async () => new Map([...this.disk].map(([name, mib]) => [podUid(name), diskOf(mib)])),
        },
        memory: () => {
          this.samples += 1;
          return {
            node: this.isBlind ? undefined : { capacity: GIBIBYTE, available: GIBIBYTE - this.#used() },
            pods: undefined,
            pids: { capacity: 1000, available: 1000 - this.#processes() },
            stalledUs: this.stalledUs,
          };
        },
        heldStalls: () => this.heldUs,
        memoryEvents: {
          listen: (told) => {
            this.notify = told;
          },
          [Symbol.dispose]: () => {
            this.notify = undefined;
          },
        },
        ender: { end: (uid, how) => this.#end(uid, how) },
        kill: async ({ uid }) => {
          this.calls.push(`kill ${uid}`);
          this.memory.delete(uid);
          this.pids.delete(uid);
        },
        release: async ({ uid }) => {
          this.calls.push(`release ${uid}`);
          if (this.cannotRelease) throw new PicoletError("unavailable", "cannot remove a volume");
          this.disk.delete(uid);
        },
        reclaim: {
          isReady: () => this.isSettled,
          deleteDeadContainers: async () => {
            this.calls.push("dead containers");
          },
          deleteUnusedImages: async () => {
            this.calls.push("unused images");
            if (this.isSettled) this.unusedImages = 0;
            return 0;
          },
        },
      },
      { nodeName: "edge-1", thresholds, transitionPeriod: seconds(60), maxGracePeriod, maxPids: 1000 },
    );
    this.#running = endOfRun(this.manager.run(this.#life.signal));
  }

  add(name: string, memory: number, { source = "api", disk = 0, terminating }: PodOptions = {}): void {
    const pod = podOf({ terminationGracePeriodSeconds: terminating ?? 30 }, { name });
    const containers = [{ id: name, name: "app", state: { kind: "running", startedAtMs: 0 } } as ObservedContainer];
    const desired = { uid: podUid(name), source, origin: "", pod };
    const terminatingSinceMs = terminating === undefined ? undefined : 0;
    const rest = { status: undefined, terminatingSinceMs, runtime: "cri", logDirectory: "" };
    this.pods.push({ desired, containers, ...rest });
    this.memory.set(name, memory);
    this.disk.set(name, disk);
  }

  conditions(): string {
    return this.manager.pressure.current
      .filter(({ status }) => status === "True")
      .map(({ type, reason }) => `${type} ${reason}`)
      .join(", ");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.#running;
    assert.equal(this.notify, undefined, "nothing of it listens on");
    assert.equal(this.clock.sleeping, 0, "nothing of it sleeps on");
  }

  #used(): number {
    return [...this.memory.values()].reduce((sum, mib) => sum + mib * MEBIBYTE, 0);
  }

  #processes(): number {
    return [...this.pids.values()].reduce((sum, count) => sum + count, 0);
  }

  #usage(): NodeUsage {
    if (this.isBlind) throw new PicoletError("unavailable", "cannot read /proc");
    const usage = (bytes: number, pids: number): Usage => ({ workingSetBytes: bytes, swapBytes: 0, pids }) as Usage;
    const pods = this.pods.flatMap((pod) => {
      const mib = this.memory.get(pod.desired.uid);
      if (mib === undefined) return [];
      const used = usage(mib * MEBIBYTE, this.pids.get(pod.desired.uid) ?? 0);
      return [{ pod, path: "", usage: used, containers: [] } satisfies PodUsage];
    });
    return {
      atMs: 0,
      node: { ...usage(this.#used(), this.#processes()), memoryLimitBytes: GIBIBYTE },
      allPods: undefined,
      pods,
    };
  }

  async #filesystems() {
    if (this.areDisksStuck) await new Promise<never>(() => undefined);
    const used = [...this.disk.values()].reduce((sum, mib) => sum + mib * MEBIBYTE, this.unusedImages * MEBIBYTE);
    const counted = { inodes: 0, inodesFree: 0, inodesUsed: 0 };
    const disk: FilesystemUsage = {
      capacityBytes: GIBIBYTE,
      availableBytes: GIBIBYTE - used,
      usedBytes: used,
      ...counted,
    };
    return { nodefs: disk, imagefs: disk, containerfs: disk };
  }

  async #end(uid: string, how: PodEnd): Promise<void> {
    this.calls.push(`end ${uid}`);
    this.ends.set(uid, how);
    const index = this.pods.findIndex(({ desired }) => desired.uid === uid);
    const [pod] = this.pods.splice(index, 1);
    if (pod !== undefined && this.isStuck) this.pods.push({ ...pod, terminatingSinceMs: 0 });
    if (this.isStuck) await new Promise<never>(() => undefined);
    this.memory.delete(uid);
  }
}

const diskOf = (mib: number): PodDiskUsage => ({
  ...{ rootfs: new Map(), logs: new Map(), otherBytes: 0, atMs: 0 },
  volumes: new Map([["data", { bytes: mib * MEBIBYTE, inodes: 1 }]]),
});

const FIFTY = { kind: "quantity", value: 50, text: "50" } as const;
const HARD = [threshold("memory.available", 100)];

test("a leak is noticed, reported and ended within half a second of the crossing, also after a long time with much memory", async () => {
  await using board = new Board(HARD);
  board.add("good", 200);
  board.add("leak", 100);
  await board.clock.advance(seconds(600));
  assert.deepEqual([board.calls, board.conditions()], [[], ""]);
  // 100 MiB a second.
  for (let mib = 100; mib <= 730; mib += 5) {
    board.memory.set("leak", mib);
    await board.clock.advance(millis(50), () => board.ends.size > 0);
    if (board.ends.size > 0) break;
  }
  const crossedAt = 724;
  assert.ok((board.calls.length > 0 || (board.memory.get("leak") ?? 0) >= crossedAt) && board.ends.has("leak"));
  assert.deepEqual(board.calls.slice(0, 2), ["end leak", "kill leak"]);
  assert.equal(board.conditions(), "MemoryPressure KubeletHasInsufficientMemory");
  const how = board.ends.get("leak");
  assert.equal(how?.reason, "Evicted");
  assert.equal(how?.gracePeriod, seconds(1));
  assert.equal(how?.disruption?.reason, "TerminationByKubelet");
  assert.match(
    how?.message ?? "",
    /^The node was low on resource: memory\. Threshold quantity: 100Mi, available: \d+Mi\. $/,
  );
  assert.deepEqual(
    board.events.all.map(({ reason, regarding }) => `${reason} ${regarding.kind} ${regarding.name}`),
    ["EvictionThresholdMet Node edge-1", "Evicted Pod leak"],
  );
  await board.clock.advance(seconds(30));
  assert.equal(board.ends.size, 1, "the others stay");
  assert.notEqual(board.conditions(), "", "the transition period");
  await board.clock.advance(seconds(60));
  assert.equal(board.conditions(), "");
});

test("a runtime that hangs holds up neither the kill nor the next pod", async () => {
  await using board = new Board(HARD);
  board.isStuck = true;
  board.areDisksStuck = true;
  board.add("good", 100);
  board.add("first", 850);
  await board.clock.advance(seconds(6));
  assert.deepEqual(board.calls, ["end first", "kill first"]);
  board.add("second", 880);
  await board.clock.advance(seconds(6));
  assert.deepEqual(board.calls.slice(2), ["end second", "kill second"]);
});

test("static pods are left, which is said, and the next one goes", async () => {
  await using board = new Board(HARD);
  board.add("static", 900, { source: "file" });
  board.add("other", 60);
  await board.clock.advance(seconds(6));
  assert.deepEqual([...board.ends.keys()], ["other"]);
  assert.ok(board.log.problems.includes("cannot evict a critical pod"));
});

test("a pod that arrives while none could be evicted is evicted at once", async () => {
  await using board = new Board(HARD);
  board.add("static", 940, { source: "file" });
  await board.clock.advance(seconds(6));
  const told = board.events.all.length;
  await board.clock.advance(seconds(1));
  assert.equal(board.events.all.length, told, "nothing is tried meanwhile");
  board.add("leak", 70);
  await board.clock.advance(millis(500));
  assert.deepEqual([...board.ends.keys()], ["leak"]);
});

test("a pod that takes its time to end is given less of it, once; one that ends as soon is left", async () => {
  await using board = new Board(HARD);
  board.isStuck = true;
  board.add("soon", 200, { terminating: 1 });
  board.add("slow", 600, { terminating: 600 });
  board.add("web", 150);
  await board.clock.advance(seconds(6));
  assert.deepEqual(board.calls, ["end slow", "kill slow"]);
  assert.equal(board.ends.get("slow")?.gracePeriod, seconds(1));
  // The runtime still lists the pod, but its processes are gone: killing it again frees nothing.
  board.memory.set("slow", 600);
  await board.clock.advance(seconds(20));
  assert.deepEqual(board.calls.slice(2), ["end web", "kill web"]);
});

test("for a soft threshold a pod that has no more time than it would get is left to end", async () => {
  const soft = threshold("memory.available", 300, { gracePeriod: seconds(5) });
  await using board = new Board([soft], seconds(20));
  board.add("soon", 700, { terminating: 20 });
  board.add("web", 50);
  await board.clock.advance(seconds(20));
  assert.deepEqual([...board.ends.keys()], ["web"]);
});

test("a leak does not wait for a pod that a soft threshold is ending", async () => {
  const soft = threshold("memory.available", 300, { gracePeriod: seconds(5) });
  await using board = new Board([...HARD, soft], seconds(600));
  board.isStuck = true;
  board.add("big", 800);
  await board.clock.advance(seconds(12), () => board.ends.size > 0);
  assert.deepEqual(board.calls, ["end big"]);
  board.add("leak", 150);
  board.memory.set("big", 100);
  board.memory.set("leak", 850);
  await board.clock.advance(millis(500));
  assert.deepEqual(board.calls, ["end big", "end leak", "kill leak"]);
});

test("at rest no pod is measured, memory is sampled by how much is left, and disks every ten seconds", async () => {
  const soft = threshold("memory.available", 200, { gracePeriod: seconds(30) });
  await using board = new Board([...HARD, soft, threshold("nodefs.available", 100)]);
  for (let pod = 0; pod < 50; pod += 1) board.add(`web-${pod}`, 2);
  await board.clock.advance(seconds(60));
  Object.assign(board, { samples: 0, measurements: 0, diskSamples: 0 });
  await board.clock.advance(seconds(3600));
  const { samples, measurements, diskSamples } = board;
  assert.deepEqual({ samples, measurements, diskSamples }, { samples: 2606, measurements: 0, diskSamples: 360 });
});

test("what was measured when a threshold is met is judged again: memory that came back meanwhile ends no pod", async () => {
  await using board = new Board(HARD);
  board.add("web", 300);
  board.measuring = () => board.memory.set("web", 300);
  await board.clock.advance(seconds(60));
  board.memory.set("web", 990);
  await board.clock.advance(seconds(60));
  assert.ok(board.measurements > 0);
  assert.deepEqual(board.calls, []);
});

test("a fork bomb is killed within a second, without the runtime that cannot fork", async () => {
  await using board = new Board([...HARD, threshold("pid.available", 0, { value: FIFTY })]);
  board.isStuck = true;
  board.add("web", 100);
  board.add("bomb", 10);
  board.pids.set("web", 20);
  await board.clock.advance(seconds(60));
  assert.equal(board.ends.size, 0);
  board.pids.set("bomb", 975);
  await board.clock.advance(seconds(1));
  assert.deepEqual(board.calls, ["end bomb", "kill bomb"]);
  assert.match(
    board.ends.get("bomb")?.message ?? "",
    /low on resource: pids\. Threshold quantity: 50, available: 5\. $/,
  );
  assert.equal(board.conditions(), "PIDPressure KubeletHasInsufficientPID");
});

test("while nothing of what a pod held has come back, no other one goes for ten seconds", async () => {
  await using board = new Board([threshold("nodefs.available", 100)]);
  board.cannotRelease = true;
  board.add("files", 1, { disk: 980 });
  for (let other = 0; other < 20; other += 1) board.add(`other-${other}`, 1, { disk: 1 });
  await board.clock.advance(millis(19_900));
  assert.deepEqual([...board.ends.keys()], ["files"]);
  await board.clock.advance(millis(10_000));
  assert.equal(board.ends.size, 2);
  board.cannotRelease = false;
  board.disk.delete("files");
  await board.clock.advance(millis(60_000));
  assert.equal(board.ends.size, 2, "what came back late was enough");
});

test("a soft threshold waits for its grace period and gives pods what they may have at most", async () => {
  const soft = threshold("memory.available", 300, { gracePeriod: seconds(30) });
  await using board = new Board([soft], seconds(20));
  board.add("big", 800);
  await board.clock.advance(seconds(29));
  assert.deepEqual([board.calls, board.conditions()], [[], "MemoryPressure KubeletHasInsufficientMemory"]);
  await board.clock.advance(seconds(8));
  assert.deepEqual(board.calls, ["end big", "release big"], "not killed");
  assert.equal(board.ends.get("big")?.gracePeriod, seconds(20));
});

test("of disk the node gives back what it can first, and no pod goes when that is enough", async () => {
  await using board = new Board([threshold("nodefs.available", 100)]);
  board.add("files", 1, { disk: 500 });
  board.unusedImages = 500;
  await board.clock.advance(seconds(11));
  assert.deepEqual(board.calls, ["dead containers", "unused images"]);
  assert.equal(board.conditions(), "DiskPressure KubeletHasDiskPressure");
  board.disk.set("files", 980);
  await board.clock.advance(seconds(11));
  assert.deepEqual(board.calls.slice(2), ["dead containers", "unused images", "end files", "release files"]);
  assert.match(
    board.ends.get("files")?.message ?? "",
    /low on resource: ephemeral-storage\. Threshold quantity: 100Mi/,
  );
});

test("a failed sample evicts no pod, is logged once, and is no recovery", async () => {
  await using board = new Board(HARD);
  board.add("web", 990);
  board.isBlind = true;
  await board.clock.advance(seconds(60));
  assert.equal(board.ends.size, 0);
  assert.equal(board.log.problems.length, 1);
  board.isBlind = false;
  await board.clock.advance(seconds(10));
  assert.equal(board.ends.size, 1);
});

test("a wall clock that jumps changes nothing", async () => {
  const soft = threshold("memory.available", 300, { gracePeriod: seconds(30) });
  await using board = new Board([soft]);
  board.add("big", 800);
  await board.clock.advance(seconds(5));
  board.clock.setWall(0);
  await board.clock.advance(seconds(5));
  board.clock.setWall(4e12);
  await board.clock.advance(seconds(15));
  assert.equal(board.ends.size, 0);
  await board.clock.advance(seconds(15));
  assert.equal(board.ends.size, 1);
});

test("a board on which nothing goes on any more is relieved before the threshold is met; a slow disk is no reason", async () => {
  await using board = new Board(HARD);
  board.add("thrash", 500);
  board.stalledUs = 0;
  const stall = async (): Promise<void> => {
    for (let second = 0; second < 12; second += 1) {
      board.stalledUs = (board.stalledUs ?? 0) + 600_000;
      await board.clock.advance(seconds(1));
    }
  };
  await stall();
  assert.equal(board.ends.size, 0, "there is memory");
  board.memory.set("thrash", 850);
  await stall();
  assert.deepEqual([...board.ends.keys()], ["thrash"]);
});

test("a pod that is held at a memory limit of its own is no reason to evict another", async () => {
  await using board = new Board(HARD);
  board.add("large", 700);
  board.add("held", 150);
  board.stalledUs = 0;
  for (let second = 0; second < 30; second += 1) {
    board.stalledUs += 900_000;
    board.heldUs += 900_000;
    await board.clock.advance(seconds(1));
  }
  assert.equal(board.ends.size, 0);
});

test("stalls that no eviction can end are logged once in ten seconds", async () => {
  await using board = new Board(HARD);
  board.add("static", 850, { source: "file" });
  board.stalledUs = 0;
  for (let second = 0; second < 32; second += 1) {
    board.stalledUs += 600_000;
    await board.clock.advance(seconds(1));
  }
  const isStall = (problem: string): boolean => problem.startsWith("processes wait for memory");
  assert.equal(board.log.problems.filter(isStall).length, 3);
});

test("after the agent's start no pod goes for what unused images give back, which are known half a minute later at most", async () => {
  for (const settles of [true, false]) {
    await using board = new Board([threshold("nodefs.available", 100)]);
    board.isSettled = false;
    board.unusedImages = 300;
    board.add("files", 10, { disk: 700 });
    await board.clock.advance(seconds(11));
    assert.deepEqual([board.calls, board.conditions()], [[], "DiskPressure KubeletHasDiskPressure"]);
    board.isSettled = settles;
    await board.clock.advance(seconds(18));
    assert.deepEqual(board.calls, settles ? ["dead containers", "unused images"] : []);
    await board.clock.advance(seconds(2));
    if (!settles) assert.deepEqual(board.calls.slice(0, 3), ["dead containers", "unused images", "end files"]);
  }
});

test("memory events bring the next sample forward, to at most twenty a second", async () => {
  await using board = new Board(HARD);
  board.add("good", 100);
  board.add("leak", 100);
  await board.clock.advance(seconds(61));
  board.samples = 0;
  for (let told = 0; told < 200; told += 1) {
    board.notify?.();
    await board.clock.advance(millis(10));
  }
  assert.ok(board.samples >= 20 && board.samples <= 41, `${board.samples} samples in two seconds`);
  board.memory.set("leak", 830);
  board.notify?.();
  await board.clock.advance(millis(100));
  assert.deepEqual([...board.ends.keys()], ["leak"]);
});
