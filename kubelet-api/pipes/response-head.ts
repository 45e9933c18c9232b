import { PicoletError } from "@picolet/protocol/errors.ts";
import { HttpResponseReader } from "@picolet/protocol/http/response-reader.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { BytePipe } from "./byte-pipe.ts";

export interface ResponseHead {
  readonly status: number;
  /** Names in lower case; the values of a repeated header are joined with a comma. */
  readonly headers: Readonly<Record<string, string>>;
  /** The bytes after the head that came with it. */
  readonly rest: Buffer;
}

/** Bounds memory against an endless head; a runtime answers an upgrade with some hundred bytes. */
const MAX_HEAD_BYTES = 16 * KIBIBYTE;

/**
 * Reads the head of an HTTP/1.1 response.
 * @throws `corrupt` for bytes that are no HTTP/1.1 response, `unavailable` when the connection ends before
 */
export async function readResponseHead(pipe: BytePipe, signal: AbortSignal): Promise<ResponseHead> {
  const reader = new HttpResponseReader({ maxHeadBytes: MAX_HEAD_BYTES, maxBodyBytes: 0 });
  for (;;) {
    const piece = await pipe.read(signal);
    if (piece === undefined) throw new PicoletError("unavailable", "the connection ended before it was answered");
    const read = reader.push(piece);
    if (reader.head === undefined) continue;
    const { status, headers } = reader.head;
    const joined = [...headers].map(([name, values]) => [name, values.join(", ")]);
    return { status, headers: Object.fromEntries(joined), rest: Buffer.from(piece.subarray(read)) };
  }
}
