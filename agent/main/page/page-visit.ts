/** Reads the data of a visit; loaded with the first request. */
import type { PageHistory, PageThreshold, PageThresholds } from "@picolet/protocol/page/board-data.ts";
import { type Clock, type Log, millis, seconds } from "@picolet/protocol/ports.ts";
import type { ContainerLogs } from "../../core/pods/container-logs.ts";
import type { NodeImages } from "../../core/pods/image-pulls.ts";
import { PageAnswers } from "../../page/page-answers.ts";
import {
  filesystemObservations,
  quantityOfThreshold,
  usageObservations,
} from "../../plan/eviction/eviction-signals.ts";
import { type EvictionThreshold, evictionThresholds } from "../../plan/eviction/eviction-thresholds.ts";
import { makeNodeStats, type NodeStatsInit } from "../node/make-node-stats.ts";
import type { NodeAgentView } from "../node/node-agent-view.ts";
import type { NodeUsageSampler } from "../node/node-usage.ts";

export interface VisitComponents {
  readonly view: NodeAgentView;
  readonly usage: NodeUsageSampler;
  readonly logs: ContainerLogs;
  readonly images: NodeImages;
  readonly history: () => Promise<PageHistory>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface VisitInit extends NodeStatsInit {
  readonly maxPids: number | undefined;
  /** The folder of the page's static files. */
  readonly folder: string;
}

/** Visitors share samples that are not older. */
const MAX_USAGE_AGE = millis(2000);
const MAX_FILESYSTEMS_AGE = seconds(10);

export function makeVisit(components: VisitComponents, init: VisitInit): PageAnswers {
  const { view, usage, logs, images, history, clock, log } = components;
  const thresholds = evictionThresholds(init.configuration);
  return new PageAnswers(
    {
      ...{ view, logs, images, history, clock },
      stats: makeNodeStats({ usage, clock, log }, init),
      thresholds: (signal) => readThresholds(thresholds, usage, init.maxPids, signal),
    },
    { folder: init.folder },
  );
}

/** By the functions that eviction judges with. */
async function readThresholds(
  thresholds: readonly EvictionThreshold[],
  usage: NodeUsageSampler,
  maxPids: number | undefined,
  signal: AbortSignal,
): Promise<PageThresholds> {
  const observations = new Map([
    ...usageObservations(await usage.sample(MAX_USAGE_AGE, signal), maxPids),
    ...filesystemObservations(await usage.filesystems(MAX_FILESYSTEMS_AGE, signal)),
  ]);
  const items = thresholds.map((threshold): PageThreshold => {
    const { signal: name, value, gracePeriod = null } = threshold;
    const { available, capacity } = observations.get(name) ?? { available: null, capacity: null };
    const limit = quantityOfThreshold(threshold, { available: 0, capacity: capacity ?? 0 });
    return { signal: name, value: value.text, limit, available, capacity, gracePeriodMs: gracePeriod };
  });
  return { items };
}
