import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { WatchSource } from "../../protocol/async/watch.ts";
import { PicoletError } from "../../protocol/errors.ts";
import { type PodUid, podUid, seconds } from "../../protocol/ports.ts";
import { RecordedEvents, RecordedLog } from "../../test/support/recorders.ts";
import { VirtualClock } from "../../test/support/virtual-clock.ts";
import { KernelLog, type KernelRecord } from "./kernel-log.ts";
import { OomWatch } from "./oom-watch.ts";

const verdict = (pid: number, where: string, cgroup: string): string =>
  `6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,${where},task_memcg=${cgroup},task=leak,pid=${pid},uid=0\n`;
const ofSystem = (pid: number, cgroup = "/"): string => verdict(pid, "global_oom", cgroup);
const ofCgroup = (pid: number, cgroup: string): string => verdict(pid, `oom_memcg=${cgroup}`, cgroup);

/** A kernel that says what the test lets it say. */
class Kernel implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly changes = new WatchSource(0);
  readonly killed: PodUid[] = [];
  readonly records: (string | "lost")[] = [];
  count: number | undefined = 0;
  counted = 0;
  opened = 0;
  refusal: PicoletError | undefined;
  readonly #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();

  async start(): Promise<void> {
    const watch = new OomWatch(
      {
        clock: this.clock,
        ...{ events: this.events, log: this.log, changes: this.changes },
        openLog: () => this.#open(),
        killCount: () => {
          this.counted += 1;
          return this.count;
        },
        podOf: (cgroup) => (cgroup.includes("podabc") ? podUid("abc") : undefined),
        killed: (uid) => this.killed.push(uid),
      },
      { nodeName: "edge-1" },
    );
    this.#running = watch.run(this.#stop.signal);
    await this.clock.settle();
  }

  kill(...records: readonly string[]): void {
    this.count = (this.count ?? 0) + records.length;
    this.records.push(...records);
  }

  get told(): string[] {
    return this.events.all
      .splice(0)
      .map(
        ({ regarding, type, reason, message }) => `${regarding.kind}/${regarding.name} ${type} ${reason}: ${message}`,
      );
  }

  #open() {
    this.opened += 1;
    if (this.refusal !== undefined) throw this.refusal;
    const next = (): KernelRecord => {
      const text = this.records.shift();
      if (text === undefined) return { kind: "end" };
      return text === "lost" ? { kind: "lost" } : { kind: "record", text };
    };
    return { next, [Symbol.dispose]: () => undefined };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }
}

const soon = async (kernel: Kernel): Promise<void> => {
  kernel.changes.set(kernel.changes.current + 1);
  await kernel.clock.advance(seconds(2));
};

describe("OOM watch", () => {
  test("the machine out of memory is an event of the node, in the kubelet's words; whose pod it hit is in the log", async () => {
    await using kernel = new Kernel();
    await kernel.start();
    kernel.kill(ofSystem(42, "/kubepods/burstable/podabc/c1"));
    await soon(kernel);
    assert.deepEqual(kernel.told, [
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

  test("a cgroup's is no event; its pod is looked at again", async () => {
    await using kernel = new Kernel();
    await kernel.start();
    kernel.kill(ofCgroup(43, "/kubepods/podabc"));
    await soon(kernel);
    assert.deepEqual(kernel.told, []);
    assert.deepEqual(kernel.killed, ["abc"]);
  });

  test("what was killed before the agent is not told, and where nobody was the log is not even opened", async () => {
    await using quiet = new Kernel();
    await quiet.start();
    await quiet.clock.advance(seconds(300));
    assert.equal(quiet.opened, 0);
    assert.ok(quiet.counted <= 12, `${quiet.counted} looks in five minutes`);
    await using late = new Kernel();
    late.kill(ofSystem(44));
    await late.start();
    late.kill(ofSystem(45));
    await soon(late);
    assert.match(late.told.join(), /^[^,]*, victim process: leak, pid: 45$/);
  });

  test("a record that comes after its count is told a moment later", async () => {
    await using kernel = new Kernel();
    await kernel.start();
    kernel.count = 1;
    kernel.changes.set(1);
    await kernel.clock.advance(seconds(1));
    assert.deepEqual(kernel.told, []);
    kernel.records.push(ofSystem(46));
    await kernel.clock.advance(seconds(1));
    assert.equal(kernel.told.length, 1);
  });

  test("a kernel that does not count is asked by its log alone", async () => {
    await using kernel = new Kernel();
    kernel.count = undefined;
    await kernel.start();
    kernel.records.push(ofSystem(47));
    await kernel.clock.advance(seconds(31));
    assert.equal(kernel.told.length, 1);
  });

  test("a log that may not be read is said once", async () => {
    await using kernel = new Kernel();
    kernel.refusal = new PicoletError("permission_denied", "cannot open /dev/kmsg");
    await kernel.start();
    for (const pid of [1, 2, 3]) {
      kernel.kill(ofSystem(pid));
      await soon(kernel);
    }
    assert.equal(kernel.log.problems.length, 1);
    assert.equal(kernel.opened, 1);
  });

  test("records that were overwritten cost no other; a flood within cgroups is a number", async () => {
    await using kernel = new Kernel();
    await kernel.start();
    kernel.kill("lost", ...Array.from({ length: 500 }, (_, index) => ofCgroup(100 + index, "/x")), ofSystem(48));
    await soon(kernel);
    await soon(kernel);
    assert.equal(kernel.told.length, 1);
    assert.ok(kernel.log.entries.length < 20);
    assert.ok(kernel.log.entries.some(({ fields }) => fields.count === 490));
  });
});

const MEMORY = "/sys/fs/cgroup/memory";
const skip = existsSync(`${MEMORY}/memory.limit_in_bytes`)
  ? false
  : "needs the memory controller of cgroup v1, as root";

test("the real kernel's kill of a real process is read from its log", { skip }, () => {
  const folder = `${MEMORY}/picolet-test-oom-${process.pid}`;
  mkdirSync(folder);
  try {
    writeFileSync(`${folder}/memory.limit_in_bytes`, String(8 * 1024 * 1024));
    using log = new KernelLog();
    while (log.next().kind !== "end");
    const script = `echo $$ > ${folder}/cgroup.procs; exec tail /dev/zero`;
    assert.throws(() => execFileSync("sh", ["-c", script], { stdio: "ignore" }));
    const texts: string[] = [];
    for (let record = log.next(); record.kind !== "end"; record = log.next())
      if (record.kind === "record") texts.push(record.text);
    assert.ok(
      texts.some((text) => /oom-kill:constraint=CONSTRAINT_MEMCG.*picolet-test-oom-.*task=tail/.test(text)),
      texts.join(""),
    );
  } finally {
    rmdirSync(folder);
  }
  assert.ok(Number(/^oom_kill (\d+)$/m.exec(readFileSync("/proc/vmstat", "utf8"))?.[1]) > 0);
});
