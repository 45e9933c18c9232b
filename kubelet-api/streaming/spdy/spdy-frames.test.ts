import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import {
  dataFrame,
  goAwayFrame,
  MAX_CONTROL_BYTES,
  pingFrame,
  rstStreamFrame,
  type SpdyFrame,
  SpdyFrameReader,
  synReplyFrame,
  synStreamFrame,
  windowUpdateFrame,
} from "./spdy-frames.ts";

/** Frames of a stream that arrives in `chunks`; pieces of data joined. */
function read(chunks: Iterable<Uint8Array>): unknown[] {
  const reader = new SpdyFrameReader();
  const frames: unknown[] = [];
  for (const chunk of chunks) for (const frame of reader.push(chunk)) add(frames, frame);
  return frames;
}

function add(frames: unknown[], frame: SpdyFrame): void {
  const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
  if ("block" in frame) frames.push({ ...frame, block: hex(frame.block) });
  else if (frame.kind !== "data") frames.push(frame);
  else {
    const last = frames.at(-1) as { kind: string; id: number; fin: boolean; bytes: string } | undefined;
    const goesOn = last?.kind === "data" && last.id === frame.id && !last.fin;
    if (goesOn) frames.splice(-1, 1, { ...frame, bytes: last.bytes + hex(frame.bytes) });
    else frames.push({ ...frame, bytes: hex(frame.bytes) });
  }
}

function* cut(bytes: Uint8Array, sizes: readonly number[]): Generator<Uint8Array> {
  for (let at = 0, index = 0; at < bytes.length; index += 1) {
    const size = sizes[index % sizes.length] ?? 1;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

test("frames are laid out as the draft has them", () => {
  assert.equal(pingFrame(5).toString("hex"), "800300060000000400000005");
  assert.equal(rstStreamFrame(3, 5).toString("hex"), "80030003000000080000000300000005");
  assert.equal(goAwayFrame(7).toString("hex"), "80030007000000080000000700000000");
  assert.equal(windowUpdateFrame(1, 9).toString("hex"), "80030009000000080000000100000009");
  assert.equal(dataFrame(3, true, Buffer.from("ab")).toString("hex"), "00000003010000026162");
  assert.equal(synReplyFrame(3, Buffer.of(0xff)).toString("hex"), "800300020000000500000003ff");
  assert.equal(synStreamFrame(3, Buffer.of(0xff)).toString("hex"), "800300010000000b00000003000000000000ff");
});

test("frames come out as they went in, however the stream is cut", () => {
  const id = fc.integer({ min: 1, max: 0x7fff_ffff });
  const block = fc.uint8Array({ maxLength: 60 });
  const frame = fc.oneof(
    fc.tuple(id, block).map(([stream, bytes]) => synStreamFrame(stream, bytes)),
    fc.tuple(id, block).map(([stream, bytes]) => synReplyFrame(stream, bytes)),
    fc.tuple(id, id).map(([stream, status]) => rstStreamFrame(stream, status)),
    fc.tuple(id, id).map(([stream, delta]) => windowUpdateFrame(stream, delta)),
    fc.tuple(id, fc.boolean(), fc.uint8Array({ minLength: 1, maxLength: 300 })).map((all) => dataFrame(...all)),
    id.map(pingFrame),
    id.map(goAwayFrame),
  );
  const sizes = fc.array(fc.integer({ min: 1, max: 100 }), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 20 }), sizes, (frames, cuts) => {
      const stream = Buffer.concat(frames);
      assert.deepEqual(read(cut(stream, cuts)), read([stream]));
    }),
  );
});

test("any input is read or refused", () => {
  const control = fc
    .tuple(fc.integer({ min: 0, max: 12 }), fc.uint8Array({ maxLength: 40 }))
    .map(([type, payload]) => Buffer.from([0x80, 3, 0, type, 0, 0, 0, payload.length, ...payload]));
  fc.assert(
    fc.property(fc.array(fc.oneof(control, fc.uint8Array({ maxLength: 64 })), { maxLength: 10 }), (chunks) => {
      try {
        read(chunks);
      } catch (error) {
        assert.ok(isPicoletError(error, "corrupt") || isPicoletError(error, "resource_exhausted"), String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

test("a control frame that is too long is refused before it is gathered", () => {
  const header = Buffer.from([0x80, 3, 0, 1, 0, 0, 0, 0]);
  header.writeUIntBE(MAX_CONTROL_BYTES + 1, 5, 3);
  assert.throws(
    () => read([header]),
    (error) => isPicoletError(error, "resource_exhausted"),
  );
});
