/** Thresholds that are none, that contradict each other, or that the board could never meet or always would. */
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";
import { childPath } from "@picolet/protocol/kubernetes/plain-data.ts";
import { formatQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import { unitHint } from "@picolet/protocol/kubernetes/quantity-hint.ts";
import {
  type Amount,
  amountOf,
  EVICTION_SIGNALS,
  isDisabledThreshold,
  parseAmount,
} from "../plan/eviction/eviction-thresholds.ts";
import type { Configuration } from "./configuration-defaults.ts";

const FIELDS = ["evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim"] as const;
type Field = (typeof FIELDS)[number];

/** The capacity of a signal's resource, and the part that is not reserved, which bounds what can be available. */
export interface SignalCapacity {
  readonly whole: number;
  readonly left: number;
}

/** The capacities of the signals for which it is known. */
export type SignalCapacities = Readonly<Record<string, SignalCapacity | undefined>>;

export function validateEviction(
  configuration: Configuration,
  capacities: SignalCapacities,
  problems: FieldProblems,
): void {
  for (const field of FIELDS) validateSignals(configuration, field, problems);
  validateGracePeriods(configuration, problems);
  for (const signal of EVICTION_SIGNALS) {
    const hard = thresholdOf(configuration, "evictionHard", signal);
    const soft = thresholdOf(configuration, "evictionSoft", signal);
    const capacity = capacities[signal];
    if (hard !== undefined && soft !== undefined && isAtMost(soft, hard, capacity?.whole)) {
      const detail = `must be more than the hard threshold ${hard.text}, or it would never be the first to be met`;
      problems.invalid(pathOf("evictionSoft", signal), soft.text, detail);
    }
    if (capacity === undefined) continue;
    for (const [field, amount] of [
      ["evictionHard", hard],
      ["evictionSoft", soft],
    ] as const) {
      if (amount === undefined || amountOf(amount, capacity.whole) < capacity.left) continue;
      const there = `${countText(capacity.left)} that pods could leave`;
      problems.invalid(pathOf(field, signal), amount.text, `must be less than the ${there}, or it would always be met`);
    }
  }
}

const countText = (value: number): string => formatQuantity({ nano: BigInt(value) * NANO, format: "BinarySI" });
const NANO = 1_000_000_000n;

const pathOf = (field: Field, signal: string): string => childPath(field, signal);

function validateSignals(configuration: Configuration, field: Field, problems: FieldProblems): void {
  for (const [signal, text] of Object.entries(configuration[field])) {
    const path = pathOf(field, signal);
    if (!(EVICTION_SIGNALS as readonly string[]).includes(signal)) {
      problems.invalid(path, signal, `unsupported eviction signal${suggestion(signal)}`);
    } else if (field !== "evictionSoftGracePeriod") {
      const own = new FieldProblems();
      parseAmount(text, path, own);
      for (const { message } of own.found) problems.add(path, `${message}${unitHint(text)}`);
    } else if (!((parseDuration(text) ?? -1) >= 0)) {
      problems.invalid(path, text, 'must be a duration such as "20s" or "1m30s", and not negative');
    }
  }
}

function suggestion(signal: string): string {
  const isBeginning = (each: string): boolean => signal !== "" && each.startsWith(signal);
  const nearest = nearestName(signal, EVICTION_SIGNALS) ?? EVICTION_SIGNALS.find(isBeginning);
  return nearest === undefined ? `; there are ${EVICTION_SIGNALS.join(", ")}` : `, did you mean ${nearest}?`;
}

function validateGracePeriods(configuration: Configuration, problems: FieldProblems): void {
  const { evictionSoft, evictionSoftGracePeriod: periods } = configuration;
  for (const [signal, text] of Object.entries(evictionSoft)) {
    if (Object.hasOwn(periods, signal)) continue;
    const detail = `grace period must be specified for the soft eviction threshold ${signal}`;
    problems.invalid(pathOf("evictionSoft", signal), text, detail);
  }
  for (const [signal, text] of Object.entries(periods)) {
    if (Object.hasOwn(evictionSoft, signal)) continue;
    problems.invalid(
      pathOf("evictionSoftGracePeriod", signal),
      text,
      "there is no soft threshold that would wait for it",
    );
  }
}

/** Undefined for one that is none, or that is wrong and has been said to be. */
function thresholdOf(
  configuration: Configuration,
  field: "evictionHard" | "evictionSoft",
  signal: string,
): Amount | undefined {
  const text = configuration[field][signal];
  const amount = text === undefined ? undefined : parseAmount(text, "", new FieldProblems());
  return amount === undefined || isDisabledThreshold(amount) ? undefined : amount;
}

/** Amounts of two kinds can be compared where it is known how much there is. */
function isAtMost(left: Amount, right: Amount, capacity: number | undefined): boolean {
  if (left.kind === "percentage" && right.kind === "percentage") return left.share <= right.share;
  if (left.kind === "quantity" && right.kind === "quantity") return left.value <= right.value;
  return capacity !== undefined && amountOf(left, capacity) <= amountOf(right, capacity);
}
