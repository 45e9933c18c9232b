import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FLAG, FRAME, type FrameHandler, FrameReader, frame, ProtocolViolation } from "./http2-frames.ts";

/** Everything the reader tells, as lines; pieces of DATA are joined. */
class Recorder implements FrameHandler {
  readonly lines: string[] = [];
  #data = "";
  flow = 0;

  onData(_stream: number, piece: Buffer, flowBytes: number): void {
    this.#data += piece.toString("latin1");
    this.flow += flowBytes;
  }
  onDataEnd(stream: number): void {
    this.lines.push(`data ${stream} ${this.#data}`);
    this.#data = "";
  }
  onHeaders(stream: number, block: Buffer, end: boolean): void {
    this.lines.push(`headers ${stream} ${block.toString("latin1")} ${end}`);
  }
  onResetStream(stream: number, code: number): void {
    this.lines.push(`reset ${stream} ${code}`);
  }
  onSettings(payload: Buffer): void {
    this.lines.push(`settings ${payload.length / 6}`);
  }
  onSettingsAck(): void {
    this.lines.push("settings ack");
  }
  onPing(payload: Buffer): void {
    this.lines.push(`ping ${payload.toString("latin1")}`);
  }
  onGoAway(last: number, code: number, debug: string): void {
    this.lines.push(`goaway ${last} ${code} ${debug}`);
  }
  onWindowUpdate(stream: number, increment: number): void {
    this.lines.push(`window ${stream} ${increment}`);
  }
}

const uint32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};
const text = (value: string): Buffer => Buffer.from(value, "latin1");
const padded = (value: string, padding: number): Buffer =>
  Buffer.concat([Buffer.from([padding]), text(value), Buffer.alloc(padding)]);

const CONVERSATION = Buffer.concat([
  frame(FRAME.settings, 0, 0, Buffer.alloc(12)),
  frame(FRAME.settings, FLAG.ack, 0, Buffer.alloc(0)),
  frame(FRAME.headers, FLAG.endHeaders, 1, text("block")),
  frame(FRAME.data, 0, 1, text("hello ")),
  frame(FRAME.data, FLAG.padded, 1, padded("wor", 20)),
  frame(FRAME.data, FLAG.padded, 1, padded("", 0)),
  frame(FRAME.data, FLAG.padded | FLAG.endStream, 1, padded("ld", 3)),
  frame(FRAME.data, FLAG.endStream, 3, Buffer.alloc(0)),
  frame(FRAME.headers, FLAG.endStream | FLAG.padded | FLAG.priority, 5, padded("prio-part", 4)),
  frame(FRAME.continuation, 0, 5, text(" and")),
  frame(FRAME.continuation, FLAG.endHeaders, 5, text(" rest")),
  frame(FRAME.ping, 0, 0, text("12345678")),
  frame(FRAME.ping, FLAG.ack, 0, text("12345678")),
  frame(FRAME.priority, 0, 7, Buffer.alloc(5)),
  frame(99, 0xff, 0, text("unknown")),
  frame(FRAME.windowUpdate, 0, 0, uint32(0x8000_0005)),
  frame(FRAME.resetStream, 0, 1, uint32(8)),
  frame(FRAME.goAway, 0, 0, Buffer.concat([uint32(5), uint32(2), text("bye")])),
]);
const TOLD = [
  "settings 2",
  "settings ack",
  "headers 1 block false",
  "data 1 hello world",
  "data 3 ",
  "headers 5 part and rest true",
  "ping 12345678",
  "window 0 5",
  "reset 1 8",
  "goaway 5 2 bye",
];

test("frames are reported whole, for any division of the bytes", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }), (cuts) => {
      const recorder = new Recorder();
      const reader = new FrameReader(recorder);
      const scratch = Buffer.alloc(64);
      let position = 0;
      for (let turn = 0; position < CONVERSATION.length; turn += 1) {
        const size = Math.min(cuts[turn % cuts.length] ?? 1, CONVERSATION.length - position);
        CONVERSATION.copy(scratch, 0, position, position + size);
        reader.feed(scratch.subarray(0, size));
        scratch.fill(0xee); // Shows whether a reader keeps a part of its input.
        position += size;
      }
      assert.deepEqual(recorder.lines, TOLD);
      assert.equal(recorder.flow, 6 + 24 + 1 + 6, "padding counts");
    }),
  );
});

const HOSTILE: Readonly<Record<string, readonly Buffer[]>> = {
  "a frame longer than announced": [frame(FRAME.data, 0, 1, Buffer.alloc(16_385))],
  "padding longer than its frame": [frame(FRAME.data, FLAG.padded, 1, Buffer.from([5, 0, 0]))],
  "padding that is missing": [frame(FRAME.data, FLAG.padded, 1, Buffer.alloc(0))],
  "headers padded beyond their frame": [frame(FRAME.headers, FLAG.padded, 1, Buffer.from([9, 0]))],
  "data without a stream": [frame(FRAME.data, 0, 0, text("x"))],
  "headers without a stream": [frame(FRAME.headers, FLAG.endHeaders, 0, text("x"))],
  "settings on a stream": [frame(FRAME.settings, 0, 1, Buffer.alloc(6))],
  "settings of a wrong length": [frame(FRAME.settings, 0, 0, Buffer.alloc(7))],
  "an acknowledgement with content": [frame(FRAME.settings, FLAG.ack, 0, Buffer.alloc(6))],
  "a short ping": [frame(FRAME.ping, 0, 0, Buffer.alloc(7))],
  "a short window update": [frame(FRAME.windowUpdate, 0, 0, Buffer.alloc(3))],
  "a short reset": [frame(FRAME.resetStream, 0, 1, Buffer.alloc(3))],
  "a short goaway": [frame(FRAME.goAway, 0, 0, Buffer.alloc(7))],
  "a push": [frame(FRAME.pushPromise, FLAG.endHeaders, 1, Buffer.alloc(8))],
  "a continuation of nothing": [frame(FRAME.continuation, FLAG.endHeaders, 1, text("x"))],
  "a header block that is interrupted": [
    frame(FRAME.headers, 0, 1, text("x")),
    frame(FRAME.ping, 0, 0, Buffer.alloc(8)),
  ],
  "a header block of another stream": [
    frame(FRAME.headers, 0, 1, text("x")),
    frame(FRAME.continuation, FLAG.endHeaders, 3, text("y")),
  ],
  "continuations without end": [
    frame(FRAME.headers, 0, 1, text("x")),
    ...Array.from({ length: 30 }, () => frame(FRAME.continuation, 0, 1, Buffer.alloc(0))),
  ],
  "a header block without end": [
    frame(FRAME.headers, 0, 1, Buffer.alloc(16_384)),
    ...Array.from({ length: 6 }, () => frame(FRAME.continuation, 0, 1, Buffer.alloc(16_384))),
  ],
};

for (const [what, frames] of Object.entries(HOSTILE)) {
  test(`${what} ends the connection`, () => {
    const reader = new FrameReader(new Recorder());
    assert.throws(() => reader.feed(Buffer.concat(frames)), ProtocolViolation);
  });
}

test("no bytes at all make the reader fail in another way than it says", () => {
  const noise = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes));
  const framed = fc
    .tuple(fc.nat(10), fc.nat(255), fc.nat(9), fc.uint8Array({ maxLength: 60 }))
    .map(([type, flags, stream, payload]) => frame(type, flags, stream, payload));
  fc.assert(
    fc.property(fc.array(framed, { maxLength: 20 }), noise, (frames, tail) => {
      const reader = new FrameReader(new Recorder());
      try {
        reader.feed(Buffer.concat([...frames, tail]));
      } catch (error) {
        assert.ok(error instanceof ProtocolViolation, String(error));
      }
    }),
    { numRuns: 5000 },
  );
});
