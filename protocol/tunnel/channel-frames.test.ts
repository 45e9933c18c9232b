import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPicoletError } from "../errors.ts";
import { CHANNEL, type Channel, ChannelFrameReader, channelFrame, MAX_CHANNEL_FRAME_BYTES } from "./channel-frames.ts";

interface Frame {
  readonly channel: Channel;
  readonly bytes: string;
}

/** Frames put together again from the pieces of a stream that arrives in `chunks`. */
function framesOf(chunks: Iterable<Uint8Array>): Frame[] {
  const reader = new ChannelFrameReader();
  const frames: Frame[] = [];
  let hex = "";
  for (const chunk of chunks) {
    for (const { channel, bytes, last } of reader.push(chunk)) {
      hex += Buffer.from(bytes).toString("hex");
      if (!last) continue;
      frames.push({ channel, bytes: hex });
      hex = "";
    }
  }
  assert.ok(reader.betweenFrames);
  return frames;
}

function* cut(bytes: Uint8Array, sizes: readonly number[]): Generator<Uint8Array> {
  let at = 0;
  for (let index = 0; at < bytes.length; index += 1) {
    const size = sizes[index % sizes.length] ?? 1;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

test("a frame is its channel, three bytes of length, and its bytes", () => {
  const frame = channelFrame(CHANNEL.stderr, Buffer.from("alas"));
  assert.equal(Buffer.from(frame).toString("hex"), "02000004616c6173");
  assert.equal(Buffer.from(channelFrame(CHANNEL.stdin, new Uint8Array(0))).toString("hex"), "00000000");
});

test("frames come out as they went in, however the stream is cut", () => {
  const frame = fc.record({
    channel: fc.constantFrom(...Object.values(CHANNEL)),
    bytes: fc.uint8Array({ maxLength: 400 }),
  });
  const sizes = fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 20 }), sizes, (frames, cuts) => {
      const stream = Buffer.concat(frames.map(({ channel, bytes }) => channelFrame(channel, bytes)));
      const wanted = frames.map(({ channel, bytes }) => ({ channel, bytes: Buffer.from(bytes).toString("hex") }));
      assert.deepEqual(framesOf(cut(stream, cuts)), wanted);
    }),
  );
});

test("all bytes are read or refused as corrupt", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 64 }), { maxLength: 20 }), (chunks) => {
      const reader = new ChannelFrameReader();
      try {
        for (const chunk of chunks) for (const { bytes } of reader.push(chunk)) assert.ok(bytes.length <= 64);
      } catch (error) {
        assert.ok(isPicoletError(error, "corrupt"));
      }
    }),
  );
});

test("a frame that is too long is neither written nor read", () => {
  const long = new Uint8Array(MAX_CHANNEL_FRAME_BYTES + 1);
  assert.throws(() => channelFrame(CHANNEL.stdout, long), /cannot put/);
  const header = Buffer.of(CHANNEL.stdout, 1, 0, 1);
  assert.throws(
    () => [...new ChannelFrameReader().push(header)],
    (error) => isPicoletError(error, "corrupt"),
  );
});
