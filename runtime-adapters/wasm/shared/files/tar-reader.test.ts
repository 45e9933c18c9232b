import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { makeTar } from "@picolet/test/support/unit/images/tar.ts";
import fc from "fast-check";
import { gunzipStream, readAll } from "./byte-stream.ts";
import type { ByteStream } from "./file-bytes.ts";
import { TarReader } from "./tar-reader.ts";

/** Bytes in pieces of a given length, as a file system or a decompressor might hand them out. */
class Pieces implements ByteStream {
  readonly #bytes: Uint8Array;
  readonly #length: number;
  #position = 0;

  constructor(bytes: Uint8Array, length: number) {
    this.#bytes = bytes;
    this.#length = length;
  }

  async read(limit: number): Promise<Uint8Array | undefined> {
    if (this.#position >= this.#bytes.length) return undefined;
    const piece = this.#bytes.subarray(this.#position, this.#position + Math.min(limit, this.#length));
    this.#position += piece.length;
    return piece;
  }

  async skip(count: number): Promise<void> {
    this.#position += count;
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

async function contentOf(stream: ByteStream): Promise<[name: string, content: string][]> {
  const reader = new TarReader(stream);
  const found: [string, string][] = [];
  for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
    if (entry.kind === "file") found.push([entry.name, (await readAll(entry.content, 1 << 20, "it")).toString()]);
  }
  return found;
}

test("names and contents come back, in pieces of any length, compressed or not", async () => {
  const files: [string, string][] = [
    ["index.json", "{}"],
    ["empty", ""],
    [`a/${"long/".repeat(40)}name`, "behind a long name"],
    [`b/${"longer/".repeat(80)}name`, "behind a longer name"],
    ["blobs/sha256/abc", "x".repeat(1500)],
    ["ünïcode", "ok"],
  ];
  const tar = makeTar(Object.fromEntries(files));
  for (const length of [1, 7, 512, 100_000]) {
    assert.deepEqual(await contentOf(new Pieces(tar, length)), files);
    await using decompressed = gunzipStream(new Pieces(gzipSync(tar), length));
    assert.deepEqual(await contentOf(decompressed), files);
  }
});

test("contents that are not read are skipped, and may be read in part", async () => {
  const reader = new TarReader(new Pieces(makeTar({ one: "1".repeat(2000), two: "2" }), 100));
  const one = await reader.next();
  assert.equal(one?.name, "one");
  await one?.content.read(10);
  const two = await reader.next();
  assert.equal(two?.name, "two");
  assert.equal(two === undefined ? "" : (await readAll(two.content, 10, "two")).toString(), "2");
  assert.equal(await reader.next(), undefined);
});

test("leading dots and slashes are no part of a name", async () => {
  const names = (await contentOf(new Pieces(makeTar({ "./a": "", "/b": "", "././c/d": "" }), 512))).map(
    ([name]) => name,
  );
  assert.deepEqual(names, ["a", "b", "c/d"]);
});

test("data that is no tar, and a tar with a damaged header, are corrupt", async () => {
  const damaged = Buffer.from(makeTar({ a: "content" }));
  damaged[3] = 0x78;
  for (const bytes of [Buffer.from("hello ".repeat(200)), damaged]) {
    await assert.rejects(contentOf(new Pieces(bytes, 512)), (error) => isPicoletError(error, "corrupt"));
  }
});

test("content larger than its reader allows is refused", async () => {
  const reader = new TarReader(new Pieces(makeTar({ a: "x".repeat(100) }), 10));
  const entry = await reader.next();
  assert.ok(entry);
  await assert.rejects(readAll(entry.content, 99, "a"), (error) => isPicoletError(error, "resource_exhausted"));
});

test("gzip that is damaged or cut off is corrupt", async () => {
  const whole = gzipSync(makeTar({ a: "x".repeat(5000) }));
  const damaged = Buffer.from(whole);
  damaged[20] = (damaged[20] ?? 0) ^ 0xff;
  for (const bytes of [damaged, whole.subarray(0, 30), Buffer.from("no gzip at all")]) {
    await using stream = gunzipStream(new Pieces(bytes, 16));
    await assert.rejects(contentOf(stream), (error) => isPicoletError(error, "corrupt"));
  }
});

test("any bytes are read or refused", async () => {
  const real = makeTar({ "a/b": "hello", ["p".repeat(150)]: "x".repeat(600), ["q".repeat(300)]: "pax", c: "" });
  const mutated = fc
    .array(fc.tuple(fc.nat(real.length - 1), fc.nat(255)), { minLength: 1, maxLength: 6 })
    .map((changes) => {
      const bytes = Buffer.from(real);
      for (const [at, value] of changes) bytes[at] = value;
      return bytes;
    });
  const cut = fc.nat(real.length).map((length) => real.subarray(0, length));
  const anything = fc.uint8Array({ maxLength: 2000 });
  await fc.assert(
    fc.asyncProperty(fc.oneof(mutated, cut, anything), fc.integer({ min: 1, max: 700 }), async (bytes, length) => {
      try {
        await contentOf(new Pieces(bytes, length));
      } catch (error) {
        const known = isPicoletError(error, "corrupt") || isPicoletError(error, "resource_exhausted");
        assert.ok(known, String(error));
      }
    }),
    { numRuns: 2000 },
  );
});
