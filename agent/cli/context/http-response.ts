import { PicoletError } from "@picolet/protocol/errors.ts";

/** The agent's longest head is some 300 bytes. */
const MAX_HEAD_BYTES = 16 * 1024;
/** A chunk's size in hexadecimal, and what may follow it. */
const MAX_CHUNK_LINE_BYTES = 256;

const LINE_END = "\r\n";

export interface ResponseHead {
  readonly status: number;
  /** By name in small letters. */
  readonly headers: ReadonlyMap<string, string>;
}

type State =
  | { readonly kind: "head" }
  | { readonly kind: "chunkSize" }
  | { readonly kind: "chunk"; left: number }
  | { readonly kind: "chunkEnd" }
  | { readonly kind: "trailer" }
  | { readonly kind: "sized"; left: number }
  | { readonly kind: "untilClose" }
  | { readonly kind: "done" };

/**
 * Reads one HTTP/1.1 answer (RFC 9112) from pieces cut anywhere. Keeps at most one unfinished line, never body.
 * What is no HTTP throws `corrupt`.
 */
export class HttpResponseReader {
  #state: State = { kind: "head" };
  #line = "";
  #head: ResponseHead | undefined;

  /** `undefined` until all of it has come. */
  get head(): ResponseHead | undefined {
    return this.#head;
  }

  get done(): boolean {
    return this.#state.kind === "done";
  }

  /** @returns the pieces of the body that are in `bytes`; they share its memory. What follows the answer is dropped. */
  push(bytes: Buffer): Buffer[] {
    const body: Buffer[] = [];
    let at = 0;
    while (at < bytes.length && this.#state.kind !== "done") at = this.#step(bytes, at, body);
    return body;
  }

  /** The connection has ended. @throws `unavailable` when the answer had not. */
  end(): void {
    if (this.#state.kind === "untilClose") this.#state = { kind: "done" };
    if (this.#state.kind !== "done") throw new PicoletError("unavailable", "the agent's answer ended early");
  }

  #step(bytes: Buffer, at: number, body: Buffer[]): number {
    const state = this.#state;
    switch (state.kind) {
      case "chunk":
      case "sized": {
        const piece = bytes.subarray(at, at + state.left);
        if (piece.length > 0) body.push(piece);
        state.left -= piece.length;
        if (state.left === 0) this.#state = { kind: state.kind === "chunk" ? "chunkEnd" : "done" };
        return at + piece.length;
      }
      case "untilClose":
        body.push(bytes.subarray(at));
        return bytes.length;
      case "head":
        return this.#gather(bytes, at, LINE_END + LINE_END, MAX_HEAD_BYTES, (text) => this.#takeHead(text));
      case "chunkSize":
        return this.#gather(bytes, at, LINE_END, MAX_CHUNK_LINE_BYTES, (text) => this.#takeChunkSize(text));
      case "chunkEnd":
        return this.#gather(bytes, at, LINE_END, LINE_END.length, () => {
          this.#state = { kind: "chunkSize" };
        });
      case "trailer":
        return this.#gather(bytes, at, LINE_END, MAX_HEAD_BYTES, (text) => {
          if (text === "") this.#state = { kind: "done" };
        });
      case "done":
        return bytes.length;
      default:
        return state satisfies never;
    }
  }

  /** Gathers text until `end`, in all at most `limit` bytes, and hands over what stands before it. */
  #gather(bytes: Buffer, at: number, end: string, limit: number, take: (text: string) => void): number {
    const before = this.#line.length;
    const text = this.#line + bytes.toString("latin1", at, at + limit - before);
    const found = text.indexOf(end);
    if (found >= 0) {
      this.#line = "";
      take(text.slice(0, found));
      return at + found + end.length - before;
    }
    if (text.length >= limit) throw garbage("a line without end");
    this.#line = text;
    return bytes.length;
  }

  #takeHead(text: string): void {
    const [first = "", ...lines] = text.split(LINE_END);
    const status = Number(/^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(first)?.[1] ?? Number.NaN);
    if (Number.isNaN(status)) throw garbage("it does not begin as one");
    // 100 Continue and its like announce the real head.
    if (status < 200) return;
    const headers = new Map<string, string>();
    for (const line of lines) {
      const colon = line.indexOf(":");
      if (colon <= 0) throw garbage("a header without a name");
      headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
    }
    this.#head = { status, headers };
    this.#state = bodyState(status, headers);
  }

  #takeChunkSize(text: string): void {
    const size = /^[0-9a-fA-F]{1,8}(?=$|[ \t;])/.exec(text)?.[0];
    if (size === undefined) throw garbage("a chunk without a size");
    const left = Number.parseInt(size, 16);
    this.#state = left === 0 ? { kind: "trailer" } : { kind: "chunk", left };
  }
}

function bodyState(status: number, headers: ReadonlyMap<string, string>): State {
  if (status === 204 || status === 304) return { kind: "done" };
  const encoding = headers.get("transfer-encoding");
  if (encoding !== undefined) {
    if (encoding.toLowerCase() !== "chunked") throw garbage("an unknown transfer encoding");
    return { kind: "chunkSize" };
  }
  const length = headers.get("content-length");
  if (length === undefined) return { kind: "untilClose" };
  if (!/^\d{1,15}$/.test(length)) throw garbage("a body of unknown length");
  return length === "0" ? { kind: "done" } : { kind: "sized", left: Number(length) };
}

const garbage = (what: string): PicoletError => new PicoletError("corrupt", `the answer is no HTTP: ${what}`);
