import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import type { BytePipe } from "./byte-pipe.ts";
import { readResponseHead } from "./response-head.ts";

const NEVER = new AbortController().signal;

/** A pipe that gives `chunks` and then ends. */
function pipeOf(chunks: readonly Uint8Array[]): BytePipe {
  const left = [...chunks];
  return {
    read: async () => left.shift(),
    write: async () => undefined,
    end: () => undefined,
    destroy: () => undefined,
  };
}

test("the head is taken off, however it is cut; what follows is kept", async () => {
  const text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nX-A: 1\r\nx-a:2\r\n\r\nrest";
  for (let size = 1; size <= text.length; size += 1) {
    const chunks = Array.from({ length: Math.ceil(text.length / size) }, (_, index) =>
      Buffer.from(text.slice(index * size, (index + 1) * size)),
    );
    const pipe = pipeOf(chunks);
    const { status, headers, rest } = await readResponseHead(pipe, NEVER);
    assert.deepEqual([status, headers], [101, { upgrade: "SPDY/3.1", "x-a": "1, 2" }]);
    const later: Uint8Array[] = [rest];
    for (let piece = await pipe.read(NEVER); piece !== undefined; piece = await pipe.read(NEVER)) later.push(piece);
    assert.equal(Buffer.concat(later).toString(), "rest");
  }
});

test("any input is read or refused, and never gathered without end", async () => {
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 50 }),
    fc.constantFrom("HTTP/1.1 200 OK\r\n", "a: b\r\n", "\r\n", ":\r\n", "HTTP/1.1 99").map((each) => Buffer.from(each)),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(piece, { maxLength: 8 }), async (chunks) => {
      try {
        await readResponseHead(pipeOf(chunks), NEVER);
      } catch (error) {
        assert.ok(isPicoletError(error, "corrupt") || isPicoletError(error, "unavailable"), String(error));
      }
    }),
  );
  const endless = pipeOf(Array.from({ length: 1000 }, () => Buffer.alloc(1024, "x")));
  await assert.rejects(readResponseHead(endless, NEVER), (error) => isPicoletError(error, "corrupt"));
  assert.ok(await endless.read(NEVER), "most of it was left alone");
});
