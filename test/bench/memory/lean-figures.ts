/**
 * The cost of an agent with a hub while nothing happens, by figures that do not change on a busy machine: memory,
 * bytes, wakeups, system calls. Run by itself, `node test/bench/memory/lean-figures.ts [pods]` prints each period;
 * build the programs first.
 *
 * A period goes from one heartbeat to the next. Each figure is the least of several periods: a garbage collection in
 * one of them (400 wakeups, 5,000 reads and writes) is not in it, a permanent cost is in each. Two agents rest at the
 * same time, one of them with a tracer; memory is the lesser of theirs, because a grown heap differs by 0.5 MiB from
 * start to start.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { Containerd } from "../../support/containerd/containerd.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import type { LinkProxy } from "../../support/unit/tunnel/link-proxy.ts";
import { JoinedBoard } from "../hub/tunnel-figures.ts";
import {
  memoryOf,
  readsAndWritesOf,
  round,
  straceTotals,
  wakeupsOf,
  writtenBytesOf,
} from "../measure/process-usage.ts";
import { Inspector, inspectable } from "./inspector.ts";
import { mappedMemoryOf } from "./smaps.ts";

/** All but memory: of one period. */
export interface LeanFigures {
  readonly anonMiB: number;
  readonly rssMiB: number;
  /**
   * `rssMiB` without pages of Node's own file: of these the page cache decides how many are mapped, 40 MiB after a
   * first read and 58 when other processes have run the same file for long.
   */
  readonly besideNodeMiB: number;
  /** Live objects in V8's heap right after a collection: the steady part of `anonMiB`. */
  readonly liveHeapMiB: number;
  /** The part of `anonMiB` outside V8's heap: malloc, stacks, data of libraries. */
  readonly outsideHeapMiB: number;
  /**
   * Payload of TCP in both directions: a heartbeat, its answer, their TLS records. Acknowledgements come as they like.
   */
  readonly wireBytes: number;
  /** To the disk. */
  readonly writtenBytes: number;
  /** Wakeups of all threads. */
  readonly wakeups: number;
  /** System calls that read or write anything but a socket's messages. */
  readonly readsAndWrites: number;
  /** System calls of every kind, as strace counts them. */
  readonly systemCalls: number;
}

/** The agent sends a heartbeat every 30 s; what comes sooner or later is no heartbeat of an agent at rest. */
const LEAST_PERIOD_MS = 27_000;
const LONGEST_PERIOD_MS = 33_000;
/** An agent that is still not at rest then never is. */
const REST_LIMIT_MS = 300_000;
/** After a heartbeat's first piece: by then its answer is here. */
const ANSWER_MS = 1000;
/**
 * The time from ready pods to the first period, for the agent's first garbage collection and the compiling after it.
 */
const SETTLE_MS = 20_000;

/** A collection each period ages code as the agent's own collections at rest do. */
const MORE_COLLECTIONS = 2;

export interface LeanOptions {
  readonly pods: number;
  readonly maxPeriods: number;
  /** No more periods are needed. Asked after each. */
  readonly isEnough: (figures: Partial<LeanFigures>) => boolean;
  readonly onPeriod?: (period: Partial<LeanFigures>) => void;
}

/** Starts, rests and ends. */
export async function leanFigures(options: LeanOptions): Promise<LeanFigures> {
  await using agent = await LeanAgent.start(options.pods);
  return await agent.rest(options);
}

interface ReadyBoard {
  readonly joined: JoinedBoard;
  readonly readyAt: number;
}

/** Two agents, each with a hub and a containerd of its own: an agent follows all that goes on in its own. */
export class LeanAgent implements AsyncDisposable {
  readonly #untraced: ReadyBoard;
  readonly #traced: ReadyBoard;
  readonly #started: AsyncDisposableStack;

  private constructor(untraced: ReadyBoard, traced: ReadyBoard, started: AsyncDisposableStack) {
    this.#untraced = untraced;
    this.#traced = traced;
    this.#started = started;
  }

  static async start(pods: number): Promise<LeanAgent> {
    await using started = new AsyncDisposableStack();
    const board = async (): Promise<ReadyBoard> => {
      const containerd = started.use(await Containerd.start());
      const joined = started.use(await inspectable(() => JoinedBoard.start(containerd, {}, true)));
      await joined.createPods(pods);
      return { joined, readyAt: performance.now() };
    };
    const untraced = await board();
    return new LeanAgent(untraced, await board(), started.move());
  }

  async rest({ maxPeriods, isEnough, onPeriod }: Omit<LeanOptions, "pods">): Promise<LeanFigures> {
    const periodsOf = async ({ joined, readyAt }: ReadyBoard): Promise<Periods> => {
      const periods = new Periods(joined);
      await periods.begin(readyAt + SETTLE_MS);
      return periods;
    };
    const [untraced, traced] = await Promise.all([periodsOf(this.#untraced), periodsOf(this.#traced)]);
    let least: Partial<LeanFigures> = {};
    for (let count = 0; count < maxPeriods; count += 1) {
      for (const period of await Promise.all([untraced.untraced(), traced.traced()])) {
        onPeriod?.(period);
        least = leastOf(least, period);
      }
      if (isEnough(least)) break;
    }
    let live = await this.#liveHeap(onPeriod);
    // Code that ran before the first collection may still be compiled; at rest, too, several collections follow.
    for (let more = 0; more < MORE_COLLECTIONS && !isEnough({ ...least, ...live }); more += 1) {
      await Promise.all([untraced.untraced(), traced.untraced()]);
      live = leastOf(live, await this.#liveHeap(onPeriod)) as LiveHeap;
    }
    return { ...(least as Untraced & Traced), ...live };
  }

  async #liveHeap(onPeriod: LeanOptions["onPeriod"]): Promise<LiveHeap> {
    const live = [this.#untraced, this.#traced].map(({ joined: { node } }) => liveHeapMiB(node));
    const least = { liveHeapMiB: Math.min(...(await Promise.all(live))) };
    onPeriod?.(least);
    return least;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#started.defer(async () => {
      await Promise.all([this.#untraced, this.#traced].map(({ joined }) => joined.drain()));
    });
    await this.#started.disposeAsync();
  }
}

function leastOf(one: Partial<LeanFigures>, other: Partial<LeanFigures>): Partial<LeanFigures> {
  const least: Record<string, number> = { ...one };
  for (const [name, value] of Object.entries(other)) least[name] = Math.min(value, least[name] ?? value);
  return least;
}

type Memory = Pick<LeanFigures, "anonMiB" | "rssMiB" | "besideNodeMiB" | "outsideHeapMiB">;
type Traced = Memory & Pick<LeanFigures, "systemCalls">;
type LiveHeap = Pick<LeanFigures, "liveHeapMiB">;
type Untraced = Omit<LeanFigures, "systemCalls" | keyof LiveHeap>;

/** At last, as the inspector takes memory itself. */
export async function liveHeapMiB(node: AgentNode): Promise<number> {
  using inspector = await Inspector.open(node.pid, () => node.log);
  return round((await inspector.evaluate<number>(LIVE_HEAP)) / MEBIBYTE);
}

/** One collection: two in a row would throw away the code that runs once in a while. */
const LIVE_HEAP = `gc(), process.getBuiltinModule("v8").getHeapStatistics().used_heap_size`;

function memoryFigures(pid: number): Memory {
  const { rssMiB, anonMiB } = memoryOf(pid);
  const { anonKiB, filesKiB } = mappedMemoryOf(pid);
  const { "V8 heap": _, "V8 code": __, ...others } = anonKiB;
  return {
    ...{ anonMiB, rssMiB },
    besideNodeMiB: round(rssMiB - (filesKiB.node ?? 0) / KIBIBYTE),
    outsideHeapMiB: round(Object.values(others).reduce((sum, kib) => sum + kib, 0) / KIBIBYTE),
  };
}

/** One after the other, each from the end of a heartbeat to the end of the next. */
class Periods {
  readonly #pid: number;
  readonly #proxy: LinkProxy;
  #beatAt = 0;

  constructor({ node, proxy }: JoinedBoard) {
    this.#pid = node.pid;
    this.#proxy = proxy;
  }

  /** Waits for the first heartbeat after `notBefore`. */
  async begin(notBefore: number): Promise<void> {
    do await this.#traffic();
    while (this.#beatAt < notBefore);
  }

  async untraced(): Promise<Untraced> {
    return await this.#calm(async () => {
      const before = this.#counts();
      const isCalm = await this.#traffic();
      const after = this.#counts();
      return {
        isCalm,
        figures: {
          ...memoryFigures(this.#pid),
          wireBytes: after.wireBytes - before.wireBytes,
          writtenBytes: after.writtenBytes - before.writtenBytes,
          wakeups: after.wakeups - before.wakeups,
          readsAndWrites: after.readsAndWrites - before.readsAndWrites,
        },
      };
    });
  }

  /** A tracer wakes the threads up itself, so that nothing else is counted but what takes no time. */
  async traced(): Promise<Traced> {
    return await this.#calm(async () => {
      using folder = new TempFolder();
      const output = folder.at("calls");
      const tracer = spawn("strace", ["-f", "-c", "-o", output, "-p", String(this.#pid)], { stdio: "ignore" });
      await once(tracer, "spawn");
      const isCalm = await this.#traffic();
      tracer.kill("SIGINT");
      if (tracer.exitCode === null && tracer.signalCode === null) await once(tracer, "exit");
      return {
        isCalm,
        figures: { ...memoryFigures(this.#pid), systemCalls: totalOf(readFileSync(output, "utf8")) },
      };
    });
  }

  /** The first period in which nothing but a heartbeat went through the tunnel. */
  async #calm<T>(take: () => Promise<{ readonly isCalm: boolean; readonly figures: T }>): Promise<T> {
    const limit = performance.now() + REST_LIMIT_MS;
    for (;;) {
      const { isCalm, figures } = await take();
      if (isCalm) return figures;
      if (performance.now() > limit) throw new Error("the tunnel never had nothing but heartbeats in it");
    }
  }

  /** Resolves when what goes through the tunnel next has gone. @returns whether it came as a heartbeat does */
  async #traffic(): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#proxy.onForwarded = () => resolve();
    await Promise.race([promise, delay(REST_LIMIT_MS, undefined, { ref: false })]);
    this.#proxy.onForwarded = () => undefined;
    const now = performance.now();
    const period = now - this.#beatAt;
    this.#beatAt = now;
    await delay(ANSWER_MS);
    return period >= LEAST_PERIOD_MS && period <= LONGEST_PERIOD_MS;
  }

  #counts(): Pick<LeanFigures, "wireBytes" | "writtenBytes" | "wakeups" | "readsAndWrites"> {
    const { up, down } = this.#proxy.bytes;
    const pid = this.#pid;
    return {
      wireBytes: up + down,
      writtenBytes: writtenBytesOf(pid),
      wakeups: wakeupsOf(pid),
      readsAndWrites: readsAndWritesOf(pid),
    };
  }
}

function totalOf(summary: string): number {
  const calls = straceTotals(summary).get("total");
  if (calls === undefined) throw new Error(`strace has counted nothing: ${summary}`);
  return calls;
}

if (import.meta.main) {
  const pods = Number(process.argv[2] ?? 0);
  const onPeriod = (period: object): void => console.error(JSON.stringify(period));
  const figures = await leanFigures({
    pods,
    maxPeriods: Number(process.argv[3] ?? 4),
    isEnough: () => false,
    onPeriod,
  });
  console.log(JSON.stringify(figures));
}
