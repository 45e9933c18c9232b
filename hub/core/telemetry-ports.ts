/**
 * Between the tunnel's end (`hub/tunnel`), the kubelet endpoints and what the hub keeps of telemetry (`hub/telemetry`).
 */
import type { ServerResponse } from "node:http";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";

export interface TelemetryReceiver {
  /** Answers a stream of kind `telemetry` of this node. Never throws. */
  receive(stream: IncomingStream, node: string): void;
}

export interface TelemetryReader {
  /**
   * Answers `GET /telemetry?…` for one node, to who may ask.
   * @param url path and query
   * @throws `invalid` for what is wrong with the query, before anything is answered
   */
  answer(node: string, url: string, response: ServerResponse, signal: AbortSignal): Promise<void>;
}
