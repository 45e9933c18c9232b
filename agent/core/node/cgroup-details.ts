/** Figures of one cgroup that only /metrics/cadvisor shows. Undefined: the kernel does not have it, or there is none. */
export interface CgroupDetails {
  readonly userSeconds?: number | undefined;
  readonly systemSeconds?: number | undefined;
  /** Periods of the CPU quota. */
  readonly periods?: number | undefined;
  readonly throttledPeriods?: number | undefined;
  readonly throttledSeconds?: number | undefined;
  readonly cpuPeriodUs?: number | undefined;
  readonly cpuQuotaUs?: number | undefined;
  readonly cpuShares?: number | undefined;
  readonly cacheBytes?: number | undefined;
  readonly mappedFileBytes?: number | undefined;
  readonly kernelBytes?: number | undefined;
  readonly activeFileBytes?: number | undefined;
  readonly inactiveFileBytes?: number | undefined;
  readonly maxUsageBytes?: number | undefined;
  /** How often the memory limit was hit. */
  readonly failures?: number | undefined;
  readonly oomKills?: number | undefined;
  readonly memoryLimitBytes?: number | undefined;
  readonly memorySwapLimitBytes?: number | undefined;
  readonly memoryReservationBytes?: number | undefined;
  readonly maxThreads?: number | undefined;
  readonly traffic?: readonly DeviceTraffic[] | undefined;
  readonly processes?: number | undefined;
  readonly descriptors?: number | undefined;
  readonly sockets?: number | undefined;
  /** The soft limit of the first process; -1: none. */
  readonly maxOpenFiles?: number | undefined;
}

export interface DeviceTraffic {
  /** `/dev/sda`; "" for one that the kernel does not name. */
  readonly device: string;
  readonly major: string;
  readonly minor: string;
  readonly readBytes: number;
  readonly writtenBytes: number;
  readonly reads: number;
  readonly writes: number;
}
