import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";

/**
 * The deadline of an answer on a fast link: what a busy radio, a retransmission with TCP's back-off (0.2 + 0.4 + 0.8 +
 * 1.6 + 3.2 s) and a hub in a long collection may take together.
 */
const MIN_DEADLINE = seconds(10);
/** Least deadline on a slow link, when the heartbeat's interval is shorter. */
const MAX_DEADLINE = seconds(20);

/** RFC 6298, section 2: smoothing of the round trip and of how much it varies. */
const SMOOTHING = 1 / 8;
const VARIATION_SMOOTHING = 1 / 4;
const VARIATIONS = 4;
/** A mobile link doubles its latency when the radio wakes up. */
const MARGIN = 2;

/** The round trip, smoothed, and how long an answer may take. */
export class RoundTrip {
  readonly #interval: Millis;
  #smoothed: number;
  #variation: number;

  constructor(interval: Millis, firstMs: number) {
    this.#interval = interval;
    this.#smoothed = firstMs;
    this.#variation = firstMs / 2;
  }

  get smoothedMs(): number {
    return this.#smoothed;
  }

  measured(ms: number): void {
    this.#variation += VARIATION_SMOOTHING * (Math.abs(this.#smoothed - ms) - this.#variation);
    this.#smoothed += SMOOTHING * (ms - this.#smoothed);
  }

  /** At most the heartbeat's interval (or 20 s): a link that is half open is found within two heartbeats. */
  get deadline(): Millis {
    const least = Math.min(this.#interval, MIN_DEADLINE);
    const most = Math.max(this.#interval, MAX_DEADLINE);
    const expected = MARGIN * (this.#smoothed + VARIATIONS * this.#variation);
    return millis(Math.min(most, Math.max(least, expected)));
  }
}

/** A session, as far as its life is concerned. */
export interface Pulse {
  readonly lastReceivedAt: number;
  /** Waiting here because the link takes no more. */
  readonly bufferedBytes: number;
  /** Ever handed to the link; grows while the other end acknowledges what fills the kernel's buffer. */
  readonly flushedBytes: number;
  ping(signal: AbortSignal): Promise<number>;
}

/**
 * Beats while nothing is received: any byte from the hub is a sign of life, so that a busy session costs no ping.
 *
 * A ping and its pong are some 270 bytes on the wire (TCP and IP 3 x 52, TLS 2 x 22, WebSocket and frame 2 x 10, and
 * what the link adds): every 30 s 0.78 MB a day, which leaves a fifth of the megabyte that an idle node may take.
 */
export class Heartbeat {
  readonly #clock: Clock;
  readonly #pulse: Pulse;
  readonly #interval: Millis;
  readonly #roundTrip: RoundTrip;
  readonly #onMeasured: (rttMs: number) => void;

  constructor(
    components: { readonly clock: Clock; readonly pulse: Pulse; readonly onMeasured: (rttMs: number) => void },
    init: { readonly interval: Millis; readonly firstRttMs: number },
  ) {
    this.#clock = components.clock;
    this.#pulse = components.pulse;
    this.#onMeasured = components.onMeasured;
    this.#interval = init.interval;
    this.#roundTrip = new RoundTrip(init.interval, init.firstRttMs);
  }

  /** @throws `deadline_exceeded` when the other end is silent, what ends the session, `cancelled` */
  async run(signal: AbortSignal): Promise<never> {
    for (;;) {
      const silent = this.#clock.monotonic() - this.#pulse.lastReceivedAt;
      if (silent < this.#interval) await this.#clock.sleep(millis(this.#interval - silent), signal);
      else await this.#beat(signal);
    }
  }

  async #beat(signal: AbortSignal): Promise<void> {
    const { lastReceivedAt, flushedBytes } = this.#pulse;
    const { deadline } = this.#roundTrip;
    try {
      const ping = (inner: AbortSignal): Promise<number> => this.#pulse.ping(inner);
      const rttMs = await withDeadline(this.#clock, deadline, "get a sign of life", ping, signal);
      this.#roundTrip.measured(rttMs);
      this.#onMeasured(this.#roundTrip.smoothedMs);
    } catch (error) {
      if (!isPicoletError(error, "deadline_exceeded")) throw error;
      if (this.#pulse.lastReceivedAt > lastReceivedAt) return;
      // The kernel takes more only when the other end has acknowledged what it held: slow, but alive.
      if (this.#pulse.bufferedBytes > 0 && this.#pulse.flushedBytes > flushedBytes) return;
      throw new PicoletError("deadline_exceeded", `the hub was silent for ${this.#silentSeconds()} s`, {
        retryable: true,
      });
    }
  }

  #silentSeconds(): number {
    return Math.round((this.#clock.monotonic() - this.#pulse.lastReceivedAt) / 1000);
  }
}
