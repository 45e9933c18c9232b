/**
 * `cpuManagerPolicyOptions` and `topologyManagerPolicyOptions`, which the configuration's validation has judged. Pure.
 */

/** The options of the static CPU manager. */
export interface CpuPolicyOptions {
  /** `full-pcpus-only`: no two containers on the threads of one core. */
  readonly fullPhysicalCpusOnly: boolean;
  /** `distribute-cpus-across-numa`: as many CPUs from each NUMA node, where one is not enough. */
  readonly distributeAcrossNuma: boolean;
  /** `distribute-cpus-across-cores`: one thread of each core before the second of any. */
  readonly distributeAcrossCores: boolean;
  /** `align-by-socket`: CPUs are aligned by socket instead of by NUMA node. */
  readonly alignBySocket: boolean;
  /** `strict-cpu-reservation`: reserved CPUs are not in the shared pool either. */
  readonly strictReservation: boolean;
  /** `prefer-align-cpus-by-uncorecache`. */
  readonly preferUncoreCache: boolean;
}

export interface TopologyPolicyOptions {
  /** `prefer-closest-numa-nodes`. */
  readonly preferClosestNuma: boolean;
  /** `max-allowable-numa-nodes`: all combinations of so many nodes are tried. */
  readonly maxNumaNodes: number;
}

/** The kubelet's. */
const DEFAULT_MAX_NUMA_NODES = 8;

type Texts = Readonly<Record<string, string>>;

export const cpuPolicyOptions = (texts: Texts): CpuPolicyOptions => ({
  fullPhysicalCpusOnly: isOn(texts["full-pcpus-only"]),
  distributeAcrossNuma: isOn(texts["distribute-cpus-across-numa"]),
  distributeAcrossCores: isOn(texts["distribute-cpus-across-cores"]),
  alignBySocket: isOn(texts["align-by-socket"]),
  strictReservation: isOn(texts["strict-cpu-reservation"]),
  preferUncoreCache: isOn(texts["prefer-align-cpus-by-uncorecache"]),
});

export const topologyPolicyOptions = (texts: Texts): TopologyPolicyOptions => ({
  preferClosestNuma: isOn(texts["prefer-closest-numa-nodes"]),
  maxNumaNodes: Number(texts["max-allowable-numa-nodes"] ?? DEFAULT_MAX_NUMA_NODES),
});

/** As Go reads it. */
const isOn = (text: string | undefined): boolean => /^(?:1|t|T|TRUE|true|True)$/.test(text ?? "");
