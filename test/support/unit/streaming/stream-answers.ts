/** Reads answers of streams, and cuts streams as a lost tunnel does. */

import type { StreamPair } from "@picolet/kubelet-api/pipes/stream-pair.ts";
import { type ErrorCode, isPicoletError } from "@picolet/protocol/errors.ts";
import type { OpenedStream } from "@picolet/protocol/tunnel/stream.ts";

/** As a session that ends does. */
export const cut = (pair: StreamPair): void => pair.reset({ code: "unavailable", message: "the tunnel is gone" });

/** All that comes, as text, until the other side ends. @throws what the stream was reset with */
export async function readText(stream: OpenedStream): Promise<string> {
  const pieces: Uint8Array[] = [];
  for (;;) {
    const piece = await stream.read(new AbortController().signal);
    if (piece === undefined) return Buffer.concat(pieces).toString("utf8");
    pieces.push(piece);
  }
}

export const rejectedWith =
  (code: ErrorCode, message: RegExp | string) =>
  (error: unknown): boolean =>
    isPicoletError(error, code) &&
    (typeof message === "string" ? error.message === message : message.test(error.message));
