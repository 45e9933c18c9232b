/** What is done to streams of bytes: taken out of gzip, hashed, looked into. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { PicoletError } from "../../../protocol/errors.ts";
import { type ByteStream, CHUNK_BYTES } from "./file-bytes.ts";

/** Any source of pieces as a stream: pieces larger than what is asked for are kept for the next read. */
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

/** @throws on reading, `corrupt` when it is no gzip or damaged. */
export function gunzipped(compressed: ByteStream): ByteStream {
  return new ChunkBytes(inflate(compressed));
}

async function* inflate(compressed: ByteStream): AsyncGenerator<Uint8Array, void> {
  const source = Readable.from(pieces(compressed), { objectMode: false });
  const gunzip = createGunzip();
  const closed = once(source, "close");
  source.once("error", (error) => gunzip.destroy(error));
  source.pipe(gunzip);
  try {
    for await (const chunk of gunzip) yield chunk as Uint8Array;
  } catch (error) {
    if (error instanceof PicoletError) throw error;
    throw new PicoletError("corrupt", "cannot decompress gzip data", { cause: error });
  } finally {
    source.destroy();
    gunzip.destroy();
    // Only then nobody reads from `compressed` any more.
    await closed;
  }
}

/** Copies, because a stream may still hold a piece when the next one is read. */
async function* pieces(stream: ByteStream): AsyncGenerator<Uint8Array, void> {
  for (;;) {
    const piece = await stream.read(CHUNK_BYTES);
    if (piece === undefined) return;
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

/** Counts what passes through into a SHA-256. */
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

  /** What is passed over counts too. */
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

/** Its first bytes can be looked at before it is read. */
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
