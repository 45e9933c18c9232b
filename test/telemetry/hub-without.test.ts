/**
 * A hub that takes no telemetry, because it is older or has it switched off: the board stays within its bounds and goes
 * on.
 */
import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { test } from "node:test";
import { TelemetryStreams } from "@picolet/hub/telemetry/telemetry-streams.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { openHub, settle, TelemetryBoard } from "../support/unit/tunnel/telemetry-board.ts";
import { event, point } from "../support/unit/tunnel/telemetry-samples.ts";
import { TunnelBench } from "../support/unit/tunnel/tunnel-bench.ts";

const MAX_BYTES = 512 * 1024;
const TEXT = "x".repeat(2000);
const SAID = "the hub takes no telemetry: the board keeps the newest";

/** An hour of points of a board, and an event with each minute; some twice what it keeps. */
async function hour(bench: TunnelBench, board: TelemetryBoard): Promise<void> {
  for (let minute = 0; minute < 60; minute += 1) {
    const record = { ...point("count", minute), fields: [["value", minute] as const, ["text", TEXT] as const] };
    await board.put(Array.from({ length: 10 }, () => record));
    const kept = board.put([event("tick", "at once")], { run: "events", isUrgent: true });
    await bench.clock.advance(seconds(60));
    assert.deepEqual((await kept).kept, (await kept).taken, "an event is kept");
  }
}

async function withBoard(
  hubSays: "takes none" | "refuses the stream",
  then: (bench: TunnelBench, board: TelemetryBoard, folder: TempFolder) => Promise<void>,
): Promise<void> {
  using folder = new TempFolder();
  await using bench = new TunnelBench();
  const board = new TelemetryBoard(bench.clock, folder.path, 1, { maxBytes: MAX_BYTES });
  bench.node.telemetry = board.telemetry;
  bench.hub.takesTelemetry = hubSays === "refuses the stream";
  await bench.start();
  await then(bench, board, folder);
  await board.end();
}

for (const hubSays of ["takes none", "refuses the stream"] as const) {
  test(`a hub that ${hubSays}: bounds hold, it is said once, and the session goes on`, async () => {
    await withBoard(hubSays, async (bench, board, folder) => {
      await hour(bench, board);
      const { queued, dropped, forwarded, problem } = board.telemetry.report();
      assert.ok(
        queued.bytes <= MAX_BYTES && statSync(folder.at("telemetry.db")).size <= 2 * MAX_BYTES,
        `${queued.bytes}`,
      );
      assert.deepEqual([queued.records + dropped, forwarded, problem], [660, 0, ""]);
      assert.ok(dropped > 100, `${dropped}`);
      assert.equal(bench.tunnel.report().state, "connected");
      // Another session with the same hub is no news.
      bench.network.cut();
      await bench.connected();
      await board.put([point("count", 1)]);
      await bench.clock.advance(seconds(120));
      assert.equal(bench.node.sessions, 2);
      const said = [...board.log.entries, ...bench.log.entries].filter(({ message }) => /telemetry/.test(message));
      assert.deepEqual(
        said.map(({ level, message }) => [level, message]),
        [["warn", SAID]],
      );
    });
  });
}

test("what is kept goes to the next hub that takes it, and another that does not is told of again", async () => {
  await withBoard("takes none", async (bench, board, folder) => {
    await board.put([point("count", 1), point("count", 2)]);
    await bench.clock.advance(seconds(120));
    using hub = openHub(bench.clock, folder.path);
    const cut = board.connect(hub);
    await settle(bench.clock);
    assert.equal(board.telemetry.report().forwarded, 2);
    cut();
    await bench.clock.advance(seconds(1));
    await board.put([point("count", 3)]);
    bench.network.cut();
    await bench.connected();
    await bench.clock.advance(seconds(120));
    assert.equal(board.log.problems.filter((each) => each === SAID).length, 2);
  });
});

test("the first points of an agent's life go to a hub that is there at once, and not by way of the disk", async () => {
  using folder = new TempFolder();
  await using bench = new TunnelBench();
  using store = openHub(bench.clock, folder.path);
  const streams = new TelemetryStreams({ store, clock: bench.clock, log: new RecordedLog() });
  bench.hub.onStream = (stream) => streams.receive(stream, "edge-1");
  bench.hub.takesTelemetry = true;
  const board = new TelemetryBoard(bench.clock, folder.path, 1);
  bench.node.telemetry = board.telemetry;
  await bench.start();
  const size = statSync(folder.at("telemetry.db")).size;
  await board.put([point("count", 1), point("count", 2)]);
  await settle(bench.clock);
  assert.equal(board.telemetry.report().forwarded, 2);
  assert.equal(statSync(folder.at("telemetry.db")).size, size);
  await board.end();
});
