import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, millis, podUid } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { usagePod } from "@picolet/test/support/unit/pods/usage-pods.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import type { NodeUsage, Usage } from "../core/node/usage.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { PodLeave } from "../core/pods/pod-admission.ts";
import { isCritical } from "../plan/admission/critical-pods.ts";
import { EVICTION_SIGNALS, type EvictionThreshold } from "../plan/eviction/eviction-thresholds.ts";
import { Evictor } from "./evictor.ts";

const NEVER = new AbortController().signal;

interface Drawn {
  readonly source: "api" | "file";
  readonly priority: number;
  readonly used: number;
  readonly runs: boolean;
  readonly terminating: boolean;
}

function drawnPod({ source, priority, runs, terminating }: Drawn, index: number): AgentPod {
  const made = usagePod(`p${index}`, runs ? ["app"] : []);
  const { desired } = made;
  const pod = { ...desired.pod, spec: { ...desired.pod.spec, priority } };
  return { ...made, desired: { ...desired, source, pod }, terminatingSinceMs: terminating ? 0 : undefined };
}

test("with any pods: never a critical one, never one that does not run, one at a time, and one whenever canEvict is true", async () => {
  const drawn = fc.record({
    source: fc.constantFrom("api", "file"),
    priority: fc.constantFrom(-5, 0, 7, 1_999_999_999, 2_000_000_000, 2_000_001_000),
    used: fc.constantFrom(0, 1, 1000, Number.NaN, -1, Infinity),
    runs: fc.boolean(),
    terminating: fc.boolean(),
  });
  const thresholds = fc.record({ signal: fc.constantFrom(...EVICTION_SIGNALS), isHard: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(fc.array(drawn, { maxLength: 8 }), thresholds, async (all, { signal, isHard }) => {
      const pods = all.map(drawnPod);
      const gone: AgentPod[] = [];
      const clock = new VirtualClock();
      const evictor = new Evictor(
        {
          ...{ clock, events: new RecordedEvents(), log: new RecordedLog(), pods: () => pods },
          ender: {
            end: async (uid) => {
              const index = pods.findIndex(({ desired }) => desired.uid === uid);
              gone.push(...pods.splice(index, 1));
            },
          },
          kill: async () => undefined,
          release: async () => undefined,
        },
        { maxGracePeriod: millis(5_000) },
      );
      const due: EvictionThreshold = {
        ...{ signal, gracePeriod: isHard ? undefined : millis(1), minReclaim: undefined },
        value: { kind: "quantity", value: 1, text: "1" },
      };
      const usage = all.map(({ used }) => ({ workingSetBytes: used, swapBytes: 0, pids: used }) as Usage);
      const seen = pods.map((pod, index) => ({ pod, path: "", usage: usage[index], containers: [] }));
      const figures = {
        ...{ observed: { available: 0, capacity: 10 }, disks: new Map([[podUid("p0"), NOTHING]]) },
        usage: { atMs: 0, node: used, allPods: undefined, pods: seen } satisfies NodeUsage,
        layout: { dedicatedImagefs: false, splitContainerfs: false },
      };
      for (let round = 0; round <= all.length; round += 1) {
        const [before, canEvict] = [gone.length, evictor.canEvict(due)];
        const evicting = evictor.evictOne(due, figures, NEVER);
        await clock.advance(millis(10_000));
        assert.equal(await evicting, canEvict);
        assert.equal(gone.length - before, Number(canEvict));
      }
      for (const { desired, containers } of gone) assert.ok(!isCritical(desired) && containers.length > 0);
      const left = pods.filter(({ desired, containers }) => !isCritical(desired) && containers.length > 0);
      assert.deepEqual(left, []);
    }),
    { numRuns: 150 },
  );
});

const used = { workingSetBytes: 0 } as Usage;
const NOTHING = { rootfs: new Map(), logs: new Map(), volumes: new Map(), otherBytes: 0, atMs: 0 };

test("a pod that waits to run again goes for disk, which it has filled, and for nothing else; one that is over does not", async () => {
  const exited = {
    kind: "exited",
    exitCode: 1,
    startedAtMs: 0,
    finishedAtMs: 0,
    reason: "Error",
    message: "",
  } as const;
  const waiting = (uid: string, phase: "Running" | "Failed"): AgentPod => {
    const made = usagePod(uid, ["app"]);
    return { ...made, status: { phase }, containers: made.containers.map((each) => ({ ...each, state: exited })) };
  };
  const pods = [usagePod("runs", ["app"]), waiting("waits", "Running"), waiting("over", "Failed")];
  const ended: string[] = [];
  const clock = new VirtualClock();
  const evictor = new Evictor(
    {
      ...{ clock, events: new RecordedEvents(), log: new RecordedLog(), pods: () => pods },
      ender: { end: async (uid) => void ended.push(uid) },
      release: async () => undefined,
    },
    { maxGracePeriod: undefined },
  );
  const files = (inodes: number) => ({ ...NOTHING, volumes: new Map([["data", { bytes: 0, inodes }]]) });
  const figures = {
    ...{ observed: { available: 0, capacity: 10 }, usage: undefined },
    disks: new Map(pods.map(({ desired }, index) => [desired.uid, files(index + 1)])),
    layout: { dedicatedImagefs: false, splitContainerfs: false },
  };
  for (const signal of ["nodefs.inodesFree", "memory.available"] as const) {
    const value = { kind: "quantity", value: 1, text: "1" } as const;
    const evicting = evictor.evictOne({ signal, value, gracePeriod: undefined, minReclaim: undefined }, figures, NEVER);
    await clock.advance(millis(1_000));
    assert.equal(await evicting, true);
  }
  assert.deepEqual(ended, ["waits", "runs"]);
});

test("a pod that is seen to run on for a while after its eviction does not go again; one whose eviction failed does", async () => {
  const pods = [usagePod("first", ["app"]), usagePod("second", ["app"])];
  const asked: string[] = [];
  const clock = new VirtualClock();
  const evictor = new Evictor(
    {
      ...{ clock, events: new RecordedEvents(), log: new RecordedLog(), pods: () => pods },
      ender: {
        end: async (uid) => {
          asked.push(uid);
          if (asked.length === 1) throw new PicoletError("unavailable", "cannot write");
        },
      },
      kill: async () => undefined,
      release: async () => undefined,
    },
    { maxGracePeriod: undefined },
  );
  const figures = {
    ...{ observed: { available: 0, capacity: 10 }, usage: undefined, disks: undefined },
    layout: { dedicatedImagefs: false, splitContainerfs: false },
  };
  const value = { kind: "quantity", value: 1, text: "1" } as const;
  const due: EvictionThreshold = { signal: "memory.available", value, gracePeriod: undefined, minReclaim: undefined };
  for (const isDone of [true, true, true, false]) {
    const evicting = evictor.evictOne(due, figures, NEVER);
    await clock.advance(millis(1_000));
    assert.equal(await evicting, isDone);
  }
  assert.deepEqual(asked, ["first", "first", "second"]);
});

interface Seen {
  readonly pods: readonly AgentPod[];
  /** MiB or processes in the cgroup of each of them. */
  readonly held: Readonly<Record<string, number>>;
  /** Default: memory. */
  readonly short?: "memory" | "processes";
}

/**
 * A board that is out of memory or processes, of which 20 are left and 100 should be, on which nothing ends that is
 * told to.
 */
function starved({ pods, held, short = "memory" }: Seen) {
  const clock = new VirtualClock();
  const ended: string[] = [];
  const evictor = new Evictor(
    {
      ...{ clock, events: new RecordedEvents(), log: new RecordedLog(), pods: () => pods },
      ender: {
        end: async (uid) => {
          ended.push(uid);
          await new Promise<never>(() => undefined);
        },
      },
      kill: async () => undefined,
      release: async () => undefined,
    },
    { maxGracePeriod: undefined },
  );
  const unit = short === "memory" ? MEBIBYTE : 1;
  const signal = short === "memory" ? "memory.available" : "pid.available";
  const value = { kind: "quantity", value: 100 * unit, text: "100" } as const;
  const due = { signal, value, gracePeriod: undefined, minReclaim: undefined } as const;
  const usageOf = (uid: string): Usage => {
    const amount = (held[uid] ?? 0) * unit;
    const used: Partial<Usage> = short === "memory" ? { workingSetBytes: amount, swapBytes: 0 } : { pids: amount };
    return used as Usage;
  };
  const figures = {
    ...{ observed: { available: 20 * unit, capacity: 512 * unit }, disks: undefined },
    usage: {
      ...{ atMs: 0, node: used, allPods: undefined },
      pods: pods.map((pod) => ({ pod, path: "", usage: usageOf(pod.desired.uid), containers: [] })),
    },
    layout: { dedicatedImagefs: false, splitContainerfs: false },
  };
  const evict = async (forMs: number): Promise<readonly string[]> => {
    const until = clock.monotonic() + forMs;
    while (clock.monotonic() < until) {
      const evicting = evictor.evictOne(due, figures, NEVER);
      await clock.advance(millis(3_000));
      assert.equal(await evicting, true);
    }
    return ended;
  };
  return evict;
}

for (const short of ["memory", "processes"] as const) {
  test(`while a killed pod still holds the ${short} that are missing no other one goes; ten seconds later one does`, async () => {
    const pods = [usagePod("leak", ["app"]), usagePod("good", ["app"])];
    const evict = starved({ pods, held: { leak: 300, good: 10 }, short });
    assert.deepEqual(await evict(9_000), ["leak"]);
    assert.deepEqual(await evict(6_000), ["leak", "good"]);
  });
}

test("killed processes that no cgroup shows any more are waited for, for some seconds", async () => {
  const pods = [usagePod("leak", ["app"]), usagePod("good", ["app"])];
  const evict = starved({ pods, held: { leak: 60, good: 10 }, short: "processes" });
  assert.deepEqual(await evict(6_000), ["leak"]);
  assert.deepEqual(await evict(3_000), ["leak", "good"]);
});

test("a killed pod that holds too little is not waited for", async () => {
  const evict = starved({ pods: [usagePod("leak", ["app"]), usagePod("good", ["app"])], held: { leak: 60, good: 10 } });
  assert.deepEqual(await evict(6_000), ["leak", "good"]);
});

test("a pod that has filled the memory before its runtime reports it running is evicted before those that run", async () => {
  const evict = starved({ pods: [usagePod("good", ["app"]), usagePod("starts", [])], held: { starts: 300, good: 10 } });
  assert.deepEqual(await evict(3_000), ["starts"]);
});

test("a pod of which nothing runs is left with what a sandbox takes", async () => {
  const evict = starved({ pods: [usagePod("waits", []), usagePod("good", ["app"])], held: { waits: 15, good: 10 } });
  assert.deepEqual(await evict(3_000), ["good"]);
});

describe("a pod that may go on as components", () => {
  /** Two pods, of which the first uses more and may be switched, once. */
  function bench(source: "api" | "file" = "api") {
    const first = usagePod("first", ["app"]);
    const pods = [{ ...first, desired: { ...first.desired, source } }, usagePod("second", ["app"])];
    const [done, clock, events] = [[] as string[], new VirtualClock(), new RecordedEvents()];
    const switcher = {
      fault: undefined as Error | undefined,
      leaves: (): Promise<void> => Promise.resolve(),
      isDone: false,
      leaving: "",
      isLeaving: (uid: string) => uid === switcher.leaving,
      canSwitch: (uid: string) => uid === "first" && !switcher.isDone,
      choose: (uid: string, why: string) => {
        if (switcher.fault !== undefined) throw switcher.fault;
        switcher.isDone = true;
        done.push(`choose ${uid}: ${why}`);
      },
      leave: (uid: string, { gracePeriod }: PodLeave) => {
        done.push(`leave ${uid} in ${gracePeriod}`);
        return switcher.leaves();
      },
    };
    const evictor = new Evictor(
      {
        ...{ clock, events, log: new RecordedLog(), pods: () => pods, switcher },
        ender: { end: async (uid) => void done.push(`end ${uid}`) },
        kill: async ({ uid }) => void done.push(`kill ${uid}`),
        release: async () => undefined,
      },
      { maxGracePeriod: millis(7000) },
    );
    const amounts = [30, 20].map((workingSetBytes) => ({ workingSetBytes, swapBytes: 0 }) as Usage);
    const seen = pods.map((pod, index) => ({ pod, path: "", usage: amounts[index], containers: [] }));
    const figures = {
      ...{ observed: { available: 4, capacity: 100 }, disks: undefined },
      usage: { atMs: 0, node: used, allPods: undefined, pods: seen } satisfies NodeUsage,
      layout: { dedicatedImagefs: false, splitContainerfs: false },
    };
    const value = { kind: "quantity", value: 10, text: "10" } as const;
    const relieve = async (signal: EvictionThreshold["signal"] = "memory.available", gracePeriod?: Millis) => {
      const due = { signal, value, gracePeriod, minReclaim: undefined };
      const relieved = evictor.evictOne(due, figures, NEVER);
      await clock.advance(millis(3000));
      assert.equal(await relieved, true);
      return done.splice(0);
    };
    return { relieve, switcher, clock, events, evictor };
  }
  const CHOSEN =
    "choose first: Switched from containers to components. The node was low on resource: memory. Threshold quantity: 10, available: 4.";

  test("is switched, with the figures, in the time that it would have as an evicted one, and evicted the next time", async () => {
    const { relieve, events } = bench();
    const [chosen, left, killed] = await relieve();
    assert.ok(chosen?.startsWith(CHOSEN), chosen);
    assert.deepEqual([left, killed], ["leave first in 1000", "kill first"]);
    assert.ok(
      events.lines.some((line) => line.startsWith("Warning SwitchedToComponent")),
      events.lines.join(),
    );
    assert.deepEqual(await relieve(), ["end first", "kill first"]);
  });

  test("by a soft threshold it is ended, and not killed", async () => {
    const { relieve } = bench();
    assert.deepEqual((await relieve("memory.available", millis(1))).slice(1), ["leave first in 7000"]);
  });

  test("is switched also where it could never be evicted", async () => {
    const { relieve, evictor } = bench("file");
    assert.equal((await relieve())[1], "leave first in 1000");
    assert.deepEqual(await relieve(), ["end second", "kill second"]);
    const value = { kind: "quantity", value: 1, text: "1" } as const;
    const due = { signal: "memory.available", value, gracePeriod: undefined, minReclaim: undefined } as const;
    assert.equal(evictor.canEvict(due), false);
  });

  test("that was switched already leaves what has it still at once, instead of being evicted", async () => {
    const { relieve, switcher } = bench("file");
    Object.assign(switcher, { isDone: true, leaving: "first" });
    assert.deepEqual(await relieve(), ["leave first in 1000", "kill first"]);
    switcher.leaving = "";
    assert.deepEqual(await relieve(), ["end second", "kill second"]);
  });

  test("is evicted for what components would need as well", async () => {
    const { relieve } = bench();
    assert.deepEqual(await relieve("pid.available"), ["end first", "kill first"]);
  });

  test("is evicted when the switch cannot be written down", async () => {
    const { relieve, switcher } = bench();
    switcher.fault = new PicoletError("resource_exhausted", "the disk is full");
    assert.deepEqual(await relieve(), ["end first", "kill first"]);
  });

  test("is left alone while its runtime releases it, for up to half a minute", async () => {
    const { relieve, switcher, clock } = bench();
    switcher.leaves = () => new Promise(() => undefined);
    assert.equal((await relieve())[1], "leave first in 1000");
    // The memory of the killed pod is free by then.
    await clock.advance(millis(12_000));
    assert.deepEqual(await relieve(), ["end second", "kill second"]);
    await clock.advance(millis(30_000));
    assert.deepEqual(await relieve(), ["end first", "kill first"]);
  });
});

test("a kill that takes longer than an eviction may is given up with it, and the agent lives on", async () => {
  const clock = new VirtualClock();
  const log = new RecordedLog();
  const pods = [usagePod("stuck", ["app"])];
  const untilCancelled = (signal: AbortSignal): Promise<never> =>
    new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(new PicoletError("cancelled", "nobody waits any more")), {
        once: true,
      });
    });
  const evictor = new Evictor(
    {
      ...{ clock, events: new RecordedEvents(), log, pods: () => pods },
      ender: { end: (_, __, signal) => untilCancelled(signal) },
      kill: async () => await new Promise<never>(() => undefined),
      release: async () => undefined,
    },
    { maxGracePeriod: undefined },
  );
  const figures = {
    ...{ observed: { available: 0, capacity: 10 }, usage: undefined, disks: undefined },
    layout: { dedicatedImagefs: false, splitContainerfs: false },
  };
  const value = { kind: "quantity", value: 1, text: "1" } as const;
  const due: EvictionThreshold = { signal: "memory.available", value, gracePeriod: undefined, minReclaim: undefined };
  const evicting = evictor.evictOne(due, figures, NEVER);
  await clock.advance(millis(31_000));
  assert.equal(await evicting, true);
  assert.ok(log.problems.includes("an evicted pod has not ended yet"));
});
