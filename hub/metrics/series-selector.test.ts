import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { MAX_SELECTORS, SeriesSelectors } from "./series-selector.ts";

const LABELS: Readonly<Record<string, string>> = { node: "edge-1", pod: 'a"b', namespace: "default" };

const CASES: readonly (readonly [selector: string, name: string, selects: boolean])[] = [
  ["up", "up", true],
  ["up", "down", false],
  ['{__name__="up"}', "up", true],
  ['up{node="edge-1"}', "up", true],
  ['up{ node = "edge-1" , namespace != "kube-system", }', "up", true],
  ['up{node="edge-2"}', "up", false],
  ["up{node='edge-1'}", "up", true],
  ['up{pod="a\\"b"}', "up", true],
  ['up{missing=""}', "up", true],
  ['{node=~"edge-.+"}', "up", true],
  ['{node=~"edge-1.+"}', "up", false],
  ['{node=~"cloud|edge-1"}', "up", true],
  ['{node!~"edge.*"}', "up", false],
  ['{__name__=~".+"}', "up", true],
  ['{__name__=~"a|u.*"}', "up", true],
  ['{__name__=~"p"}', "up", false],
  ['{node=~"edge\\\\-1"}', "up", true],
];

test("a selector selects as Prometheus' own", () => {
  for (const [selector, name, selects] of CASES) {
    const selectors = new SeriesSelectors([selector]);
    assert.equal(
      selectors.selects(name, (label) => LABELS[label] ?? ""),
      selects,
      selector,
    );
    if (selects) assert.ok(selectors.hasMetric(name), selector);
  }
  const either = new SeriesSelectors(["a", "b"]);
  assert.deepEqual(
    ["a", "b", "c"].map((name) => either.hasMetric(name)),
    [true, true, false],
  );
  assert.ok(new SeriesSelectors([]).selects("anything", () => ""));
});

test("what is no selector, or would cost too much, is refused", () => {
  const wrong = [
    ...["", "{}", "up{", "up}", "up{node}", 'up{node="a"', 'up{node="a}', "up{node=a}", "1up", 'up{node="a"}x'],
    ...['{node=~"(a+)+"}', '{node=~"a{3}"}', '{node=~"[a-z]"}', '{node=~"a?"}', '{node=~"^a$"}'],
    ...[`{node="${"x".repeat(2000)}"}`, `{node=~"${"a|".repeat(100)}"}`, `{${'a="b",'.repeat(17)}}`],
  ];
  for (const text of wrong)
    assert.throws(
      () => new SeriesSelectors([text]),
      (error) => isPicoletError(error, "invalid"),
      text,
    );
  assert.throws(() => new SeriesSelectors(Array(MAX_SELECTORS + 1).fill("up")), { code: "invalid" });
});

test("patterns match what the same regular expression matches", () => {
  const piece = fc.constantFrom("a", "b", "ab", ".*", ".+", "|", "\\.");
  const pattern = fc.array(piece, { maxLength: 6 }).map((pieces) => pieces.join(""));
  fc.assert(
    fc.property(pattern, fc.string({ unit: fc.constantFrom("a", "b", "."), maxLength: 6 }), (text, value) => {
      const quoted = text.replaceAll("\\", "\\\\");
      const selectors = new SeriesSelectors([`{node=~"${quoted}"}`]);
      assert.equal(
        selectors.selects("up", () => value),
        new RegExp(`^(?:${text})$`).test(value),
        `${text} on ${value}`,
      );
    }),
    { numRuns: 2000 },
  );
});

test("any text is a selector or is refused", () => {
  fc.assert(
    fc.property(
      fc.string({ unit: fc.constantFrom("a", "{", "}", '"', "'", "=", "~", "!", ",", "\\", " "), maxLength: 30 }),
      (text) => {
        try {
          new SeriesSelectors([text]).selects("a", () => "a");
        } catch (error) {
          assert.ok(isPicoletError(error, "invalid"), String(error));
        }
      },
    ),
    { numRuns: 2000 },
  );
});
