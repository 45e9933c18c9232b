import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, millis, seconds } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { Heartbeat, type Pulse, RoundTrip } from "./heartbeat.ts";

for (const [name, interval, rounds, least, most] of [
  ["a fast link is given 10 s", 30, [5, 6, 5], 10_000, 10_000],
  ["a fast link with a short interval no more than that", 5, [5, 6, 5], 5000, 5000],
  ["a link of 2 s latency is given more than it takes", 30, [4000, 4000, 4000], 10_000, 30_000],
  ["no link is given more than a heartbeat", 30, [20_000, 100, 25_000], 30_000, 30_000],
  ["a slow link with a short interval is given 20 s", 5, [9000, 9000], 20_000, 20_000],
] as const) {
  test(name, () => {
    const [first = 0, ...others] = rounds;
    const trip = new RoundTrip(seconds(interval), first);
    for (const each of others) trip.measured(each);
    assert.ok(trip.deadline >= least && trip.deadline <= most, `${trip.deadline}`);
  });
}

/** A link that answers pings after `answerMs`, or never. */
class TestPulse implements Pulse {
  lastReceivedAt = 0;
  bufferedBytes = 0;
  flushedBytes = 0;
  pings = 0;
  answerMs: number | undefined = 10;
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async ping(signal: AbortSignal): Promise<number> {
    this.pings += 1;
    const { answerMs } = this;
    await this.#clock.sleep(millis(answerMs ?? 1e9), signal);
    this.lastReceivedAt = this.#clock.monotonic();
    return answerMs ?? 0;
  }
}

function start() {
  const clock = new VirtualClock();
  const pulse = new TestPulse(clock);
  const stop = new AbortController();
  const heartbeat = new Heartbeat(
    { clock, pulse, onMeasured: () => undefined },
    { interval: seconds(30), firstRttMs: 10 },
  );
  let ended: unknown;
  heartbeat.run(stop.signal).catch((error: unknown) => {
    ended = error;
  });
  return { clock, pulse, stop, error: () => ended };
}

test("any byte that comes puts the next ping off", async () => {
  const { clock, pulse, error, stop } = start();
  for (let time = 0; time < 10; time += 1) {
    await clock.advance(seconds(29));
    pulse.lastReceivedAt = clock.monotonic();
  }
  assert.equal(pulse.pings, 0);
  await clock.advance(seconds(31));
  assert.equal(pulse.pings, 1);
  assert.equal(error(), undefined);
  stop.abort();
});

test("bytes that come after an unanswered ping are a sign of life", async () => {
  const { clock, pulse, error, stop } = start();
  pulse.answerMs = undefined;
  for (let time = 0; time < 10; time += 1) {
    await clock.advance(seconds(32));
    pulse.lastReceivedAt = clock.monotonic();
  }
  assert.deepEqual([pulse.pings, error()], [10, undefined]);
  stop.abort();
});

test("a link that is slow to take what is sent lives as long as it takes any of it", async () => {
  const { clock, pulse, error } = start();
  pulse.answerMs = undefined;
  pulse.bufferedBytes = 60_000;
  // 10 kbit/s.
  for (let time = 0; time < 300; time += 1) {
    pulse.flushedBytes += 1250;
    await clock.advance(seconds(1));
  }
  assert.equal(error(), undefined);
  await clock.advance(seconds(40));
  assert.ok(isPicoletError(error(), "deadline_exceeded"));
});

test("silence ends it within two intervals", async () => {
  const { clock, pulse, error } = start();
  pulse.answerMs = undefined;
  await clock.advance(seconds(39));
  assert.equal(error(), undefined);
  await clock.advance(seconds(2));
  assert.ok(isPicoletError(error(), "deadline_exceeded"));
});
