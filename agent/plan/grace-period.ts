import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";

/** What the pod's containers get to end in: as its deletion says, else as it says itself. */
export const gracePeriodOf = ({ metadata, spec }: Pod): Millis =>
  seconds(metadata.deletionGracePeriodSeconds ?? spec.terminationGracePeriodSeconds);
