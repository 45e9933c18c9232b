/** Parses what clients send: the request line strictly, with bounded sizes. Errors are `invalid` and name the place. */
import type { IncomingMessage } from "node:http";
import { bodyOf } from "@picolet/kubelet-api/pipes/unread-body.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";

/** Names a file and an image; 64 KiB is 16 times the longest path. */
export const MAX_BODY_BYTES = 64 * KIBIBYTE;
/** Pods, as much of them as in one manifest file: a node's 110 pods of 10 KB. A longer body is refused. */
export const MAX_PUSH_BYTES = MEBIBYTE;

export interface ApiRequest {
  readonly method: string;
  /** Decoded, without the leading `v1`. */
  readonly segments: readonly string[];
  readonly query: Query;
}

export function parseRequest(method: string, url: string): ApiRequest {
  const [path = "", search = ""] = url.split("?", 2);
  const [root, version, ...segments] = path.split("/");
  if (root !== "" || version !== "v1") throw new PicoletError("not_found", "no such path; the API is under /v1");
  return { method, segments: segments.map(decodeSegment), query: new Query(search) };
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw new PicoletError("invalid", "the path is not encoded properly");
  }
}

/** The parameters of a query; each is read once. Parameters that no route has read are an error. */
export class Query {
  readonly #values = new Map<string, string>();

  constructor(search: string) {
    for (const [name, value] of new URLSearchParams(search)) {
      if (this.#values.has(name)) throw new PicoletError("invalid", `parameter ${name} is given twice`);
      this.#values.set(name, value);
    }
  }

  text(name: string): string | undefined {
    const value = this.#values.get(name);
    this.#values.delete(name);
    return value === "" ? undefined : value;
  }

  flag(name: string): boolean {
    const value = this.text(name);
    if (value === undefined || value === "false" || value === "0") return false;
    if (value === "true" || value === "1") return true;
    throw new PicoletError("invalid", `parameter ${name} is true or false`);
  }

  /** A whole number, not negative. */
  count(name: string): number | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const count = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (Number.isNaN(count)) throw new PicoletError("invalid", `parameter ${name} is a whole number, not negative`);
    return count;
  }

  /** RFC 3339, as milliseconds since the epoch. */
  time(name: string): number | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const time = /^\d{4}-\d\d-\d\dT/.test(value) ? Date.parse(value) : Number.NaN;
    if (Number.isNaN(time)) throw new PicoletError("invalid", `parameter ${name} is a time as 2026-01-31T12:00:00Z`);
    return time;
  }

  /** To be called when all that is known has been taken. */
  end(): void {
    const [unknown] = this.#values.keys();
    if (unknown !== undefined) throw new PicoletError("invalid", `there is no parameter ${unknown} here`);
  }
}

/** @throws `resource_exhausted` for a body above `maxBytes` */
export async function readBytes(message: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of bodyOf(message)) {
    size += chunk.length;
    if (size > maxBytes) throw new PicoletError("resource_exhausted", `the body is larger than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** @throws `resource_exhausted` for a body above `maxBytes` */
export const readText = async (message: IncomingMessage, maxBytes: number): Promise<string> =>
  (await readBytes(message, maxBytes)).toString("utf8");

/** @throws `resource_exhausted` for a body above MAX_BODY_BYTES, `invalid` for one that is no JSON object. */
export async function readJsonBody(message: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const text = await readText(message, MAX_BODY_BYTES);
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch (error) {
    throw new PicoletError("invalid", "the body is no JSON", { cause: error });
  }
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    throw new PicoletError("invalid", "the body is no JSON object");
  }
  return body as Readonly<Record<string, unknown>>;
}
