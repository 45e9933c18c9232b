/**
 * Reads tar archives as a stream: ustar and pax (POSIX.1-2008, pax), GNU's long names and large numbers. Nothing is
 * unpacked, so that names and links in an archive mean nothing to the file system.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { ByteStream } from "./file-bytes.ts";

export interface TarEntry {
  /** Without leading `./` and `/`. */
  readonly name: string;
  /** A hard link is among `other`: its content is elsewhere in the archive. */
  readonly kind: "file" | "folder" | "symlink" | "other";
  readonly sizeBytes: number;
  /** The bits of its permissions. */
  readonly mode: number;
  /** Its content, until the next entry is read. */
  readonly content: ByteStream;
}

const KINDS: ReadonlyMap<string, TarEntry["kind"]> = new Map([
  ["0", "file"],
  ["\0", "file"],
  ["7", "file"],
  ["2", "symlink"],
  ["5", "folder"],
]);

const BLOCK_BYTES = 512;
/** Bounds the time to read an image's layer: the largest of public base images have some 60,000 entries. */
const MAX_ENTRIES = 500_000;
/** A pax header or a GNU long name; a path has 4096 bytes at most. */
const MAX_EXTENSION_BYTES = 65_536;

interface Header {
  readonly name: string;
  readonly type: string;
  readonly sizeBytes: number;
  readonly mode: number;
}

export class TarReader {
  readonly #stream: ByteStream;
  readonly #maxEntries: number;
  #entries = 0;
  #current: EntryContent | undefined;

  constructor(stream: ByteStream, maxEntries: number = MAX_ENTRIES) {
    this.#stream = stream;
    this.#maxEntries = maxEntries;
  }

  /** The next entry, or undefined at the end. @throws `corrupt` for data that is no tar */
  async next(): Promise<TarEntry | undefined> {
    let longName: string | undefined;
    let pax: ReadonlyMap<string, string> = new Map();
    for (;;) {
      await this.#current?.finish();
      this.#current = undefined;
      const header = await this.#header();
      if (header === undefined) return undefined;
      if (header.type === "x") pax = parsePax(await this.#extension(header));
      else if (header.type === "L") longName = textOf(await this.#extension(header));
      else if (header.type === "g" || header.type === "K") await this.#extension(header);
      else return this.#entry(header, pax, longName);
    }
  }

  #entry(header: Header, pax: ReadonlyMap<string, string>, longName: string | undefined): TarEntry {
    const paxSize = pax.get("size");
    const sizeBytes = paxSize === undefined ? header.sizeBytes : decimal(paxSize);
    const content = new EntryContent(this.#stream, sizeBytes);
    this.#current = content;
    const name = (pax.get("path") ?? longName ?? header.name).replace(/^(?:\.?\/+)+/, "");
    return { name, kind: KINDS.get(header.type) ?? "other", sizeBytes, mode: header.mode, content };
  }

  async #header(): Promise<Header | undefined> {
    const block = await exactly(this.#stream, BLOCK_BYTES);
    // The end is two blocks of zeroes; some writers leave one of them or both out.
    if (block === undefined || block.every((byte) => byte === 0)) return undefined;
    this.#entries += 1;
    if (this.#entries > this.#maxEntries) {
      throw new PicoletError("resource_exhausted", `the archive has more than ${this.#maxEntries} entries`);
    }
    if (!isTarHeader(block)) throw corrupt("the checksum of a header is wrong");
    const prefix = block.subarray(257, 262).toString("latin1") === "ustar" ? text(block, 345, 155) : "";
    const name = text(block, 0, 100);
    return {
      name: prefix === "" ? name : `${prefix}/${name}`,
      type: String.fromCharCode(block[156] ?? 0),
      sizeBytes: number(block, 124, 12),
      // Not used by most readers: what is no number there is no reason to refuse an archive.
      mode: (octal(text(block, 100, 8)) ?? 0) & 0o7777,
    };
  }

  async #extension(header: Header): Promise<Buffer> {
    if (header.sizeBytes > MAX_EXTENSION_BYTES) throw corrupt("a header is too long");
    const content = new EntryContent(this.#stream, header.sizeBytes);
    const bytes = await exactly(content, header.sizeBytes);
    if (bytes === undefined && header.sizeBytes > 0) throw corrupt("it is cut off");
    await content.finish();
    return bytes ?? Buffer.alloc(0);
  }
}

/** The bytes of one entry, with the padding to whole blocks behind them. */
class EntryContent implements ByteStream {
  readonly #stream: ByteStream;
  readonly #padding: number;
  #left: number;

  constructor(stream: ByteStream, sizeBytes: number) {
    this.#stream = stream;
    this.#left = sizeBytes;
    this.#padding = (BLOCK_BYTES - (sizeBytes % BLOCK_BYTES)) % BLOCK_BYTES;
  }

  async read(limit: number): Promise<Uint8Array | undefined> {
    if (this.#left === 0) return undefined;
    const chunk = await this.#stream.read(Math.min(limit, this.#left));
    if (chunk === undefined) throw corrupt("it is cut off");
    this.#left -= chunk.length;
    return chunk;
  }

  async skip(count: number): Promise<void> {
    const skipped = Math.min(count, this.#left);
    await this.#stream.skip(skipped);
    this.#left -= skipped;
  }

  /** @throws `corrupt` when the last byte is missing: streams do not report that they skipped beyond their end */
  async finish(): Promise<void> {
    if (this.#left > 0) {
      await this.#stream.skip(this.#left - 1);
      this.#left = 0;
      if ((await this.#stream.read(1)) === undefined) throw corrupt("it is cut off");
    }
    await this.#stream.skip(this.#padding);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The archive's stream is its reader's.
  }
}

/** Exactly `count` bytes; undefined when there are none at all. */
async function exactly(stream: ByteStream, count: number): Promise<Buffer | undefined> {
  const bytes = Buffer.alloc(count);
  let filled = 0;
  while (filled < count) {
    const chunk = await stream.read(count - filled);
    if (chunk === undefined) {
      if (filled === 0) return undefined;
      throw corrupt("it is cut off");
    }
    bytes.set(chunk, filled);
    filled += chunk.length;
  }
  return bytes;
}

/** @returns whether this can be the first block of an archive: the checksum of its header is right */
export const isTarHeader = (block: Buffer): boolean =>
  block.length === BLOCK_BYTES && octal(text(block, 148, 8)) === checksum(block);

function text(block: Buffer, start: number, length: number): string {
  const field = block.subarray(start, start + length);
  const end = field.indexOf(0);
  return field.subarray(0, end < 0 ? length : end).toString("utf8");
}

const textOf = (bytes: Buffer): string => text(bytes, 0, bytes.length);

/** Octal digits, or GNU's base 256 when the first bit is set. */
function number(block: Buffer, start: number, length: number): number {
  const first = block[start] ?? 0;
  if ((first & 0x80) !== 0) {
    let value = first & 0x7f;
    for (const byte of block.subarray(start + 1, start + length)) value = value * 256 + byte;
    if (!Number.isSafeInteger(value)) throw corrupt("a number is out of range");
    return value;
  }
  const value = octal(text(block, start, length));
  if (value === undefined) throw corrupt("a header has something else where a number should be");
  return value;
}

function octal(field: string): number | undefined {
  const digits = field.trim();
  if (!/^[0-7]*$/.test(digits)) return undefined;
  return digits === "" ? 0 : Number.parseInt(digits, 8);
}

function decimal(digits: string): number {
  const value = /^\d{1,16}$/.test(digits) ? Number(digits) : Number.NaN;
  if (!Number.isSafeInteger(value)) throw corrupt("a size is none");
  return value;
}

/** Sums all bytes, those of the checksum itself as spaces. */
function checksum(block: Buffer): number {
  let sum = 8 * 0x20;
  for (const [index, byte] of block.entries()) if (index < 148 || index >= 156) sum += byte;
  return sum;
}

/** Records of the form `<length> <key>=<value>\n`. */
function parsePax(bytes: Buffer): ReadonlyMap<string, string> {
  const records = new Map<string, string>();
  for (let start = 0; start < bytes.length; ) {
    const space = bytes.indexOf(0x20, start);
    const length = space < 0 ? 0 : decimal(bytes.subarray(start, space).toString("latin1"));
    const end = start + length;
    if (length === 0 || end > bytes.length || bytes[end - 1] !== 0x0a) throw corrupt("a pax header is malformed");
    const record = bytes.subarray(space + 1, end - 1).toString("utf8");
    const equals = record.indexOf("=");
    if (equals < 0) throw corrupt("a pax header is malformed");
    records.set(record.slice(0, equals), record.slice(equals + 1));
    start = end;
  }
  return records;
}

const corrupt = (why: string): PicoletError =>
  new PicoletError("corrupt", "cannot read the tar archive", { cause: why });
