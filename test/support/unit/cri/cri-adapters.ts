/** The CRI adapter for tests that bring a runtime of their own. */
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { CriAdapter, type CriAdapterComponents, type CriAdapterInit } from "@picolet/runtime-cri/cri-adapter.ts";
import type { PodConfigSettings } from "@picolet/runtime-cri/pods/pod-config.ts";
import { RecordedLog } from "../ports/recorders.ts";

/** Settings for pods that a test makes with its own calls. */
export const POD_CONFIG_SETTINGS: PodConfigSettings = {
  owner: "test",
  cgroups: { cpuCFSQuota: true, cpuPeriodUs: 100_000, podPidsLimit: -1 },
  memoryCapacityBytes: 1024 ** 3,
  seccompProfileRoot: "/nonexistent",
  seccompDefault: false,
  limitedSwap: false,
  singleProcessOomKill: false,
  machine: { unifiedCgroups: false, swapAccounting: false, swapBytes: 0, hugePageSizes: [], thermalFolders: [] },
};

const { machine: _, ...OWN_SETTINGS } = POD_CONFIG_SETTINGS;

type CriAdapterOptions = Partial<CriAdapterInit & Pick<CriAdapterComponents, "log" | "killed">>;

export function criAdapter(endpoint: string, options: CriAdapterOptions = {}): CriAdapter {
  const { log = new RecordedLog(), killed, ...init } = options;
  return new CriAdapter(
    { clock: systemClock, log, killed },
    { endpoint, ...OWN_SETTINGS, requestTimeoutMs: 60_000, ...init },
  );
}
