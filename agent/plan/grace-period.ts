import type { Pod } from "../../protocol/pod.ts";
import { type Millis, seconds } from "../../protocol/ports.ts";

/** What the pod's containers get to end in: as its deletion says, else as it says itself. */
export const gracePeriodOf = ({ metadata, spec }: Pod): Millis =>
  seconds(metadata.deletionGracePeriodSeconds ?? spec.terminationGracePeriodSeconds);
