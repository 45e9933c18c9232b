import assert from "node:assert/strict";
import { mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { type TestContext, test } from "node:test";
import { FlashMeter, type MeteredPod } from "@picolet/agent/budget/flash-meter.ts";
import { WriteCounters } from "@picolet/agent/budget/write-counters.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { endOfRun } from "../support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { samplePod, TemporaryFolder } from "../support/unit/store/store-samples.ts";

const HOUR = 3600;
const NO_PRESSURE = { type: "FlashWearPressure", status: "False", reason: "KubeletHasNoFlashWearPressure" };

/** A machine with cgroup v2 whose kernel counts what a test says, and a store that outlives agents. */
class Bench implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly stretches: number[] = [];
  readonly pods: MeteredPod[] = [];
  readonly #folder = new TemporaryFolder();
  readonly #budgetBytes: number;
  readonly #disks: readonly string[];
  store: Store;
  meter: FlashMeter;
  #stop = new AbortController();
  #running: Promise<void>;

  constructor(t: TestContext, { budgetBytes = 0, disks = ["mmcblk0"] } = {}) {
    this.#budgetBytes = budgetBytes;
    this.#disks = disks;
    this.boot("first");
    this.disk(1000 * MEBIBYTE);
    this.own(0);
    this.store = this.#open();
    this.meter = this.#make();
    this.#running = endOfRun(this.meter.run(this.#stop.signal));
    t.after(() => this[Symbol.asyncDispose]());
  }

  get today(): unknown {
    const { bytes, agentBytes, pods } = this.meter.report().today;
    return [bytes, agentBytes, Object.fromEntries(pods.map((each) => [each.name, each.bytes]))];
  }

  /** Bytes of the log beside the database, which grows with each batch. */
  get written(): number {
    return statSync(`${this.#folder.file("picolet.db")}-wal`).size;
  }

  boot(id: string): void {
    this.#write("proc/sys/kernel/random/boot_id", `${id}\n`);
  }

  disk(bytes: number): void {
    this.#write("proc/diskstats", `179 0 mmcblk0 1 2 3 4 5 6 ${bytes / 512} 8 9\n`);
  }

  /** @param children what those have written that were waited for */
  own(threads: number, children = 0): void {
    const io = (bytes: number): string => `read_bytes: 0\nwrite_bytes: ${bytes}\ncancelled_write_bytes: 0\n`;
    this.#write("proc/self/task/1/io", io(threads));
    this.#write("proc/self/io", io(threads + children));
  }

  run(name: string, runtime = "cri"): DesiredPod {
    const desired = samplePod(name);
    this.pods.push({ desired, runtime });
    return desired;
  }

  pod(name: string, bytes: number): void {
    this.#write(`cgroup/${name}/io.stat`, `179:0 rbytes=0 wbytes=${bytes} rios=0\n`);
  }

  component(name: string, bytes: number): void {
    this.#write(`cgroup/${name}/cgroup.procs`, "77\n");
    this.#write("proc/77/io", `x\nwrite_bytes: ${bytes}\n`);
  }

  gone(name: string): void {
    rmSync(this.#folder.file(`cgroup/${name}`), { recursive: true });
  }

  /** The next look. */
  async look(): Promise<void> {
    await this.pass(60);
  }

  async pass(time: number): Promise<void> {
    await this.clock.advance(seconds(time));
    // A look lets others go first after each pod.
    for (let n = 0; n < 5; n += 1) await this.clock.settle();
  }

  /** @param meanwhile what happens while no agent runs */
  async restart(meanwhile: () => void = () => undefined, ends: "properly" | "killed" = "properly"): Promise<void> {
    this.#stop.abort();
    await this.#running;
    if (ends === "properly") await this.meter[Symbol.asyncDispose]();
    await this.store[Symbol.asyncDispose]();
    meanwhile();
    this.#stop = new AbortController();
    this.store = this.#open();
    this.meter = this.#make();
    this.#running = endOfRun(this.meter.run(this.#stop.signal));
    await this.pass(0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    await this.store[Symbol.asyncDispose]();
    this.#folder[Symbol.dispose]();
  }

  #open(): Store {
    return new Store({ clock: this.clock, log: this.log }, { path: this.#folder.file("picolet.db") });
  }

  #make(): FlashMeter {
    const { clock, log, events, store } = this;
    const cgroups = { kind: "v2", mountPoint: this.#folder.file("cgroup") } as const;
    return new FlashMeter(
      {
        ...{ clock, log, events, kept: store.kept },
        counters: new WriteCounters({ cgroups, proc: this.#folder.file("proc") }),
        findDisks: async () => this.#disks,
        pods: () => this.pods,
        podCgroup: ({ pod }) => `/${pod.metadata.name}`,
        stretch: (factor) => this.stretches.push(factor),
      },
      { nodeName: "node", budgetBytes: this.#budgetBytes, agentBudgetBytes: 5 * MEBIBYTE },
    );
  }

  #write(file: string, text: string): void {
    const path = this.#folder.file(file);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
}

test("what the disks, the agent and each pod have taken is counted from the first look on", async (t) => {
  const bench = new Bench(t);
  bench.run("a");
  bench.pod("a", 5 * MEBIBYTE);
  await bench.pass(0);
  assert.deepEqual(bench.today, [0, 0, { "default/a": 5 * MEBIBYTE }], "a pod's cgroup is no older than the pod");
  bench.disk(1010 * MEBIBYTE);
  bench.own(MEBIBYTE);
  bench.pod("a", 7 * MEBIBYTE);
  await bench.look();
  assert.deepEqual(bench.today, [10 * MEBIBYTE, MEBIBYTE, { "default/a": 7 * MEBIBYTE }]);
  assert.deepEqual(bench.meter.pressure.current, [], "without a budget there is no condition");
});

test("a counter that begins anew adds what it says from then on; a pod that is gone keeps what it wrote", async (t) => {
  const bench = new Bench(t);
  bench.run("a");
  bench.pod("a", 5 * MEBIBYTE);
  await bench.pass(0);
  bench.pod("a", MEBIBYTE);
  await bench.look();
  bench.pod("a", 2 * MEBIBYTE);
  await bench.look();
  assert.deepEqual(bench.today, [0, 0, { "default/a": 6 * MEBIBYTE }]);
  bench.gone("a");
  bench.pods.length = 0;
  await bench.look();
  assert.deepEqual(bench.today, [0, 0, { "default/a": 6 * MEBIBYTE }]);
});

test("children count as the agent's own, unless they were components", async (t) => {
  const bench = new Bench(t);
  bench.run("w", "wasm");
  bench.component("w", 3 * MEBIBYTE);
  await bench.pass(0);
  bench.own(0, MEBIBYTE);
  await bench.look();
  assert.deepEqual(bench.today, [0, MEBIBYTE, { "default/w": 3 * MEBIBYTE }]);
  bench.gone("w");
  bench.own(0, 4 * MEBIBYTE);
  await bench.look();
  assert.deepEqual(bench.today, [0, MEBIBYTE, { "default/w": 3 * MEBIBYTE }]);
});

test("an agent that comes back goes on where the last one was, killed or not, also when the machine was started anew", async (t) => {
  const bench = new Bench(t);
  bench.run("a");
  await bench.pass(0);
  bench.disk(1100 * MEBIBYTE);
  bench.own(2 * MEBIBYTE);
  bench.pod("a", 4 * MEBIBYTE);
  await bench.look();
  await bench.restart(() => {
    bench.disk(1150 * MEBIBYTE);
    bench.pod("a", 5 * MEBIBYTE);
    bench.own(0);
  });
  assert.deepEqual(bench.today, [150 * MEBIBYTE, 2 * MEBIBYTE, { "default/a": 5 * MEBIBYTE }]);
  bench.disk(1200 * MEBIBYTE);
  await bench.look();
  await bench.restart(() => bench.own(0), "killed");
  assert.deepEqual(bench.today, [200 * MEBIBYTE, 2 * MEBIBYTE, { "default/a": 5 * MEBIBYTE }], "from the counters");
  await bench.restart(() => {
    bench.boot("second");
    bench.disk(30 * MEBIBYTE);
    bench.pod("a", MEBIBYTE);
  });
  assert.deepEqual(
    bench.today,
    [230 * MEBIBYTE, 2 * MEBIBYTE, { "default/a": 6 * MEBIBYTE }],
    "the start of the machine writes too",
  );
});

test("what is counted is kept once an hour and at the end of a day, not more often", async (t) => {
  const bench = new Bench(t);
  await bench.pass(0);
  const kept = (): unknown => Object.fromEntries(bench.store.kept.all("flash"));
  assert.deepEqual(kept(), { "2026-01-01": [0, 0, []] });
  bench.disk(1010 * MEBIBYTE);
  await bench.pass(HOUR - 120);
  assert.deepEqual(kept(), { "2026-01-01": [0, 0, []] });
  await bench.pass(180);
  assert.deepEqual(kept(), { "2026-01-01": [10 * MEBIBYTE, 0, []] });
  bench.disk(1020 * MEBIBYTE);
  await bench.pass(23 * HOUR);
  bench.disk(1050 * MEBIBYTE);
  await bench.look();
  await bench.restart();
  assert.deepEqual(kept(), { "2026-01-01": [20 * MEBIBYTE, 0, []], "2026-01-02": [30 * MEBIBYTE, 0, []] });
  assert.deepEqual(bench.meter.report().dailyAverage, { bytes: 20 * MEBIBYTE, agentBytes: 0, days: 1 });
});

test("a day that takes more than the budget is FlashWearPressure until it is over, said once, with those who wrote most", async (t) => {
  const bench = new Bench(t, { budgetBytes: 100 * MEBIBYTE });
  const condition = () => bench.meter.pressure.current[0];
  await bench.pass(0);
  assert.deepEqual({ ...NO_PRESSURE, message: "kubelet has no flash wear pressure" }, condition());
  for (const name of ["a", "b", "c", "d"]) bench.run(name);
  for (const [name, bytes] of [
    ["a", 1],
    ["b", 60],
    ["c", 20],
    ["d", 0.5],
  ] as const)
    bench.pod(name, bytes * MEBIBYTE);
  bench.disk(1100 * MEBIBYTE);
  await bench.look();
  assert.equal(condition()?.status, "False");
  bench.disk(1101 * MEBIBYTE);
  await bench.look();
  const message =
    "101 MiB were written to mmcblk0 today, the budget is 100 MiB; most by default/b 60 MiB, default/c 20 MiB, default/a 1 MiB";
  assert.deepEqual(condition(), {
    type: "FlashWearPressure",
    status: "True",
    reason: "FlashWearBudgetExceeded",
    message,
  });
  assert.deepEqual(bench.events.lines, [`Warning FlashWearBudgetExceeded: ${message}`]);
  bench.disk(1200 * MEBIBYTE);
  await bench.look();
  assert.equal(condition()?.message, message, "a text that changes would be told again and again");
  await bench.restart();
  assert.equal(condition()?.status, "True");
  await bench.pass(24 * HOUR);
  await bench.look();
  assert.equal(condition()?.status, "False");
});

test("where nobody knows what is written the condition is Unknown", async (t) => {
  const bench = new Bench(t, { budgetBytes: MEBIBYTE, disks: [] });
  await bench.pass(0);
  assert.equal(bench.meter.pressure.current[0]?.status, "Unknown");
  assert.equal(bench.meter.report().today.bytes, null);
});

test("an agent that has written much keeps back for longer what can wait, until its day's share is there again", async (t) => {
  const bench = new Bench(t);
  await bench.pass(0);
  assert.deepEqual(bench.stretches, []);
  bench.own(2 * MEBIBYTE);
  await bench.look();
  assert.deepEqual(bench.stretches, [4]);
  bench.own(6 * MEBIBYTE);
  await bench.look();
  assert.deepEqual(bench.stretches, [4, 60]);
  await bench.pass(23 * HOUR);
  assert.deepEqual(bench.stretches, [4, 60], "the day's budget is spent");
  await bench.pass(HOUR);
  assert.deepEqual(bench.stretches, [4, 60, 1]);
});

test("stretched, what can wait is written later; what pods are to be at once", async (t) => {
  const bench = new Bench(t);
  const stop = new AbortController();
  const { store } = bench;
  const running = endOfRun(store.run(stop.signal));
  await bench.pass(120);
  store.stretch(30);
  store.kept.put("test", "a", 1, "soon");
  let before = bench.written;
  await bench.clock.advance(seconds(29));
  assert.equal(bench.written, before);
  store.desired.replace("file", 1, [samplePod("a")]);
  assert.ok(bench.written > before);
  before = bench.written;
  await bench.clock.advance(seconds(2));
  assert.ok(bench.written > before);
  store.stretch(60);
  store.kept.put("test", "a", 2, "later");
  before = bench.written;
  await bench.clock.advance(seconds(HOUR / 2));
  assert.equal(bench.written, before, "what can wait for long makes no batch of its own");
  stop.abort();
  await running;
});
