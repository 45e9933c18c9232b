import type { ServerResponse } from "node:http";
import { onceAny } from "@picolet/kubelet-api/pipes/byte-pipe.ts";
import { ignoreCancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore } from "@picolet/protocol/errors.ts";
import { type Clock, millis } from "@picolet/protocol/ports.ts";
import { stringify } from "yaml";

/** An answer that is not written yet. */
export type Reply =
  | {
      readonly kind: "body";
      readonly status: number;
      readonly contentType: string;
      readonly body: string | Buffer;
      readonly headers?: Readonly<Record<string, string>>;
    }
  | { readonly kind: "stream"; readonly contentType: string; readonly chunks: AsyncIterable<string> }
  /** A file that is sent and then removed. */
  | { readonly kind: "file"; readonly path: string }
  /** The handler writes it itself. */
  | { readonly kind: "taken" };

export const jsonReply = (status: number, value: unknown): Reply => ({
  kind: "body",
  status,
  contentType: "application/json",
  body: JSON.stringify(value),
});

export const textReply = (status: number, body: string, contentType = "text/plain; charset=utf-8"): Reply => ({
  kind: "body",
  status,
  contentType,
  body,
});

export type Encode = (json: string) => { readonly body: string; readonly contentType: string };

/** Larger answers are not formatted: writing YAML takes 1 ms for 2.5 KB, and JSON is YAML. */
const MAX_YAML_LENGTH = 64 * 1024;
/** Formatting JSON takes 1 ms for 50 KB. */
const MAX_PRETTY_LENGTH = 1024 * 1024;

/** Formatting takes as long as reading so many times the text. */
const YAML_WORK = 32;
const PRETTY_WORK = 4;

/** @returns the characters of JSON whose reading takes as long as what `encoderOf` does with a text */
export function formattingWork(encoding: "json" | "yaml", isPretty: boolean, length: number): number {
  if (encoding === "yaml") return length > MAX_YAML_LENGTH ? 0 : length * YAML_WORK;
  return isPretty && length <= MAX_PRETTY_LENGTH ? length * PRETTY_WORK : 0;
}

/** Encodes JSON texts for a client. */
export const encoderOf = (encoding: "json" | "yaml", isPretty: boolean): Encode => {
  if (encoding === "yaml") {
    const format = (json: string): string => (json.length > MAX_YAML_LENGTH ? json : stringify(JSON.parse(json)));
    return (json) => ({ body: format(json), contentType: "application/yaml" });
  }
  const isFormatted = (json: string): boolean => isPretty && json.length <= MAX_PRETTY_LENGTH;
  const format = (json: string): string => (isFormatted(json) ? JSON.stringify(JSON.parse(json), null, 2) : json);
  return (json) => ({ body: format(json), contentType: "application/json" });
};

/** How long a client may leave a piece of so many bytes unread. */
export interface ReadLimit {
  readonly clock: Pick<Clock, "sleep">;
  /** @returns milliseconds */
  readonly unread: (bytes: number) => number;
}

/**
 * One piece after the other, waiting for a reader that is slow; one that does not read is cut off. Ends when the client
 * goes away or `signal` aborts.
 */
export async function writeChunks(
  response: ServerResponse,
  chunks: AsyncIterable<string>,
  { clock, unread }: ReadLimit,
  signal: AbortSignal,
): Promise<void> {
  for await (const chunk of chunks) {
    if (response.destroyed) return;
    if (response.write(chunk)) continue;
    using taken = joinSignals(signal);
    const cut = (): void => void response.destroy();
    clock.sleep(millis(unread(chunk.length)), taken.signal).then(cut, ignore("the client has taken it, or is gone"));
    // It aborts when the response is closed, too.
    await onceAny(response, ["drain"], signal).catch(ignoreCancelled);
    taken.abort();
  }
}

/** Resolves when the rest is with the system, or the client is gone. */
export async function endResponse(response: ServerResponse): Promise<void> {
  if (response.destroyed) return;
  await new Promise<void>((resolve) => {
    response.once("close", resolve);
    response.end(resolve);
  });
}
