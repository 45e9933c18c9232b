/** What is written into one cgroup, in cgroup v1's units. A field that is missing is left as it is. */
export interface CgroupValues {
  /** cgroup v1 `cpu.shares`, 2 … 262144; cgroup v2 has `cpu.weight`. */
  readonly cpuShares?: number | undefined;
  /** CPU time for each period, microseconds; -1: no limit. */
  readonly cpuQuotaUs?: number | undefined;
  readonly cpuPeriodUs?: number | undefined;
  /** -1: no limit. */
  readonly memoryLimitBytes?: number | undefined;
  /** -1: no limit. */
  readonly pidsLimit?: number | undefined;
}
