/** Time-series stores: what is sent to them, and how their answers are read. */

import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { Agent, type Dispatcher } from "undici";
import type { TelemetrySink } from "./exporter.ts";
import { lineOf } from "./line-protocol.ts";
import { otlpOf } from "./otlp.ts";
import type { RecordRow } from "./record-rows.ts";

export interface SinkInit {
  readonly url: URL;
  /** Asked for with each request, for it may be replaced; undefined: none is needed. */
  readonly token: (() => Promise<string>) | undefined;
}

const CONNECT_TIMEOUT_MS = 10_000;
/** From the request to the head of the answer, and between two pieces of it. */
const ANSWER_TIMEOUT_MS = 30_000;
/** Bytes of an answer that are read to be shown; the rest is dropped with its connection. */
const MAX_ANSWER_BYTES = 4096;
/** Statuses of batches that a repetition would not mend. */
const REFUSALS: ReadonlySet<number> = new Set([400, 413, 415, 422]);

/** Posts to one place; what is not a success is an error whose code says whether it may be tried again. */
class Poster implements Disposable {
  readonly #init: SinkInit;
  readonly #agent = new Agent({
    connections: 1,
    pipelining: 1,
    connect: { timeout: CONNECT_TIMEOUT_MS },
    headersTimeout: ANSWER_TIMEOUT_MS,
    bodyTimeout: ANSWER_TIMEOUT_MS,
  });

  constructor(init: SinkInit) {
    this.#init = init;
  }

  async post(path: string, contentType: string, scheme: string, body: string, signal: AbortSignal): Promise<void> {
    const { url, token } = this.#init;
    const authorization = token === undefined ? {} : { authorization: `${scheme} ${await token()}` };
    const answer = await this.#request(
      {
        origin: url.origin,
        path,
        method: "POST",
        headers: { "content-type": contentType, ...authorization },
        body,
        signal,
      },
      signal,
    );
    const text = await beginningOf(answer.body);
    const { statusCode } = answer;
    if (statusCode >= 200 && statusCode < 300) return;
    const message = `${url.origin}${path.split("?")[0]} answers ${statusCode}: ${text}`;
    if (REFUSALS.has(statusCode)) throw new PicoletError("invalid", message);
    throw new PicoletError("unavailable", message, { retryable: true });
  }

  async #request(options: Dispatcher.RequestOptions, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    try {
      return await this.#agent.request(options);
    } catch (error) {
      if (signal.aborted) throw new PicoletError("cancelled", "the request was given up");
      throw new PicoletError("unavailable", `cannot reach ${String(options.origin)}`, {
        cause: error,
        retryable: true,
      });
    }
  }

  [Symbol.dispose](): void {
    void this.#agent.destroy();
  }
}

async function beginningOf(body: Dispatcher.ResponseData["body"]): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const piece of body as AsyncIterable<Buffer>) {
      bytes += piece.length;
      pieces.push(piece);
      // Leaving the loop destroys what is left of it.
      if (bytes > MAX_ANSWER_BYTES) break;
    }
  } catch {
    ignore("the head has said what counts");
  }
  return Buffer.concat(pieces)
    .subarray(0, MAX_ANSWER_BYTES)
    .toString("utf8")
    .replaceAll(/\p{Cc}+/gu, " ");
}

/** `URL` is the whole address that lines are written to: `https://HOST:8086/api/v2/write?org=O&bucket=B`. */
export class LineProtocolSink implements TelemetrySink {
  readonly name = "influx";
  readonly #poster: Poster;
  readonly #path: string;

  constructor(init: SinkInit) {
    this.#poster = new Poster(init);
    this.#path = `${init.url.pathname}${init.url.search}`;
  }

  async send(rows: readonly RecordRow[], signal: AbortSignal): Promise<void> {
    if (rows.length === 0) return;
    const body = rows.map((row) => `${lineOf(row)}\n`).join("");
    await this.#poster.post(this.#path, "text/plain; charset=utf-8", "Token", body, signal);
  }
}

/** `URL` is the base that `/v1/metrics` and `/v1/logs` are below. */
export class OtlpSink implements TelemetrySink {
  readonly name = "otlp";
  readonly #poster: Poster;
  readonly #base: string;

  constructor(init: SinkInit) {
    this.#poster = new Poster(init);
    this.#base = init.url.pathname.replace(/\/$/, "");
  }

  async send(rows: readonly RecordRow[], signal: AbortSignal): Promise<void> {
    const { metrics, logs } = otlpOf(rows);
    const post = (path: string, request: unknown): Promise<void> =>
      this.#poster.post(`${this.#base}${path}`, "application/json", "Bearer", JSON.stringify(request), signal);
    if (metrics !== undefined) await post("/v1/metrics", metrics);
    if (logs !== undefined) await post("/v1/logs", logs);
  }
}
