/** Bounds of the hub's telemetry store, which no board's data exceeds. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { TelemetryStreams } from "@picolet/hub/telemetry/telemetry-streams.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { decodeBatch, encodeBatch } from "@picolet/protocol/telemetry/batch.ts";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { openHub } from "../support/unit/tunnel/telemetry-board.ts";
import { point, SAMPLE_ORIGIN } from "../support/unit/tunnel/telemetry-samples.ts";

const NEVER = new AbortController().signal;
const DAY_MS = 86_400_000;
const queueOf = (number: number): string => number.toString(16).padStart(16, "0");

function deliveryOf(sequence: number, baseUs = 1e15) {
  const batch = encodeBatch(SAMPLE_ORIGIN, [{ record: point("n", sequence), stampUs: 0 }], 0);
  return { sequence, baseUs, isEstimated: false, batch, decoded: decodeBatch(batch) };
}

test("of deliveries that wait for the disk there are a thousand or so: further boards are told to come again", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  using hub = openHub(clock, folder.path);
  const outcomes = Promise.allSettled(
    Array.from({ length: 1100 }, (_, at) => hub.put(`edge-${at}`, queueOf(1), [deliveryOf(1)], NEVER)),
  );
  await clock.advance(seconds(1));
  const refused = (await outcomes).flatMap((each) => (each.status === "rejected" ? [each.reason as unknown] : []));
  assert.equal(refused.length, 1100 - 1024);
  for (const error of refused) assert.ok(isPicoletError(error, "resource_exhausted") && error.retryable);
  // There is room again.
  const late = hub.put("edge-1099", queueOf(1), [deliveryOf(1)], NEVER);
  await clock.advance(seconds(1));
  await late;
});

test("of a board's queues the newest are remembered, and those of others are no concern of theirs", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  using hub = openHub(clock, folder.path);
  const put = async (node: string, queue: number): Promise<void> => {
    const done = hub.put(node, queueOf(queue), [deliveryOf(1), deliveryOf(2)], NEVER);
    await clock.advance(seconds(1));
    await done;
  };
  await put("edge-2", 1);
  for (let queue = 1; queue <= 70; queue += 1) await put("edge-1", queue);
  const known = Array.from({ length: 70 }, (_, at) => hub.received("edge-1", queueOf(at + 1)));
  assert.deepEqual(known, [...Array<number>(6).fill(0), ...Array<number>(64).fill(2)]);
  assert.equal(hub.received("edge-2", queueOf(1)), 2);
});

test("a batch that cannot be written is not counted, and keeps no other board's out", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  using hub = openHub(clock, folder.path);
  const put = (node: string, baseUs?: number): Promise<void> =>
    hub.put(node, queueOf(1), [deliveryOf(1, baseUs)], NEVER);
  const first = put("edge-1");
  await clock.advance(seconds(1));
  await first;
  const { bytes } = hub;
  // The database takes no times that are none.
  const together = Promise.allSettled([put("edge-2"), put("edge-3", Number.NaN)]);
  await clock.advance(seconds(1));
  const [taken, failed] = await together;
  assert.equal(taken.status, "fulfilled");
  assert.ok(failed.status === "rejected" && isPicoletError(failed.reason, "unavailable") && failed.reason.retryable);
  assert.deepEqual([hub.bytes, hub.received("edge-3", queueOf(1))], [2 * bytes, 0]);
  const again = put("edge-3");
  await clock.advance(seconds(1));
  await again;
  assert.equal(hub.bytes, 3 * bytes);
  assert.deepEqual(
    hub.after(0, 10, 1e9).map(({ id, node }) => [id, node]),
    [
      [1, "edge-1"],
      [2, "edge-2"],
      [3, "edge-3"],
    ],
  );
});

test("a board that floods a full store pushes out its own points, not those of others", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const size = deliveryOf(1).batch.length + 160;
  using hub = openHub(clock, folder.path, { maxBytes: 100 * size });
  const put = async (node: string, from: number, count: number): Promise<void> => {
    const deliveries = Array.from({ length: count }, (_, at) => deliveryOf(from + at));
    const done = hub.put(node, queueOf(1), deliveries, NEVER);
    await clock.advance(seconds(1));
    await done;
  };
  await put("edge-1", 1, 10);
  for (let from = 1; from < 400; from += 10) await put("edge-2", from, 10);
  const kept = hub.after(0, 1000, 1e9).map(({ node }) => node);
  assert.equal(kept.filter((node) => node === "edge-1").length, 10);
  assert.ok(kept.length >= 95 && hub.bytes <= 100 * size);
  // A hub has the same after its restart.
  await put("edge-1", 11, 10);
  assert.equal(hub.after(0, 1000, 1e9).filter(({ node }) => node === "edge-1").length, 20);
});

test("a board has few streams of telemetry, and is read at a pace", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  using store = openHub(clock, folder.path);
  const streams = new TelemetryStreams({ store, clock, log: new RecordedLog() });
  const outcomes: string[] = [];
  const open = (bytes: Uint8Array | undefined): AbortController => {
    const end = new AbortController();
    const never = new Promise<never>(() => undefined);
    const stream = {
      closed: end.signal,
      read: () => (bytes === undefined ? never : Promise.resolve(bytes)),
      reset: () => outcomes.push("reset"),
    };
    const incoming = { params: { queue: queueOf(1) }, closed: end.signal, accept: () => stream };
    const reject = (): unknown => outcomes.push("rejected");
    streams.receive({ ...incoming, reject } as unknown as IncomingStream, "edge-1");
    return end;
  };
  const ends = Array.from({ length: 6 }, () => open(undefined));
  assert.deepEqual(outcomes, ["rejected", "rejected"]);
  for (const end of ends) end.abort();
  // 8 MiB of nonsense: it is not even read before the time for it has passed.
  open(Buffer.alloc(8 * 1024 * 1024, 0x7f));
  await clock.advance(seconds(31));
  assert.equal(outcomes.length, 2);
  await clock.advance(seconds(2));
  assert.deepEqual(outcomes.slice(2), ["reset"]);
});

test("what is too old goes with the next that comes, but nothing that an exporter has not had", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  using hub = openHub(clock, folder.path, { maxAgeMs: 2 * DAY_MS, exporters: ["otlp"] });
  const put = async (sequence: number): Promise<void> => {
    const done = hub.put("edge-1", queueOf(1), [deliveryOf(sequence)], NEVER);
    await clock.advance(seconds(1));
    await done;
  };
  const ids = (): number[] => hub.after(0, 10, 1e9).map(({ id }) => id);
  await put(1);
  await put(2);
  hub.exported("otlp", 1);
  clock.setWall(clock.wall().getTime() + 3 * DAY_MS);
  await put(3);
  assert.deepEqual([ids(), hub.dropped], [[2, 3], 1]);
  hub.exported("otlp", 3);
  await put(4);
  assert.deepEqual([ids(), hub.dropped], [[3, 4], 2]);
});
