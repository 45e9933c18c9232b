import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis, type PodUid, podUid, seconds } from "@picolet/protocol/ports.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { KernelRecord } from "./kernel-log.ts";
import { type FollowedLog, OomKillLog } from "./oom-kill-log.ts";
import { OomWatch } from "./oom-watch.ts";

const verdict = (pid: number, where: string, cgroup: string): string =>
  `6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,${where},task_memcg=${cgroup},task=leak,pid=${pid},uid=0\n`;
const ofSystem = (pid: number, cgroup = "/"): string => verdict(pid, "global_oom", cgroup);
const ofCgroup = (pid: number, cgroup: string): string => verdict(pid, `oom_memcg=${cgroup}`, cgroup);

const CONTAINER = "0a".repeat(32);
const OTHER = "0b".repeat(32);

/** A kernel that says what the test lets it say. */
class Kernel implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly killed: PodUid[] = [];
  readonly records: (string | "lost")[] = [];
  read = 0;
  opened = 0;
  refusal: PicoletError | undefined;
  readonly kills = new OomKillLog({ openLog: () => this.#open(), log: this.log });
  #onMore: (() => void) | undefined;
  readonly #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();

  async start(): Promise<void> {
    const watch = new OomWatch(
      {
        clock: this.clock,
        ...{ events: this.events, log: this.log, kills: this.kills },
        podOf: (cgroup) => (cgroup.includes("podabc") ? podUid("abc") : undefined),
        killed: (uid) => this.killed.push(uid),
      },
      { nodeName: "edge-1" },
    );
    this.#running = endOfRun(watch.run(this.#stop.signal));
    await this.clock.advance(seconds(2));
  }

  /** Appends records to the log, and wakes the waiting reader. */
  async writes(...records: readonly (string | "lost")[]): Promise<void> {
    this.records.push(...records);
    this.#onMore?.();
    await this.clock.settle();
  }

  get reported(): string[] {
    return this.events.all
      .splice(0)
      .map(
        ({ regarding, type, reason, message }) => `${regarding.kind}/${regarding.name} ${type} ${reason}: ${message}`,
      );
  }

  #open(): FollowedLog {
    this.opened += 1;
    if (this.refusal !== undefined) throw this.refusal;
    const next = (): KernelRecord => {
      this.read += 1;
      const text = this.records.shift();
      if (text === undefined) return { kind: "end" };
      return text === "lost" ? { kind: "lost" } : { kind: "record", text };
    };
    const whenMore = (reported: () => void): void => {
      this.#onMore = () => {
        this.#onMore = undefined;
        reported();
      };
    };
    return { next, whenMore, [Symbol.dispose]: () => undefined };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }
}

describe("OOM watch", () => {
  test("the machine out of memory is an event of the node at once, in the kubelet's words; whose pod it hit is in the log", async () => {
    await using kernel = new Kernel();
    await kernel.start();
    await kernel.writes(ofSystem(42, "/kubepods/burstable/podabc/c1"));
    assert.deepEqual(kernel.reported, [
      "Node/edge-1 Warning SystemOOM: System OOM encountered, victim process: leak, pid: 42",
    ]);
    assert.deepEqual(kernel.log.entries.at(-1)?.fields, {
      process: "leak",
      pid: 42,
      cgroup: "/kubepods/burstable/podabc/c1",
      pod: "abc",
    });
    assert.deepEqual(kernel.killed, ["abc"]);
  });

  test("a cgroup's kill is no event; its pod's worker is poked", async () => {
    await using kernel = new Kernel();
    await kernel.start();
    await kernel.writes(ofCgroup(43, "/kubepods/podabc"));
    assert.deepEqual(kernel.reported, []);
    assert.deepEqual(kernel.killed, ["abc"]);
  });

  test("kills before the agent's start are not reported", async () => {
    await using kernel = new Kernel();
    kernel.records.push(ofSystem(44));
    await kernel.start();
    await kernel.writes(ofSystem(45));
    assert.match(kernel.reported.join(), /^[^,]*, victim process: leak, pid: 45$/);
  });

  test("while the kernel writes nothing nothing is read, and once a second while it does not stop", async () => {
    await using kernel = new Kernel();
    await kernel.start();
    const before = kernel.read;
    await kernel.clock.advance(seconds(300));
    assert.equal(kernel.read, before);
    for (let count = 0; count < 50; count += 1) {
      await kernel.writes("lost");
      await kernel.clock.advance(millis(100));
    }
    assert.ok(kernel.read - before <= 50 + 6, `${kernel.read - before} reads`);
  });

  test("kills that another reader has found in the log are reported all the same", async () => {
    await using kernel = new Kernel();
    await kernel.start();
    kernel.records.push(ofSystem(46));
    assert.equal(kernel.kills.has(CONTAINER), false);
    await kernel.clock.settle();
    assert.equal(kernel.reported.length, 1);
  });

  test("a log that may not be read is said once", async () => {
    await using kernel = new Kernel();
    kernel.refusal = new PicoletError("permission_denied", "cannot open /dev/kmsg");
    await kernel.start();
    for (const _ of [1, 2, 3]) assert.equal(kernel.kills.has(CONTAINER), false);
    assert.equal(kernel.log.problems.length, 1);
    assert.equal(kernel.opened, 1);
  });

  test("records that were overwritten cost no other; a flood within cgroups is a number", async () => {
    await using kernel = new Kernel();
    await kernel.start();
    const flood = Array.from({ length: 500 }, (_, index) => ofCgroup(100 + index, "/x"));
    await kernel.writes("lost", ...flood, ofSystem(48));
    await kernel.clock.advance(seconds(2));
    assert.equal(kernel.reported.length, 1);
    assert.ok(kernel.log.entries.length < 20);
    assert.ok(kernel.log.entries.some(({ fields }) => fields.count === 490));
  });
});

describe("containers that were hit", () => {
  for (const [what, cgroup] of Object.entries({
    "with cgroupfs": `/kubepods/burstable/podabc/${CONTAINER}`,
    "with systemd": `/kubepods.slice/kubepods-podabc.slice/cri-containerd-${CONTAINER}.scope`,
    "with CRI-O": `/kubepods.slice/kubepods-podabc.slice/crio-${CONTAINER}.scope/container`,
    "in a cgroup of its own within": `/kubepods/podabc/${CONTAINER}/init.scope`,
  }))
    test(`are known at once, before anybody has reported of them: ${what}`, () => {
      const kernel = new Kernel();
      assert.equal(kernel.kills.has(CONTAINER), false);
      kernel.records.push(ofCgroup(1, cgroup));
      assert.deepEqual([kernel.kills.has(CONTAINER), kernel.kills.has(OTHER)], [true, false]);
    });

  test("as a whole, where the kernel left out the rest", () => {
    const kernel = new Kernel();
    const text = `Tasks in /kubepods/podabc/${CONTAINER} are going to be killed due to memory.oom.group set`;
    kernel.records.push(`12,1,1,-;${text}\n`);
    assert.equal(kernel.kills.has(CONTAINER), false, "somebody else has written that");
    kernel.records.push(`6,1,1,-;${text}\n`);
    assert.equal(kernel.kills.has(CONTAINER), true);
  });

  test("are bounded in number; who is asked for stays", () => {
    const kernel = new Kernel();
    kernel.records.push(ofCgroup(1, `/podabc/${CONTAINER}`), ofCgroup(2, `/podabc/${OTHER}`));
    for (let count = 0; count < 300; count += 1) {
      assert.equal(kernel.kills.has(CONTAINER), true);
      kernel.records.push(ofCgroup(3 + count, `/podabc/${String(count).padStart(64, "c")}`));
    }
    assert.deepEqual([kernel.kills.has(CONTAINER), kernel.kills.has(OTHER)], [true, false]);
  });

  test("nobody is, once the log is closed", () => {
    const kernel = new Kernel();
    kernel.records.push(ofCgroup(1, `/podabc/${CONTAINER}`));
    kernel.kills[Symbol.dispose]();
    assert.deepEqual([kernel.kills.has(CONTAINER), kernel.opened], [false, 0]);
  });
});
