import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { qosClass } from "@picolet/protocol/pod/qos.ts";
import type { Log, PodUid } from "@picolet/protocol/ports.ts";
import type { Cpuset, DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ContainerPlacement } from "../core/pods/container-placement.ts";
import type { Rejection } from "../core/pods/pod-admission.ts";
import { formatCpuSet } from "./cpu-set.ts";
import { formatCpuState } from "./cpu-state.ts";
import { formatMemoryState } from "./memory-state.ts";
import { type Hint, mergeHints, type NumaInfo, type TopologyPolicyName } from "./numa-hints.ts";
import { AdmissionFailure, type PlacementManager, type PlacementRound, rejectionOf } from "./placement-round.ts";
import { placedContainers } from "./requested.ts";
import { writeStateFile } from "./state-file.ts";
import type { StaticCpus } from "./static-cpus.ts";
import type { StaticMemory } from "./static-memory.ts";

export interface ContainerPlacementsInit {
  readonly policy: TopologyPolicyName;
  readonly scope: "container" | "pod";
  readonly numa: NumaInfo;
  /** Undefined: their policy is the one that does nothing. */
  readonly cpus: StaticCpus | undefined;
  readonly memory: StaticMemory | undefined;
  /** The devices of a pod that asks for some. */
  readonly devices?: ((pod: DesiredPod) => PlacementManager | undefined) | undefined;
  /** The kubelet's gate DisableCPUQuotaWithExclusiveCPUs: no quota on CPUs that are a container's alone. */
  readonly withoutQuota: boolean;
  /** The folder of the kubelet's state files. */
  readonly cpuStateFile: string;
  readonly memoryStateFile: string;
}

const NO_PREFERENCE: Hint = { nodes: undefined, preferred: false };
const STATIC = { cpus: "static", memory: "Static" };

/** The kubelet's CPU, memory and topology managers together. */
export class ContainerPlacements implements ContainerPlacement {
  readonly #log: Log;
  readonly #init: ContainerPlacementsInit;
  readonly #changes = new WatchSource(0);
  /** What is in the files, as text. */
  #written: { readonly cpus?: string; readonly memory?: string } = {};

  /** Writes the state files if they differ from the state. @throws what writing them throws */
  constructor(components: { readonly log: Log }, init: ContainerPlacementsInit) {
    this.#log = components.log;
    this.#init = init;
    this.#write();
  }

  /** Counts up whenever containers may be to run elsewhere. */
  get changes(): Watch<number> {
    return this.#changes;
  }

  admit(pod: DesiredPod): Rejection | undefined {
    const { cpus, memory } = this.#init;
    const [cpuState, memoryState] = [cpus?.state, memory?.state];
    try {
      this.#place(pod);
    } catch (error) {
      if (!(error instanceof AdmissionFailure)) throw error;
      if (cpuState !== undefined) cpus?.restore(cpuState);
      if (memoryState !== undefined) memory?.restore(memoryState);
      return rejectionOf(error);
    }
    if (cpus?.state !== cpuState || memory?.state !== memoryState) this.#changed();
    return undefined;
  }

  cpuset({ uid }: DesiredPod, container: string): Cpuset | undefined {
    const { cpus, memory, withoutQuota } = this.#init;
    const own = cpus?.of(uid, container);
    const nodes = memory?.nodesOf(uid, container);
    if (cpus === undefined && nodes === undefined) return undefined;
    return {
      cpus: formatCpuSet(own ?? cpus?.state.shared ?? []),
      mems: formatCpuSet(nodes ?? []),
      ...(own === undefined || !withoutQuota ? {} : { exclusive: true }),
    };
  }

  starting(pod: DesiredPod, container: string): void {
    if (this.#init.memory?.started(pod, container) === true) this.#changed();
  }

  hasExclusiveCpus(uid: PodUid): boolean {
    return this.#init.withoutQuota && this.#init.cpus?.state.exclusive.has(uid) === true;
  }

  refusesResize(requested: Pod, changes: (resource: "cpu" | "memory") => boolean): string | undefined {
    const { cpus, memory } = this.#init;
    const refused = (manager: string, policy: string): string =>
      `Resize is infeasible for Guaranteed Pods alongside ${manager} policy ${JSON.stringify(policy)}`;
    if (qosClass(requested) !== "Guaranteed") return undefined;
    if (cpus !== undefined && changes("cpu")) return refused("CPU Manager", STATIC.cpus);
    return memory !== undefined && changes("memory") ? refused("Memory Manager", STATIC.memory) : undefined;
  }

  release(uid: PodUid): void {
    const [cpus, memory] = [this.#init.cpus?.release(uid), this.#init.memory?.release(uid)];
    if (cpus === true || memory === true) this.#changed();
  }

  /** Uids of pods that have something. */
  get holders(): readonly PodUid[] {
    const { cpus, memory } = this.#init;
    const uids = [...(cpus?.state.exclusive.keys() ?? []), ...Object.keys(memory?.state.entries ?? {})];
    return [...new Set(uids)] as PodUid[];
  }

  /** Writes changes that could not be written before. */
  flush(): void {
    try {
      this.#write();
    } catch (error) {
      this.#log.error("cannot write down which CPUs and memory are whose", { error: describeError(error) });
    }
  }

  /** @throws `AdmissionFailure`; what has been taken by then is taken */
  #place(desired: DesiredPod): void {
    const { cpus, memory, policy, scope, numa, devices } = this.#init;
    const rounds = [devices?.(desired), cpus, memory].flatMap((manager) =>
      manager === undefined ? [] : [manager.begin(desired)],
    );
    const merged = (hints: Parameters<typeof mergeHints>[2]): Hint => {
      const { hint, admitted } = mergeHints(numa, policy, hints);
      if (admitted) return hint;
      throw new AdmissionFailure("Resources cannot be allocated with Topology locality", "TopologyAffinityError");
    };
    const isForPod = policy !== "none" && scope === "pod";
    const ofPod = isForPod ? merged(rounds.map((round) => round.podHints())) : NO_PREFERENCE;
    for (const container of placedContainers(desired.pod)) {
      const isForContainer = policy !== "none" && !isForPod;
      const hint = isForContainer ? merged(rounds.map((round) => round.hints(container))) : ofPod;
      for (const round of rounds satisfies readonly PlacementRound[]) round.allocate(container, hint);
    }
  }

  #changed(): void {
    this.flush();
    this.#changes.set(this.#changes.current + 1);
  }

  /** Called before an assignment is reported: it must survive a power cut. */
  #write(): void {
    const { cpus, memory, cpuStateFile, memoryStateFile } = this.#init;
    if (cpus !== undefined) {
      const text = formatCpuState(STATIC.cpus, cpus.state);
      if (text !== this.#written.cpus) writeStateFile(cpuStateFile, text);
      this.#written = { ...this.#written, cpus: text };
    }
    if (memory !== undefined) {
      const text = formatMemoryState(STATIC.memory, memory.state);
      if (text !== this.#written.memory) writeStateFile(memoryStateFile, text);
      this.#written = { ...this.#written, memory: text };
    }
  }
}
