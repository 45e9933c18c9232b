import assert from "node:assert/strict";
import { test } from "node:test";
import { constants, createDeflate } from "node:zlib";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { HEADER_DICTIONARY, HEADER_DICTIONARY_ADLER, HeaderPacker, HeaderUnpacker } from "./header-block.ts";

function adler32(bytes: Uint8Array): number {
  let [low, high] = [1, 0];
  for (const byte of bytes) {
    low = (low + byte) % 65_521;
    high = (high + low) % 65_521;
  }
  return high * 65_536 + low;
}

/** A peer that really compresses, as all others do. */
function deflated(blocks: readonly Uint8Array[]): Promise<Buffer[]> {
  const deflate = createDeflate({ dictionary: HEADER_DICTIONARY });
  return blocks.reduce(async (before, block) => {
    const all = await before;
    const pieces: Buffer[] = [];
    const onData = (piece: Buffer): number => pieces.push(piece);
    deflate.on("data", onData);
    deflate.write(block);
    await new Promise<void>((resolve) => deflate.flush(constants.Z_SYNC_FLUSH, resolve));
    deflate.off("data", onData);
    return [...all, Buffer.concat(pieces)];
  }, Promise.resolve<Buffer[]>([]));
}

function pairs(headers: Readonly<Record<string, string>>): Buffer {
  const text = (value: string): Buffer => {
    const bytes = Buffer.from(value);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes.length);
    return Buffer.concat([length, bytes]);
  };
  const count = Buffer.alloc(4);
  count.writeUInt32BE(Object.keys(headers).length);
  return Buffer.concat([count, ...Object.entries(headers).flat().map(text)]);
}

test("the dictionary is the draft's", () => {
  assert.equal(HEADER_DICTIONARY.length, 1423);
  assert.equal(adler32(HEADER_DICTIONARY), HEADER_DICTIONARY_ADLER);
});

test("headers come out as they went in, block after block of one connection", async () => {
  const headers = fc.dictionary(fc.stringMatching(/^[a-z-]{1,20}$/), fc.string({ maxLength: 100 }), { maxKeys: 10 });
  await fc.assert(
    fc.asyncProperty(fc.array(headers, { minLength: 1, maxLength: 6 }), async (blocks) => {
      const packer = new HeaderPacker();
      using unpacker = new HeaderUnpacker();
      for (const block of blocks) assert.deepEqual({ ...(await unpacker.unpack(packer.pack(block))) }, { ...block });
    }),
    { numRuns: 50 },
  );
});

test("blocks that were really compressed are read, with names in lower case", async () => {
  using unpacker = new HeaderUnpacker();
  const blocks = await deflated([
    pairs({ StreamType: "stdin", Port: "80" }),
    pairs({ streamtype: "stdin", port: "80" }),
  ]);
  for (const block of blocks) assert.deepEqual(await unpacker.unpack(block), { streamtype: "stdin", port: "80" });
});

test("a block that unpacks to far more than it has is refused", async () => {
  using unpacker = new HeaderUnpacker();
  const [bomb = Buffer.alloc(0)] = await deflated([pairs({ a: "x".repeat(4_000_000) })]);
  assert.ok(bomb.length < 16 * 1024, `it is small: ${bomb.length}`);
  await assert.rejects(unpacker.unpack(bomb), (error) => isPicoletError(error, "corrupt"));
});

test("any input is read or refused as corrupt", async () => {
  const good = await deflated([pairs({ streamtype: "error" })]);
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    fc.tuple(fc.nat({ max: 60 }), fc.nat({ max: 255 })).map(([at, value]) => {
      const broken = Buffer.from(good[0] ?? []);
      broken[at % broken.length] = value;
      return broken;
    }),
  );
  await fc.assert(
    fc.asyncProperty(bytes, async (block) => {
      using unpacker = new HeaderUnpacker();
      try {
        await unpacker.unpack(block);
      } catch (error) {
        assert.ok(isPicoletError(error, "corrupt"), String(error));
      }
    }),
    { numRuns: 300 },
  );
});
