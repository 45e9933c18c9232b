import { PicoletError } from "@picolet/protocol/errors.ts";
import type { BytePipe } from "./byte-pipe.ts";

export interface ResponseHead {
  readonly status: number;
  /** Names in lower case; of a name that comes twice the values are joined with a comma. */
  readonly headers: Readonly<Record<string, string>>;
  /** Bytes that arrived behind the head. */
  readonly rest: Buffer;
}

/** A runtime answers an upgrade with some hundred bytes. */
const MAX_HEAD_BYTES = 16 * 1024;
const HEAD_END = "\r\n\r\n";

/** Reads the head of an HTTP/1.1 response. @throws `corrupt` for what is none, `unavailable` when it ends before */
export async function readResponseHead(pipe: BytePipe, signal: AbortSignal): Promise<ResponseHead> {
  let bytes = Buffer.alloc(0);
  for (;;) {
    const piece = await pipe.read(signal);
    if (piece === undefined) throw new PicoletError("unavailable", "the connection ended before it was answered");
    bytes = Buffer.concat([bytes, piece]);
    const end = bytes.indexOf(HEAD_END);
    if (end >= 0)
      return { ...parseHead(bytes.toString("latin1", 0, end)), rest: bytes.subarray(end + HEAD_END.length) };
    if (bytes.length > MAX_HEAD_BYTES) throw new PicoletError("corrupt", "the answer's head is too long");
  }
}

function parseHead(text: string): Omit<ResponseHead, "rest"> {
  const [first = "", ...lines] = text.split("\r\n");
  const status = /^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(first)?.[1];
  if (status === undefined) throw new PicoletError("corrupt", "the answer is no HTTP/1.1");
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(":");
    if (colon <= 0) throw new PicoletError("corrupt", "the answer has a line that is no header");
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    const before = headers.get(name);
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  return { status: Number(status), headers: Object.fromEntries(headers) };
}
