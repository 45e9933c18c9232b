/**
 * Serves one bundle of a registry on the loopback, for RAUC, which reads it by HTTP and asks only for the blocks that
 * its slots do not have. Each request becomes requests for ranges to the registry, continued when the link breaks. The
 * end, which is signed, is fetched once: otherwise the registry could show one bundle to the program that judges the
 * version, and an older one to the program that installs.
 */
import { randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { joinSignals, wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import { backoffDelay, EQUAL_JITTER } from "@picolet/protocol/async/backoff.ts";
import { ignore, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Random, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { Descriptor } from "@picolet/runtime-wasm/registry/documents.ts";
import { networkFailure, unavailable } from "@picolet/runtime-wasm/registry/failures.ts";
import type { RegistryClient } from "@picolet/runtime-wasm/registry/registry-client.ts";
import type { BytePace } from "./byte-pace.ts";

export interface BlobServerComponents {
  readonly clock: Pick<Clock, "sleep">;
  readonly random: Random;
  readonly registry: Pick<RegistryClient, "range">;
  readonly pace: Pick<BytePace, "passed">;
}

/** Attempts in a row without a byte; a link that brings something each time may break as often as it likes. */
const MAX_FRUITLESS = 8;
const RETRY = { first: seconds(1), max: seconds(30), jitter: EQUAL_JITTER };
/** RAUC reads by one connection; a few more bound a local process that found the address. */
const MAX_CONNECTIONS = 8;
/**
 * The largest signature that RAUC takes (`max-bundle-signature-size`), and its length, which comes last. The signature
 * of a verity bundle contains the manifest, with the version and the hash of all that comes before.
 */
const SIGNED_END_BYTES = 64 * KIBIBYTE + 8;

export interface ByteRange {
  readonly first: number;
  readonly last: number;
}

/**
 * One range of RFC 9110, section 14. @returns "whole" without the header or with one that means nothing, undefined for
 * one that cannot be satisfied
 */
export function parseRange(header: string | undefined, size: number): ByteRange | "whole" | undefined {
  const [, first, last] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? "") ?? [];
  if (first === undefined || last === undefined || (first === "" && last === "")) return "whole";
  const range =
    first === ""
      ? { first: Math.max(0, size - Number(last)), last: size - 1 }
      : { first: Number(first), last: last === "" ? size - 1 : Math.min(Number(last), size - 1) };
  return range.first > range.last || range.first >= size ? undefined : range;
}

export class BlobServer implements AsyncDisposable {
  readonly #components: BlobServerComponents;
  readonly #blob: Descriptor;
  readonly #server: Server;
  readonly #life = joinSignals();
  /** Other users of the machine cannot guess it. */
  readonly #path = `/${randomBytes(16).toString("hex")}/bundle.raucb`;
  readonly #endStart: number;
  #end = Buffer.alloc(0);
  #bytes = 0;
  #failure: unknown;

  constructor(components: BlobServerComponents, blob: Descriptor) {
    this.#components = components;
    this.#blob = blob;
    this.#endStart = Math.max(0, blob.sizeBytes - SIGNED_END_BYTES);
    this.#server = createServer((request, response) => void this.#answer(request, response));
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  /** Bytes that the registry has sent so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The registry's failure, which the reader has only as a broken connection. */
  get failure(): unknown {
    return this.#failure;
  }

  /** @returns the blob's URL. @throws the registry's failure to give the blob's end */
  async listen(signal: AbortSignal): Promise<string> {
    const chunks: Buffer[] = [];
    for await (const chunk of this.#fetched(this.#endStart, this.#blob.sizeBytes - 1, signal)) chunks.push(chunk);
    this.#end = Buffer.concat(chunks);
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject).listen(0, "127.0.0.1", resolve);
    });
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}${this.#path}`;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method, url, headers } = request;
    if (url !== this.#path) return void response.writeHead(404).end();
    if (method !== "GET" && method !== "HEAD") return void response.writeHead(405).end();
    const size = this.#blob.sizeBytes;
    const range = parseRange(headers.range, size);
    if (range === undefined) return void response.writeHead(416, { "content-range": `bytes */${size}` }).end();
    const { first, last } = range === "whole" ? { first: 0, last: size - 1 } : range;
    response.writeHead(range === "whole" ? 200 : 206, {
      "accept-ranges": "bytes",
      "content-length": last - first + 1,
      ...(range === "whole" ? {} : { "content-range": `bytes ${first}-${last}/${size}` }),
    });
    if (method === "HEAD" || size === 0) return void response.end();
    using reader = joinSignals(this.#life.signal);
    response.once("close", () => reader.abort());
    try {
      await this.#send(first, last, response, reader.signal);
      response.end();
    } catch (error) {
      // A reader that has what it needs closes its end.
      if (!reader.signal.aborted) this.#failure = error;
      response.destroy();
    }
  }

  async #send(first: number, last: number, to: ServerResponse, signal: AbortSignal): Promise<void> {
    for await (const chunk of this.#fetched(first, Math.min(last, this.#endStart - 1), signal)) {
      if (!to.write(chunk)) await drained(to, signal);
    }
    to.write(this.#end.subarray(Math.max(0, first - this.#endStart), Math.max(0, last + 1 - this.#endStart)));
  }

  async *#fetched(first: number, last: number, signal: AbortSignal): AsyncGenerator<Buffer> {
    const { clock, random } = this.#components;
    let next = first;
    for (let fruitless = 0; next <= last; ) {
      const before = next;
      try {
        for await (const chunk of this.#chunks(next, last, signal)) {
          next += chunk.length;
          yield chunk;
        }
      } catch (error) {
        fruitless = next > before ? 0 : fruitless + 1;
        if (!isPicoletError(error, "unavailable") || signal.aborted || fruitless >= MAX_FRUITLESS) throw error;
        await clock.sleep(backoffDelay(RETRY, fruitless + 1, random.next()), signal);
      }
    }
  }

  async *#chunks(first: number, last: number, signal: AbortSignal): AsyncGenerator<Buffer> {
    const { registry, pace } = this.#components;
    const response = await registry.range(this.#blob.digest, first, last, signal);
    response.body.on("error", ignore("the reader of the body reports it"));
    let left = last - first + 1;
    try {
      for await (const chunk of response.body as AsyncIterable<Buffer>) {
        // More than was asked for belongs to nothing.
        const part = chunk.subarray(0, left);
        left -= part.length;
        this.#bytes += part.length;
        await pace.passed(part.length, signal);
        yield part;
      }
    } catch (error) {
      throw isPicoletError(error) ? error : networkFailure(error, response.host);
    } finally {
      response.body.destroy();
    }
    if (left > 0) throw unavailable(`${response.host} ended the answer too early`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    this.#life[Symbol.dispose]();
  }
}

const drained = (to: ServerResponse, signal: AbortSignal): Promise<void> =>
  wokenOrAborted(signal, (wake) => {
    to.once("drain", wake).once("close", wake);
    return () => to.off("drain", wake).off("close", wake);
  });
