import type { ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** Of a container whatever its sandbox. */
export const newestRun = (observed: ObservedPod, name: string): ObservedContainer | undefined =>
  observed.containers.find((each) => each.name === name);
