/** What the black box records of an eviction: the shortage, the threshold and the pod's own share. Pure. */
import type { Decision } from "@picolet/protocol/decisions/decision-kinds.ts";
import { publicName } from "@picolet/protocol/decisions/public-text.ts";
import { type DiskLayout, type Observation, quantityOfThreshold } from "./eviction-signals.ts";
import type { EvictionThreshold } from "./eviction-thresholds.ts";
import { type EvictionCandidate, rankedFigures } from "./rank-for-eviction.ts";

export interface EvictionChoice {
  readonly due: EvictionThreshold;
  readonly observed: Observation;
  readonly layout: DiskLayout;
  readonly candidate: EvictionCandidate;
  /** From how many it was chosen. */
  readonly candidates: number;
}

export function evictionDecision(
  kind: "evicted" | "switched",
  { due, observed, layout, candidate, candidates }: EvictionChoice,
): Decision {
  const { used, requested } = rankedFigures(candidate, due.signal, layout);
  return {
    kind,
    signal: publicName(due.signal),
    isHard: due.gracePeriod === undefined,
    figures: {
      available: observed.available,
      threshold: Math.trunc(quantityOfThreshold(due, observed)),
      used: used === undefined || !Number.isFinite(used) ? undefined : used,
      requested,
      candidates,
    },
  };
}
