import assert from "node:assert/strict";
import { test } from "node:test";
import { HISTORY_SERIES, type HistoryFigures } from "@picolet/protocol/page/board-data.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { HistoryBlock } from "./history-ring.ts";
import { pageHistory } from "./page-history.ts";

type Block = Omit<HistoryBlock, "sequence">;

const NOW_MS = Date.UTC(2026, 10, 23, 12);
const HOUR_MS = 3_600_000;
const NOW = {
  ...{ boot: "now", uptimeMs: 2 * HOUR_MS, wall: new Date(NOW_MS), isTimeKnown: true },
  intervalMs: seconds(60),
};
const figures = Object.fromEntries(HISTORY_SERIES.map((name) => [name, Number.NaN])) as HistoryFigures;

/** @param uptimes hours */
const block = (boot: string, bootedAtMs: number, ...uptimes: readonly number[]): Block => ({
  ...{ boot, bootedAtMs },
  samples: uptimes.map((hours) => ({ uptimeSeconds: hours * 3600, figures: { ...figures, pods: 1.23456 } })),
});

/** Hours before now; or, of a boot whose time is not known, after its start. */
const shown = (blocks: readonly Block[], now: Partial<typeof NOW> = {}) =>
  pageHistory(blocks, { ...NOW, ...now }).boots.map(({ id, isCurrent, isTimeKnown, at }) => {
    const hours = at.map((ms) => (isTimeKnown ? (NOW_MS - ms) / HOUR_MS : ms / HOUR_MS));
    return [`${id}${isCurrent ? " current" : ""}${isTimeKnown ? "" : " unknown"}`, ...hours];
  });

test("blocks of one boot are joined, and boots are told apart", () => {
  const before = NOW_MS - 10 * HOUR_MS;
  assert.deepEqual(
    shown([block("old", before, 1, 2), block("old", before, 3), block("now", NOW_MS - 2 * HOUR_MS, 0.5, 1)]),
    [
      ["old", 9, 8, 7],
      ["now current", 1.5, 1],
    ],
  );
});

test("a clock that is set later makes the samples before it right", () => {
  // The agent began in 1970, and the hub has told the time since.
  assert.deepEqual(shown([block("now", Number.NaN, 0.5), block("now", NOW_MS - 2 * HOUR_MS, 1)]), [
    ["now current", 1.5, 1],
  ]);
  const old = NOW_MS - 10 * HOUR_MS;
  assert.deepEqual(shown([block("old", Number.NaN, 1), block("old", old, 2)]), [["old", 9, 8]]);
  // A time that was known once stays known.
  assert.deepEqual(shown([block("old", old, 1), block("old", Number.NaN, 2)]), [["old", 9, 8]]);
});

test("a boot whose clock was never set, or was wrong, has no times", () => {
  assert.deepEqual(shown([block("lost", Number.NaN, 1, 2)]), [["lost unknown", 1, 2]]);
  assert.deepEqual(shown([block("ahead", NOW_MS + 5 * HOUR_MS, 1)]), [["ahead unknown", 1]]);
  // It cannot have run while the next one did.
  const overlapping = [block("old", NOW_MS - 3 * HOUR_MS, 2), block("now", NOW_MS - 2 * HOUR_MS, 1)];
  assert.deepEqual(shown(overlapping), [
    ["old unknown", 2],
    ["now current", 1],
  ]);
  assert.deepEqual(shown([block("now", Number.NaN, 1)], { isTimeKnown: false }), [["now current unknown", 1]]);
});

test("what is older than a day is left out, and figures are short", () => {
  const history = pageHistory([block("old", NOW_MS - 30 * HOUR_MS, 1, 5, 7)], NOW);
  assert.deepEqual(history.boots[0]?.at, [NOW_MS - 23 * HOUR_MS]);
  assert.deepEqual(history.boots[0]?.series.pods, [1.235]);
  assert.deepEqual(history.boots[0]?.series.tunnel, [null]);
  assert.deepEqual(pageHistory([block("older", NOW_MS - 90 * HOUR_MS, 1)], NOW).boots, []);
});
