import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { type ErrorCode, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, millis } from "@picolet/protocol/ports.ts";
import { decodeBatch, encodeBatch } from "@picolet/protocol/telemetry/batch.ts";
import type { TelemetryRecord } from "@picolet/protocol/telemetry/records.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { event, point, SAMPLE_ORIGIN } from "@picolet/test/support/unit/tunnel/telemetry-samples.ts";
import { TimeSeriesStore } from "@picolet/test/support/unit/tunnel/time-series-store.ts";
import { TelemetryExporter, type TelemetrySink } from "./exporter.ts";
import { LineProtocolSink, OtlpSink } from "./telemetry-sinks.ts";
import { TelemetryStore } from "./telemetry-store.ts";

const never = new AbortController().signal;
/** Retries come at once. */
const clock: Clock = {
  ...systemClock,
  sleep: (duration, signal) => systemClock.sleep(millis(Math.min(duration, 5)), signal),
};
const log = new RecordedLog();
const BASE_US = 1_769_860_800_000_000;

function storeFor(sink: TelemetrySink): TelemetryStore {
  const init = { path: ":memory:", maxBytes: 1024 * 1024, maxAgeMs: 1e9, exporters: [sink.name] };
  return new TelemetryStore({ clock: systemClock, log }, init);
}

/** A batch each. Not awaited: without a disk it resolves when it was sent on. */
function fill(store: TelemetryStore, batches: readonly (readonly TelemetryRecord[])[], from = 1): void {
  const deliveries = batches.map((records, at) => {
    const batch = encodeBatch(
      SAMPLE_ORIGIN,
      records.map((record, n) => ({ record, stampUs: n })),
      0,
    );
    return { sequence: from + at, baseUs: BASE_US + at * 1000, isEstimated: false, batch, decoded: decodeBatch(batch) };
  });
  store.put("edge-1", "0000000000000001", deliveries, never).catch(() => undefined);
}

async function exporting(
  sink: TelemetrySink,
  store: TelemetryStore,
  work: () => Promise<void>,
  time = clock,
): Promise<void> {
  const life = new AbortController();
  const running = endOfRun(
    new TelemetryExporter({ store, sink, clock: time, random: { next: () => 0.5 }, log }).run(life.signal),
  );
  try {
    await work();
  } finally {
    life.abort();
    await running;
    store[Symbol.dispose]();
  }
}

const points = (from: number, count: number): TelemetryRecord[][] =>
  Array.from({ length: count }, (_, at) => [point("count", from + at)]);
const counts = (server: TimeSeriesStore): unknown[] => server.lines.map(({ fields }) => fields.value);

test("lines are written with the token, and again after failures of every kind, each once", async () => {
  await using server = await TimeSeriesStore.start();
  const sink = new LineProtocolSink({
    url: new URL(`${server.url}/write?bucket=b`),
    token: () => Promise.resolve("secret"),
  });
  const store = storeFor(sink);
  let requests = 0;
  server.misbehave = (request, _, response) => {
    assert.equal(request.url, "/write?bucket=b");
    requests += 1;
    if (requests === 1) response.writeHead(503).end("busy");
    else if (requests === 2) request.socket.destroy();
    else if (requests === 3) request.socket.end("what is this?\r\n\r\n");
    // An answer without an end, of which a little is read.
    else if (requests === 4) response.writeHead(500).write("x".repeat(100_000));
    else if (requests === 5) response.writeHead(401).end("who?");
    return requests <= 5;
  };
  fill(store, points(0, 20));
  await exporting(sink, store, () => server.until(() => server.lines.length === 20));
  assert.deepEqual(
    counts(server),
    Array.from({ length: 20 }, (_, at) => at),
  );
  assert.deepEqual(server.problems, []);
  assert.ok(server.authorizations.every((each) => each === "Token secret"));
});

test("of what is refused only the batch at fault is left out", async () => {
  await using server = await TimeSeriesStore.start();
  const sink = new LineProtocolSink({ url: new URL(`${server.url}/write`), token: undefined });
  const store = storeFor(sink);
  const taken: number[] = [];
  server.misbehave = (_, body, response) => {
    const isPoison = body.includes("value=13 ");
    if (!isPoison) taken.push(body.split("\n").length - 1);
    if (isPoison) response.writeHead(422).end("thirteen");
    return isPoison;
  };
  fill(store, points(0, 40));
  await exporting(sink, store, () => server.until(() => server.lines.length === 39));
  assert.deepEqual(
    counts(server),
    Array.from({ length: 40 }, (_, at) => at).filter((each) => each !== 13),
  );
  // One by one only as long as it takes to find it.
  assert.ok((taken.at(-1) ?? 0) > 4, taken.join());
});

test("only what will never be taken is refused; all else, a redirect and a wrong token too, is tried again", async () => {
  await using server = await TimeSeriesStore.start();
  const { url } = server;
  const token = (): Promise<string> => Promise.resolve("secret");
  const sinks = [
    new LineProtocolSink({ url: new URL(`${url}/write`), token }),
    new OtlpSink({ url: new URL(url), token }),
  ];
  const row = { node: "edge-1", origin: SAMPLE_ORIGIN, record: point("count", 1), timeNs: 1n, isEstimated: false };
  let status = 0;
  server.misbehave = (_, __, response) => Boolean(response.writeHead(status, { location: `${url}/elsewhere` }).end());
  const codes: Readonly<Record<string, readonly number[]>> = {
    invalid: [400, 413, 415, 422],
    unavailable: [300, 301, 302, 304, 307, 308, 401, 403, 404, 408, 409, 429, 500, 502, 503, 504],
  };
  for (const sink of sinks) {
    for (const [code, statuses] of Object.entries(codes)) {
      for (status of statuses) {
        await assert.rejects(sink.send([row], never), (error) => isPicoletError(error, code as ErrorCode), `${status}`);
      }
    }
  }
  assert.equal(server.requests, 2 * Object.values(codes).flat().length);
});

test("who takes nothing is asked at longer and longer intervals, of a minute at the most", async () => {
  await using server = await TimeSeriesStore.start();
  const sink = new LineProtocolSink({ url: new URL(`${server.url}/write`), token: undefined });
  const store = storeFor(sink);
  const slept: number[] = [];
  const recording: Clock = {
    ...clock,
    sleep: (duration, signal) => {
      slept.push(duration);
      return clock.sleep(duration, signal);
    },
  };
  server.misbehave = (_, __, response) => server.requests <= 10 && Boolean(response.writeHead(503).end());
  fill(store, points(0, 1));
  await exporting(sink, store, () => server.until(() => server.lines.length === 1), recording);
  const [, ...pauses] = slept;
  assert.deepEqual(pauses.slice(0, 10), [750, 1500, 3000, 6000, 12_000, 24_000, 45_000, 45_000, 45_000, 45_000]);
});

test("an answer without end is cut off, and what it answered counts", async () => {
  await using server = await TimeSeriesStore.start();
  const sink = new LineProtocolSink({ url: new URL(`${server.url}/write`), token: undefined });
  const cut = Promise.withResolvers<void>();
  server.misbehave = (_, __, response) => {
    response.writeHead(200).on("close", cut.resolve);
    const more = (): void => void response.write("x".repeat(65_536), (error) => error ?? more());
    more();
    return true;
  };
  const row = { node: "edge-1", origin: SAMPLE_ORIGIN, record: point("count", 1), timeNs: 1n, isEstimated: false };
  await sink.send([row], never);
  await cut.promise;
});

test("OTLP goes to its two places, and answers that are nonsense but a success are one", async () => {
  await using server = await TimeSeriesStore.start();
  const sink = new OtlpSink({ url: new URL(server.url), token: () => Promise.resolve("secret") });
  const store = storeFor(sink);
  fill(store, [[point("temperature", 21.5), point("state", "idle"), event("door", "opened", "error")]]);
  await exporting(sink, store, () => server.until(() => server.logs.length === 2));
  assert.deepEqual(server.problems, []);
  assert.deepEqual(
    server.points.map(({ name, value, timeNs }) => [name, value, timeNs]),
    [["temperature", 21.5, BigInt(BASE_US) * 1000n]],
  );
  const told = server.logs.map(({ name, severity, body }) => [name, severity, body]);
  assert.deepEqual(told, [
    ["state", 0, "idle"],
    ["door", 17, "opened"],
  ]);
  assert.ok(server.authorizations.every((each) => each === "Bearer secret"));
});
