/** Sessions that a node's runtime serves over SPDY, opened for clients that do not speak it. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { OpenedStream } from "@picolet/protocol/tunnel/stream.ts";
import { type BytePipe, TunnelPipe } from "../pipes/byte-pipe.ts";
import { PrefixedPipe } from "../pipes/prefixed-pipe.ts";
import { readResponseHead } from "../pipes/response-head.ts";

export const SPDY = "SPDY/3.1";

/** Headers of a request for an upgrade to SPDY. @param protocols best first */
export const spdyHeaders = (protocols: readonly string[]): Readonly<Record<string, string>> => ({
  upgrade: SPDY,
  "x-stream-protocol-version": protocols.join(","),
});

/**
 * Reads the runtime's answer to `spdyHeaders` from a stream in mode `raw`.
 * @returns the protocol that was agreed, and the SPDY connection. @throws `failed` when the runtime refuses
 */
export async function spdyConnectionOf(
  stream: OpenedStream,
  signal: AbortSignal,
): Promise<{ readonly protocol: string; readonly pipe: BytePipe }> {
  const pipe = new TunnelPipe(stream);
  const { status, headers, rest } = await readResponseHead(pipe, signal);
  if (status !== 101) {
    throw new PicoletError("failed", `the container runtime refused the command: ${rest.toString("utf8")}`);
  }
  // A runtime that names none means the first that there was.
  const protocol = headers["x-stream-protocol-version"] ?? "channel.k8s.io";
  return { protocol, pipe: new PrefixedPipe(rest, pipe) };
}
