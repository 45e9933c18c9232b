import assert from "node:assert/strict";
import { existsSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { recordRowsOf } from "@picolet/hub/telemetry/record-rows.ts";
import type { TelemetryStore } from "@picolet/hub/telemetry/telemetry-store.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { decodeBatch, encodeBatch } from "@picolet/protocol/telemetry/batch.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { copyOf, openHub, settle, TelemetryBoard } from "../support/unit/tunnel/telemetry-board.ts";
import { event, point, SAMPLE_ORIGIN } from "../support/unit/tunnel/telemetry-samples.ts";

/** Values of points, messages of events, in the order in which the hub has them. */
const contents = (hub: TelemetryStore): unknown[] =>
  hub
    .after(0, 10_000, Number.MAX_SAFE_INTEGER)
    .flatMap((batch) =>
      recordRowsOf(batch).map(({ record }) => (record.kind === "point" ? record.fields[0]?.[1] : record.message)),
    );

const numbers = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, at) => from + at);
const points = (from: number, to: number) => numbers(from, to).map((each) => point("count", each));

test("what was kept while the hub was away arrives once, in order, though the agent is killed and acks are lost", async () => {
  using folder = new TempFolder();
  using next = new TempFolder();
  const clock = new VirtualClock();
  const first = new TelemetryBoard(clock, folder.path, 1);
  await first.put(points(0, 1000));
  await clock.advance(seconds(61));
  assert.deepEqual(await first.put([], { number: 0 }), { taken: 1, kept: 1 });
  await first.put(points(1000, 1100));
  await first.kill();
  copyOf(folder.path, next.path);

  const second = new TelemetryBoard(clock, next.path, 2);
  // It was in memory alone: the sender, which still has it, hands it over again.
  assert.deepEqual(await second.put(points(1000, 1100), { number: 2 }), { taken: 2, kept: 1 });
  // And what it hands over once more is not taken twice.
  await second.put(points(0, 1000), { number: 1 });
  using hub = openHub(clock, next.path);
  const cut = second.connect(hub);
  // In the middle of it, often: what the hub has and the board does not know of is sent again.
  await clock.advance(seconds(0.05));
  cut();
  const cutAgain = second.connect(hub);
  await clock.advance(seconds(0.12));
  cutAgain();
  second.connect(hub);
  await settle(clock);
  assert.deepEqual(contents(hub), numbers(0, 1100));
  assert.equal(second.telemetry.report().queued.records, 0);
  await second.end();
});

test("a sender that goes on is remembered, however many come and go beside it", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1);
  await board.put(points(0, 1), { run: "steady" });
  for (const each of numbers(0, 1100)) {
    await board.put(points(1, 2), { run: `short ${each}` });
    if (each === 600) await board.put(points(2, 3), { run: "steady" });
  }
  assert.equal((await board.put(points(3, 4), { run: "steady" })).taken, 3);
  await board.end();
});

test("of senders that are no more the newest thousand are remembered on the disk, and what is in memory at the end is there", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1);
  for (let round = 0; round < 12; round += 1) {
    for (let at = 0; at < 100; at += 1) await board.put(points(0, 1), { run: `${round}-${at}` });
    if (round < 11) await clock.advance(seconds(61));
  }
  await board.end();
  const next = new TelemetryBoard(clock, folder.path, 2);
  assert.equal(next.telemetry.report().queued.records, 1200);
  const takenOf = async (run: string) => (await next.put([], { run, number: 0 })).taken;
  assert.deepEqual([await takenOf("0-0"), await takenOf("0-99")], [0, 0]);
  assert.deepEqual([await takenOf("3-0"), await takenOf("11-99")], [1, 1]);
  await next.end();
});

test("what is on its way to the hub is not pushed out", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1, { maxBytes: 512 * 1024 });
  const fill = async (): Promise<void> => {
    for (let at = 0; at < 20; at += 1) {
      await board.put(numbers(0, 10).map(() => point("large", "x".repeat(4000))));
      await clock.advance(seconds(61));
    }
  };
  const first = (): number[] => board.telemetry.pending(0, 3).map(({ id }) => id);
  await board.put(points(0, 1));
  await clock.advance(seconds(61));
  const [sent] = first();
  await fill();
  assert.ok(board.telemetry.report().dropped > 0);
  assert.equal(first()[0], sent);
  board.telemetry.forwarding(false);
  await fill();
  assert.notEqual(first()[0], sent);
  await board.end();
});

test("while the hub takes it nothing is written to the disk", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1);
  using hub = openHub(clock, folder.path);
  board.connect(hub);
  const written = (): Buffer[] => ["telemetry.db", "telemetry.db-wal"].map((name) => readFileSync(folder.at(name)));
  const before = written();
  for (let minute = 0; minute < 10; minute += 1) {
    await board.put(points(minute * 10, minute * 10 + 10));
    const kept = board.put([event("tick", "at once")], { run: "events", isUrgent: true });
    await clock.advance(seconds(1));
    assert.deepEqual(await kept, { taken: minute + 1, kept: minute + 1 });
    await clock.advance(seconds(60));
  }
  // There is always something on its way when a minute is over.
  for (let n = 0; n < 200; n += 1) {
    await board.put([point("count", n)]);
    await clock.advance(seconds(0.7));
  }
  await settle(clock);
  assert.equal(contents(hub).length, 310);
  assert.deepEqual(written(), before);
  await board.end();
});

test("an urgent handover resolves when it is on the disk", async () => {
  using folder = new TempFolder();
  using next = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1);
  const kept = board.put([event("alarm", "water")], { isUrgent: true });
  await clock.advance(seconds(0.1));
  assert.deepEqual(await kept, { taken: 1, kept: 1 });
  await board.kill();
  copyOf(folder.path, next.path);
  const after = new TelemetryBoard(clock, next.path, 2);
  assert.equal(after.telemetry.report().queued.records, 1);
  await after.end();
});

test("a full queue drops the oldest of the pod that has most, and counts", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1, { maxBytes: 1024 * 1024 });
  await board.put([point("small", "kept")], { pod: "quiet" });
  await clock.advance(seconds(61));
  const text = "x".repeat(4000);
  for (let round = 0; round < 8; round += 1) {
    const records = numbers(0, 50).map((each) => ({
      ...point("large", text),
      fields: [["value", round * 50 + each] as const, ["text", text] as const],
    }));
    await board.put(records, { pod: "loud" });
    await clock.advance(seconds(61));
  }
  const { queued, dropped } = board.telemetry.report();
  assert.ok(queued.bytes <= 1024 * 1024, `${queued.bytes}`);
  assert.equal(queued.records + dropped, 401);
  assert.ok(dropped > 100, `${dropped}`);
  using hub = openHub(clock, folder.path);
  board.connect(hub);
  for (let times = 0; times < 5; times += 1) await settle(clock);
  assert.deepEqual(contents(hub), ["kept", ...numbers(dropped, 400)]);
  await board.end();
  const again = new TelemetryBoard(clock, folder.path, 2);
  assert.equal(again.telemetry.report().dropped, dropped);
  await again.end();
});

test("what is too old goes", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1);
  await board.put(points(0, 5));
  await clock.advance(seconds(61));
  clock.setWall(clock.wall().getTime() + 8 * 86_400_000);
  await board.put(points(5, 8));
  await clock.advance(seconds(61));
  assert.deepEqual(board.telemetry.report().queued.records, 3);
  assert.equal(board.telemetry.report().dropped, 5);
  await board.end();
});

test("with the disk full what comes stays in memory for the hub, and beyond that is refused and counted", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1, { diskBytes: () => 64 * 1024 });
  const text = "x".repeat(4000);
  const large = (count: number) => numbers(0, count).map(() => point("large", text));
  for (let at = 0; at < 5; at += 1) await board.put(large(20));
  await assert.rejects(board.put(large(40)), (error) => isPicoletError(error, "resource_exhausted") && error.retryable);
  assert.equal(board.telemetry.report().refused, 40);
  assert.match(board.telemetry.report().problem, /full/);
  using hub = openHub(clock, folder.path);
  board.connect(hub);
  await settle(clock);
  assert.equal(contents(hub).length, 100);
  // Its number is free still.
  await board.put(large(5), { number: 6 });
  await settle(clock);
  assert.equal(contents(hub).length, 105);
  await board.end();
});

test("a handover that leaves out what the agent does not have is not taken", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1);
  assert.deepEqual(await board.put(points(0, 1), { number: 3, firstUnkept: 2 }), { taken: 0, kept: 0 });
  assert.deepEqual(await board.put(points(0, 1), { number: 2, firstUnkept: 2 }), { taken: 2, kept: 0 });
  assert.deepEqual(await board.put(points(1, 2), { number: 3, firstUnkept: 2 }), { taken: 3, kept: 0 });
  assert.equal(board.telemetry.report().queued.records, 2);
  await board.end();
});

test("what is not of the form is refused whole, and counted", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1);
  const records = [point("right", 1), point("wrong", Number.NaN)];
  await assert.rejects(
    board.put(records),
    (error) => isPicoletError(error, "invalid") && /point wrong/.test(error.message),
  );
  const { queued, refused } = board.telemetry.report();
  assert.deepEqual([queued.records, refused], [0, 2]);
  await board.end();
});

test("a board whose clock is not set gives each point its time once it knows it", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock(0);
  let knowsTime = false;
  const options = { knowsTime: () => knowsTime };
  const board = new TelemetryBoard(clock, folder.path, 1, options);
  await clock.advance(seconds(10));
  await board.put(points(0, 1));
  await clock.advance(seconds(90));
  const now = Date.parse("2026-06-01T12:00:00Z");
  clock.setWall(now);
  knowsTime = true;
  using hub = openHub(clock, folder.path);
  board.connect(hub);
  await settle(clock);
  const [row] = hub.after(0, 10, 1e9).flatMap(recordRowsOf);
  assert.equal(Math.round(Number((row?.timeNs ?? 0n) / 1000n) / 1000), now - 90_000);
  assert.equal(row?.isEstimated, false);
  await board.end();
});

test("what a boot has left that never knew the time is taken to have ended when the next began", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock(0);
  const before = new TelemetryBoard(clock, folder.path, 1, { knowsTime: () => false, boot: "first" });
  await clock.advance(seconds(100));
  await before.put(points(0, 1));
  await clock.advance(seconds(70));
  await before.end();
  const now = Date.parse("2026-06-01T12:00:00Z");
  clock.setWall(now);
  // Booted five seconds ago.
  const board = new TelemetryBoard(clock, folder.path, 2, { boot: "second", bootedUs: 5_000_000 - 170_000_000 });
  using hub = openHub(clock, folder.path);
  board.connect(hub);
  await clock.advance(seconds(2));
  const [row] = hub.after(0, 10, 1e9).flatMap(recordRowsOf);
  const ago = now - 5000 - Number((row?.timeNs ?? 0n) / 1_000_000n);
  // It was written 60 s after it came, and the boot's last word is of its end.
  assert.ok(ago >= 60_000 && ago <= 70_000, `${ago}`);
  assert.equal(row?.isEstimated, true);
  await board.end();
});

test("a damaged queue is set aside and a new one begun", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const path = join(folder.path, "telemetry.db");
  const board = new TelemetryBoard(clock, folder.path, 1);
  await board.put(points(0, 100));
  await board.end();
  truncateSync(path, 5000);
  for (const text of [undefined, "no database at all ".repeat(300)]) {
    if (text !== undefined) writeFileSync(path, text);
    const after = new TelemetryBoard(clock, folder.path, 2);
    assert.ok(existsSync(`${path}.damaged`));
    await after.put(points(0, 1));
    await clock.advance(seconds(61));
    assert.equal(after.telemetry.report().queued.records, 1);
    await after.end();
  }
});

test("a hub whose exporters do not follow holds boards up, and goes on where it was", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1);
  using hub = openHub(clock, folder.path, { maxBytes: 200_000, exporters: ["influx"] });
  board.connect(hub);
  const text = "x".repeat(4000);
  for (let at = 0; at < 10; at += 1) {
    await board.put(
      numbers(0, 10).map((each) => ({
        ...point("n", at * 10 + each),
        tags: [],
        fields: [["n", at * 10 + each] as const, ["t", text] as const],
      })),
    );
    await clock.advance(seconds(5));
  }
  const waiting = board.telemetry.report().queued.records;
  assert.ok(hub.bytes <= 200_000 && waiting > 40, `${hub.bytes} bytes, ${waiting} waiting`);
  const seen: unknown[] = [];
  for (let round = 0; round < 200 && seen.length < 100; round += 1) {
    for (const batch of hub.after(hub.exportedBy("influx"), 2, 1e9)) {
      seen.push(...recordRowsOf(batch).map(({ record }) => record.kind === "point" && record.fields[0]?.[1]));
      hub.exported("influx", batch.id);
    }
    await clock.advance(seconds(5));
  }
  assert.deepEqual(seen, numbers(0, 100));
  await board.end();
});

test("a hub without a disk acknowledges what its exporters have", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1);
  using hub = openHub(clock, folder.path, { path: ":memory:", exporters: ["otlp"] });
  board.connect(hub);
  await board.put(points(0, 10));
  await settle(clock);
  assert.equal(contents(hub).length, 10);
  assert.equal(board.telemetry.report().forwarded, 0);
  hub.exported("otlp", 1);
  await settle(clock);
  assert.equal(board.telemetry.report().forwarded, 10);
  await board.end();
});

test("what comes twice, of two sessions at once, is in the hub once", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  using hub = openHub(clock, folder.path);
  const deliveries = [1, 2, 3].map((sequence) => {
    const batch = encodeBatch(SAMPLE_ORIGIN, [{ record: point("n", sequence), stampUs: 0 }], 0);
    return { sequence, baseUs: 1e15, isEstimated: false, batch, decoded: decodeBatch(batch) };
  });
  const { signal } = new AbortController();
  const both = [deliveries.slice(0, 2), deliveries].map((each) => hub.put("edge-1", "00000000000000aa", each, signal));
  await clock.advance(seconds(1));
  await Promise.all(both);
  assert.deepEqual(contents(hub), [1, 2, 3]);
  // Another board, and another life of this one, count for themselves.
  const others = ["edge-2", "edge-1"].map((node, at) => hub.put(node, `00000000000000a${at + 7}`, deliveries, signal));
  await clock.advance(seconds(1));
  await Promise.all(others);
  assert.equal(contents(hub).length, 9);
});
