import { ignore } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import {
  type BoardFigures,
  type CpuAndMemory,
  type FilesystemFigures,
  MAX_SAMPLED_PODS,
  type PodSample,
  type SampledPod,
  type UsageSample,
} from "@picolet/protocol/telemetry/usage-sample.ts";
import type { FilesystemUsage, NodeFilesystems, NodeUsage, PodUsage, Usage, UsageSampler } from "../core/node/usage.ts";

export interface SampleTakerComponents {
  readonly usage: Pick<UsageSampler, "sample" | "filesystems">;
  /** The board's own figures; those of eviction follow from what was sampled. */
  readonly board: (usage: NodeUsage, filesystems: NodeFilesystems | undefined) => BoardFigures;
  readonly clock: Clock;
  /** @returns whether the wall clock is known to be right */
  readonly isTimeKnown: () => boolean;
}

export interface SampleTakerInit {
  readonly bootId: string;
  readonly agentSinceSeconds: number;
}

/** A sample that another caller took so recently is taken again; eviction under pressure samples every 10 s. */
const SHARED_AGE = seconds(5);
/** File systems change slowly, and the runtime must be asked where images are. */
const FILESYSTEM_AGE = seconds(290);
const NANOSECONDS_PER_MILLISECOND = 1e6;

/** The counter of a pod or container, with the beginning that was reported for it. */
interface Counted {
  readonly sinceSeconds: number;
  readonly cpuMs: number;
}

/** Turns what `UsageSampler` reads into a sample for the hub, and notices counters that were reset. */
export class SampleTaker {
  readonly #components: SampleTakerComponents;
  readonly #init: SampleTakerInit;
  /** By pod and container; bounded by the pods of the last sample. */
  #counted = new Map<string, Counted>();

  constructor(components: SampleTakerComponents, init: SampleTakerInit) {
    this.#components = components;
    this.#init = init;
  }

  /** @throws what keeps the usage from being sampled; figures of file systems that cannot be read are missing */
  async take(signal: AbortSignal): Promise<UsageSample> {
    const { usage: sampler, board, isTimeKnown } = this.#components;
    const usage = await sampler.sample(SHARED_AGE, signal);
    const filesystems = await sampler
      .filesystems(FILESYSTEM_AGE, signal)
      .catch(ignore("these figures are missing in the sample, and the others are not"));
    const { node } = usage;
    const counted = new Map<string, Counted>();
    const pods = usage.pods.slice(0, MAX_SAMPLED_PODS).map((pod) => this.#podSample(pod, counted));
    this.#counted = counted;
    return {
      ...this.#init,
      atMs: Math.round(usage.atMs),
      isEstimated: !isTimeKnown(),
      node: {
        ...cpuAndMemory(node),
        swapBytes: node.swapBytes,
        ...(node.memoryLimitBytes === undefined ? {} : { memoryCapacityBytes: node.memoryLimitBytes }),
        ...(node.pids === undefined ? {} : { processes: node.pids }),
      },
      filesystems: filesystems === undefined ? {} : filesystemFigures(filesystems),
      board: board(usage, filesystems),
      pods,
    };
  }

  #podSample({ pod, usage, containers }: PodUsage, counted: Map<string, Counted>): PodSample {
    const { namespace, name, uid = pod.desired.uid } = pod.desired.pod.metadata;
    const startedMs = Date.parse(pod.status?.startTime ?? "");
    const key = `${namespace}/${name}/${uid}`;
    const since = (of: string, startedSeconds: number, figures: Usage): number => {
      const cpuMs = cpuMsOf(figures);
      const before = this.#counted.get(of);
      // The cgroup was made again, though what runs in it is said to have started then.
      const isReset = before !== undefined && cpuMs < before.cpuMs;
      const known = Math.max(startedSeconds, before?.sinceSeconds ?? 0);
      const sinceSeconds = isReset && known === before.sinceSeconds ? known + 1 : known;
      counted.set(of, { sinceSeconds, cpuMs });
      return sinceSeconds;
    };
    const podSince = Number.isFinite(startedMs) ? Math.floor(startedMs / 1000) : 0;
    const sampled: SampledPod = {
      ...{ namespace, name, uid },
      sinceSeconds: usage === undefined ? podSince : since(key, podSince, usage),
      containers: containers.map((each) => ({
        name: each.container.name,
        sinceSeconds: since(`${key}/${each.container.name}`, Math.floor(each.startedAtMs / 1000), each.usage),
      })),
    };
    return {
      pod: sampled,
      usage: usage === undefined ? undefined : cpuAndMemory(usage),
      containers: containers.map((each) => cpuAndMemory(each.usage)),
    };
  }
}

const cpuMsOf = ({ cpuNanoseconds }: Usage): number => Math.floor(cpuNanoseconds / NANOSECONDS_PER_MILLISECOND);

const cpuAndMemory = (usage: Usage): CpuAndMemory => ({
  cpuMs: cpuMsOf(usage),
  workingSetBytes: usage.workingSetBytes,
});

/** One that is the same as an earlier one is left out. */
function filesystemFigures({ nodefs, imagefs, containerfs }: NodeFilesystems): UsageSample["filesystems"] {
  return {
    nodefs: figuresOf(nodefs),
    ...(imagefs === nodefs ? {} : { imagefs: figuresOf(imagefs) }),
    ...(containerfs === nodefs || containerfs === imagefs ? {} : { containerfs: figuresOf(containerfs) }),
  };
}

const figuresOf = (usage: FilesystemUsage): FilesystemFigures => {
  const { capacityBytes, availableBytes, usedBytes, inodes, inodesFree } = usage;
  return { capacityBytes, availableBytes, usedBytes, inodes, inodesFree };
};
