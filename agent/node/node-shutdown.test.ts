import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { PodEnd } from "../core/pods/pod-admission.ts";
import type { ShutdownPeriod } from "../plan/node/shutdown-groups.ts";
import { NodeShutdown } from "./node-shutdown.ts";

const PERIODS: readonly ShutdownPeriod[] = [
  { priority: 0, period: seconds(20) },
  { priority: 2_000_000_000, period: seconds(10) },
];

/** Pods take as long to end as they are given here; `undefined`: for ever. */
class Board {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly calls: string[] = [];
  readonly hows: PodEnd[] = [];
  revived = 0;
  readonly shutdown: NodeShutdown;

  /** @param statusesDelivered missing: there is no hub */
  constructor(
    pods: readonly (readonly [pod: DesiredPod, lasts: number | undefined])[],
    periods = PERIODS,
    statusesDelivered?: (clock: VirtualClock, signal: AbortSignal) => Promise<void>,
  ) {
    const lasts = new Map(pods.map(([{ uid }, each]) => [uid, each]));
    this.shutdown = new NodeShutdown(
      {
        ender: () => ({
          end: async (uid, how, signal) => {
            this.calls.push(`${this.#now()} ${uid} has ${(how.gracePeriod ?? -1000) / 1000}`);
            this.hows.push(how);
            const took = lasts.get(uid);
            await this.clock.sleep(millis(took === undefined ? 1e9 : took * 1000), signal);
            this.calls.push(`${this.#now()} ${uid} ended`);
          },
        }),
        pods: () => pods.map(([pod]) => pod),
        revive: () => {
          this.revived += 1;
        },
        statusesDelivered: statusesDelivered && ((signal) => statusesDelivered(this.clock, signal)),
        events: this.events,
        clock: this.clock,
        log: this.log,
      },
      { nodeName: "node", periods },
    );
  }

  begin(period?: Millis): Promise<void> {
    return this.shutdown.begin("test", period).then(() => {
      this.calls.push(`${this.#now()} done`);
    });
  }

  #now(): number {
    return this.clock.monotonic() / 1000;
  }
}

const pod = (name: string, priority?: number, grace = 30): DesiredPod =>
  desired(podOf({ priority, terminationGracePeriodSeconds: grace }, { name }), name);

test("pods end in the order of their priority, each with what is shorter: its own time or its group's", async () => {
  const board = new Board([
    [pod("critical", 2_000_000_001), 4],
    [pod("slow"), 15],
    [pod("quick", undefined, 5), 1],
  ]);
  const begun = board.begin();
  await board.clock.advance(seconds(60));
  await begun;
  assert.deepEqual(board.calls, [
    "0 slow has 20",
    "0 quick has 5",
    "1 quick ended",
    "15 slow ended",
    "15 critical has 10",
    "19 critical ended",
    "19 done",
  ]);
  assert.deepEqual(board.hows[0], {
    reason: "Terminated",
    message: "Pod was terminated in response to imminent node shutdown.",
    gracePeriod: seconds(20),
    disruption: {
      reason: "TerminationByKubelet",
      message: "Pod was terminated in response to imminent node shutdown.",
    },
    decision: { kind: "shutDown", figures: { graceMs: 20_000 } },
  });
  assert.deepEqual(board.events.lines, ["Normal NodeShutdown: Shutdown manager detected shutdown event"]);
  assert.equal(board.shutdown.state.current.kind, "ended");
});

test("one that does not end holds up neither the next group nor the end", async () => {
  const board = new Board([
    [pod("deaf"), undefined],
    [pod("critical", 2_000_000_001), undefined],
  ]);
  const begun = board.begin();
  await board.clock.advance(seconds(60));
  await begun;
  assert.deepEqual(board.calls, ["0 deaf has 20", "20 critical has 10", "30 done"]);
  await board.shutdown[Symbol.asyncDispose]();
});

const NEVER_DELIVERED = 1e9;
const deliveries: readonly [name: string, lasts: number, deliveredInMs: number, done: number, problems: number][] = [
  ["the hub has them", 4, 300, 4.3, 0],
  ["two seconds at most", 4, NEVER_DELIVERED, 6, 1],
  ["no longer than the whole shutdown may take", 29, NEVER_DELIVERED, 30, 1],
  ["not at all when its time is over", NEVER_DELIVERED, NEVER_DELIVERED, 30, 1],
];

for (const [name, lasts, deliveredInMs, done, problems] of deliveries) {
  test(`a shutdown waits for the last statuses: ${name}`, async () => {
    const periods = [{ priority: 0, period: seconds(30) }];
    const delivered = (clock: VirtualClock, signal: AbortSignal) => clock.sleep(millis(deliveredInMs), signal);
    const board = new Board([[pod("web", 0, 60), lasts]], periods, delivered);
    const begun = board.begin();
    await board.clock.advance(seconds(60));
    await begun;
    assert.equal(board.calls.at(-1), `${done} done`);
    assert.equal(board.log.problems.length, problems);
    await board.shutdown[Symbol.asyncDispose]();
  });
}

test("a shutdown that is cancelled waits for no status", async () => {
  const delivered = (clock: VirtualClock, signal: AbortSignal) => clock.sleep(millis(NEVER_DELIVERED), signal);
  const board = new Board([[pod("web"), 4]], PERIODS, delivered);
  const begun = board.begin();
  await board.clock.advance(seconds(5));
  await board.shutdown.cancel();
  await begun;
  assert.deepEqual([board.calls.at(-1), board.log.problems], ["5 done", []]);
});

test("asked twice it waits for the same end", async () => {
  const board = new Board([[pod("slow"), 10]]);
  const both = Promise.all([board.begin(), board.begin()]);
  await board.clock.advance(seconds(60));
  await both;
  assert.deepEqual(board.calls, ["0 slow has 20", "10 slow ended", "10 done", "10 done"]);
});

test("a shutdown that is cancelled goes no further; the node comes back, and can go down again", async () => {
  const board = new Board([
    [pod("slow"), 10],
    [pod("critical", 2_000_000_001), 1],
  ]);
  const begun = board.begin();
  await board.clock.advance(seconds(2));
  assert.equal(board.shutdown.isShuttingDown, true);
  await Promise.all([board.shutdown.cancel(), begun]);
  assert.equal(board.shutdown.isShuttingDown, false);
  assert.equal(board.revived, 1);
  await board.clock.advance(seconds(60));
  assert.deepEqual(board.calls, ["0 slow has 20", "2 done", "10 slow ended"]);
  assert.deepEqual(board.events.lines, [
    "Normal NodeShutdown: Shutdown manager detected shutdown event",
    "Normal NodeShutdown: Shutdown manager detected shutdown cancellation",
  ]);
  const again = board.begin();
  await board.clock.advance(seconds(60));
  await again;
  assert.equal(board.calls.at(-1), "73 done");
});

test("a cancellation of nothing is nothing", async () => {
  const board = new Board([]);
  await board.shutdown.cancel();
  assert.equal(board.revived, 0);
  assert.deepEqual(board.events.lines, []);
});

test("without a time for it there is no graceful shutdown", async () => {
  const board = new Board([[pod("web"), 1]], []);
  await assert.rejects(board.begin(), (error) => isPicoletError(error, "conflict"));
  assert.equal(board.shutdown.isShuttingDown, false);
  assert.deepEqual(board.calls, []);
});

test("a time that is given counts in place of the configured one, for critical pods after the others", async () => {
  for (const periods of [[], PERIODS]) {
    const board = new Board(
      [
        [pod("critical", 2_000_000_001), 4],
        [pod("web", undefined, 300), undefined],
      ],
      periods,
    );
    const begun = board.begin(seconds(60));
    await board.clock.advance(seconds(120));
    await begun;
    assert.deepEqual(board.calls, ["0 web has 60", "60 critical has 30", "64 critical ended", "64 done"]);
  }
});
