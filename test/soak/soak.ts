/** An agent's memory while pods come, go, crash and are probed; and whether it grows. */
import { setTimeout as delay } from "node:timers/promises";
import { textOf } from "@picolet/scripts/start/follow-pods.ts";
import { PodChurn } from "../support/agent/pod-churn.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { type Line, linearRegression } from "./linear-regression.ts";

export interface SoakInit {
  readonly seed: number;
  /** Called after each round with what has been sampled so far; true ends the soak. */
  readonly isOver: (samples: readonly Sample[]) => boolean;
}

export interface Sample {
  /** Since the soak began. */
  readonly minutes: number;
  readonly pods: number;
  /** Anonymous memory of the agent. */
  readonly anonMiB: number;
}

export interface SoakVerdict {
  /** MiB an hour, with its standard error; undefined: there was too little to tell. */
  readonly perHour: Line | undefined;
  readonly grows: boolean;
}

/** Pods of one round: more than a small board runs, few enough that a round takes seconds. */
const MAX_PODS_A_ROUND = 40;
/** The first of the samples, while the agent loads what it needs and its heap finds its size. */
const WARM_UP_SHARE = 0.2;
/** An agent that takes a MiB more with each hour of such a load, a pod and a half a second, has a leak. */
const MAX_MIB_PER_HOUR = 1;
/** So many standard errors above the bound: one soak in a thousand says so wrongly. */
const SIGNIFICANT = 3;
/** Quiet moments in which garbage is collected, as on a board. */
const LONGEST_PAUSE_MS = 1000;

/** @returns samples in order, one a round */
export async function soak({ seed, isOver }: SoakInit): Promise<readonly Sample[]> {
  const random = seededRandom(seed);
  await using churn = await PodChurn.start();
  const startedAt = performance.now();
  const samples: Sample[] = [];
  do {
    await churn.round(1 + Math.floor(random.next() * MAX_PODS_A_ROUND), random);
    // As edgectl on a console would.
    for (const path of ["/v1/status", "/v1/events", "/v1/pods"]) await textOf(await churn.node.request(path));
    await delay(random.next() * LONGEST_PAUSE_MS);
    samples.push({ minutes: (performance.now() - startedAt) / 60_000, pods: churn.pods, anonMiB: churn.anon });
  } while (!isOver(samples));
  return samples;
}

export function judge(samples: readonly Sample[]): SoakVerdict {
  const settled = samples.slice(Math.floor(samples.length * WARM_UP_SHARE));
  if (settled.length < 3) return { perHour: undefined, grows: false };
  const perHour = linearRegression(settled.map(({ minutes, anonMiB }) => [minutes / 60, anonMiB]));
  return { perHour, grows: perHour.slope - SIGNIFICANT * perHour.slopeError > MAX_MIB_PER_HOUR };
}
