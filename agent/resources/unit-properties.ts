/** Converts cgroup values to systemd's properties, so that systemd does not write its own values over ours. Pure. */
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { UnitProperty } from "../core/node/cgroup-units.ts";
import { weightOfShares } from "./cgroup-files.ts";

const NO_LIMIT = 2n ** 64n - 1n;
const US_PER_SECOND = 1_000_000n;
const DEFAULT_CPU_PERIOD_US = 100_000;

/**
 * Those of the values that have a property (systemd.resource-control(5)); the others are in files that systemd leaves
 * alone.
 */
export function unitProperties(values: CgroupValues, kind: "v1" | "v2"): UnitProperty[] {
  const { cpuShares, cpuQuotaUs, cpuPeriodUs = DEFAULT_CPU_PERIOD_US } = values;
  const isV2 = kind === "v2";
  return [
    ...(isV2
      ? numberOf("CPUWeight", cpuShares === undefined ? undefined : weightOfShares(cpuShares))
      : numberOf("CPUShares", cpuShares)),
    ...(cpuQuotaUs === undefined ? [] : [number("CPUQuotaPerSecUSec", perSecond(cpuQuotaUs, cpuPeriodUs))]),
    ...(cpuQuotaUs === undefined || !isV2 ? [] : [number("CPUQuotaPeriodUSec", BigInt(cpuPeriodUs))]),
    ...numberOf(isV2 ? "MemoryMax" : "MemoryLimit", values.memoryLimitBytes),
    ...(isV2 ? numberOf("MemoryMin", values.memoryMinBytes) : []),
    ...(isV2 ? numberOf("MemoryLow", values.memoryLowBytes) : []),
    ...(isV2 ? numberOf("MemoryHigh", values.memoryHighBytes) : []),
    ...(isV2 ? numberOf("MemorySwapMax", values.swapLimitBytes) : []),
    ...numberOf("TasksMax", values.pidsLimit),
  ];
}

function perSecond(quotaUs: number, periodUs: number): bigint {
  return quotaUs < 0 ? NO_LIMIT : (BigInt(quotaUs) * US_PER_SECOND) / BigInt(periodUs);
}

const number = (name: string, value: bigint): UnitProperty => ({ name, type: "t", value });

const numberOf = (name: string, value: number | undefined): UnitProperty[] =>
  value === undefined ? [] : [number(name, value < 0 ? NO_LIMIT : BigInt(value))];
