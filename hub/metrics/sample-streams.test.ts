/** Boards that send samples through a tunnel, good ones and a hostile one beside them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { SampleEncoder } from "@picolet/protocol/telemetry/sample-codec.ts";
import { decodeTelemetryAck, LengthPrefixedReader } from "@picolet/protocol/telemetry/stream-messages.ts";
import type { UsageSample } from "@picolet/protocol/telemetry/usage-sample.ts";
import type { Mux } from "@picolet/protocol/tunnel/mux.ts";
import type { OpenedStream } from "@picolet/protocol/tunnel/stream.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { joinMuxes } from "@picolet/test/support/unit/tunnel/memory-link.ts";
import { usageSample } from "@picolet/test/support/unit/tunnel/usage-samples.ts";
import { BoardSamples } from "./board-samples.ts";
import { federate } from "./federate.ts";
import { type SampleExport, SampleStreams } from "./sample-streams.ts";

const LINE = { latencyMs: () => 1, bytesPerMs: 1000 };
const QUEUE = "0123456789abcdef";
const START = usageSample(1, 1).atMs;

class Bench implements Disposable {
  readonly clock = new VirtualClock(START);
  readonly samples: BoardSamples;
  readonly streams: SampleStreams;
  readonly log = new RecordedLog();
  readonly #life = new AbortController();

  constructor(exported?: SampleExport) {
    const { clock, log } = this;
    // The pod of index 0 is bound to board a, that of 1 to board b.
    const podsOf = (node: string) =>
      usageSample(2, 1)
        .pods.map(({ pod }) => pod)
        .slice(node === "a" ? 0 : 1, node === "a" ? 1 : 2);
    this.samples = new BoardSamples({ podsOf, clock }, { everySeconds: 60 });
    this.streams = new SampleStreams({ samples: this.samples, exported, clock, log });
  }

  get signal(): AbortSignal {
    return this.#life.signal;
  }

  board(node: string): Mux {
    const none = (): void => undefined;
    const { agent } = joinMuxes(
      this.clock,
      this.log,
      LINE,
      {
        agent: { onMessage: none, onStream: none },
        hub: { onMessage: none, onStream: (stream) => this.streams.receive(stream, node) },
      },
      this.#life.signal,
    );
    return agent;
  }

  /** Until everything that was sent has been taken. */
  async settle(): Promise<void> {
    await this.clock.advance(seconds(5));
  }

  async open(mux: Mux, queue = QUEUE): Promise<OpenedStream> {
    const opening = mux.open("samples", { queue }, "bulk", this.#life.signal);
    await this.settle();
    return await opening;
  }

  text(): string {
    return [
      ...federate(this.samples, "prometheus", new URLSearchParams("match[]=container_cpu_usage_seconds_total")),
    ].join("");
  }

  [Symbol.dispose](): void {
    this.#life.abort(new PicoletError("cancelled", "the test is over"));
  }
}

async function acked(stream: OpenedStream, signal: AbortSignal): Promise<number> {
  const bytes = await stream.read(signal);
  const [last] = new LengthPrefixedReader().push(bytes ?? new Uint8Array()).slice(-1);
  return decodeTelemetryAck(last ?? new Uint8Array());
}

const at = (sample: UsageSample, atMs: number): UsageSample => ({ ...sample, atMs });

test("samples are acknowledged, and shown; the next stream of the queue goes on behind them", async () => {
  using bench = new Bench();
  const mux = bench.board("a");
  const stream = await bench.open(mux);
  assert.deepEqual(stream.reply, { received: 0 });
  const encoder = new SampleEncoder();
  await stream.write(encoder.encode(3, at(usageSample(2, 1), START)), bench.signal);
  await stream.write(encoder.encode(4, at(usageSample(2, 2), START + 1000)), bench.signal);
  await bench.settle();
  assert.equal(await acked(stream, bench.signal), 4);
  // The board's other pod is not bound to it.
  assert.equal(bench.text().match(/^container_cpu/gm)?.length, 1);
  assert.match(bench.text(), /pod="greenhouse-0/);
  const next = await bench.open(mux);
  assert.deepEqual(next.reply, { received: 4 });
  const other = await bench.open(mux, "fedcba9876543210");
  assert.deepEqual(other.reply, { received: 0 });
});

test("a hostile board spoils neither another's figures nor the hub's memory", async () => {
  using bench = new Bench();
  const [good, bad] = [bench.board("b"), bench.board("a")];
  const honest = await bench.open(good);
  await honest.write(new SampleEncoder().encode(1, at(usageSample(2, 5), START)), bench.signal);
  await bench.settle();
  const before = bench.text();
  assert.match(before, /pod="greenhouse-1/);
  const send = async (...messages: readonly Uint8Array[]): Promise<OpenedStream> => {
    const stream = await bench.open(bad);
    for (const message of messages) await stream.write(message, bench.signal);
    await bench.settle();
    return stream;
  };
  const without = (): string =>
    bench
      .text()
      .split("\n")
      .filter((line) => !line.includes('node="a"'))
      .join("\n");
  // Figures of another's pod, as many pods as there may be, a time in the future, counters that go back.
  const forged = usageSample(400, 900);
  await send(new SampleEncoder().encode(1, at(forged, START)));
  assert.equal(bench.samples.pods, 2);
  await send(new SampleEncoder().encode(2, at(forged, START + 1e9)));
  assert.equal(bench.samples.refused, 1);
  const back = new SampleEncoder();
  await send(back.encode(3, at(usageSample(1, 9), START)), back.encode(4, at(usageSample(1, 1), START)));
  assert.equal(without(), before);
  // What is no sample resets the stream, and that alone.
  for (const garbage of [
    Uint8Array.of(0, 0, 0, 1, 255),
    Uint8Array.of(0, 0, 0, 2, 0x81, 1),
    Uint8Array.of(127, 0, 0, 0),
  ]) {
    const stream = await send(garbage);
    assert.ok(stream.closed.aborted);
    assert.match(String((stream.closed.reason as Error).message), /cannot (?:read|decode)|longer|sample/i);
  }
  assert.ok(!bad.closed.aborted);
  assert.equal(without(), before);
  assert.equal(bench.samples.boards, 2);
});

test("what cannot be kept for the time-series store is not acknowledged", async () => {
  const puts: number[] = [];
  let isFull = true;
  using bench = new Bench({
    received: () => 7,
    put: async (_node, _queue, samples) => {
      if (isFull) throw new PicoletError("unavailable", "the disk is full", { retryable: true });
      puts.push(...samples.map(({ sequence }) => sequence));
    },
  });
  const mux = bench.board("a");
  const stream = await bench.open(mux);
  assert.deepEqual(stream.reply, { received: 7 });
  await stream.write(new SampleEncoder().encode(8, at(usageSample(1, 1), START)), bench.signal);
  await bench.settle();
  assert.ok(stream.closed.aborted);
  isFull = false;
  const again = await bench.open(mux);
  const encoder = new SampleEncoder();
  // Samples that the hub has already are passed over.
  for (const sequence of [6, 8, 9])
    await again.write(encoder.encode(sequence, at(usageSample(1, 1), START)), bench.signal);
  await bench.settle();
  assert.deepEqual(puts, [8, 9]);
});
