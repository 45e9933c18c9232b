/** HPACK, RFC 7541: header compression of HTTP/2. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { decodeHuffman } from "./huffman.ts";

/** Name, value, name, value …, in the order of the wire. Names are in lower case as HTTP/2 demands. */
export type HeaderList = readonly string[];

/** The table size that this end announces; the protocol's default. Each entry counts 32 bytes more than its text. */
export const HEADER_TABLE_BYTES = 4096;
/**
 * Bounds one decoded header list, counted as RFC 9113 section 6.5.2 does. grpc-message carries containerd's errors,
 * which may quote a runtime's stderr; nothing else is large. A longer list fails the connection.
 */
export const MAX_HEADER_LIST_BYTES = 64 * KIBIBYTE;
const ENTRY_OVERHEAD_BYTES = 32;

const STATIC_TABLE: HeaderList = [
  [":authority", "", ":method", "GET", ":method", "POST", ":path", "/", ":path", "/index.html", ":scheme", "http"],
  [":scheme", "https", ":status", "200", ":status", "204", ":status", "206", ":status", "304", ":status", "400"],
  [":status", "404", ":status", "500", "accept-charset", "", "accept-encoding", "gzip, deflate", "accept-language", ""],
  ["accept-ranges", "", "accept", "", "access-control-allow-origin", "", "age", "", "allow", "", "authorization", ""],
  [
    "cache-control",
    "",
    "content-disposition",
    "",
    "content-encoding",
    "",
    "content-language",
    "",
    "content-length",
    "",
  ],
  ["content-location", "", "content-range", "", "content-type", "", "cookie", "", "date", "", "etag", "", "expect", ""],
  ["expires", "", "from", "", "host", "", "if-match", "", "if-modified-since", "", "if-none-match", "", "if-range", ""],
  ["if-unmodified-since", "", "last-modified", "", "link", "", "location", "", "max-forwards", ""],
  ["proxy-authenticate", "", "proxy-authorization", "", "range", "", "referer", "", "refresh", "", "retry-after", ""],
  ["server", "", "set-cookie", "", "strict-transport-security", "", "transfer-encoding", "", "user-agent", ""],
  ["vary", "", "via", "", "www-authenticate", ""],
].flat();
const STATIC_ENTRIES = STATIC_TABLE.length / 2;

const corrupt = (what: string): PicoletError => new PicoletError("corrupt", `cannot decode a header: ${what}`);

interface Entry {
  readonly name: string;
  readonly value: string;
  readonly size: number;
}

/** One connection's decoding context. After an error it is of no use: the connection must be closed. */
export class HpackDecoder {
  /** Newest last, so that adding one moves nothing. */
  #entries: Entry[] = [];
  #tableBytes = 0;
  #tableLimit = HEADER_TABLE_BYTES;
  #bytes: Buffer = Buffer.alloc(0);
  #position = 0;
  #end = 0;

  /** @throws `corrupt`, or `resource_exhausted` beyond MAX_HEADER_LIST_BYTES. */
  decode(bytes: Buffer, start = 0, end = bytes.length): HeaderList {
    this.#bytes = bytes;
    this.#position = start;
    this.#end = end;
    const headers: string[] = [];
    let listBytes = 0;
    while (this.#position < this.#end) {
      const entry = this.#field(headers.length > 0);
      if (entry === undefined) continue;
      listBytes += entry.size;
      if (listBytes > MAX_HEADER_LIST_BYTES) {
        throw new PicoletError(
          "resource_exhausted",
          `cannot decode more than ${MAX_HEADER_LIST_BYTES} bytes of headers`,
        );
      }
      headers.push(entry.name, entry.value);
    }
    return headers;
  }

  /** `undefined` for a change of the table's size, which stands only at a block's beginning. */
  #field(begun: boolean): Entry | undefined {
    const first = this.#bytes[this.#position] ?? 0;
    if (first >= 0x80) return this.#lookUp(this.#integer(7));
    if (first >= 0x40) {
      const entry = this.#literal(6);
      this.#add(entry);
      return entry;
    }
    if (first >= 0x20) {
      if (begun) throw corrupt("the table's size changes within a block");
      const limit = this.#integer(5);
      if (limit > HEADER_TABLE_BYTES) throw corrupt("the table is to grow beyond its limit");
      this.#tableLimit = limit;
      this.#evict();
      return undefined;
    }
    return this.#literal(4);
  }

  #literal(prefixBits: number): Entry {
    const index = this.#integer(prefixBits);
    const name = index === 0 ? this.#string() : this.#lookUp(index).name;
    const value = this.#string();
    return { name, value, size: name.length + value.length + ENTRY_OVERHEAD_BYTES };
  }

  #lookUp(index: number): Entry {
    if (index === 0) throw corrupt("the index 0 stands for nothing");
    if (index <= STATIC_ENTRIES) {
      const name = STATIC_TABLE[(index - 1) * 2] ?? "";
      const value = STATIC_TABLE[index * 2 - 1] ?? "";
      return { name, value, size: name.length + value.length + ENTRY_OVERHEAD_BYTES };
    }
    const entry = this.#entries[this.#entries.length - (index - STATIC_ENTRIES)];
    if (entry === undefined) throw corrupt(`there is no entry ${index}`);
    return entry;
  }

  #add(entry: Entry): void {
    this.#entries.push(entry);
    this.#tableBytes += entry.size;
    this.#evict();
  }

  /** One larger than the table empties it, which is no error (section 4.4). */
  #evict(): void {
    let gone = 0;
    while (this.#tableBytes > this.#tableLimit && gone < this.#entries.length) {
      this.#tableBytes -= this.#entries[gone]?.size ?? 0;
      gone += 1;
    }
    if (gone > 0) this.#entries.splice(0, gone);
  }

  #byte(): number {
    if (this.#position >= this.#end) throw corrupt("it ends within a field");
    const byte = this.#bytes[this.#position] ?? 0;
    this.#position += 1;
    return byte;
  }

  /** Section 5.1. Four continuation bytes hold 2^28, more than any length or index here. */
  #integer(prefixBits: number): number {
    const full = 2 ** prefixBits - 1;
    let value = this.#byte() & full;
    if (value < full) return value;
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.#byte();
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    throw corrupt("an integer is too long");
  }

  #string(): string {
    const huffman = ((this.#bytes[this.#position] ?? 0) & 0x80) !== 0;
    const length = this.#integer(7);
    const start = this.#position;
    if (length > this.#end - start) throw corrupt("a string is longer than its block");
    this.#position = start + length;
    return huffman
      ? decodeHuffman(this.#bytes, start, this.#position)
      : this.#bytes.toString("latin1", start, this.#position);
  }
}

/**
 * A header block that changes no dynamic table, so that the same bytes serve on every connection.
 * @param headers names in lower case; latin1.
 */
export function encodeHeaders(headers: HeaderList): Buffer {
  const parts: Buffer[] = [];
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] ?? "";
    const value = headers[index + 1] ?? "";
    const nameIndex = staticIndex(name, undefined);
    const whole = staticIndex(name, value);
    if (whole !== undefined) parts.push(encodeInteger(0x80, 7, whole));
    else if (nameIndex !== undefined) parts.push(encodeInteger(0, 4, nameIndex), encodeString(value));
    else parts.push(Buffer.from([0]), encodeString(name), encodeString(value));
  }
  return Buffer.concat(parts);
}

function staticIndex(name: string, value: string | undefined): number | undefined {
  for (let index = 0; index < STATIC_ENTRIES; index += 1) {
    if (STATIC_TABLE[index * 2] !== name) continue;
    if (value === undefined || STATIC_TABLE[index * 2 + 1] === value) return index + 1;
  }
  return undefined;
}

function encodeInteger(pattern: number, prefixBits: number, value: number): Buffer {
  const full = 2 ** prefixBits - 1;
  if (value < full) return Buffer.from([pattern | value]);
  const bytes = [pattern | full];
  let rest = value - full;
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80);
  bytes.push(rest);
  return Buffer.from(bytes);
}

function encodeString(text: string): Buffer {
  return Buffer.concat([encodeInteger(0, 7, text.length), Buffer.from(text, "latin1")]);
}
