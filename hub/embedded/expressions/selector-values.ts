/** Values of Kubernetes in expressions: quantities and semantic versions (k8s.io/apiserver/pkg/cel/library). */
import { parseQuantity, type Quantity, quantityOf } from "@picolet/protocol/kubernetes/quantity.ts";

const NANO = 1_000_000_000n;
const MAX_INT64 = 2n ** 63n - 1n;
/** SemVer 2.0.0; Kubernetes has no limit, and a device's version has at most 64 characters. */
const MAX_VERSION_LENGTH = 256;
const VERSION =
  /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?$/;

export class QuantityValue {
  readonly #quantity: Quantity;

  constructor(quantity: Quantity) {
    this.#quantity = quantity;
  }

  /** @throws PicoletError `invalid` */
  static parse(text: string): QuantityValue {
    return new QuantityValue(quantityOf(text));
  }

  static isValid(text: string): boolean {
    return parseQuantity(text).ok;
  }

  get nano(): bigint {
    return this.#quantity.nano;
  }

  get isInteger(): boolean {
    const value = this.nano / NANO;
    return this.nano % NANO === 0n && value <= MAX_INT64 && value >= -MAX_INT64 - 1n;
  }

  /** @throws Error when it is no 64-bit integer */
  get asInteger(): bigint {
    if (!this.isInteger) throw new Error("cannot convert value to integer");
    return this.nano / NANO;
  }

  plus(nano: bigint): QuantityValue {
    return new QuantityValue({ ...this.#quantity, nano: this.nano + nano });
  }

  compare(other: QuantityValue): bigint {
    return compared(this.nano, other.nano);
  }
}

type Part = bigint | string;

export class VersionValue {
  readonly release: readonly [bigint, bigint, bigint];
  readonly #prerelease: readonly Part[];

  private constructor(release: readonly [bigint, bigint, bigint], prerelease: readonly Part[]) {
    this.release = release;
    this.#prerelease = prerelease;
  }

  /** @param isNormalized takes `v1`, `1.2` and `01.2.3` too, as 1.0.0, 1.2.0 and 1.2.3 @throws Error */
  static parse(text: string, isNormalized = false): VersionValue {
    const match = text.length > MAX_VERSION_LENGTH ? null : VERSION.exec(isNormalized ? normalized(text) : text);
    if (match === null) throw new Error(`${JSON.stringify(text.slice(0, 64))} is no semantic version`);
    const [, major = "", minor = "", patch = "", prerelease = ""] = match;
    const parts = prerelease === "" ? [] : prerelease.split(".");
    const numeric = (part: string): Part => (/^\d+$/.test(part) ? BigInt(part) : part);
    if (parts.some((part) => /^0\d+$/.test(part))) throw new Error("a number of a pre-release begins with 0");
    return new VersionValue([BigInt(major), BigInt(minor), BigInt(patch)], parts.map(numeric));
  }

  static isValid(text: string, isNormalized = false): boolean {
    try {
      VersionValue.parse(text, isNormalized);
      return true;
    } catch {
      return false;
    }
  }

  compare(other: VersionValue): bigint {
    for (const [index, part] of this.release.entries()) {
      const order = compared(part, other.release[index] ?? 0n);
      if (order !== 0n) return order;
    }
    const [left, right] = [this.#prerelease, other.#prerelease];
    // A version without a pre-release is the later one.
    if (left.length === 0) return right.length === 0 ? 0n : 1n;
    if (right.length === 0) return -1n;
    for (const [index, part] of left.entries()) {
      const against = right[index];
      if (against === undefined) return 1n;
      const order = comparedParts(part, against);
      if (order !== 0n) return order;
    }
    return left.length < right.length ? -1n : 0n;
  }
}

const compared = (left: bigint, right: bigint): bigint => (left < right ? -1n : left > right ? 1n : 0n);

/** Numbers come before texts. */
function comparedParts(left: Part, right: Part): bigint {
  if (typeof left === "bigint" && typeof right === "bigint") return compared(left, right);
  if (typeof left !== typeof right) return typeof left === "bigint" ? -1n : 1n;
  return left < right ? -1n : left > right ? 1n : 0n;
}

function normalized(text: string): string {
  const [, numbers = "", rest = ""] = /^v?([\d.]*)(.*)$/s.exec(text) ?? [];
  const parts = numbers.split(".").map((part) => part.replace(/^0+(?=\d)/, ""));
  while (parts.length < 3) parts.push("0");
  return `${parts.join(".")}${rest}`;
}
