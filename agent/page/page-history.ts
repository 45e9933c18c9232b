/** The history as the page shows it: blocks joined to boots, with times by the clock of today where they are known. Pure. */
import {
  HISTORY_SERIES,
  type HistorySeries,
  type PageBoot,
  type PageHistory,
} from "@picolet/protocol/page/board-data.ts";
import type { HistoryBlock, HistorySample } from "./history-ring.ts";

const DAY_MS = 86_400_000;
/** Bounds how far a clock that is set step by step may be off, and two boots may seem to overlap. */
const SLACK_MS = 120_000;

export interface HistoryTime {
  readonly boot: string;
  readonly uptimeMs: number;
  readonly wall: Date;
  /** False while the board's clock has not been set. */
  readonly isTimeKnown: boolean;
  readonly intervalMs: number;
}

interface Boot {
  readonly id: string;
  bootedAtMs: number;
  readonly samples: HistorySample[];
}

/** @param blocks oldest first */
export function pageHistory(blocks: readonly Omit<HistoryBlock, "sequence">[], now: HistoryTime): PageHistory {
  const boots: Boot[] = [];
  for (const { boot: id, bootedAtMs, samples } of blocks) {
    const last = boots.at(-1);
    const boot = last?.id === id ? last : { id, bootedAtMs, samples: [] };
    if (boot !== last) boots.push(boot);
    // The clock of the latest block is the best one of that boot: it may have been set since.
    if (!Number.isNaN(bootedAtMs)) boot.bootedAtMs = bootedAtMs;
    boot.samples.push(...samples);
  }
  const shown: PageBoot[] = [];
  let limitMs = now.wall.getTime() + SLACK_MS;
  for (const boot of boots.toReversed()) {
    const isCurrent = boot.id === now.boot;
    if (isCurrent && now.isTimeKnown) boot.bootedAtMs = now.wall.getTime() - now.uptimeMs;
    const end = boot.bootedAtMs + (boot.samples.at(-1)?.uptimeSeconds ?? 0) * 1000;
    // NaN is not known either.
    const isTimeKnown = end <= limitMs;
    if (isTimeKnown) limitMs = boot.bootedAtMs + SLACK_MS;
    const page = bootOf(boot, { isCurrent, isTimeKnown }, now);
    if (page.at.length > 0) shown.unshift(page);
  }
  return { intervalMs: now.intervalMs, now: now.wall.toISOString(), boots: shown };
}

function bootOf(
  { id, bootedAtMs, samples }: Boot,
  { isCurrent, isTimeKnown }: Pick<PageBoot, "isCurrent" | "isTimeKnown">,
  { wall }: HistoryTime,
): PageBoot {
  const from = isTimeKnown ? wall.getTime() - DAY_MS : 0;
  const timeOf = ({ uptimeSeconds }: HistorySample): number =>
    Math.round((isTimeKnown ? bootedAtMs : 0) + uptimeSeconds * 1000);
  const kept = samples.filter((sample) => timeOf(sample) >= from);
  const series = HISTORY_SERIES.map((name) => [name, kept.map(({ figures }) => finite(figures[name]))] as const);
  return {
    ...{ id, isCurrent, isTimeKnown, at: kept.map(timeOf) },
    series: Object.fromEntries(series) as Record<HistorySeries, (number | null)[]>,
  };
}

/** Four digits: more than a plot shows. */
const finite = (value: number): number | null => (Number.isFinite(value) ? Number(value.toPrecision(4)) : null);
