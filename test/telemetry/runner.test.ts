/**
 * A runner's end and the agent's, without the socket between them: a component's telemetry is kept after any end of the
 * agent.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { TelemetryService } from "@picolet/agent/telemetry/telemetry-service.ts";
import { recordRowsOf } from "@picolet/hub/telemetry/record-rows.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { recordSize, type TelemetryRecord } from "@picolet/protocol/telemetry/records.ts";
import { type Plain, type ServiceMessage, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import { TelemetrySender } from "@picolet/runtime-wasm/shared/board/telemetry/sender.ts";
import type { StartedOperation } from "@picolet/runtime-wasm/shared/resources/polling.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { copyOf, openHub, settle, TelemetryBoard } from "../support/unit/tunnel/telemetry-board.ts";
import { event, point } from "../support/unit/tunnel/telemetry-samples.ts";

const PEER = {
  containerId: "c1",
  container: "sensor",
  pod: { name: "greenhouse", namespace: "default", uid: "u1" },
  interfaces: ["telemetry"] as const,
  buckets: [],
};

class Runner {
  readonly clock = new VirtualClock();
  /** Undefined: the agent is away. */
  board: TelemetryBoard | undefined;
  readonly sender: TelemetrySender;
  calls = 0;
  /** The next answers get lost. */
  lost = 0;

  constructor() {
    this.sender = new TelemetrySender({
      client: { call: (_, message) => this.#call(message) },
      now: () => BigInt(this.clock.monotonic()) * 1_000_000n,
      later: (delay, act) => {
        void this.clock.sleep(millis(delay), new AbortController().signal).then(act);
        return () => undefined;
      },
    });
  }

  async write(...records: TelemetryRecord[]): Promise<void> {
    const bytes = records.reduce((sum, record) => sum + recordSize(record), 0);
    const begun = this.sender.send(
      records,
      bytes,
      records.some(({ kind }) => kind === "event"),
    );
    for (let round = 0; !begun.ready() && round < 100; round += 1) await this.clock.advance(millis(50));
    assert.ok(begun.ready(), "waits without end");
    begun.result();
  }

  #call(message: ServiceMessage): StartedOperation<ServiceMessage> {
    this.calls += 1;
    assert.ok(this.calls < 1000, "asks without end");
    const { board } = this;
    let outcome: ServiceMessage | ServiceRefusal | undefined;
    let wake = (): void => undefined;
    // Through JSON, as on the socket.
    const value = JSON.parse(JSON.stringify(message.value)) as Plain;
    const answer = async (): Promise<ServiceMessage> => {
      if (board === undefined) throw new ServiceRefusal("unavailable");
      const service = new TelemetryService({
        put: (each) => board.telemetry.put(each),
        labelsOf: () => [["app", "g"]],
      });
      const answered = await service.call(PEER, "put", { value, bytes: [] });
      this.lost -= 1;
      if (this.lost >= 0) throw new ServiceRefusal("unavailable");
      return answered;
    };
    answer()
      .then(
        (answered) => (outcome = answered),
        (error: unknown) => (outcome = error instanceof ServiceRefusal ? error : new ServiceRefusal("unavailable")),
      )
      .then(() => wake())
      .catch(assert.fail);
    return {
      ready: () => outcome !== undefined,
      onReady: (waker) => {
        wake = waker;
        return () => undefined;
      },
      result: () => {
        if (outcome === undefined || outcome instanceof ServiceRefusal) throw outcome ?? assert.fail();
        return outcome;
      },
    };
  }
}

const refused = (tag: string) => (error: unknown) => error instanceof ServiceRefusal && error.tag === tag;

test("what was in a killed agent's memory alone is handed to the next one, in order, and once", async () => {
  using folder = new TempFolder();
  using next = new TempFolder();
  const runner = new Runner();
  runner.board = new TelemetryBoard(runner.clock, folder.path, 1);
  for (let n = 0; n < 5; n += 1) await runner.write(point("n", n));
  await runner.board.kill();
  runner.board = undefined;
  await assert.rejects(runner.write(point("n", 5)), refused("unavailable"));
  runner.board = new TelemetryBoard(runner.clock, next.path, 2);
  await runner.write(point("n", 6));
  await runner.clock.advance(seconds(80));
  using hub = openHub(runner.clock, next.path);
  runner.board.connect(hub);
  await settle(runner.clock);
  const rows = hub.after(0, 1000, 1e9).flatMap(recordRowsOf);
  // "The points may or may not have been taken": 5 was kept by the runner.
  assert.deepEqual(
    rows.map(({ record }) => record.kind === "point" && record.fields[0]?.[1]),
    [0, 1, 2, 3, 4, 5, 6],
  );
  assert.deepEqual(rows[0]?.origin.labels, [["app", "g"]]);
  assert.equal(new Set(rows.map(({ timeNs }) => timeNs)).size, 7);
  await runner.board.end();
});

test("a runner that writes no more still finds out that the agent is another", async () => {
  using folder = new TempFolder();
  using next = new TempFolder();
  const runner = new Runner();
  runner.board = new TelemetryBoard(runner.clock, folder.path, 1);
  await runner.write(point("n", 0), point("n", 1));
  await runner.board.kill();
  runner.board = new TelemetryBoard(runner.clock, next.path, 2);
  await runner.clock.advance(seconds(30));
  assert.equal(runner.board.telemetry.report().queued.records, 2);
  await runner.clock.advance(seconds(90));
  const { calls } = runner;
  await runner.clock.advance(seconds(600));
  assert.equal(runner.calls, calls, "asks though everything is kept");
  await runner.board.end();
});

test("answers that get lost make no doubles", async () => {
  using folder = new TempFolder();
  const runner = new Runner();
  runner.board = new TelemetryBoard(runner.clock, folder.path, 1);
  runner.lost = 2;
  for (const n of [0, 1]) await assert.rejects(runner.write(point("n", n)), refused("unavailable"));
  await runner.write(point("n", 2));
  await runner.clock.advance(seconds(100));
  assert.equal(runner.board.telemetry.report().queued.records, 3);
  await runner.board.end();
});

test("an event is on the disk when the component goes on", async () => {
  using folder = new TempFolder();
  const runner = new Runner();
  runner.board = new TelemetryBoard(runner.clock, folder.path, 1);
  await runner.write(point("n", 0));
  await runner.write(event("alarm", "water"));
  await runner.board.kill();
  using next = new TempFolder();
  copyOf(folder.path, next.path);
  const after = new TelemetryBoard(runner.clock, next.path, 2);
  assert.equal(after.telemetry.report().queued.records, 2);
  await after.end();
});

test("while the board takes nothing the component is told, and nothing of that is taken later", async () => {
  using folder = new TempFolder();
  const runner = new Runner();
  runner.board = new TelemetryBoard(runner.clock, folder.path, 1, { diskBytes: () => 64 * 1024 });
  const text = "x".repeat(4000);
  let taken = 0;
  const fill = async (): Promise<void> => {
    for (; taken < 1000; taken += 1)
      await runner.write({
        ...point("n", taken),
        fields: [
          ["n", taken],
          ["t", text],
        ],
      });
  };
  await assert.rejects(fill(), (error) => error instanceof ServiceRefusal && error.tag === "full");
  assert.ok(taken > 20 && taken < 200, `${taken}`);
  using hub = openHub(runner.clock, folder.path);
  runner.board.connect(hub);
  await settle(runner.clock);
  await runner.clock.advance(seconds(30));
  await runner.write(point("n", "after"));
  await runner.clock.advance(seconds(30));
  const values = hub.after(0, 1000, 1e9).flatMap(recordRowsOf);
  assert.ok(values.length >= taken + 1, `${values.length} of ${taken}`);
  assert.equal(
    new Set(values.map(({ record }) => record.kind === "point" && record.fields[0]?.[1])).size,
    values.length,
  );
  await runner.board.end();
});

test("a runner speaks for its own container alone, and is told when nothing more is taken", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1, { diskBytes: () => 64 * 1024 });
  const service = new TelemetryService({ put: (each) => board.telemetry.put(each), labelsOf: () => [] });
  const put = async (containerId: string, number: number, text = ""): Promise<Plain> => {
    const records = [[1, null, "n", [], ["text", 3, text]]];
    const value = { run: "00000000000000aa", number, firstUnkept: 1, isUrgent: false, records };
    return (await service.call({ ...PEER, containerId }, "put", { value, bytes: [] })).value;
  };
  assert.deepEqual(await put("c1", 1), { taken: 1, kept: 0 });
  // The other one's run of this name is another run.
  assert.deepEqual(await put("c2", 1), { taken: 1, kept: 0 });
  assert.deepEqual(await put("c1", 2), { taken: 2, kept: 0 });
  assert.equal(board.telemetry.report().queued.records, 3);
  const fill = async (): Promise<void> => {
    for (let number = 3; number < 1000; number += 1) await put("c1", number, "x".repeat(4000));
  };
  await assert.rejects(
    fill(),
    (error) => error instanceof ServiceRefusal && error.tag === "full" && error.val === 5000,
  );
  await board.end();
});
