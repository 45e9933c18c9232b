import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPicoletError } from "../errors.ts";
import {
  addQuantities,
  compareQuantities,
  formatQuantity,
  MAX_QUANTITY_LENGTH,
  parseQuantity,
  quantityMilliValue,
  quantityOf,
  quantityValue,
  roundToMilli,
} from "./quantity.ts";

const format = (text: string): string => formatQuantity(quantityOf(text));

/** As kubectl 1.32 prints them, but for what it leaves as typed (`+5`, `00012`, `5.`) and its loss of "1000E". */
const CANONICAL: readonly (readonly [string, string])[] = [
  ["0", "0"],
  ["0.0", "0"],
  ["-0", "0"],
  ["0Ki", "0"],
  ["1000m", "1"],
  ["1500m", "1500m"],
  ["0.5", "500m"],
  [".5", "500m"],
  ["5.", "5"],
  ["+5", "5"],
  ["-5", "-5"],
  ["-0.5", "-500m"],
  ["00012", "12"],
  ["1.1", "1100m"],
  ["100n", "100n"],
  ["0.1n", "1n"],
  ["-0.1n", "-1n"],
  ["999999u", "999999u"],
  ["1k", "1k"],
  ["1000k", "1M"],
  ["1500k", "1500k"],
  ["1E", "1E"],
  ["1000E", "1e21"],
  ["1023", "1023"],
  ["1024", "1024"],
  ["1.5Ki", "1536"],
  ["0.5Ki", "512"],
  ["0.1Ki", "102400m"],
  ["0.9765625Ki", "1k"],
  ["1.0001Ki", "1024102400u"],
  ["1025Ki", "1025Ki"],
  ["2048Ki", "2Mi"],
  ["1024Mi", "1Gi"],
  ["1.5Gi", "1536Mi"],
  ["0.3Mi", "314572800m"],
  ["1.23Gi", "1320702443520m"],
  ["1Pi", "1Pi"],
  ["1Ei", "1Ei"],
  ["8Ei", "9223372036854775807"],
  ["9Ei", "9223372036854775807"],
  ["-9Ei", "-9223372036854775807"],
  ["18446744073709551616", "18446744073709551616"],
  ["12345678901234567890123", "12345678901234567890123"],
  ["1e3", "1e3"],
  ["1E3", "1e3"],
  ["1e+3", "1e3"],
  ["1e2", "100"],
  ["10e1", "100"],
  ["1e0", "1"],
  ["12e6", "12e6"],
  ["1.25e4", "12500"],
  ["1e-3", "1e-3"],
  ["5e-9", "5e-9"],
  ["5e-10", "1e-9"],
  ["3e-400", "1e-9"],
  ["1e19", "10e18"],
];

for (const [text, canonical] of CANONICAL) {
  test(`${text} is ${canonical} in canonical form`, () => {
    assert.equal(format(text), canonical);
    assert.equal(format(canonical), canonical);
  });
}

const FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX = "unable to parse quantity's suffix";
const NUMBER = "unable to parse numeric part of quantity";

for (const [text, problem] of [
  ["", FORMAT],
  ["1 ", FORMAT],
  [" 1", FORMAT],
  ["1.1.1", FORMAT],
  ["0x1", FORMAT],
  ["1KI", FORMAT],
  ["1e1.5", FORMAT],
  ["1\n", FORMAT],
  ["1i", SUFFIX],
  ["1K", SUFFIX],
  ["1ki", SUFFIX],
  ["1mi", SUFFIX],
  ["1+1", SUFFIX],
  ["1e", SUFFIX],
  ["1e37", SUFFIX],
  ["1e999999999999", SUFFIX],
  ["m", NUMBER],
  [".", NUMBER],
  ["-", NUMBER],
  ["9".repeat(MAX_QUANTITY_LENGTH + 1), `quantities must be no more than ${MAX_QUANTITY_LENGTH} characters`],
] as const) {
  test(`${JSON.stringify(text.slice(0, 20))} is no quantity: ${problem.slice(0, 40)}`, () => {
    assert.deepEqual(parseQuantity(text), { ok: false, problem });
    assert.throws(
      () => quantityOf(text),
      (error) => isPicoletError(error, "invalid"),
    );
  });
}

test("values and thousandths are rounded away from zero", () => {
  assert.equal(quantityValue(quantityOf("1.5")), 2n);
  assert.equal(quantityValue(quantityOf("-1.5")), -2n);
  assert.equal(quantityValue(quantityOf("1n")), 1n);
  assert.equal(quantityValue(quantityOf("64Mi")), 67_108_864n);
  assert.equal(quantityValue(quantityOf("1e30")), 10n ** 30n);
  assert.equal(quantityMilliValue(quantityOf("0.1")), 100n);
  assert.equal(quantityMilliValue(quantityOf("100u")), 1n);
  assert.equal(quantityMilliValue(quantityOf("2")), 2000n);
});

test("requests and limits round up to thousandths", () => {
  assert.equal(formatQuantity(roundToMilli(quantityOf("100u"))), "1m");
  assert.equal(formatQuantity(roundToMilli(quantityOf("1.0001Ki"))), "1024103m");
  assert.equal(formatQuantity(roundToMilli(quantityOf("250m"))), "250m");
});

test("a sum takes the format of its first part that is not zero", () => {
  assert.equal(formatQuantity(addQuantities(quantityOf("1Gi"), quantityOf("512Mi"))), "1536Mi");
  assert.equal(formatQuantity(addQuantities(quantityOf("0"), quantityOf("1Gi"))), "1Gi");
  assert.equal(formatQuantity(addQuantities(quantityOf("500m"), quantityOf("500m"))), "1");
});

test("quantities of different formats compare by value", () => {
  assert.equal(compareQuantities(quantityOf("1"), quantityOf("1000m")), 0);
  assert.equal(compareQuantities(quantityOf("1Ki"), quantityOf("1k")), 1);
  assert.equal(compareQuantities(quantityOf("-1"), quantityOf("0")), -1);
});

const SUFFIXES = "n u m _ k M G T P E Ki Mi Gi Ti Pi Ei e3 e-3 E12 e+6".replace("_", "").split(" ");
const written = fc
  .tuple(fc.constantFrom("", "-", "+"), fc.nat(), fc.option(fc.nat(999_999)), fc.constantFrom(...SUFFIXES))
  .map(([sign, whole, fraction, suffix]) => `${sign}${whole}${fraction === null ? "" : `.${fraction}`}${suffix}`);

test("writing and reading again changes no value, and no text but a binary one without a suffix", () => {
  fc.assert(
    fc.property(written, (text) => {
      const once = quantityOf(text);
      const again = quantityOf(formatQuantity(once));
      assert.equal(again.nano, once.nano);
      // Plain digits are read as decimal, so that the format is lost, as in Kubernetes.
      const formatLost = once.format === "BinarySI" && /\d$/.test(formatQuantity(once));
      if (!formatLost) assert.equal(formatQuantity(again), formatQuantity(once));
    }),
    { numRuns: 1000, examples: [["1282117562.5Ki"]] },
  );
  assert.equal(formatQuantity(quantityOf("1282117562.5Ki")), "1312888384000");
  assert.equal(formatQuantity(quantityOf("1312888384000")), "1312888384k");
});

test("no text makes the parser throw", () => {
  const similar = fc.string({ unit: fc.constantFrom(..."0123456789.+-eEinumkKMGTP ") });
  fc.assert(
    fc.property(fc.oneof(fc.string(), similar), (text) => {
      const result = parseQuantity(text);
      if (result.ok) assert.equal(typeof formatQuantity(result.quantity), "string");
      else assert.notEqual(result.problem, "");
    }),
    { numRuns: 1000 },
  );
});
