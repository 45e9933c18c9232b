import assert from "node:assert/strict";
import { test } from "node:test";
import { MessageAssembler, withPrefix } from "./grpc-messages.ts";

const MAX_BYTES = 1024 * 1024;

test("a message in pieces is whole while it is delivered, and its buffer is freed then", () => {
  const sent = Buffer.from("a list of pods ".repeat(1000));
  const seen: { readonly bytes: Buffer; readonly text: string }[] = [];
  const assembler = new MessageAssembler(MAX_BYTES, (bytes, start, end) => {
    seen.push({ bytes, text: bytes.toString("latin1", start, end) });
  });
  const stream = Buffer.concat([withPrefix(sent), withPrefix(sent)]);
  for (let at = 0; at < stream.length; at += 4000) assembler.feed(stream.subarray(at, at + 4000));
  assert.deepEqual(
    seen.map(({ text }) => text),
    [sent.toString("latin1"), sent.toString("latin1")],
  );
  assert.deepEqual(
    seen.map(({ bytes }) => bytes.length),
    [0, 0],
  );
  assert.ok(stream.length > 0, "a message that came in one piece is the reader's");
});

test("the buffer of an unfinished message is freed once when it is abandoned", () => {
  const assembler = new MessageAssembler(MAX_BYTES, () => assert.fail("not whole"));
  assembler.feed(withPrefix(Buffer.alloc(5000)).subarray(0, 4000));
  const before = process.memoryUsage().arrayBuffers;
  assembler.abandon();
  assembler.abandon();
  assert.ok(process.memoryUsage().arrayBuffers <= before - 5000);
});
