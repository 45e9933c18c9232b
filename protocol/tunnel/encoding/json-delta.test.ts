import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPicoletError } from "../../errors.ts";
import { applyDelta, diffJson, equalJson } from "./json-delta.ts";

/** Small keys and values, so that two of them have much in common. */
const json = fc.jsonValue({ maxDepth: 4, depthSize: "small" });
const status = fc.dictionary(
  fc.constantFrom("a", "b", "__proto__", "constructor", "conditions"),
  fc.oneof(json, fc.array(fc.dictionary(fc.constantFrom("type", "status"), fc.constantFrom("True", "False", 1, null)))),
);

const roundTrip = (base: unknown, next: unknown): void => {
  const delta: unknown = JSON.parse(JSON.stringify(diffJson(base, next)));
  assert.deepEqual(JSON.stringify(sorted(applyDelta(base, delta))), JSON.stringify(sorted(next)));
};

const sorted = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return Object.is(value, -0) ? 0 : value;
  return Object.entries(value)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, each]) => [key, sorted(each)]);
};

test("a delta takes any value to any other", () => {
  fc.assert(fc.property(json, json, roundTrip));
  fc.assert(fc.property(status, status, roundTrip));
});

test("a delta of equal values changes nothing", () => {
  fc.assert(fc.property(json, (value) => roundTrip(value, structuredClone(value))));
});

test("equal means equal as JSON", () => {
  assert.ok(equalJson({ a: 1, b: undefined }, { a: 1 }));
  assert.ok(!equalJson({ a: null }, {}));
  assert.ok(!equalJson([1], { 0: 1 }));
  fc.assert(fc.property(status, status, (a, b) => equalJson(a, b) === equalJson(b, a)));
});

test("a pod that becomes ready costs what changed", () => {
  const condition = (type: string, value: string, at: string) => ({ type, status: value, lastTransitionTime: at });
  const before = "2026-01-31T12:00:00Z";
  const after = "2026-01-31T12:00:05Z";
  const base = {
    phase: "Running",
    conditions: [
      condition("Initialized", "True", before),
      { ...condition("Ready", "False", before), reason: "ContainersNotReady" },
    ],
  };
  const next = {
    phase: "Running",
    conditions: [condition("Initialized", "True", before), condition("Ready", "True", after)],
  };
  assert.deepEqual(diffJson(base, next), {
    conditions: [2, 1, { status: "True", lastTransitionTime: after, reason: [] }],
  });
});

test("elements that all moved are sent as the new list", () => {
  const base = Array.from({ length: 6 }, (_, index) => ({ name: `container-${index}`, image: `image-${index}` }));
  const next = base.slice(1);
  assert.deepEqual(diffJson(base, next), [next]);
});

const HOSTILE: readonly (readonly [name: string, base: unknown, delta: unknown])[] = [
  ["fields of a text", "x", { a: 1 }],
  ["fields of a list", [1], { a: 1 }],
  ["elements of an object", {}, [1, 0, 1]],
  ["a length that nothing fills", [], [4_294_967_295, 0]],
  ["a length of which one element is given", [], [3, 2, "x"]],
  ["an element beyond the end", [1, 2], [2, 2, 1]],
  ["a negative length", [1], [-1, 0]],
  ["half an element", [1], [1, 0, 5, 0]],
  ["a removal of nothing", {}, []],
  ["a wrapped number", {}, [1]],
  ["an index that is a text", [1], [1, "length", 5]],
  ["a field of a missing field", {}, { a: { b: 1 } }],
];
for (const [name, base, delta] of HOSTILE) {
  test(`a hostile delta is refused: ${name}`, () => {
    assert.throws(
      () => applyDelta(base, delta),
      (error) => isPicoletError(error, "invalid"),
    );
  });
}

test("a delta that is too deep is refused", () => {
  let base: unknown = 1;
  let delta: unknown = 2;
  for (let depth = 0; depth < 10_000; depth += 1) [base, delta] = [{ a: base }, { a: delta }];
  assert.throws(
    () => applyDelta(base, delta),
    (error) => isPicoletError(error, "invalid"),
  );
});

test("no delta throws anything but invalid, changes its base, or reaches a prototype", () => {
  fc.assert(
    fc.property(status, status, (base, delta) => {
      const before = JSON.stringify(base);
      try {
        const result = applyDelta(base, delta);
        assert.equal(Object.getPrototypeOf(result), Object.prototype);
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"), String(error));
      }
      assert.equal(JSON.stringify(base), before);
      assert.equal(Object.getPrototypeOf({}).a, undefined);
    }),
  );
});
