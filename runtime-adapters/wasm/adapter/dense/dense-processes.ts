/**
 * All processes of several containers on this node: whose container goes into which, and what becomes of those that are
 * empty.
 */
import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync } from "node:fs";
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { describeError, ignore } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { SharedUsage } from "@picolet/runtime-contract/runtime-adapter.ts";
import { DenseProcess, type DenseProcessComponents, type DenseProcessInit } from "./dense-process.ts";
import type { ContainerProcess } from "./dense-run.ts";
import { type DenseGroup, ProcessFolder } from "./process-folder.ts";

export interface DenseProcessesInit extends DenseProcessInit {
  /** `<state>/dense` */
  readonly directory: string;
  /** cgroupfs path above those of the processes; undefined: they have none. */
  readonly cgroupPath: string | undefined;
}

/**
 * Bounds the containers of one process; the next container of the group gets another process. Each may hold 1,024 files
 * and as many sockets as it is granted.
 */
const MAX_CONTAINERS = 128;
/** How long an empty process is kept for containers that start again. */
const IDLE_DURATION: Millis = seconds(60);
const NAME_BYTES = 6;
const NANOSECONDS_PER_MS = 1_000_000;
/**
 * A limit is lowered only while resident memory is below this share of it: the kernel also counts memory that is not
 * resident.
 */
const SAFE_SHARE = 0.8;

/** A process that does not exist any more. */
const GONE: ContainerProcess = {
  id: undefined,
  blame: undefined,
  oomKills: () => Promise.resolve(0),
  holds: () => Promise.resolve(false),
  stop: () => undefined,
  endIfHeldBy: () => undefined,
  left: () => Promise.resolve(),
};

export class DenseProcesses {
  readonly #components: DenseProcessComponents;
  readonly #init: DenseProcessesInit;
  readonly #hosts = new Map<string, DenseProcess>();
  /** Starts under way: one for each group at a time. */
  readonly #starts = new Map<string, Promise<DenseProcess>>();
  /** The memory that they request, by the process's name; cgroup v2 alone. */
  readonly #kept = new Map<string, CgroupValues>();
  #keptAbove = 0;
  /** The resources of containers that are about to start in a process, by its name. */
  readonly #expected = new Map<string, Set<CgroupValues>>();
  /** One limit is written after the other: an older sum must not come last. */
  #writing: Promise<void> = Promise.resolve();

  constructor(components: Omit<DenseProcessComponents, "onChange">, init: DenseProcessesInit) {
    this.#components = { ...components, onChange: (host) => void this.#changed(host) };
    this.#init = init;
  }

  /**
   * Adopts the processes of an earlier agent. Their containers are then added through `process`, and `adopted` is
   * called after the last.
   */
  adopt(): void {
    const { directory } = this.#init;
    for (const name of namesIn(directory)) {
      const folder = new ProcessFolder(`${directory}/${name}`);
      const group = folder.group();
      if (group === undefined) folder.remove();
      else this.#hosts.set(name, DenseProcess.adopt({ name, group, folder }, this.#components, this.#init));
    }
  }

  process(name: string): ContainerProcess {
    return this.#hosts.get(name) ?? GONE;
  }

  host(name: string): DenseProcess | undefined {
    return this.#hosts.get(name);
  }

  async adopted(): Promise<void> {
    for (const host of [...this.#hosts.values()]) {
      await host.endStrays();
      void this.#changed(host);
    }
  }

  /**
   * One for a container of this group that takes `values`, with room for it. It has to be given back with `settle`.
   * @param but not these: they do not see what the container has, or have no addresses left
   * @throws what starting one throws
   */
  async take(
    { values, oomScore, ...group }: DenseGroup & { readonly values: CgroupValues; readonly oomScore: number },
    but: ReadonlySet<DenseProcess>,
    signal: AbortSignal,
  ): Promise<DenseProcess> {
    const key = keyOf(group);
    await this.#starts.get(key)?.catch(ignore("the caller of that start reports it"));
    let host = [...this.#hosts.values()].find(
      (each) => !but.has(each) && keyOf(each.group) === key && each.isAlive && this.#load(each).size < MAX_CONTAINERS,
    );
    if (host === undefined) {
      const start = this.#starts.get(key) ?? this.#start(key, group, oomScore, signal);
      host = await start;
    }
    const expected = this.#expected.get(host.name) ?? new Set();
    this.#expected.set(host.name, expected.add(values));
    try {
      await this.limit(host);
    } catch (error) {
      this.settle(host, values);
      throw error;
    }
    return host;
  }

  /** The container that it was taken for is in it, or came to nothing. */
  settle(host: DenseProcess, values: CgroupValues): void {
    const expected = this.#expected.get(host.name);
    expected?.delete(values);
    if (expected?.size === 0) this.#expected.delete(host.name);
    if (!this.#load(host).has(values)) void this.#changed(host);
  }

  /** Limits the process by the resources of its containers and of those that are about to start. */
  limit(host: DenseProcess): Promise<void> {
    return this.#inTurn(() => this.#limit(host));
  }

  #inTurn(write: () => Promise<void>): Promise<void> {
    const written = this.#writing.then(write);
    this.#writing = written.catch(ignore("the caller of this write reports it"));
    return written;
  }

  async #limit(host: DenseProcess): Promise<void> {
    const { cgroupPath } = host.group;
    if (cgroupPath === undefined || this.#hosts.get(host.name) !== host) return;
    const limits = groupLimits([...this.#load(host)]);
    const memory = limits.memoryLimitBytes ?? -1;
    // The memory of an ended container goes with the next collection; a limit below the usage would end all others.
    const isLess = memory >= 0 && memory < host.memoryLimitBytes;
    const waits = isLess && host.residentBytes > memory * SAFE_SHARE;
    if (!waits) host.memoryLimitBytes = memory < 0 ? Number.POSITIVE_INFINITY : memory;
    await this.#keep(host.name, limits);
    await this.#components.cgroups?.create(cgroupPath, waits ? { ...limits, memoryLimitBytes: undefined } : limits);
  }

  /** cgroup v2: a cgroup is left no more memory than the one above it. */
  async #keep(name: string, { memoryMinBytes, memoryLowBytes }: CgroupValues): Promise<void> {
    const { cgroupPath } = this.#init;
    if (memoryMinBytes === undefined) this.#kept.delete(name);
    else this.#kept.set(name, { memoryMinBytes, memoryLowBytes });
    if (cgroupPath === undefined || (memoryMinBytes === undefined && this.#keptAbove === 0)) return;
    const all = [...this.#kept.values()];
    const above = {
      memoryMinBytes: all.reduce((sum, each) => sum + (each.memoryMinBytes ?? 0), 0),
      memoryLowBytes: all.reduce((sum, each) => sum + (each.memoryLowBytes ?? 0), 0),
    };
    this.#keptAbove = above.memoryMinBytes + above.memoryLowBytes;
    await this.#components.cgroups?.create(cgroupPath, above);
  }

  async usage(): Promise<ReadonlyMap<string, SharedUsage>> {
    const usages = await Promise.all([...this.#hosts.values()].map((host) => host.usage()));
    return new Map(
      usages
        .flat()
        .map(({ id, memoryBytes, ranMs }) => [
          id,
          { memoryBytes, cpuNanoseconds: Math.round(ranMs * NANOSECONDS_PER_MS) },
        ]),
    );
  }

  /** They run on. */
  dispose(): void {
    for (const host of this.#hosts.values()) host.release();
  }

  /** The resources of all its containers, each once: an expected one may be there already. */
  #load(host: DenseProcess): ReadonlySet<CgroupValues> {
    const there = [...host.runs.values()].flatMap(({ file }) => file.dense?.values ?? []);
    return new Set([...there, ...(this.#expected.get(host.name) ?? [])]);
  }

  #start(key: string, group: DenseGroup, oomScore: number, signal: AbortSignal): Promise<DenseProcess> {
    const start = this.#make(group, oomScore, signal).finally(() => this.#starts.delete(key));
    this.#starts.set(key, start);
    return start;
  }

  async #make(
    { namespace, identity, network }: DenseGroup,
    oomScore: number,
    signal: AbortSignal,
  ): Promise<DenseProcess> {
    const { directory, cgroupPath } = this.#init;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    if (cgroupPath !== undefined) await this.#components.cgroups?.create(cgroupPath, {});
    const name = randomBytes(NAME_BYTES).toString("hex");
    const own = cgroupPath === undefined ? undefined : `${cgroupPath}/${name}`;
    const folder = new ProcessFolder(`${directory}/${name}`);
    const group = { namespace, identity, network, cgroupPath: own };
    try {
      const made = await DenseProcess.start({ name, group, folder, oomScore }, this.#components, this.#init, signal);
      this.#hosts.set(name, made);
      return made;
    } catch (error) {
      folder.remove();
      throw error;
    }
  }

  async #changed(host: DenseProcess): Promise<void> {
    const { clock, disposed, log } = this.#components;
    if (disposed.aborted || this.#hosts.get(host.name) !== host) return;
    try {
      if (host.isAlive && this.#load(host).size > 0) return await this.limit(host);
      if (host.isAlive) await clock.sleep(IDLE_DURATION, disposed);
      if (this.#load(host).size > 0 || this.#hosts.get(host.name) !== host) return;
      this.#hosts.delete(host.name);
      // After all pending writes, which would make its cgroup again.
      await this.#inTurn(() => this.#keep(host.name, {}));
      await host.remove();
    } catch (error) {
      if (!disposed.aborted)
        log.warn("a process of several components is not cleared away", { error: describeError(error) });
    }
  }
}

const keyOf = ({ namespace, identity, network }: DenseGroup): string =>
  JSON.stringify([namespace, network, identity?.uid, identity?.gid, [...(identity?.groups ?? [])].sort()]);

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return [];
    throw error;
  }
}

/** The memory of a process without any component: some 12 MiB, and what Node takes while it starts. */
const BASE_BYTES = 24 * MEBIBYTE;
/** The memory of each component beside its linear memory: its stack, glue and buffers. */
const BYTES_PER_CONTAINER = MEBIBYTE;
/** Threads and processes: Node's own, the two shells, and what makes the jail. */
const MAX_TASKS = 64;
const MIN_SHARES = 2;

/** No limit as long as one of them has none. */
export function groupLimits(containers: readonly CgroupValues[]): CgroupValues {
  const memory = sumOf(containers, ({ memoryLimitBytes }) => memoryLimitBytes);
  const period = containers.find(({ cpuPeriodUs }) => cpuPeriodUs !== undefined)?.cpuPeriodUs;
  const quota = sumOf(containers, ({ cpuQuotaUs }) => cpuQuotaUs);
  const shares = containers.reduce((sum, { cpuShares = MIN_SHARES }) => sum + cpuShares, 0);
  return {
    cpuShares: Math.max(shares, MIN_SHARES),
    cpuPeriodUs: period,
    cpuQuotaUs: quota ?? -1,
    memoryLimitBytes: memory === undefined ? -1 : memory + BASE_BYTES + containers.length * BYTES_PER_CONTAINER,
    pidsLimit: MAX_TASKS,
    ...keptMemory(containers),
    ...swapLimit(containers),
  };
}

/**
 * cgroup v2 alone: what they ask for together is kept for the process. Where it is slowed down is not set, as that
 * would slow all of them down.
 */
function keptMemory(containers: readonly CgroupValues[]): CgroupValues {
  const kept = containers.filter(({ memoryMinBytes }) => memoryMinBytes !== undefined);
  if (kept.length === 0) return {};
  return {
    memoryMinBytes: kept.reduce((sum, { memoryMinBytes = 0 }) => sum + memoryMinBytes, 0),
    memoryLowBytes: kept.reduce((sum, { memoryLowBytes = 0 }) => sum + memoryLowBytes, 0),
  };
}

/** cgroup v2 alone: the sum of their swap limits; without it the limit of memory would bound nothing. */
function swapLimit(containers: readonly CgroupValues[]): CgroupValues {
  if (!containers.some(({ swapLimitBytes }) => swapLimitBytes !== undefined)) return {};
  return { swapLimitBytes: sumOf(containers, ({ swapLimitBytes }) => swapLimitBytes) ?? -1 };
}

/** Undefined: one of them has none. */
function sumOf(
  containers: readonly CgroupValues[],
  of: (values: CgroupValues) => number | undefined,
): number | undefined {
  let sum: number | undefined;
  for (const each of containers) {
    const value = of(each) ?? -1;
    if (value < 0) return undefined;
    sum = (sum ?? 0) + value;
  }
  return sum;
}
