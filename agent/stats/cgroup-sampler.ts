import { readdirSync } from "node:fs";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { SharedSample } from "@picolet/protocol/async/shared-task.ts";
import type { Clock, Millis, MonotonicMs } from "@picolet/protocol/ports.ts";
import type { DesiredPod, SharedUsage } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ContainerUsage, NodeUsage, PodUsage, Usage } from "../core/node/usage.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import { type CgroupFolders, CgroupUsages, type MachineFeatures } from "./cgroup-usage.ts";
import { machineUsage } from "./machine-usage.ts";
import { ProtectedCache } from "./protected-cache.ts";

export interface CgroupSamplerComponents {
  readonly cgroups: CgroupFolders;
  readonly pods: () => readonly AgentPod[];
  /** cgroupfs path of a pod's cgroup, in which its containers' are; "": it has none. */
  readonly podCgroup: (pod: DesiredPod) => string;
  /** The usage of containers that share a process and have no cgroup of their own, by id. Missing: there are none. */
  readonly shared?: ((signal: AbortSignal) => Promise<ReadonlyMap<string, SharedUsage>>) | undefined;
  readonly clock: Clock;
}

export interface CgroupSamplerInit {
  /** cgroupfs path of the cgroup that holds those of all pods; "": there is none. */
  readonly allPodsCgroup: string;
  /** False: `podCgroup` is one for all, and says nothing of a single pod. */
  readonly cgroupsPerQOS: boolean;
  /** Only tests name another one. */
  readonly proc?: string;
}

/** A sample with its monotonic time, for rates. */
export interface TimedUsage extends NodeUsage {
  readonly at: MonotonicMs;
}

/** Bounds how long the event loop is held; a cgroup takes 60 µs on a PC and ten times that on a small board. */
const SLICE_MS = 3;
/** The cgroup of the process that monitors a container, beside the container's (CRI-O). */
const MONITOR = "conmon";
const NONE: ReadonlyMap<string, SharedUsage> = new Map();

/**
 * The only reader of cgroups and /proc, shared by all callers. It keeps the last sample, and the paths of containers.
 */
export class CgroupSampler {
  readonly #components: CgroupSamplerComponents;
  readonly #init: CgroupSamplerInit;
  readonly #proc: string;
  readonly #cgroups: CgroupUsages;
  readonly #protectedCache: ProtectedCache;
  readonly #samples: SharedSample<TimedUsage>;
  /** Paths of containers' cgroups by their ids; bounded by the containers of the last sample. */
  #paths = new Map<string, string>();
  /** The state of the last sample. */
  #machine: MachineFeatures | undefined;

  constructor(components: CgroupSamplerComponents, init: CgroupSamplerInit) {
    this.#components = components;
    this.#init = init;
    this.#proc = init.proc ?? "/proc";
    this.#cgroups = new CgroupUsages(components.cgroups);
    this.#protectedCache = new ProtectedCache(components, init);
    this.#samples = new SharedSample(components, "the sample of pods' usage", (signal) => this.#take(signal));
  }

  sample(maxAge: Millis, signal: AbortSignal): Promise<TimedUsage> {
    return this.#samples.get(maxAge, signal);
  }

  /** Reads another cgroup now. Undefined: it does not exist. */
  cgroup(path: string, { node }: NodeUsage): Usage | undefined {
    return this.#cgroups.read(path, featuresOf(node));
  }

  /** Right in a cgroup; those of other pid namespaces cannot be named. */
  processes(path: string): readonly number[] {
    return this.#cgroups.processes(path);
  }

  async #take(signal: AbortSignal): Promise<TimedUsage> {
    const { clock, pods } = this.#components;
    const { allPodsCgroup } = this.#init;
    const atMs = clock.wall().getTime();
    const at = clock.monotonic();
    const machine = this.#machine ?? featuresOf(machineUsage(this.#proc));
    const used: PodUsage[] = [];
    const paths = new Map<string, string>();
    const shared = (await this.#components.shared?.(signal)) ?? NONE;
    let sliceFrom: number = at;
    for (const pod of pods()) {
      const found = withShared(this.#podUsage(pod, machine, paths), shared);
      if (found.usage !== undefined || found.containers.length > 0) used.push(found);
      if (clock.monotonic() - sliceFrom < SLICE_MS) continue;
      await new Promise<void>((resolve) => setImmediate(resolve));
      if (signal.aborted) throw cancelled("the sample of pods' usage");
      sliceFrom = clock.monotonic();
    }
    this.#paths = paths;
    // Read after the pods: otherwise a pod that the kernel kills in between would appear small while memory still
    // appears short.
    const node = machineUsage(this.#proc);
    this.#machine = featuresOf(node);
    const allPods = allPodsCgroup === "" ? undefined : this.#cgroups.read(allPodsCgroup, this.#machine);
    return { at, atMs, node, allPods, pods: used, protectedCache: this.#protectedCache.read() };
  }

  #podUsage(pod: AgentPod, machine: MachineFeatures, paths: Map<string, string>): PodUsage {
    const path = this.#pathOf(pod.desired);
    if (path === "") return { pod, path, usage: undefined, containers: [] };
    const usage = this.#init.cgroupsPerQOS ? this.#cgroups.read(path, machine) : undefined;
    const containers: ContainerUsage[] = [];
    for (const container of pod.containers) {
      if (container.state.kind !== "running") continue;
      const own = this.#containerPath(path, container.id);
      const its = own === undefined ? undefined : this.#cgroups.read(own, machine);
      if (own === undefined || its === undefined) continue;
      paths.set(container.id, own);
      containers.push({ container, startedAtMs: container.state.startedAtMs, path: own, usage: its });
    }
    return { pod, path: this.#init.cgroupsPerQOS ? path : "", usage, containers };
  }

  /** A pod whose uid cannot be the name of a cgroup has none, and never ran. */
  #pathOf(pod: DesiredPod): string {
    try {
      return this.#components.podCgroup(pod);
    } catch {
      return "";
    }
  }

  /** runc's cgroupfs driver names it after the id; systemd's and CRI-O put something before and behind. */
  #containerPath(podPath: string, id: string): string | undefined {
    const known = this.#paths.get(id);
    if (known !== undefined) return known;
    const name = namesIn(`${this.#cgroups.folder}${podPath}`).find((each) => isOf(each, id));
    return name === undefined ? undefined : `${podPath === "/" ? "" : podPath}/${name}`;
  }
}

/** A pod with what its containers use of processes that are not theirs alone. */
function withShared(found: PodUsage, shared: ReadonlyMap<string, SharedUsage>): PodUsage {
  if (shared.size === 0) return found;
  const containers = [...found.containers];
  let { usage } = found;
  for (const container of found.pod.containers) {
    const its = shared.get(container.id);
    if (its === undefined || container.state.kind !== "running") continue;
    const own = usageOf(its);
    containers.push({ container, startedAtMs: container.state.startedAtMs, path: "", usage: own });
    usage = usage === undefined ? own : together(usage, own);
  }
  return { ...found, containers, usage };
}

/** Only the memory in use is known of a shared process. */
const usageOf = ({ cpuNanoseconds, memoryBytes }: SharedUsage): Usage => ({
  ...{ cpuNanoseconds, memoryBytes, workingSetBytes: memoryBytes, rssBytes: memoryBytes },
  ...{ swapBytes: 0, pageFaults: 0, majorPageFaults: 0, memoryLimitBytes: undefined },
});

const together = (one: Usage, other: Usage): Usage => ({
  ...one,
  cpuNanoseconds: one.cpuNanoseconds + other.cpuNanoseconds,
  memoryBytes: one.memoryBytes + other.memoryBytes,
  workingSetBytes: one.workingSetBytes + other.workingSetBytes,
  rssBytes: one.rssBytes + other.rssBytes,
});

const featuresOf = ({ swapLimitBytes = 0, pressure }: Usage): MachineFeatures => ({
  ...{ swap: swapLimitBytes > 0, pressure: pressure !== undefined },
});

function isOf(name: string, id: string): boolean {
  return name === id || (!name.includes(MONITOR) && (name.endsWith(`-${id}`) || name.endsWith(`-${id}.scope`)));
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
