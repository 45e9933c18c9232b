/**
 * How long a leaking pod lives after the node's pods have crossed the threshold, who ends it, and the cost of the
 * agent's memory watch. Run by itself, `node test/bench/eviction/eviction-figures.ts [--quick]` prints the figures;
 * build the programs first.
 */
import { once } from "node:events";
import { Containerd } from "../../support/containerd/containerd.ts";
import { forkWithAgentFlags, messageOf } from "../agent/agent-fork.ts";
import { mapValues, percentile, round, type Spreads, spreadOf } from "../measure/process-usage.ts";
import { step } from "../measure/progress.ts";
import type { WatchAnswer, WatchOrder } from "./eviction-watch-main.ts";
import { type Leak, LeakBoard } from "./leak-board.ts";

export interface EvictionFigures {
  /** The pod that leaks takes so much a second; beside it others rest, one of them with half of what all may have. */
  readonly leakMiBPerSecond: number;
  readonly evictions: number;
  /** The kernel was there before the agent. */
  readonly oomKills: number;
  /** Others that did not live through it; to be 0. */
  readonly othersLost: number;
  /** From the crossing, as a process apart sees it, until no process of the pod is left. Of those that were evicted. */
  readonly crossingToKillMs: Quantiles;
  /** Beyond the threshold, which is 100 MiB from the limit of all pods. */
  readonly overshootMiB: Quantiles;
  readonly fastLeaks: Readonly<Record<string, FastLeakFigures>>;
  /** Percent of one core: the cost of sampling memory while there is plenty of it. */
  readonly idleWatchCpuPercent: number;
  /** The same 200 MiB away from the threshold, as a board of 512 MiB is at rest. */
  readonly smallBoardWatchCpuPercent: number;
  /** The same with next to nothing left. */
  readonly alertWatchCpuPercent: number;
  /** Over five measurements. */
  readonly spread: Spreads;
}

interface Quantiles {
  readonly min: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** By MiB a second. */
interface FastLeakFigures {
  readonly evictions: number;
  readonly oomKills: number;
  readonly othersLost: number;
  readonly crossingToKillMs: Quantiles | null;
  readonly overshootMiB: Quantiles;
}

const LEAK_RATE = 100;
const FAST_RATES = [300, 1000];

export async function evictionFigures(containerd: Containerd, { quick }: { quick: boolean }): Promise<EvictionFigures> {
  await using board = await LeakBoard.start(containerd);
  const usual = await step(`pods that leak ${LEAK_RATE} MiB a second`, () => leaks(board, LEAK_RATE, quick ? 10 : 20));
  const fast: Record<string, FastLeakFigures> = {};
  for (const rate of FAST_RATES) {
    const ended = await step(`pods that leak ${rate} MiB a second`, () => leaks(board, rate, quick ? 3 : 8));
    fast[rate] = figuresOf(ended);
  }
  const watch = await step("the watch of memory", () => watchCosts({ podsCgroup: board.podsCgroup }));
  const watchSamples = {
    idleWatchCpuPercent: watch.idlePercent,
    smallBoardWatchCpuPercent: watch.smallBoardPercent,
    alertWatchCpuPercent: watch.alertPercent,
  };
  const { crossingToKillMs, ...rest } = figuresOf(usual);
  if (crossingToKillMs === null) throw new Error("no pod that leaked was evicted");
  return {
    leakMiBPerSecond: LEAK_RATE,
    ...rest,
    crossingToKillMs,
    fastLeaks: fast,
    ...mapValues(watchSamples, (samples) => round(percentile(samples, 0.5))),
    spread: mapValues(watchSamples, spreadOf),
  };
}

async function leaks(board: LeakBoard, mibPerSecond: number, count: number): Promise<Leak[]> {
  const ended: Leak[] = [];
  for (let index = 0; index < count; index += 1) ended.push(await board.leak(mibPerSecond));
  return ended;
}

function figuresOf(ended: readonly Leak[]): FastLeakFigures {
  const evicted = ended.filter(({ how }) => how === "evicted");
  const times = evicted.flatMap(({ crossingToGoneMs }) => crossingToGoneMs ?? []);
  return {
    evictions: evicted.length,
    oomKills: ended.length - evicted.length,
    othersLost: Math.max(...ended.map(({ lost }) => lost.length)),
    crossingToKillMs: times.length === 0 ? null : quantiles(times),
    overshootMiB: quantiles(ended.map(({ overshootMiB }) => overshootMiB)),
  };
}

const quantiles = (values: readonly number[]): Quantiles => ({
  min: round(percentile(values, 0)),
  p50: round(percentile(values, 0.5)),
  p99: round(percentile(values, 0.99)),
  max: round(percentile(values, 1)),
});

async function watchCosts(order: WatchOrder): Promise<WatchAnswer> {
  const child = forkWithAgentFlags(new URL("eviction-watch-main.ts", import.meta.url));
  child.send(order);
  const answer = await messageOf<WatchAnswer>(child);
  if (child.exitCode === null) await once(child, "exit");
  return answer;
}

if (import.meta.main) {
  await using containerd = await Containerd.start();
  const figures = await evictionFigures(containerd, { quick: process.argv.includes("--quick") });
  console.log(JSON.stringify(figures, undefined, 2));
}
