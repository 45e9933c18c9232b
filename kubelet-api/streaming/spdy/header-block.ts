/** Header blocks of SPDY/3: pairs of names and values in a zlib stream that goes through the whole connection. */
import { createInflate, type Inflate } from "node:zlib";
import { PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

/**
 * The dictionary that both ends of SPDY/3 assume before their first header block: words, each after its length in four
 * bytes, then text (draft-mbelshe-httpbis-spdy-00, section 2.6.10.1). 1423 bytes with the Adler-32 0xe3c6a7c2.
 */
const WORDS =
  "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow " +
  "authorization cache-control connection content-base content-encoding content-language content-length content-location " +
  "content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match " +
  "if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range " +
  "referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get " +
  "status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin";

const CODES =
  "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505" +
  "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden" +
  "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable";

const TEXT =
  "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT" +
  "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript," +
  "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

function lengthAndWord(word: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(word.length);
  return Buffer.concat([length, Buffer.from(word.replace("_", " "), "latin1")]);
}

export const HEADER_DICTIONARY: Buffer = Buffer.concat([
  ...WORDS.split(" ").map(lengthAndWord),
  Buffer.from(CODES + TEXT, "latin1"),
]);

/** Checksum of the dictionary, with which a zlib stream that uses it starts. */
export const HEADER_DICTIONARY_ADLER = 0xe3c6_a7c2;

/** Names in lower case. */
export type SpdyHeaders = Readonly<Record<string, string>>;

/**
 * Bounds one unpacked block against a hostile peer: Kubernetes sends a few hundred bytes. A larger one ends the
 * connection.
 */
const MAX_BLOCK_BYTES = 64 * KIBIBYTE;
const MAX_PAIRS = 128;
/** Output of the inflater at one time. */
const INFLATE_CHUNK_BYTES = 4 * KIBIBYTE;
/** A stored block of deflate (RFC 1951, 3.2.4) has a length of two bytes. */
const MAX_STORED_BYTES = 0xffff;

const corrupt = (message: string): PicoletError => new PicoletError("corrupt", `cannot read the headers: ${message}`);

/**
 * Packs header blocks without making them smaller: as stored blocks of deflate, each followed by an empty one, which is
 * what a flush leaves and what makes the other side's inflater give everything out. Saves a compressor of some 256 KiB
 * a connection for a few hundred bytes on the wire.
 */
export class HeaderPacker {
  #begun = false;

  pack(headers: SpdyHeaders): Buffer {
    const block = encodePairs(headers);
    if (block.length > MAX_STORED_BYTES) throw new PicoletError("invalid", "cannot send headers of more than 64 KiB");
    const parts = [storedHeader(block.length), block, storedHeader(0)];
    if (!this.#begun) {
      this.#begun = true;
      // RFC 1950: deflate with a window of 32 KiB, and a preset dictionary.
      const start = Buffer.from([0x78, 0xbb, 0, 0, 0, 0]);
      start.writeUInt32BE(HEADER_DICTIONARY_ADLER, 2);
      parts.unshift(start);
    }
    return Buffer.concat(parts);
  }
}

function storedHeader(length: number): Buffer {
  const header = Buffer.alloc(5);
  header.writeUInt16LE(length, 1);
  header.writeUInt16LE(~length & 0xffff, 3);
  return header;
}

function encodePairs(headers: SpdyHeaders): Buffer {
  const pairs = Object.entries(headers);
  const count = Buffer.alloc(4);
  count.writeUInt32BE(pairs.length);
  return Buffer.concat([count, ...pairs.flat().map(withLength)]);
}

function withLength(text: string): Buffer {
  const bytes = Buffer.from(text, "utf8");
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

/** Unpacks the blocks of one direction, which have to come in their order, one at a time. */
export class HeaderUnpacker implements Disposable {
  #inflate: Inflate | undefined;
  #output: Buffer[] = [];
  #bytes = 0;
  #failure: unknown;

  /** @throws `corrupt`; the connection cannot be used any more then. */
  async unpack(block: Uint8Array): Promise<SpdyHeaders> {
    const inflate = this.#inflater();
    this.#output = [];
    this.#bytes = 0;
    await new Promise<void>((resolve, reject) => {
      const fail = (error: unknown): void => reject(toPicoletError(error, "corrupt", "cannot unpack the headers"));
      if (this.#failure !== undefined) return fail(this.#failure);
      inflate.once("error", fail);
      inflate.write(block, (error) => {
        inflate.off("error", fail);
        if (error) fail(error);
        else resolve();
      });
    });
    this.#take();
    if (this.#bytes > MAX_BLOCK_BYTES) throw corrupt("they are longer than 64 KiB");
    return decodePairs(Buffer.concat(this.#output));
  }

  [Symbol.dispose](): void {
    this.#inflate?.destroy();
  }

  #inflater(): Inflate {
    if (this.#inflate !== undefined) return this.#inflate;
    const inflate = createInflate({ dictionary: HEADER_DICTIONARY, chunkSize: INFLATE_CHUNK_BYTES });
    inflate.on("readable", () => this.#take());
    inflate.on("error", (error) => {
      this.#failure = error;
    });
    this.#inflate = inflate;
    return inflate;
  }

  #take(): void {
    for (let piece = this.#inflate?.read(); Buffer.isBuffer(piece); piece = this.#inflate?.read()) {
      this.#bytes += piece.length;
      if (this.#bytes <= MAX_BLOCK_BYTES) this.#output.push(piece);
      // A peer that packs a thousand times its size into one block is hostile.
      else this.#inflate?.destroy(corrupt("they are longer than 64 KiB"));
    }
  }
}

function decodePairs(bytes: Buffer): SpdyHeaders {
  let at = 0;
  const number = (): number => {
    if (at + 4 > bytes.length) throw corrupt("they end early");
    at += 4;
    return bytes.readUInt32BE(at - 4);
  };
  const text = (): string => {
    const length = number();
    if (at + length > bytes.length) throw corrupt("they end early");
    at += length;
    return bytes.toString("utf8", at - length, at);
  };
  const count = number();
  if (count > MAX_PAIRS) throw corrupt(`there are ${count} of them`);
  const headers = new Map<string, string>();
  for (let index = 0; index < count; index += 1) {
    const name = text().toLowerCase();
    if (headers.has(name)) throw corrupt("a name comes twice");
    headers.set(name, text());
  }
  return Object.fromEntries(headers);
}
