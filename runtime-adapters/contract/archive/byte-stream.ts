/** Operations on streams of bytes: gunzip, hash, peek. */

import { createHash } from "node:crypto";
import { once } from "node:events";
import { Readable } from "node:stream";
import { constants, createGunzip, createZstdDecompress } from "node:zlib";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { GIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { type ByteStream, CHUNK_BYTES } from "./file-bytes.ts";

/** Makes a stream of any source of pieces. A piece that is larger than a read is kept for the next one. */
class ChunkBytes implements ByteStream {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #rest: Uint8Array | undefined;

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  async read(limit: number): Promise<Uint8Array | undefined> {
    let chunk = this.#rest;
    while (chunk === undefined || chunk.length === 0) {
      const next = await this.#chunks.next();
      if (next.done === true) return undefined;
      chunk = next.value;
    }
    this.#rest = chunk.length > limit ? chunk.subarray(limit) : undefined;
    return chunk.subarray(0, limit);
  }

  async skip(count: number): Promise<void> {
    for (let left = count; left > 0; ) {
      const chunk = await this.read(left);
      if (chunk === undefined) return;
      left -= chunk.length;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#chunks.return?.();
  }
}

/** @param chunks are taken no faster than the stream is read */
export const streamOf = (chunks: AsyncIterable<Uint8Array>): ByteStream => new ChunkBytes(chunks);

/** Bounds one decompressed archive or layer; components have some 30 MiB. */
const MAX_INFLATED_BYTES = GIBIBYTE;
/**
 * Detects a decompression bomb beyond `RATIO_FROM_BYTES`: code shrinks to a third, a file of zeroes to a thousandth.
 */
const MAX_RATIO = 200;
const RATIO_FROM_BYTES = 16 * MEBIBYTE;
/** Binary logarithm; as much memory as a stream may ask for: 16 MiB. zstd's own command takes no more by default. */
const ZSTD_WINDOW_LOG = 24;

/** The code of gzip and zstd for data that ends too early. */
const CUT_OFF = "Z_BUF_ERROR";

type Compression = "gzip" | "zstd";
/** How far data may grow when it is decompressed. */
type Growth = "bounded" | "unlimited";

/**
 * Decompresses gzip. `unlimited` is for a caller that keeps only documents whose size it bounds itself.
 * @throws on reading: `corrupt` for data that is damaged or not gzip, `resource_exhausted` for a decompression bomb
 */
export const gunzipStream = (compressed: ByteStream, growth: Growth = "bounded"): ByteStream =>
  new ChunkBytes(inflate(compressed, "gzip", growth));

/** Decompresses gzip and zstd by their first bytes, and passes other content unchanged. */
export async function decompressStream(content: ByteStream): Promise<ByteStream> {
  const peeked = new PeekedBytes(content);
  const [first, second] = await peeked.start();
  if (first === 0x1f && second === 0x8b) return new ChunkBytes(inflate(peeked, "gzip", "bounded"));
  if (first === 0x28 && second === 0xb5) return new ChunkBytes(inflate(peeked, "zstd", "bounded"));
  return peeked;
}

async function* inflate(compressed: ByteStream, how: Compression, growth: Growth): AsyncGenerator<Uint8Array, void> {
  const eaten = { bytes: 0 };
  const source = Readable.from(pieces(compressed, eaten), { objectMode: false });
  const params = { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG };
  const inflater = how === "gzip" ? createGunzip() : createZstdDecompress({ params });
  const closed = once(source, "close");
  source.once("error", (error) => inflater.destroy(error));
  source.pipe(inflater);
  let bytes = 0;
  try {
    for await (const chunk of inflater as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      if (growth === "bounded") checkProportion(bytes, eaten.bytes);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof PicoletError) throw error;
    const isCut = errnoOf(error) === CUT_OFF;
    throw new PicoletError("corrupt", `cannot decompress ${how} data`, { cause: isCut ? "it is cut off" : error });
  } finally {
    source.destroy();
    inflater.destroy();
    // After this no one reads from `compressed` any more.
    await closed;
  }
}

function checkProportion(bytes: number, compressedBytes: number): void {
  if (bytes <= MAX_INFLATED_BYTES && (bytes <= RATIO_FROM_BYTES || bytes <= compressedBytes * MAX_RATIO)) return;
  const message = `${compressedBytes} compressed bytes become ${bytes} and more`;
  throw new PicoletError("resource_exhausted", message);
}

/** Copies, because a stream may still hold a piece when the next one is read. */
async function* pieces(stream: ByteStream, eaten: { bytes: number }): AsyncGenerator<Uint8Array, void> {
  for (;;) {
    const piece = await stream.read(CHUNK_BYTES);
    if (piece === undefined) return;
    eaten.bytes += piece.length;
    yield Buffer.from(piece);
  }
}

/** All of it. @throws `resource_exhausted` when it is more than `limit` bytes. */
export async function readAll(stream: ByteStream, limit: number, what: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for (;;) {
    const chunk = await stream.read(CHUNK_BYTES);
    if (chunk === undefined) return Buffer.concat(chunks, size);
    size += chunk.length;
    if (size > limit) throw new PicoletError("resource_exhausted", `${what} is larger than ${limit} bytes`);
    chunks.push(Buffer.from(chunk));
  }
}

/** Hashes what passes through with SHA-256. */
export class HashedBytes implements ByteStream {
  readonly #stream: ByteStream;
  readonly #hash = createHash("sha256");

  constructor(stream: ByteStream) {
    this.#stream = stream;
  }

  async read(limit: number): Promise<Uint8Array | undefined> {
    const chunk = await this.#stream.read(limit);
    if (chunk !== undefined) this.#hash.update(chunk);
    return chunk;
  }

  /** Skipped bytes are hashed too. */
  async skip(count: number): Promise<void> {
    for (let left = count; left > 0; ) {
      const chunk = await this.read(left);
      if (chunk === undefined) return;
      left -= chunk.length;
    }
  }

  /** The digest of the whole, 64 hexadecimal digits. */
  async finish(): Promise<string> {
    await this.skip(Number.MAX_SAFE_INTEGER);
    return this.#hash.digest("hex");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The stream below is its owner's.
  }
}

/** A stream whose first bytes can be inspected before it is read. */
export class PeekedBytes implements ByteStream {
  readonly #stream: ByteStream;
  #first: Uint8Array | undefined;

  constructor(stream: ByteStream) {
    this.#stream = stream;
  }

  async start(): Promise<Uint8Array> {
    this.#first = Buffer.from((await this.#stream.read(2)) ?? []);
    return this.#first;
  }

  async read(limit: number): Promise<Uint8Array | undefined> {
    const first = this.#first;
    if (first === undefined || first.length === 0) return this.#stream.read(limit);
    this.#first = first.subarray(limit);
    return first.subarray(0, limit);
  }

  async skip(count: number): Promise<void> {
    const fromFirst = Math.min(count, this.#first?.length ?? 0);
    this.#first = this.#first?.subarray(fromFirst);
    await this.#stream.skip(count - fromFirst);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The stream below is its owner's.
  }
}
