import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { SampleDecoder } from "@picolet/protocol/telemetry/sample-codec.ts";
import { encodeTelemetryAck, LengthPrefixedReader } from "@picolet/protocol/telemetry/stream-messages.ts";
import type { UsageSample } from "@picolet/protocol/telemetry/usage-sample.ts";
import type { IncomingStream, TunnelStream } from "@picolet/protocol/tunnel/stream.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { TunnelBench } from "@picolet/test/support/unit/tunnel/tunnel-bench.ts";
import { usageSample } from "@picolet/test/support/unit/tunnel/usage-samples.ts";
import { type SampleFile, Samples } from "./samples.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

class MemoryFile implements SampleFile {
  text: string | undefined;
  writes = 0;

  read(): string | undefined {
    return this.text;
  }

  write(text: string): void {
    this.text = text;
    this.writes += 1;
  }

  remove(): void {
    this.text = undefined;
  }
}

/** A board that samples, with the file that outlives its agent. */
class SamplingBoard implements AsyncDisposable {
  readonly clock: VirtualClock;
  readonly log = new RecordedLog();
  readonly every = new WatchSource<number | undefined>(60);
  readonly samples: Samples;
  taken = 0;
  failing: Error | undefined;
  isTimeKnown = true;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor(clock: VirtualClock, file: MemoryFile, queue = "e0e1e2e3e4e5e6e7") {
    this.clock = clock;
    this.samples = new Samples({ take: () => this.#take(), file, clock, log: this.log }, { queue, every: this.every });
    this.#running = this.samples.run(this.#stop.signal).catch((error: unknown) => {
      if (!isCancelled(error)) throw error;
    });
  }

  async #take(): Promise<UsageSample> {
    if (this.failing !== undefined) throw this.failing;
    this.taken += 1;
    return { ...usageSample(2, this.taken), atMs: this.clock.wall().getTime(), isEstimated: !this.isTimeKnown };
  }

  get times(): readonly number[] {
    return this.samples.pending(0, 1000).map(({ sample }) => sample.atMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.samples[Symbol.dispose]();
  }
}

test("while no hub takes them they are written every two hours and at the end, and the next agent has them", async () => {
  const clock = new VirtualClock();
  const file = new MemoryFile();
  let before: readonly number[];
  {
    await using board = new SamplingBoard(clock, file);
    await clock.advance(millis(5 * HOUR));
    assert.equal(file.writes, 2);
    before = board.times;
  }
  assert.equal(file.writes, 3);
  assert.equal(before.length, 301);
  await using next = new SamplingBoard(clock, file, "0123456789abcdef");
  assert.deepEqual(next.times.slice(0, 301), before);
  next.samples.ack(400);
  assert.equal(file.text, undefined, "what the hub has is not kept on the disk");
});

test("while a hub takes them nothing is written", async () => {
  const clock = new VirtualClock();
  const file = new MemoryFile();
  {
    await using board = new SamplingBoard(clock, file);
    board.samples.forwarding(true);
    for (let hour = 0; hour < 5; hour += 1) {
      await clock.advance(millis(HOUR));
      board.samples.ack(board.samples.latest.current);
    }
  }
  assert.equal(file.writes, 0);
});

for (const text of ["{", "[]", '{"version":2,"chunks":["AAAA"]}', '{"version":1,"chunks":["AAAAAwECAw=="]}']) {
  test(`a file with ${text} costs nothing but itself`, async () => {
    const file = new MemoryFile();
    file.text = text;
    await using board = new SamplingBoard(new VirtualClock(), file);
    await board.clock.advance(millis(MINUTE));
    assert.equal(board.times.length, 2);
  });
}

test("a board that learns the time late corrects the samples of before", async () => {
  const clock = new VirtualClock(0);
  await using board = new SamplingBoard(clock, new MemoryFile());
  board.isTimeKnown = false;
  await clock.advance(millis(3 * MINUTE));
  assert.deepEqual(board.times, [0, MINUTE, 2 * MINUTE, 3 * MINUTE]);
  const now = 1_767_225_600_000;
  clock.setWall(now);
  board.isTimeKnown = true;
  await clock.advance(millis(MINUTE));
  // The first was taken before the test could say that the time is unknown.
  assert.deepEqual(board.times.slice(1), [now - 2 * MINUTE, now - MINUTE, now, now + MINUTE]);
});

test("usage that cannot be sampled is logged once, and sampled again when it can be", async () => {
  const clock = new VirtualClock();
  await using board = new SamplingBoard(clock, new MemoryFile());
  board.failing = new Error("no cgroups");
  await clock.advance(millis(5 * MINUTE));
  board.failing = undefined;
  await clock.advance(millis(2 * MINUTE));
  assert.equal(board.log.problems.filter((line) => line.startsWith("cannot take a sample")).length, 1);
  assert.equal(board.taken, 3);
});

test("a hub that wants none any more gets none, and nothing is kept for it", async () => {
  const clock = new VirtualClock();
  const file = new MemoryFile();
  await using board = new SamplingBoard(clock, file);
  await clock.advance(millis(3 * HOUR));
  assert.notEqual(file.text, undefined);
  board.every.set(undefined);
  await clock.advance(millis(HOUR));
  assert.deepEqual([board.taken, board.times.length, file.text], [181, 0, undefined]);
});

/** A hub's end of streams of samples. */
class SampleHub {
  readonly received: { readonly sequence: number; readonly atMs: number }[] = [];
  bytes = 0;
  streams = 0;
  /** Acknowledges nothing while it is set. */
  isForgetful = false;

  take(incoming: IncomingStream): void {
    assert.equal(incoming.kind, "samples");
    this.streams += 1;
    const stream = incoming.accept({ received: 0 });
    this.#read(stream).catch((error: unknown) => {
      if (!stream.closed.aborted) throw error;
    });
  }

  async #read(stream: TunnelStream): Promise<void> {
    const reader = new LengthPrefixedReader();
    const decoder = new SampleDecoder();
    for (let bytes = await stream.read(stream.closed); bytes !== undefined; bytes = await stream.read(stream.closed)) {
      this.bytes += bytes.length;
      for (const message of reader.push(bytes)) {
        const { sequence, sample } = decoder.decode(message);
        this.received.push({ sequence, atMs: sample.atMs });
        if (!this.isForgetful) await stream.write(encodeTelemetryAck(sequence), stream.closed);
      }
    }
    stream.end();
  }
}

test("in a session each sample goes up once; what a lost session left goes again, oldest first", async () => {
  await using bench = new TunnelBench();
  const hub = new SampleHub();
  bench.hub.fleet = { id: "fleet", former: [] };
  bench.hub.samplesEverySeconds = 60;
  bench.hub.onStream = (incoming) => hub.take(incoming);
  await using board = new SamplingBoard(bench.clock, new MemoryFile());
  const wanted: (number | undefined)[] = [];
  const outgoing = (): Promise<Samples> => Promise.resolve(board.samples);
  bench.node.samples = { want: (every) => void wanted.push(every), outgoing };
  await bench.start();
  await bench.pass(10 * MINUTE);
  assert.deepEqual(wanted, [60]);
  assert.deepEqual(
    hub.received.map(({ sequence }) => sequence),
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
  );
  assert.equal(board.times.length, 0, "what is acknowledged is forgotten");
  hub.isForgetful = true;
  await bench.pass(3 * MINUTE);
  bench.network.cut();
  hub.isForgetful = false;
  hub.received.length = 0;
  await bench.connected();
  await bench.pass(MINUTE);
  assert.deepEqual(
    hub.received.slice(0, 4).map(({ sequence }) => sequence),
    [12, 13, 14, 15].slice(0, hub.received.length),
  );
  assert.equal(hub.streams, 2);
});

test("an older hub, which says nothing of samples, gets no stream of them", async () => {
  await using bench = new TunnelBench();
  const hub = new SampleHub();
  bench.hub.fleet = { id: "fleet", former: [] };
  bench.hub.onStream = (incoming) => hub.take(incoming);
  const wanted: (number | undefined)[] = [];
  bench.node.samples = {
    want: (every) => void wanted.push(every),
    outgoing: () => Promise.reject(new Error("it was not asked for")),
  };
  await bench.start();
  await bench.pass(3 * MINUTE);
  assert.deepEqual([wanted, hub.streams, bench.tunnel.report().state], [[undefined], 0, "connected"]);
});
