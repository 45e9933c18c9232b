/**
 * Kubernetes quantities ("100m", "1.5Gi", "12e6"), exact: a value is a whole number of nano units in a bigint.
 * Rules: k8s.io/apimachinery/pkg/api/resource, "Quantity". Finer than nano rounds away from zero; a quantity with a
 * binary suffix is capped at 2^63-1; decimal ones are not.
 */
import { PicoletError } from "../errors.ts";

/** The family of suffixes that the text used, and that it is formatted with. */
export type QuantityFormat = "BinarySI" | "DecimalSI" | "DecimalExponent";

export interface Quantity {
  /** The value times 10^9. */
  readonly nano: bigint;
  readonly format: QuantityFormat;
}

export type QuantityResult =
  | { readonly ok: true; readonly quantity: Quantity }
  | { readonly ok: false; readonly problem: string };

/** Kubernetes has no limit; longer than this is no quantity but an attempt to keep a parser busy. */
export const MAX_QUANTITY_LENGTH = 64;
/** 10^36 is 10^18 times the largest suffix; Kubernetes has no limit, and computes 10^2147483647 when asked to. */
const MAX_DECIMAL_EXPONENT = 36n;
/** With no more digits than MAX_QUANTITY_LENGTH, everything with a smaller exponent is below one nano unit. */
const MIN_DECIMAL_EXPONENT = -100n;

const NANO = 1_000_000_000n;
const NANO_DIGITS = 9n;
const MILLI = 1_000_000n;
const MAX_INT64 = 2n ** 63n - 1n;

const BINARY_SUFFIXES = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/** Index 0 is 10^-9. */
const DECIMAL_SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

const FORMAT_PROBLEM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NUMBER_PROBLEM = "unable to parse numeric part of quantity";
const SUFFIX_PROBLEM = "unable to parse quantity's suffix";

interface Scale {
  readonly format: QuantityFormat;
  readonly base: 2n | 10n;
  readonly exponent: bigint;
}

function parseSuffix(suffix: string): Scale | undefined {
  const binary = BINARY_SUFFIXES.indexOf(suffix);
  if (binary > 0) return { format: "BinarySI", base: 2n, exponent: BigInt(binary) * 10n };
  const decimal = DECIMAL_SUFFIXES.indexOf(suffix);
  if (decimal >= 0) return { format: "DecimalSI", base: 10n, exponent: BigInt(decimal - 3) * 3n };
  if (!/^[eE][+-]?\d+$/.test(suffix)) return undefined;
  const exponent = BigInt(suffix.slice(suffix[1] === "+" ? 2 : 1));
  if (exponent > MAX_DECIMAL_EXPONENT) return undefined;
  const enough = exponent < MIN_DECIMAL_EXPONENT ? MIN_DECIMAL_EXPONENT : exponent;
  return { format: "DecimalExponent", base: 10n, exponent: enough };
}

/** `dividend / divisor` of non-negative numbers, rounded up. */
const divideUp = (dividend: bigint, divisor: bigint): bigint => (dividend + divisor - 1n) / divisor;

/** Never throws. */
export function parseQuantity(text: string): QuantityResult {
  if (text.length > MAX_QUANTITY_LENGTH) {
    return { ok: false, problem: `quantities must be no more than ${MAX_QUANTITY_LENGTH} characters` };
  }
  const match = /^([+-]?)(\d*)(?:\.(\d*))?([eEinumkKMGTP]*[-+]?\d*)$/.exec(text);
  const [, sign, whole = "", fraction = "", suffix = ""] = match ?? [];
  if (text === "" || match === null) return { ok: false, problem: FORMAT_PROBLEM };
  // Kubernetes reads some of these as zero ("m", "Ki") and refuses others ("Pi"); all are mistakes.
  if (whole + fraction === "") return { ok: false, problem: NUMBER_PROBLEM };
  const scale = parseSuffix(suffix);
  if (scale === undefined) return { ok: false, problem: SUFFIX_PROBLEM };

  const digits = BigInt(whole + fraction);
  const tens = NANO_DIGITS - BigInt(fraction.length) + (scale.base === 10n ? scale.exponent : 0n);
  const mantissa = scale.base === 2n ? digits << scale.exponent : digits;
  let magnitude = tens >= 0n ? mantissa * 10n ** tens : divideUp(mantissa, 10n ** -tens);
  let format = scale.format;
  if (format === "BinarySI") {
    if (magnitude > MAX_INT64 * NANO) magnitude = MAX_INT64 * NANO;
    if (magnitude > 0n && magnitude < NANO) format = "DecimalSI";
  }
  return { ok: true, quantity: { nano: sign === "-" ? -magnitude : magnitude, format } };
}

/** Parses a text that was validated before. @throws PicoletError `invalid` if it was not */
export function quantityOf(text: string): Quantity {
  const result = parseQuantity(text);
  if (result.ok) return result.quantity;
  throw new PicoletError("invalid", `cannot read the quantity ${JSON.stringify(text.slice(0, MAX_QUANTITY_LENGTH))}`, {
    cause: new Error(result.problem),
  });
}

const absolute = (value: bigint): bigint => (value < 0n ? -value : value);

/** Away from zero to a multiple of `unit` nanos, counted in units. */
function scaled(quantity: Quantity, unit: bigint): bigint {
  const magnitude = divideUp(absolute(quantity.nano), unit);
  return quantity.nano < 0n ? -magnitude : magnitude;
}

/** @returns whole units, rounded away from zero: bytes of memory, for instance */
export const quantityValue = (quantity: Quantity): bigint => scaled(quantity, NANO);
/** @returns thousandths, rounded away from zero: of CPUs, for instance */
export const quantityMilliValue = (quantity: Quantity): bigint => scaled(quantity, MILLI);

/** Kubernetes' rounding of a pod's requests and limits: away from zero to thousandths. */
export const roundToMilli = (quantity: Quantity): Quantity => ({
  nano: scaled(quantity, MILLI) * MILLI,
  format: quantity.format,
});

export const compareQuantities = (left: Quantity, right: Quantity): -1 | 0 | 1 =>
  left.nano < right.nano ? -1 : left.nano > right.nano ? 1 : 0;

/** @returns false where one of them is no quantity */
export function isLarger(left: string, right: string): boolean {
  const [one, other] = [parseQuantity(left), parseQuantity(right)];
  return one.ok && other.ok && compareQuantities(one.quantity, other.quantity) > 0;
}

/** @returns the sum in the format of `left`, or of `right` when `left` is zero, as in Kubernetes */
export const addQuantities = (left: Quantity, right: Quantity): Quantity => ({
  nano: left.nano + right.nano,
  format: left.nano === 0n ? right.format : left.format,
});

/** How often `base` divides `value`, up to `limit`, and what is left. */
function factors(value: bigint, base: bigint, limit: number): { readonly rest: bigint; readonly count: number } {
  let rest = value;
  let count = 0;
  while (count < limit && rest % base === 0n) {
    rest /= base;
    count += 1;
  }
  return { rest, count };
}

/** A value of 10^36 has this many groups of three digits above nano. */
const MAX_DECIMAL_GROUPS = 64;

function formatDecimal(nano: bigint, format: QuantityFormat): string {
  const { rest, count } = factors(nano, 1000n, MAX_DECIMAL_GROUPS);
  const suffix = format === "DecimalExponent" ? undefined : DECIMAL_SUFFIXES[count];
  const exponent = (count - 3) * 3;
  return `${rest}${suffix ?? (exponent === 0 ? "" : `e${exponent}`)}`;
}

/**
 * Canonical: no fraction, no precision lost, the largest suffix that allows both. "1.5Gi" is "1536Mi", "0.5" is "500m".
 */
export function formatQuantity(quantity: Quantity): string {
  if (quantity.nano === 0n) return "0";
  const exact = quantity.nano % NANO === 0n;
  if (quantity.format !== "BinarySI" || !exact || absolute(quantity.nano) < 1024n * NANO) {
    return formatDecimal(quantity.nano, quantity.format);
  }
  const { rest, count } = factors(quantity.nano / NANO, 1024n, BINARY_SUFFIXES.length - 1);
  return `${rest}${BINARY_SUFFIXES[count] ?? ""}`;
}
