/**
 * Between the tunnel's end (`hub/tunnel`), the kubelet endpoints and what the hub keeps of telemetry (`hub/telemetry`).
 */
import type { ServerResponse } from "node:http";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";

export interface TelemetryReceiver {
  /** Answers a stream of kind `telemetry` or `samples` of this node. Never throws. */
  receive(stream: IncomingStream, node: string): void;
}

/** Takes boards' samples of usage. */
export interface SampleReceiver extends TelemetryReceiver {
  /** How often boards are asked for one. */
  readonly everySeconds: number;
}

/** Reads the hub's figures of a node's usage, for its kubelet endpoint. */
export interface UsageReader {
  /**
   * Answers `/metrics/resource`.
   * @param accept of the request
   * @returns undefined: the board must be asked
   */
  read(node: string, accept: string | undefined): { readonly contentType: string; readonly text: string } | undefined;
}

export interface TelemetryReader {
  /**
   * Answers `GET /telemetry?…` for one node, to a caller with the right.
   * @param url path and query
   * @throws `invalid` for what is wrong with the query, before anything is answered
   */
  answer(node: string, url: string, response: ServerResponse, signal: AbortSignal): Promise<void>;
}
