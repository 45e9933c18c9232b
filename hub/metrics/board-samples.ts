import type { Clock } from "@picolet/protocol/ports.ts";
import {
  BOARD_FIGURES,
  type CpuAndMemory,
  FILESYSTEM_FIGURES,
  FILESYSTEMS,
  NODE_FIGURES,
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
  readonly name: string;
  /** Seconds since 1970. */
  readonly sinceSeconds: number;
}

export interface PodUsage {
  readonly pod: PodIdentity;
  /** Seconds since 1970; 0: not known. */
  readonly sinceSeconds: number;
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
  /** Made when it is first read. */
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

/** Bounds names of a hostile fleet; real ones have a few dozen. */
const MAX_SHARED_NAMES = 4096;

/** Where a sample came from: sequences count within a queue. */
export interface SamplePlace {
  readonly queue: string;
  readonly sequence: number;
}

/**
 * One board's newest sample, in one array of numbers: an object for each figure would take ten times the memory. Texts
 * are those of the hub's cache of pods, or shared between boards.
 */
interface Kept {
  readonly place: SamplePlace;
  readonly atMs: number;
  /** Since the sample before; 0: there was none. */
  readonly windowMs: number;
  readonly agentSinceSeconds: number;
  readonly bootId: string;
  /** The figures of `ROWS`, NaN where there is none, then for each pod a row of `POD`, and its containers' of `USED`. */
  readonly values: Float64Array;
  readonly uids: readonly string[];
  /** Names of containers, pod after pod. */
  readonly names: readonly string[];
}

/** CPU's milliseconds now and in the sample before, the working set in bytes, the beginning in seconds; NaN: none. */
const USED = 4;
/** As `USED`, and the number of containers. */
const POD = USED + 1;

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
  /** Names of containers, which the pods of a fleet have in common. */
  readonly #names = new Map<string, string>();
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
    for (const { uids } of this.#boards.values()) pods += uids.length;
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
    const bound = new Map([...this.#components.podsOf(node)].map((pod) => [keyOf(pod), pod.uid]));
    const own = {
      ...sample,
      atMs: Math.min(sample.atMs, nowMs),
      pods: sample.pods.filter(({ pod }) => bound.has(keyOf(pod))),
    };
    const uids = own.pods.map(({ pod }) => bound.get(keyOf(pod)) ?? pod.uid);
    // Samples come in the order in which they were taken, even if the board's clock was set back in between.
    const last = this.#boards.get(node);
    this.#boards.delete(node);
    this.#boards.set(node, keptOf(own, { last, place, uids, shared: (name) => this.#shared(name) }));
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
    return usageIn(kept, () => this.#components.podsOf(node));
  }

  /** The usage of all boards whose sample is not too old, in the order in which they came. */
  *all(): Generator<readonly [node: string, usage: BoardUsage]> {
    const since = this.#freshSince();
    for (const [node, kept] of this.#boards) {
      if (kept.atMs >= since) yield [node, usageIn(kept, () => this.#components.podsOf(node))];
    }
  }

  /** The usage of these boards alone. */
  *of(nodes: Iterable<string>): Generator<readonly [node: string, usage: BoardUsage]> {
    for (const node of nodes) {
      const usage = this.usageOf(node);
      if (usage !== undefined) yield [node, usage];
    }
  }

  /** The same text for a name that other boards have too. */
  #shared(name: string): string {
    const known = this.#names.get(name);
    if (known !== undefined) return known;
    if (this.#names.size >= MAX_SHARED_NAMES) this.#names.clear();
    this.#names.set(name, name);
    return name;
  }

  #freshSince(): number {
    const age = STALE_INTERVALS * this.everySeconds * 1000 + STALE_SLACK_MS;
    return this.#components.clock.wall().getTime() - age;
  }
}

const ROWS = [NODE_FIGURES, ...FILESYSTEMS.map(() => FILESYSTEM_FIGURES), BOARD_FIGURES] as const;
const FIGURES = ROWS.reduce((sum, names) => sum + names.length, 0);
/** The place of the node's CPU in the sample before, behind the figures. */
const NODE_CPU_BEFORE = FIGURES;
const PODS_AT = FIGURES + 1;

interface Keeping {
  readonly last: Kept | undefined;
  readonly place: SamplePlace;
  /** UIDs of the sample's pods. */
  readonly uids: readonly string[];
  readonly shared: (name: string) => string;
}

function keptOf(sample: UsageSample, { last, place, uids, shared }: Keeping): Kept {
  const { atMs, bootId, agentSinceSeconds, node, filesystems, board, pods } = sample;
  const rows: readonly Readonly<Record<string, number | undefined>>[] = [
    node,
    ...FILESYSTEMS.map((name) => filesystems[name] ?? {}),
    board,
  ];
  const figures = rows.flatMap((row, index) => (ROWS[index] ?? []).map((name) => row[name] ?? Number.NaN));
  const nodeBefore = last?.bootId === bootId ? (last.values[NODES_CPU] ?? Number.NaN) : Number.NaN;
  const before = last === undefined ? new Map<string, number>() : countersIn(last);
  const used = (usage: CpuAndMemory | undefined, sinceSeconds: number, key: string): number[] => [
    usage?.cpuMs ?? Number.NaN,
    before.get(key) ?? Number.NaN,
    usage?.workingSetBytes ?? Number.NaN,
    sinceSeconds,
  ];
  const podRows = pods.flatMap(({ pod, usage, containers }) => [
    ...used(usage, pod.sinceSeconds, counterKey(pod.uid, "", pod.sinceSeconds)),
    pod.containers.length,
    ...pod.containers.flatMap(({ name, sinceSeconds }, index) =>
      used(containers[index], sinceSeconds, counterKey(pod.uid, name, sinceSeconds)),
    ),
  ]);
  return {
    ...{ place, atMs, agentSinceSeconds, uids },
    windowMs: last === undefined ? 0 : atMs - last.atMs,
    bootId: last?.bootId === bootId ? last.bootId : bootId,
    values: Float64Array.from([...figures, nodeBefore, ...podRows]),
    names: pods.flatMap(({ pod }) => pod.containers.map(({ name }) => shared(name))),
  };
}

/** The place of the node's CPU among the figures. */
const NODES_CPU = NODE_FIGURES.indexOf("cpuMs");

/** A counter that began again is another one. */
const counterKey = (uid: string, container: string, sinceSeconds: number): string =>
  `${uid} ${container} ${sinceSeconds}`;

/** One sample by itself: without averages. */
export function usageOfSample(sample: UsageSample): BoardUsage {
  const uids = sample.pods.map(({ pod }) => pod.uid);
  const place = { queue: "", sequence: 0 };
  const kept = keptOf(sample, { last: undefined, place, uids, shared: (name) => name });
  return usageIn(kept, () => sample.pods.map(({ pod }) => pod));
}

/** A row of a pod or a container, with its place in the values. */
function* rowsIn({ values, uids, names }: Kept): Generator<{
  readonly uid: string;
  /** Undefined: the pod's own. */
  readonly container: string | undefined;
  readonly row: Float64Array;
}> {
  let at = PODS_AT;
  let named = 0;
  for (const uid of uids) {
    const row = values.subarray(at, at + POD);
    yield { uid, container: undefined, row };
    at += POD;
    for (let left = row[USED] ?? 0; left > 0; left -= 1) {
      yield { uid, container: names[named] ?? "", row: values.subarray(at, at + USED) };
      named += 1;
      at += USED;
    }
  }
}

function countersIn(kept: Kept): ReadonlyMap<string, number> {
  const counters = new Map<string, number>();
  for (const { uid, container = "", row } of rowsIn(kept)) {
    const [cpuMs = Number.NaN, , , since = 0] = row;
    if (!Number.isNaN(cpuMs)) counters.set(counterKey(uid, container, since), cpuMs);
  }
  return counters;
}

/** @param bound the pods that are the board's now */
function usageIn(kept: Kept, bound: () => Iterable<PodIdentity>): BoardUsage {
  let pods: PodUsage[] | undefined;
  const { atMs, agentSinceSeconds, windowMs, values } = kept;
  const [node = {}, ...others] = figuresIn(values);
  const board = others.pop() ?? {};
  const entries = FILESYSTEMS.map((name, index) => [name, others[index] ?? {}] as const);
  const { cpuMs, workingSetBytes } = node as UsageSample["node"];
  const cores = coresOf((cpuMs ?? 0) - (values[NODE_CPU_BEFORE] ?? Number.NaN), windowMs);
  const hasUsage = cpuMs !== undefined && workingSetBytes !== undefined;
  return {
    ...{ atMs, windowMs, agentSinceSeconds, node, board },
    usage: hasUsage ? { cpuMs, cores, workingSetBytes } : undefined,
    filesystems: Object.fromEntries(entries.filter(([, figures]) => Object.keys(figures).length > 0)),
    get pods() {
      pods ??= podsIn(kept, bound());
      return pods;
    },
  };
}

function figuresIn(values: Float64Array): Record<string, number>[] {
  let at = 0;
  return ROWS.map((names) => {
    const figures: Record<string, number> = {};
    for (const name of names) {
      const value = values[at] ?? Number.NaN;
      if (!Number.isNaN(value)) figures[name] = value;
      at += 1;
    }
    return figures;
  });
}

function podsIn(kept: Kept, bound: Iterable<PodIdentity>): PodUsage[] {
  const identities = new Map([...bound].map((pod) => [pod.uid, pod]));
  const pods: { pod: PodIdentity; sinceSeconds: number; usage: Counter | undefined; containers: ContainerUsage[] }[] =
    [];
  let containers: ContainerUsage[] | undefined;
  for (const { uid, container, row } of rowsIn(kept)) {
    const sinceSeconds = row[USED - 1] ?? 0;
    const usage = counterIn(row, kept);
    if (container === undefined) {
      const pod = identities.get(uid);
      containers = pod === undefined ? undefined : [];
      if (pod !== undefined && containers !== undefined) pods.push({ pod, sinceSeconds, usage, containers });
    } else if (usage !== undefined) containers?.push({ ...usage, name: container, sinceSeconds });
  }
  return pods;
}

function counterIn(row: Float64Array, { atMs, windowMs }: Kept): Counter | undefined {
  const [cpuMs = Number.NaN, before = Number.NaN, workingSetBytes = 0, sinceSeconds = 0] = row;
  if (Number.isNaN(cpuMs)) return undefined;
  const ageMs = sinceSeconds === 0 ? 0 : atMs - sinceSeconds * 1000;
  const isNew = Number.isNaN(before);
  const cores = isNew
    ? ageMs >= MIN_WINDOW_MS
      ? coresOf(cpuMs, ageMs)
      : undefined
    : coresOf(cpuMs - before, windowMs);
  return { cpuMs, cores, workingSetBytes };
}

/** A counter that goes back without another beginning gives no average. */
function coresOf(usedMs: number, windowMs: number): number | undefined {
  return usedMs >= 0 && windowMs > 0 ? usedMs / windowMs : undefined;
}
