import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";

/** @returns the grace period of the pod's deletion, or else of its spec */
export const gracePeriodOf = ({ metadata, spec }: Pod): Millis =>
  seconds(metadata.deletionGracePeriodSeconds ?? spec.terminationGracePeriodSeconds);
