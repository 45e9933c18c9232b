/**
 * The kubelet's eviction thresholds (kubelet configuration `evictionHard`, `evictionSoft` and what belongs to them), as
 * data. Pure.
 */
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Millis } from "@picolet/protocol/ports.ts";

export const EVICTION_SIGNALS = [
  "memory.available",
  "nodefs.available",
  "nodefs.inodesFree",
  "imagefs.available",
  "imagefs.inodesFree",
  "containerfs.available",
  "containerfs.inodesFree",
  "pid.available",
] as const;

export type ConfigurableSignal = (typeof EVICTION_SIGNALS)[number];
/**
 * With the one that follows from `enforceNodeAllocatable: [pods]`: the pods' own cgroup, by the threshold of
 * memory.available.
 */
export type EvictionSignal = ConfigurableSignal | "allocatableMemory.available";

/** Bytes, inodes or processes; or a share of what there is, 0 … 1. */
export type Amount =
  | { readonly kind: "quantity"; readonly value: number; readonly text: string }
  | { readonly kind: "percentage"; readonly share: number; readonly text: string };

/** Met when less than `value` of the signal is left. */
export interface EvictionThreshold {
  readonly signal: EvictionSignal;
  readonly value: Amount;
  /** Undefined: hard. */
  readonly gracePeriod: Millis | undefined;
  /** To be freed beyond the threshold once it has been met. */
  readonly minReclaim: Amount | undefined;
}

/** Values of the configuration by signal. */
type BySignal = Readonly<Record<string, string>>;

export interface EvictionSettings {
  readonly evictionHard: BySignal;
  readonly evictionSoft: BySignal;
  /** Durations. */
  readonly evictionSoftGracePeriod: BySignal;
  readonly evictionMinimumReclaim: BySignal;
  readonly enforceNodeAllocatable: readonly string[];
}

/**
 * The thresholds of a validated configuration: hard ones, then soft ones, each in the order of EVICTION_SIGNALS, then
 * the one of the pods' own cgroup. Without those for containerfs, which follow from the file system that it is
 * (`containerfsThresholds`).
 */
export function evictionThresholds(settings: EvictionSettings): readonly EvictionThreshold[] {
  const { evictionHard, evictionSoft, evictionSoftGracePeriod, evictionMinimumReclaim } = settings;
  const of = (values: BySignal, periodOf: (signal: string) => Millis | undefined): readonly EvictionThreshold[] =>
    EVICTION_SIGNALS.flatMap((signal) => {
      const value = isContainerfsSignal(signal) ? undefined : amountIn(values, signal);
      if (value === undefined || isDisabledThreshold(value)) return [];
      return [{ signal, value, gracePeriod: periodOf(signal), minReclaim: amountIn(evictionMinimumReclaim, signal) }];
    });
  const hard = of(evictionHard, () => undefined);
  // One that waits for nothing is a hard one, in the kubelet too.
  const soft = of(evictionSoft, (signal) => parseDuration(evictionSoftGracePeriod[signal] ?? "") || undefined);
  const isHardOfMemory = (each: EvictionThreshold): boolean =>
    each.signal === "memory.available" && each.gracePeriod === undefined;
  const memory = [...hard, ...soft].filter(isHardOfMemory);
  const pods = settings.enforceNodeAllocatable.includes("pods") ? memory : [];
  return [...hard, ...soft, ...pods.map((each) => ({ ...each, signal: "allocatableMemory.available" as const }))];
}

/** The kubelet ignores what a configuration says of containerfs: it is the one file system or the other. */
export const isContainerfsSignal = (signal: string): boolean => signal.startsWith("containerfs.");

/** Those for what containers write, when that is the file system of volumes and logs, or the one of images. */
export const containerfsThresholds = (
  thresholds: readonly EvictionThreshold[],
  sameAs: "nodefs" | "imagefs",
): readonly EvictionThreshold[] =>
  (["available", "inodesFree"] as const).flatMap((what) =>
    thresholds
      .filter(({ signal }) => signal === `${sameAs}.${what}`)
      .map((threshold) => ({ ...threshold, signal: `containerfs.${what}` as const })),
  );

/** Nothing, and the kubelet takes all of it for nothing too. */
export const isDisabledThreshold = (amount: Amount): boolean =>
  amount.kind === "quantity" ? amount.value === 0 : amount.share === 0 || amount.share === 1;

function amountIn(values: BySignal, signal: string): Amount | undefined {
  const text = values[signal];
  return text === undefined ? undefined : parseAmount(text, "", new FieldProblems());
}

/** How much of `capacity` it is. */
export const amountOf = (amount: Amount, capacity: number): number =>
  amount.kind === "quantity" ? amount.value : Math.floor(amount.share * capacity);

/** @returns undefined and adds a problem when it is neither; 0 is fine (no threshold, for the caller to leave out). */
export function parseAmount(text: string, path: string, problems: FieldProblems): Amount | undefined {
  const percent = /^(.+)%$/.exec(text.trim())?.[1];
  if (percent !== undefined) {
    const value = /^\d+(?:\.\d+)?$/.test(percent) ? Number(percent) : Number.NaN;
    if (value >= 0 && value <= 100) return { kind: "percentage", share: value / 100, text };
    problems.invalid(path, text, "must be a percentage between 0% and 100%");
    return undefined;
  }
  const parsed = parseQuantity(text);
  const value = parsed.ok ? Number(quantityValue(parsed.quantity)) : Number.NaN;
  if (value >= 0 && Number.isSafeInteger(value)) return { kind: "quantity", value, text };
  problems.invalid(path, text, parsed.ok ? "must not be negative or beyond 2^53" : parsed.problem);
  return undefined;
}
