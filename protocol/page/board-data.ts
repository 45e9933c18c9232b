/**
 * The data of a board's page, beside the answers of the local API: JSON below `/page/data/`. Readers let unknown
 * fields pass.
 */
import type { PodPhase } from "../pod/pod-status.ts";

/** All that the page asks for begins with it, on the board's own port and in the kubelet's API. */
export const PAGE_PATH = "/page/";
export const PAGE_DATA_PATH = "/page/data/";

/** GET pods */
export interface PagePods {
  readonly items: readonly PagePod[];
}

/** Without environment, commands and volumes: those can hold secrets. */
export interface PagePod {
  readonly namespace: string;
  readonly name: string;
  readonly phase: PodPhase;
  readonly podIP: string;
  readonly qosClass: string;
  readonly containers: readonly PageContainer[];
}

export interface PageContainer {
  readonly name: string;
  readonly kind: "init" | "container" | "ephemeral";
  readonly image: string;
  readonly state: "waiting" | "running" | "terminated";
  /** Why it waits or has ended; else empty. */
  readonly reason: string;
  readonly ready: boolean;
  readonly restarts: number;
  /** RFC 3339; empty: it does not run. */
  readonly startedAt: string;
}

/** GET thresholds: those of eviction, with what they were compared with last. */
export interface PageThresholds {
  readonly items: readonly PageThreshold[];
}

export interface PageThreshold {
  /** `memory.available`. */
  readonly signal: string;
  /** As configured: `100Mi`, `10%`. */
  readonly value: string;
  /** In the unit of `available`: bytes, inodes or processes. */
  readonly limit: number;
  /** Null: it cannot be measured here. */
  readonly available: number | null;
  readonly capacity: number | null;
  /** Null: hard. */
  readonly gracePeriodMs: number | null;
}

/** The figures of a sample of history, in the order of its record on disk. Bytes, or a share of 0 to 1. */
export const HISTORY_SERIES = [
  "memoryAvailableBytes",
  "memoryBytes",
  "cpuShare",
  "memoryPressureShare",
  "cpuPressureShare",
  "ioPressureShare",
  "diskAvailableBytes",
  "diskBytes",
  /** Since the sample before. */
  "writtenBytes",
  "agentBytes",
  "pods",
  /** 1 connected, 0 not. */
  "tunnel",
] as const;

export type HistorySeries = (typeof HISTORY_SERIES)[number];
/** NaN: not known. */
export type HistoryFigures = Readonly<Record<HistorySeries, number>>;

/** GET history: the last 24 hours, oldest first. */
export interface PageHistory {
  readonly intervalMs: number;
  /** The board's clock. RFC 3339. */
  readonly now: string;
  readonly boots: readonly PageBoot[];
}

/** The samples of one life of the machine. */
export interface PageBoot {
  readonly id: string;
  readonly isCurrent: boolean;
  /** False: its clock was wrong, and `at` counts from its start. */
  readonly isTimeKnown: boolean;
  /** Milliseconds since the epoch. */
  readonly at: readonly number[];
  /** Null: not known. */
  readonly series: Readonly<Record<HistorySeries, readonly (number | null)[]>>;
}
