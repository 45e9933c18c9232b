import type { ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** @returns the newest run of a container in any sandbox */
export const newestRun = (observed: ObservedPod, name: string): ObservedContainer | undefined =>
  observed.containers.find((each) => each.name === name);
