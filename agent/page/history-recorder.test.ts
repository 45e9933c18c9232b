import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { HISTORY_SERIES, type HistoryFigures } from "@picolet/protocol/page/board-data.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { HistoryRecorder } from "./history-recorder.ts";
import { readRing } from "./history-ring.ts";

const figures = (): HistoryFigures => Object.fromEntries(HISTORY_SERIES.map((name) => [name, 1])) as HistoryFigures;

function recorder(path: string) {
  const clock = new VirtualClock();
  const log = new RecordedLog();
  const boot = { id: "boot", uptimeMs: () => clock.monotonic() + 5000 };
  const stop = new AbortController();
  const history = new HistoryRecorder({ figures, boot, isTimeKnown: () => true, clock, log }, { path });
  const ended = endOfRun(history.run(stop.signal));
  const end = (): Promise<void> => {
    stop.abort();
    return ended;
  };
  return { clock, log, history, end };
}

test("a sample a minute, a block each twenty, and the rest when the agent ends", async () => {
  using folder = new TempFolder();
  const path = folder.at("page", "history");
  const { clock, history, end, log } = recorder(path);
  await clock.advance(seconds(19 * 60));
  assert.deepEqual([await readRing(path), history.pending?.samples.length], [[], 19]);
  await clock.advance(seconds(60), () => history.pending === undefined);
  while (clock.sleeping === 0) await clock.settle();
  await clock.advance(seconds(120));
  await end();
  const blocks = await readRing(path);
  assert.deepEqual(
    blocks.map(({ samples, sequence }) => [sequence, samples.length]),
    [
      [0, 20],
      [1, 2],
    ],
  );
  assert.equal(blocks[0]?.bootedAtMs, clock.wall().getTime() - clock.monotonic() - 5000);
  assert.deepEqual(log.problems, []);
});

test("a disk that takes nothing costs the samples, and is logged once", async () => {
  using folder = new TempFolder();
  writeFileSync(folder.at("page"), "no folder");
  const { clock, log, end } = recorder(folder.at("page", "history"));
  for (let blocks = 0; blocks < 2; blocks += 1) await clock.advance(seconds(20 * 60));
  await end();
  assert.deepEqual(log.problems, ["cannot keep the history"]);
});
