import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis, type PodUid } from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { FakeAdapter } from "@picolet/runtime-test-kit/fake/fake-adapter.ts";
import { FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import { filePod } from "@picolet/test/support/unit/agent/small-agent.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { PodObserverSink } from "../core/pods/pod-observer.ts";
import { Pleg } from "./pleg.ts";

/** PLEG over two fake runtimes, with a sink that records its calls. */
class Bench implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly runtimes = [new FakeRuntime(this), new FakeRuntime(this)];
  readonly adapters: readonly RuntimeAdapter[];
  readonly log = new RecordedLog();
  readonly calls: string[] = [];
  /** Times of the lists of the first runtime. */
  readonly lists: number[] = [];
  readonly pleg: Pleg;
  readonly #stop = new AbortController();
  #done: Promise<void> | undefined;

  /** @param start false: `start` begins it */
  constructor({ hints = true, start = true }: { readonly hints?: boolean; readonly start?: boolean } = {}) {
    this.adapters = this.runtimes.map((runtime, index) => {
      const adapter = new FakeAdapter(runtime, `fake-${index}`);
      if (hints) return adapter;
      Object.defineProperty(adapter, "hints", { value: undefined });
      return adapter;
    });
    this.first.faults.fault = ({ kind }) => {
      if (kind === "list") this.lists.push(this.clock.monotonic());
      return undefined;
    };
    this.pleg = new Pleg({ adapters: this.adapters, clock: this.clock, random: seededRandom(1), log: this.log });
    const sink: PodObserverSink = {
      podChanged: (adapter, uid, why) => this.calls.push(`${adapter.name} ${uid} ${why}`),
      listed: (adapter) => this.calls.push(`${adapter.name} listed`),
    };
    this.pleg.observe(sink);
    if (start) this.start();
  }

  start(): void {
    this.#done = endOfRun(this.pleg.run(this.#stop.signal));
  }

  get first(): FakeRuntime {
    const [first] = this.runtimes;
    assert.ok(first);
    return first;
  }

  get adapter(): RuntimeAdapter {
    const [adapter] = this.adapters;
    assert.ok(adapter);
    return adapter;
  }

  pass(durationMs: number): Promise<void> {
    return this.clock.advance(millis(durationMs));
  }

  takeCalls(): string[] {
    return this.calls.splice(0);
  }

  /** Something that changes a pod's version. */
  touch(name = "web"): PodUid {
    const pod = filePod(name);
    const attempt = this.first.inspect(pod.uid).sandboxes.length;
    this.first.createSandbox(pod, { attempt, logDirectory: "/logs", cgroupParent: "", hostname: name, dns: undefined });
    return pod.uid;
  }

  /** The time between the lists of the last `durationMs`. */
  async periods(durationMs: number): Promise<number[]> {
    this.lists.length = 0;
    await this.pass(durationMs);
    return this.lists.slice(1).map((at, index) => Math.round(at - (this.lists[index] ?? 0)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#done;
    for (const runtime of this.runtimes) runtime[Symbol.dispose]();
    await this.clock.settle();
    assert.equal(this.clock.sleeping, 0, "nothing is left waiting");
  }
}

describe("relisting", () => {
  test("happens at once at the start and reports the pods", async () => {
    await using bench = new Bench();
    const uid = bench.touch();
    await bench.pass(0);
    assert.deepEqual(
      bench.takeCalls().filter((each) => each.endsWith("listed")),
      ["fake-0 listed", "fake-1 listed"],
    );
    assert.equal(bench.pleg.listing(bench.adapter)?.has(uid), true);
    assert.deepEqual(
      bench.pleg.health.current.map(({ name, healthy }) => [name, healthy]),
      [
        ["fake-0", true],
        ["fake-1", true],
      ],
    );
  });

  test("finds changes without a hint, and removed pods", async () => {
    await using bench = new Bench();
    await bench.pass(0);
    bench.takeCalls();
    bench.first.faults.hintDelays = () => [];
    const uid = bench.touch();
    await bench.pass(3000);
    assert.deepEqual(bench.takeCalls(), ["fake-0 web relist"]);
    bench.first.removeSandbox(bench.first.inspect(uid).sandboxes[0]?.id ?? "");
    await bench.pass(3000);
    assert.deepEqual(bench.takeCalls(), ["fake-0 web relist"]);
    await bench.pass(60_000);
    assert.deepEqual(bench.takeCalls(), []);
  });

  test("is every second while things change, and slows down to 30 s at rest when hints are seen to come", async () => {
    await using bench = new Bench();
    await bench.pass(0);
    bench.touch();
    assert.deepEqual(await bench.periods(95_000), [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
  });

  test("is every 3 s at rest as long as no hint was seen to come", async () => {
    await using bench = new Bench({ hints: false });
    await bench.pass(0);
    bench.touch();
    const periods = await bench.periods(30_000);
    assert.deepEqual(periods.slice(-5), [3000, 3000, 3000, 3000, 3000]);
  });

  test("is every 3 s at rest again once a hint was lost", async () => {
    await using bench = new Bench();
    await bench.pass(0);
    bench.touch();
    await bench.pass(120_000);
    bench.first.faults.hintDelays = () => [];
    bench.touch();
    await bench.pass(60_000);
    assert.deepEqual((await bench.periods(15_000)).slice(-3), [3000, 3000, 3000]);
  });

  test("is every 3 s at rest again once the hints have ended", async () => {
    await using bench = new Bench();
    await bench.pass(0);
    bench.touch();
    await bench.pass(120_000);
    bench.first.goAway();
    await bench.pass(1);
    bench.first.comeBack();
    await bench.pass(60_000);
    assert.deepEqual((await bench.periods(15_000)).slice(-3), [3000, 3000, 3000]);
  });

  describe("of a runtime that can be asked for a hint", () => {
    /** @returns how often it was asked */
    function withTries(bench: Bench, answer: (signal: AbortSignal) => Promise<boolean>): { tries: number } {
      const state = { tries: 0 };
      bench.adapter.tryHints = (signal) => {
        state.tries += 1;
        return answer(signal);
      };
      return state;
    }

    test("slows down to 30 s at rest though nothing ever happens, and asks once", async () => {
      await using bench = new Bench({ start: false });
      const state = withTries(bench, async () => true);
      bench.start();
      assert.deepEqual(await bench.periods(95_000), [2000, 3000, 6000, 12_000, 24_000, 30_000]);
      await bench.pass(3_600_000);
      assert.equal(state.tries, 1);
    });

    test("takes no own doing for a lost hint that shows before it is done", async () => {
      await using bench = new Bench({ start: false });
      const state = withTries(bench, async () => true);
      bench.start();
      await bench.pass(120_000);
      bench.first.faults.hintDelays = () => [];
      const uid = bench.touch();
      bench.pleg.expect(bench.adapter, uid);
      // A sandbox that takes its time shows in lists before its worker is done with it.
      await bench.pass(20_000);
      bench.touch();
      await bench.pass(3_000);
      bench.pleg.expect(bench.adapter, uid);
      await bench.pass(120_000);
      assert.ok((await bench.periods(95_000)).every((period) => period === 30_000));
      assert.equal(state.tries, 1);
    });

    test("is every 3 s while hints cannot be tried, which is attempted every minute, and at 30 s when it can", async () => {
      await using bench = new Bench({ start: false });
      let answer = false;
      const state = withTries(bench, async () => answer);
      bench.start();
      await bench.pass(190_000);
      assert.deepEqual((await bench.periods(10_000)).slice(-2), [3000, 3000]);
      assert.equal(state.tries, 4);
      answer = true;
      await bench.pass(180_000);
      assert.ok((await bench.periods(95_000)).every((period) => period === 30_000));
    });

    test("is every 3 s where the hint does not come back, and the lists go on meanwhile", async () => {
      await using bench = new Bench({ start: false });
      const state = withTries(bench, () => new Promise<boolean>(() => undefined));
      bench.start();
      await bench.pass(60_000);
      assert.deepEqual((await bench.periods(15_000)).slice(-3), [3000, 3000, 3000]);
      assert.equal(state.tries, 1);
      await bench.pass(600_000);
      assert.equal(state.tries, 2);
    });

    test("is every 3 s for ten minutes once a hint was lost, in any case", async () => {
      await using bench = new Bench({ start: false });
      const state = withTries(bench, async () => true);
      bench.start();
      await bench.pass(120_000);
      bench.first.faults.hintDelays = () => [];
      bench.touch();
      await bench.pass(560_000);
      assert.deepEqual((await bench.periods(15_000)).slice(-3), [3000, 3000, 3000]);
      assert.equal(state.tries, 1);
      await bench.pass(180_000);
      assert.ok((await bench.periods(95_000)).every((period) => period === 30_000));
    });
  });

  test("does not take a worker's own doing for a lost hint", async () => {
    await using bench = new Bench();
    await bench.pass(0);
    bench.touch();
    await bench.pass(120_000);
    bench.first.faults.hintDelays = () => [];
    bench.pleg.expect(bench.adapter, bench.touch());
    await bench.pass(120_000);
    assert.ok((await bench.periods(95_000)).every((period) => period === 30_000));
  });
});

describe("hints", () => {
  test("are passed on at once, and bring the next list to within a second", async () => {
    await using bench = new Bench();
    await bench.pass(0);
    bench.touch();
    await bench.pass(100_000);
    bench.takeCalls();
    bench.touch();
    await bench.clock.settle();
    assert.deepEqual(bench.takeCalls(), ["fake-0 web hint"]);
    bench.lists.length = 0;
    await bench.pass(1000);
    assert.equal(bench.lists.length, 1);
  });

  test("are asked for again when they end, ever more slowly", async () => {
    await using bench = new Bench();
    await bench.pass(0);
    let asked = 0;
    const { hints } = FakeAdapter.prototype;
    bench.adapter.hints = function (signal) {
      asked += 1;
      return hints.call(this as FakeAdapter, signal);
    };
    bench.first.goAway();
    await bench.pass(60_000);
    assert.ok(asked >= 4 && asked <= 7, `${asked} times in a minute`);
    bench.first.comeBack();
    await bench.pass(40_000);
    bench.takeCalls();
    bench.touch();
    await bench.clock.settle();
    assert.deepEqual(bench.takeCalls(), ["fake-0 web hint"]);
  });
});

describe("health", () => {
  test("a runtime whose socket is gone is said at once, without the other, and is well when it answers again", async () => {
    await using bench = new Bench();
    await bench.pass(10_000);
    const since = bench.clock.wall().getTime();
    bench.first.goAway();
    await bench.pass(4000);
    const [gone, other] = bench.pleg.health.current;
    assert.deepEqual(
      [gone?.healthy, gone?.reason, gone?.message],
      [false, "RuntimeNotReady", "cannot reach the fake runtime"],
    );
    assert.ok((gone?.sinceMs ?? 0) > since);
    assert.equal(other?.healthy, true);
    bench.takeCalls();
    bench.first.comeBack();
    await bench.pass(7000);
    assert.equal(bench.pleg.health.current[0]?.healthy, true);
    assert.ok(bench.takeCalls().includes("fake-0 listed"), "the workers hear that it is back");
  });

  test("a list that hangs is given up, and after three minutes the runtime is not healthy", async () => {
    await using bench = new Bench();
    await bench.pass(10_000);
    bench.first.faults.fault = ({ kind }) => (kind === "list" ? { kind: "hang", heedsSignal: false } : undefined);
    await bench.pass(170_000);
    assert.equal(bench.pleg.health.current[0]?.healthy, true);
    await bench.pass(60_000);
    const [health, other] = bench.pleg.health.current;
    assert.equal(health?.reason, "PLEGNotHealthy");
    assert.match(
      health?.message ?? "",
      /^pleg was last seen active \d+s ago; threshold is 180s: cannot list pods within 20 s$/,
    );
    assert.equal(other?.healthy, true);
    bench.first.faults.fault = () => undefined;
    await bench.pass(30_000);
    assert.equal(bench.pleg.health.current[0]?.healthy, true);
  });

  describe("of a runtime that can be asked whether it answers", () => {
    /** @returns what stops and starts its answers */
    function withPing(bench: Bench): { answers: boolean; pings: number; loss: () => void } {
      const state = { answers: true, pings: 0, loss: (): void => undefined };
      bench.adapter.ping = async (signal) => {
        state.pings += 1;
        while (!state.answers) await bench.clock.sleep(millis(100), signal);
      };
      bench.adapter.disconnected = (signal) =>
        new Promise((resolve) => {
          state.loss = resolve;
          signal.addEventListener("abort", () => resolve(), { once: true });
        });
      bench.first.faults.fault = ({ kind }) =>
        kind === "list" && !state.answers ? { kind: "hang", heedsSignal: true } : undefined;
      return state;
    }

    test("silence is reported within nine seconds, once, and an answer within a few more", async () => {
      await using bench = new Bench({ start: false });
      const runtime = withPing(bench);
      bench.start();
      bench.touch();
      await bench.pass(120_000);
      assert.equal(bench.pleg.health.current[0]?.healthy, true);
      runtime.answers = false;
      await bench.pass(9100);
      const { healthy, reason, message } = bench.pleg.health.current[0] ?? {};
      assert.deepEqual([healthy, reason], [false, "RuntimeNotReady"]);
      assert.equal(message, "cannot get an answer from the container runtime within 6 s");
      assert.equal(bench.pleg.health.current[1]?.healthy, true);
      runtime.answers = true;
      await bench.pass(30_000);
      assert.equal(bench.pleg.health.current[0]?.healthy, true);
      assert.equal(bench.log.problems.filter((each) => each === "runtime is not ready").length, 1);
    });

    test("a runtime that is silent again and again is given more time each time", async () => {
      await using bench = new Bench({ start: false });
      const runtime = withPing(bench);
      bench.start();
      await bench.pass(10_000);
      // Silent for ten seconds of every minute, as a board that swaps might be.
      for (let minute = 0; minute < 10; minute += 1) {
        runtime.answers = false;
        await bench.pass(10_000);
        runtime.answers = true;
        await bench.pass(50_000);
      }
      const changes = bench.log.problems.filter((each) => each === "runtime is not ready").length;
      assert.ok(changes >= 1 && changes <= 2, `${changes} times not ready`);
    });

    test("it is asked nothing while its pods are listed anyway", async () => {
      await using bench = new Bench({ start: false });
      const runtime = withPing(bench);
      bench.start();
      for (let second = 0; second < 60; second += 1) {
        bench.pleg.expect(bench.adapter, bench.touch(`web-${second}`));
        await bench.pass(1000);
      }
      assert.equal(runtime.pings, 0);
    });

    test("a connection that breaks is reported within a second or two, unless the runtime is back by then", async () => {
      await using bench = new Bench({ start: false });
      const runtime = withPing(bench);
      bench.start();
      bench.touch();
      await bench.pass(120_000);
      runtime.loss();
      await bench.pass(1000);
      assert.equal(bench.pleg.health.current[0]?.healthy, true, "it was restarted");
      await bench.pass(30_000);
      bench.first.goAway();
      runtime.loss();
      await bench.pass(1100);
      assert.deepEqual(bench.pleg.health.current[0]?.reason, "RuntimeNotReady");
    });
  });

  test("is not known before each runtime has answered or failed to", async () => {
    await using bench = new Bench();
    bench.first.faults.fault = ({ kind }) => (kind === "list" ? { kind: "hang", heedsSignal: true } : undefined);
    await bench.pass(19_000);
    assert.equal(bench.pleg.health.current.length, 0);
    await bench.pass(1000);
    assert.match(bench.pleg.health.current.map((each) => each.message).join(), /^pleg has yet to be successful/);
  });

  test("a failure is logged once, not at every try", async () => {
    await using bench = new Bench();
    await bench.pass(0);
    bench.first.faults.fault = ({ kind }) =>
      kind === "list" ? { kind: "refuse", error: new PicoletError("failed", "cannot read the disk") } : undefined;
    await bench.pass(100_000);
    assert.deepEqual(bench.log.problems, ["cannot list the pods of a runtime"]);
  });
});
