import type { Clock } from "@picolet/protocol/ports.ts";
import {
  BOARD_FIGURES,
  FILESYSTEM_FIGURES,
  FILESYSTEMS,
  NODE_FIGURES,
  type SampledContainer,
  type SampledPod,
  type UsageSample,
} from "@picolet/protocol/telemetry/usage-sample.ts";
import type { PodIdentity } from "@picolet/protocol/tunnel/compact-status.ts";

export interface BoardSamplesComponents {
  /** The pods that the API server has bound to a board. A board's figures count for these alone. */
  readonly podsOf: (node: string) => Iterable<PodIdentity>;
  readonly clock: Clock;
}

export interface BoardSamplesInit {
  /** How often boards send one, in seconds. */
  readonly everySeconds: number;
  /** Boards at most; of more, the one that was silent for longest is forgotten. Default: twice a hub's sessions. */
  readonly maxBoards?: number;
}

/** The beginning of a counter, which decides whether two of its values belong together. */
export interface Counter {
  /** Milliseconds of CPU since its beginning. */
  readonly cpuMs: number;
  /** CPU's average in cores since the sample before, or since its beginning; undefined: not known. */
  readonly cores: number | undefined;
  readonly workingSetBytes: number;
}

export interface ContainerUsage extends Counter {
  readonly container: SampledContainer;
}

export interface PodUsage {
  readonly pod: SampledPod;
  /** Undefined: it has no cgroup of its own. */
  readonly usage: Counter | undefined;
  /** Those that run. */
  readonly containers: readonly ContainerUsage[];
}

export interface BoardUsage {
  readonly atMs: number;
  /** The time over which `cores` is an average. */
  readonly windowMs: number;
  /** Undefined: the board did not report CPU and memory. */
  readonly usage: Counter | undefined;
  readonly agentSinceSeconds: number;
  readonly node: UsageSample["node"];
  readonly filesystems: UsageSample["filesystems"];
  readonly board: UsageSample["board"];
  readonly pods: readonly PodUsage[];
}

/** 10,000 sessions, and as many boards that are away. */
const MAX_BOARDS = 20_000;
/** A sample is too old to be shown as the present when two more should have come, with some slack for the way. */
const STALE_INTERVALS = 2;
const STALE_SLACK_MS = 30_000;
/** A board's clock may be ahead by that; a sample that is further ahead is refused. */
export const MAX_AHEAD_MS = 300_000;
/** A counter that began later than this before its first sample gives no average yet, as metrics-server has it. */
const MIN_WINDOW_MS = 10_000;

const KIBIBYTE = 1024;

/** Where a sample came from: sequences count within a queue. */
export interface SamplePlace {
  readonly queue: string;
  readonly sequence: number;
}

/** The counters of one sample, for the average until the next. In the order of `roster`: pod, then its containers. */
interface Counters {
  readonly atMs: number;
  readonly bootId: string;
  readonly nodeCpuMs: number;
  readonly roster: readonly SampledPod[];
  readonly cpuMs: Float64Array;
}

/** One board's newest sample. Figures are in arrays: an object for each would take three times the memory. */
interface Kept extends Counters {
  readonly place: SamplePlace;
  readonly agentSinceSeconds: number;
  /** Figures of the node, its file systems and the board itself, in the order of their tables; NaN: not reported. */
  readonly figures: Float64Array;
  /** KiB, in the order of `cpuMs`. */
  readonly workingSets: Float32Array;
  /** Undefined before the second sample. */
  readonly before: Counters | undefined;
}

const keyOf = ({ namespace, name, uid }: PodIdentity): string => `${namespace}/${name}/${uid}`;

/**
 * The newest sample of each board, in bounded memory. A board's time counts, but never as later than now. A figure of a
 * pod that is not bound to its board is dropped, so that a board can spoil no other's.
 */
export class BoardSamples {
  readonly everySeconds: number;
  readonly #components: BoardSamplesComponents;
  readonly #maxBoards: number;
  /** In the order of their last samples. */
  readonly #boards = new Map<string, Kept>();
  received = 0;
  refused = 0;

  constructor(components: BoardSamplesComponents, { everySeconds, maxBoards = MAX_BOARDS }: BoardSamplesInit) {
    this.#components = components;
    this.everySeconds = everySeconds;
    this.#maxBoards = maxBoards;
  }

  /** Boards of which there is a sample, stale or not. */
  get boards(): number {
    return this.#boards.size;
  }

  get pods(): number {
    let pods = 0;
    for (const { roster } of this.#boards.values()) pods += roster.length;
    return pods;
  }

  /** The last sequence of this queue that came, while the board's newest sample is of it; else 0. */
  sequenceOf(node: string, queue: string): number {
    const place = this.#boards.get(node)?.place;
    return place?.queue === queue ? place.sequence : 0;
  }

  /** @returns the sample as it counts: with its time and its own pods; undefined: it is of the future, and refused */
  put(node: string, sample: UsageSample, place: SamplePlace): UsageSample | undefined {
    const nowMs = this.#components.clock.wall().getTime();
    if (sample.atMs > nowMs + MAX_AHEAD_MS) {
      this.refused += 1;
      return undefined;
    }
    this.received += 1;
    const bound = new Set([...this.#components.podsOf(node)].map(keyOf));
    const own = {
      ...sample,
      atMs: Math.min(sample.atMs, nowMs),
      pods: sample.pods.filter(({ pod }) => bound.has(keyOf(pod))),
    };
    // Samples come in the order in which they were taken, even if the board's clock was set back in between.
    const last = this.#boards.get(node);
    this.#boards.delete(node);
    this.#boards.set(node, keptOf(own, last, place));
    if (this.#boards.size > this.#maxBoards) {
      const [oldest] = this.#boards.keys();
      if (oldest !== undefined) this.#boards.delete(oldest);
    }
    return own;
  }

  /** The Node is no more. */
  forget(node: string): void {
    this.#boards.delete(node);
  }

  /** Undefined: there is none, or it is too old to be the present. */
  usageOf(node: string): BoardUsage | undefined {
    const kept = this.#boards.get(node);
    if (kept === undefined || kept.atMs < this.#freshSince()) return undefined;
    return usageIn(kept);
  }

  /** The usage of all boards whose sample is not too old, in the order in which they came. */
  *all(): Generator<readonly [node: string, usage: BoardUsage]> {
    const since = this.#freshSince();
    for (const [node, kept] of this.#boards) if (kept.atMs >= since) yield [node, usageIn(kept)];
  }

  /** The usage of these boards alone. */
  *of(nodes: Iterable<string>): Generator<readonly [node: string, usage: BoardUsage]> {
    for (const node of nodes) {
      const usage = this.usageOf(node);
      if (usage !== undefined) yield [node, usage];
    }
  }

  #freshSince(): number {
    const age = STALE_INTERVALS * this.everySeconds * 1000 + STALE_SLACK_MS;
    return this.#components.clock.wall().getTime() - age;
  }
}

const ROWS = [NODE_FIGURES, ...FILESYSTEMS.map(() => FILESYSTEM_FIGURES), BOARD_FIGURES] as const;

function keptOf(sample: UsageSample, last: Kept | undefined, place: SamplePlace): Kept {
  const { atMs, bootId, agentSinceSeconds, node, filesystems, board, pods } = sample;
  const rows: readonly Readonly<Record<string, number | undefined>>[] = [
    node,
    ...FILESYSTEMS.map((name) => filesystems[name] ?? {}),
    board,
  ];
  const figures = rows.flatMap((row, index) => (ROWS[index] ?? []).map((name) => row[name] ?? Number.NaN));
  const each = pods.flatMap(({ usage, containers }) => [usage, ...containers]);
  return {
    place,
    atMs,
    bootId,
    agentSinceSeconds,
    nodeCpuMs: node.cpuMs ?? Number.NaN,
    figures: Float64Array.from(figures),
    roster: pods.map(({ pod }) => pod),
    cpuMs: Float64Array.from(each, (usage) => usage?.cpuMs ?? Number.NaN),
    workingSets: Float32Array.from(each, (usage) => (usage?.workingSetBytes ?? Number.NaN) / KIBIBYTE),
    before: last === undefined ? undefined : countersOf(last),
  };
}

/** One sample by itself: without averages. */
export const usageOfSample = (sample: UsageSample): BoardUsage =>
  usageIn(keptOf(sample, undefined, { queue: "", sequence: 0 }));

const countersOf = ({ atMs, bootId, nodeCpuMs, roster, cpuMs }: Kept): Counters => ({
  ...{ atMs, bootId, nodeCpuMs, roster, cpuMs },
});

function usageIn(kept: Kept): BoardUsage {
  const { atMs, bootId, agentSinceSeconds, nodeCpuMs, before } = kept;
  const windowMs = before === undefined ? 0 : atMs - before.atMs;
  const [node = {}, ...others] = figuresIn(kept.figures);
  const board = others.pop() ?? {};
  const entries = FILESYSTEMS.map((name, index) => [name, others[index] ?? {}] as const);
  const nodeBefore = before?.bootId === bootId ? before.nodeCpuMs : Number.NaN;
  const memory = (node as UsageSample["node"]).workingSetBytes;
  const hasUsage = !Number.isNaN(nodeCpuMs) && memory !== undefined;
  const cores = coresOf(nodeCpuMs - nodeBefore, windowMs);
  return {
    ...{ atMs, windowMs, agentSinceSeconds, node, board },
    usage: hasUsage ? { cpuMs: nodeCpuMs, cores, workingSetBytes: memory } : undefined,
    filesystems: Object.fromEntries(entries.filter(([, figures]) => Object.keys(figures).length > 0)),
    pods: podsIn(kept, windowMs),
  };
}

function figuresIn(figures: Float64Array): Record<string, number>[] {
  let at = 0;
  return ROWS.map((names) => {
    const values = figures.subarray(at, at + names.length);
    at += names.length;
    const entries = names.map((name, index): [string, number] => [name, values[index] ?? Number.NaN]);
    return Object.fromEntries(entries.filter(([, value]) => !Number.isNaN(value)));
  });
}

function podsIn(kept: Kept, windowMs: number): PodUsage[] {
  const previous = previousCounters(kept.before);
  const { roster, cpuMs, workingSets, atMs } = kept;
  let at = 0;
  const next = (key: string, sinceSeconds: number): Counter | undefined => {
    const [cpu = Number.NaN, memory = Number.NaN] = [cpuMs[at], workingSets[at]];
    at += 1;
    if (Number.isNaN(cpu)) return undefined;
    const known = previous.get(key);
    const ageMs = sinceSeconds === 0 ? 0 : atMs - sinceSeconds * 1000;
    const cores =
      known !== undefined ? coresOf(cpu - known, windowMs) : ageMs >= MIN_WINDOW_MS ? coresOf(cpu, ageMs) : undefined;
    return { cpuMs: cpu, cores, workingSetBytes: Math.round(memory * KIBIBYTE) };
  };
  return roster.map((pod) => {
    const key = keyOf(pod);
    const usage = next(`${key} ${pod.sinceSeconds}`, pod.sinceSeconds);
    const containers = pod.containers.flatMap((container) => {
      const used = next(`${key} ${container.name} ${container.sinceSeconds}`, container.sinceSeconds);
      return used === undefined ? [] : [{ ...used, container }];
    });
    return { pod, usage, containers };
  });
}

/** By pod, container and beginning: a counter that began again is another one. */
function previousCounters(before: Counters | undefined): ReadonlyMap<string, number> {
  const counters = new Map<string, number>();
  if (before === undefined) return counters;
  let at = 0;
  const add = (key: string): void => {
    const value = before.cpuMs[at] ?? Number.NaN;
    if (!Number.isNaN(value)) counters.set(key, value);
    at += 1;
  };
  for (const pod of before.roster) {
    add(`${keyOf(pod)} ${pod.sinceSeconds}`);
    for (const { name, sinceSeconds } of pod.containers) add(`${keyOf(pod)} ${name} ${sinceSeconds}`);
  }
  return counters;
}

/** A counter that goes back without another beginning gives no average. */
function coresOf(usedMs: number, windowMs: number): number | undefined {
  return usedMs >= 0 && windowMs > 0 ? usedMs / windowMs : undefined;
}
