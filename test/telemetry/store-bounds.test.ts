/** What the hub's store of telemetry never exceeds, whatever boards send. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "../../protocol/errors.ts";
import { seconds } from "../../protocol/ports.ts";
import { decodeBatch, encodeBatch } from "../../protocol/telemetry/batch.ts";
import { openHub } from "../support/telemetry-board.ts";
import { point, SAMPLE_ORIGIN } from "../support/telemetry-samples.ts";
import { TempFolder } from "../support/temp-folder.ts";
import { VirtualClock } from "../support/virtual-clock.ts";

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

test("what cannot be written is not counted, and boards send it again", async () => {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  using hub = openHub(clock, folder.path);
  const put = (node: string, baseUs?: number): Promise<void> =>
    hub.put(node, queueOf(1), [deliveryOf(1, baseUs)], NEVER);
  const first = put("edge-1");
  await clock.advance(seconds(1));
  await first;
  const { bytes } = hub;
  // The database takes no times that are none: the transaction fails as a whole.
  const failing = Promise.allSettled([put("edge-2"), put("edge-3", Number.NaN)]);
  await clock.advance(seconds(1));
  for (const each of await failing) {
    assert.ok(each.status === "rejected" && isPicoletError(each.reason, "unavailable") && each.reason.retryable);
  }
  assert.deepEqual([hub.bytes, hub.received("edge-2", queueOf(1))], [bytes, 0]);
  const again = put("edge-2");
  await clock.advance(seconds(1));
  await again;
  assert.equal(hub.bytes, 2 * bytes);
  assert.deepEqual(
    hub.after(0, 10, 1e9).map(({ id, node }) => [id, node]),
    [
      [1, "edge-1"],
      [2, "edge-2"],
    ],
  );
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
