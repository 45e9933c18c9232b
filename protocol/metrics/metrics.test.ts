import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  counter,
  gauge,
  histogram,
  MAX_LABEL_CHARACTERS,
  MAX_SERIES,
  type Metric,
  metricsText,
  type Sample,
} from "./metrics.ts";

interface Figures {
  readonly starts: number;
  readonly temperature: number | undefined;
}

const TABLE: readonly Metric<Figures>[] = [
  counter("dummy_starts_total", "How often it\nstarted.", ["why"], ({ starts }) => [
    { labels: ["boot"], value: starts, atMs: 1500 },
  ]),
  gauge("dummy_temperature_celsius", 'The "board".', [], ({ temperature }) => [{ labels: [], value: temperature }]),
  histogram("dummy_wait_seconds", "Waits.", ["kind"], () => [
    { labels: ["a"], value: { bounds: [0.5, 1], counts: [2, 0, 1], sum: 9.5 } },
  ]),
];

const HISTOGRAM = (one: string): readonly string[] => [
  "# HELP dummy_wait_seconds Waits.",
  "# TYPE dummy_wait_seconds histogram",
  'dummy_wait_seconds_bucket{kind="a",le="0.5"} 2',
  `dummy_wait_seconds_bucket{kind="a",le="${one}"} 2`,
  'dummy_wait_seconds_bucket{kind="a",le="+Inf"} 3',
  'dummy_wait_seconds_sum{kind="a"} 9.5',
  'dummy_wait_seconds_count{kind="a"} 3',
];

test("counters, gauges and histograms in Prometheus' text format", () => {
  const text = [...metricsText(TABLE, { starts: 3, temperature: -0.5 })].join("");
  assert.deepEqual(text.split("\n"), [
    "# HELP dummy_starts_total How often it\\nstarted.",
    "# TYPE dummy_starts_total counter",
    'dummy_starts_total{why="boot"} 3 1500',
    '# HELP dummy_temperature_celsius The "board".',
    "# TYPE dummy_temperature_celsius gauge",
    "dummy_temperature_celsius -0.5",
    ...HISTOGRAM("1"),
    "",
  ]);
});

test("OpenMetrics names a counter without its suffix, counts time in seconds, and ends with a mark", () => {
  const text = [...metricsText(TABLE, { starts: 3, temperature: undefined }, "openmetrics")].join("");
  assert.deepEqual(text.split("\n"), [
    "# HELP dummy_starts How often it\\nstarted.",
    "# TYPE dummy_starts counter",
    'dummy_starts_total{why="boot"} 3 1.5',
    ...HISTOGRAM("1.0"),
    "# EOF",
    "",
  ]);
});

test("figures are read when their line is taken, and no earlier", () => {
  const read: string[] = [];
  const watched = (name: string): Metric<undefined> =>
    gauge(name, "", [], () => {
      read.push(name);
      return [{ labels: [], value: 1 }];
    });
  const pieces = metricsText([watched("a"), watched("b")], undefined);
  assert.deepEqual(read, []);
  pieces.next();
  assert.deepEqual(read, ["a"]);
});

test("a metric has at most so many series, and the text says that some are missing", () => {
  function* endless(): Generator<Sample<number>> {
    for (let index = 0; ; index += 1) yield { labels: [String(index)], value: index };
  }
  const table = [gauge<undefined>("many", "Many.", ["index"], endless)];
  const lines = [...metricsText(table, undefined)];
  assert.equal(lines.length, MAX_SERIES + 2);
  assert.equal(lines.at(-1), `# many: series above ${MAX_SERIES} are left out\n`);
  const open = [...metricsText(table, undefined, "openmetrics")].join("").trimEnd().split("\n");
  assert.equal(open.length, MAX_SERIES + 3);
  assert.equal(open.at(-1), "# EOF");
});

test("numbers that are none are written as Prometheus writes them", () => {
  const values = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e21, 5e-7];
  const table = [
    gauge<undefined>("n", "", ["i"], () => values.map((value, index) => ({ labels: [`${index}`], value }))),
  ];
  const written = [...metricsText(table, undefined)].slice(1).map((line) => line.trim().split(" ")[1]);
  assert.deepEqual(written, ["NaN", "+Inf", "-Inf", "1e+21", "5e-7"]);
});

/** Reads labels of a line as Prometheus' own parser does. */
function parseLine(line: string): { readonly labels: readonly (readonly [string, string])[]; readonly value: string } {
  const labels: [string, string][] = [];
  let rest = line.slice(line.indexOf("{") + 1);
  for (;;) {
    const [whole, name = "", escaped = "", end] = /^([a-z]+)="((?:[^"\\\n]|\\["\\n])*)"([,}])/.exec(rest) ?? [];
    assert.ok(whole !== undefined, `cannot parse ${JSON.stringify(rest)}`);
    labels.push([name, escaped.replace(/\\(.)/g, (_, char: string) => (char === "n" ? "\n" : char))]);
    rest = rest.slice(whole.length);
    if (end === "}") return { labels, value: rest };
  }
}

test("any label value comes out of the text as it went in, cut and well-formed", () => {
  const hostile = fc.oneof(
    fc.string({ unit: "binary", maxLength: 40 }),
    fc.string({ unit: fc.constantFrom('"', "\\", "\n", "}", ",", "=", "\ud800", "n"), maxLength: 20 }),
    fc.string({ minLength: MAX_LABEL_CHARACTERS, maxLength: MAX_LABEL_CHARACTERS + 50 }),
  );
  fc.assert(
    fc.property(
      fc.array(fc.tuple(hostile, hostile), { maxLength: 5 }),
      fc.constantFrom("prometheus", "openmetrics"),
      (all, format) => {
        const table = [
          counter<undefined>("x_total", "X.", ["one", "two"], () => all.map((labels) => ({ labels, value: 7 }))),
        ];
        const text = [...metricsText(table, undefined, format)].join("");
        const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
        const expected = all.map((values) =>
          values.map((value) => value.slice(0, MAX_LABEL_CHARACTERS).toWellFormed()),
        );
        assert.deepEqual(
          lines.map((line) => parseLine(line).labels.map(([, value]) => value)),
          expected,
        );
        assert.ok(lines.every((line) => parseLine(line).value === " 7"));
        assert.ok(text.isWellFormed());
      },
    ),
    { numRuns: 300 },
  );
});
