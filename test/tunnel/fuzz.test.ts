/**
 * The tunnel against malformed bytes at both ends: noise, valid frames with some bytes changed, valid frames in any
 * order, and the committed corpus. An end either goes on or closes the session as a violation by its peer; it throws
 * nothing and keeps no more than its limits.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { decodeCbor, encodeCbor } from "@picolet/protocol/tunnel/encoding/cbor.ts";
import { fromHex, toHex } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { encodeFrame, encodeMessageFrame } from "@picolet/protocol/tunnel/frames.ts";
import { packMessage } from "@picolet/protocol/tunnel/message-codec.ts";
import type { TunnelMessage } from "@picolet/protocol/tunnel/messages.ts";
import { Mux } from "@picolet/protocol/tunnel/mux.ts";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";
import { MAX_STREAMS } from "@picolet/protocol/tunnel/stream-table.ts";
import fc from "fast-check";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { SAMPLE_FRAMES, SAMPLE_MESSAGES } from "../support/unit/tunnel/tunnel-samples.ts";

const FOLDER = new URL("../fuzz/tunnel/", import.meta.url);
const NEVER = new AbortController().signal;
/** Each run is a whole session of some frames. */
const RUNS = Number(process.env.FUZZ_RUNS ?? 300);

type Role = "agent" | "hub";

/** An end that answers what comes: accepts every second stream and reads nothing of it. */
class Victim {
  readonly mux: Mux;
  readonly messages: TunnelMessage[] = [];
  readonly #sent: Uint8Array[] = [];
  isStuck = false;
  closedWith: number | undefined;

  constructor(role: Role) {
    const victim = this;
    const link = {
      send: (bytes: Uint8Array) => void this.#sent.push(bytes),
      get bufferedBytes() {
        return victim.isStuck ? Number.POSITIVE_INFINITY : 0;
      },
      close: (code: number, reason: string) => {
        assert.ok(Buffer.byteLength(reason) <= 123);
        this.closedWith ??= code;
      },
    };
    const onMessage = (message: TunnelMessage): void => void this.messages.push(message);
    const onStream = (stream: IncomingStream): void => {
      if (this.messages.length % 2 === 0)
        stream
          .accept({})
          .write(new Uint8Array(10), NEVER)
          .catch(() => undefined);
    };
    this.mux = new Mux({ clock: new VirtualClock(), log: new RecordedLog(), link }, { role, onMessage, onStream });
    this.mux.open("logs", {}, "logs", NEVER).catch(() => undefined);
    this.mux.ping(NEVER).catch(() => undefined);
  }

  /** @returns whether the session goes on */
  feed(frames: readonly Uint8Array[]): boolean {
    for (const frame of frames) this.mux.receive(frame);
    if (!this.mux.closed.aborted) {
      assert.ok(this.mux.streamCount <= MAX_STREAMS.agent + MAX_STREAMS.hub);
      return true;
    }
    assert.ok(isPicoletError(this.mux.closed.reason, "invalid"), String(this.mux.closed.reason));
    assert.equal(this.closedWith, 1002);
    assert.equal(this.mux.streamCount, 0);
    return false;
  }
}

const valid: readonly Uint8Array[] = [
  ...Object.values(SAMPLE_MESSAGES).map((message) => encodeMessageFrame(encodeCbor(packMessage(message)))),
  ...Object.values(SAMPLE_FRAMES).map((frame) => encodeFrame(frame)),
];

const role = fc.constantFrom<Role>("agent", "hub");
const noise = fc.uint8Array({ maxLength: 200 });
const sample = fc.constantFrom(...valid);

/** Some bytes replaced, put in, or left out. */
const mutated = fc
  .tuple(
    sample,
    fc.array(fc.record({ at: fc.nat(), byte: fc.nat(255), how: fc.constantFrom("set", "add", "cut") }), {
      maxLength: 6,
    }),
  )
  .map(([bytes, changes]) => {
    const result = [...bytes];
    for (const { at, byte, how } of changes) {
      const place = at % (result.length + 1);
      if (how === "set") result[Math.min(place, result.length - 1)] = byte;
      else if (how === "add") result.splice(place, 0, byte);
      else result.splice(place, 1);
    }
    return Uint8Array.from(result);
  });

/** Frames about a few streams, valid each, in any order. */
const id = fc.integer({ min: 1, max: 6 });
const anyFrame = fc
  .oneof(
    fc.record({
      type: fc.constant("open"),
      id,
      kind: fc.constant("logs"),
      lane: fc.constantFrom("logs", "bulk"),
      params: fc.constant({}),
    }),
    fc.record({ type: fc.constant("accept"), id, reply: fc.constant({}) }),
    fc.record({ type: fc.constantFrom("reject", "reset"), id, error: fc.constant({ code: "failed", message: "" }) }),
    fc.record({ type: fc.constant("data"), id, bytes: fc.uint8Array({ minLength: 1, maxLength: 100 }) }),
    fc.record({ type: fc.constant("end"), id }),
    fc.record({ type: fc.constant("credit"), id, bytes: fc.nat(70_000) }),
    fc.record({ type: fc.constantFrom("ping", "pong"), number: fc.nat(3) }),
    fc.record({
      type: fc.constant("part"),
      lane: fc.constant("status"),
      isLast: fc.boolean(),
      bytes: fc.uint8Array({ minLength: 1, maxLength: 9 }),
    }),
  )
  .map((frame) => encodeFrame(frame as Parameters<typeof encodeFrame>[0]));

const FEEDS = { noise, mutated, sample, anyFrame } as const;
for (const [name, frame] of Object.entries(FEEDS)) {
  test(`either end survives: ${name}`, () => {
    fc.assert(
      fc.property(role, fc.array(frame, { maxLength: 40 }), fc.boolean(), (end, frames, isStuck) => {
        const victim = new Victim(end);
        victim.isStuck = isStuck;
        victim.feed(frames);
        victim.mux.close(new PicoletError("unavailable", "enough"));
      }),
      { numRuns: RUNS },
    );
  });
}

test("what CBOR is let through is what the library makes of it, and nothing else is", () => {
  fc.assert(
    fc.property(fc.oneof(noise, mutated), (bytes) => {
      try {
        const value = decodeCbor(bytes);
        // One form of each: what was read and is written again is read the same.
        const again = encodeCbor(value);
        assert.equal(toHex(encodeCbor(decodeCbor(again))), toHex(again));
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"), String(error));
      }
    }),
    { numRuns: 10 * RUNS },
  );
});

/** `name.hex`: comment lines; then `agent` or `hub`, and whether its session goes on; then a frame a line. */
function corpus(name: string): {
  readonly end: Role;
  readonly goesOn: boolean;
  readonly frames: readonly Uint8Array[];
} {
  const text = readFileSync(new URL(name, FOLDER), "utf8");
  const [head = "", ...lines] = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  const [end, fate] = head.split(" ");
  assert.ok(end === "agent" || end === "hub", head);
  assert.ok(fate === "open" || fate === "closed", head);
  // `n*hex`: n times that frame.
  const frames = lines.flatMap((line) => {
    const [, times = "1", hex = ""] = /^(?:(\d+)\*)?([0-9a-f]*)$/.exec(line) ?? assert.fail(line);
    return Array.from({ length: Number(times) }, () => fromHex(hex));
  });
  return { end, goesOn: fate === "open", frames };
}

for (const name of readdirSync(FOLDER)) {
  test(`corpus: ${name}`, () => {
    const { end, goesOn, frames } = corpus(name);
    assert.equal(new Victim(end).feed(frames), goesOn);
  });
}

test("the corpus holds every valid frame and message", () => {
  const text = readFileSync(new URL("valid-frames.hex", FOLDER), "utf8");
  for (const frame of valid) assert.ok(text.includes(toHex(frame)), toHex(frame));
});
