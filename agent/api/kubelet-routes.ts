/** The kubelet's API on a listener of this node: what the hub asks through the tunnel, asked here. Loaded on demand. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { localStreams } from "@picolet/kubelet-api/pipes/stream-pair.ts";
import { answerRequest, answerUpgrade, NodeEnd } from "@picolet/kubelet-api/serving/exchanges.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import type { StreamHandlers } from "../core/hub/tunnel-ports.ts";

/** A client that takes nothing of an answer for so long is disconnected. Logs and sessions may be silent. */
const ANSWER_TIMEOUT = seconds(30);

export interface KubeletRoutesComponents {
  readonly streams: StreamHandlers;
  readonly clock: Clock;
  /** Judges who asks; undefined: any client of this listener may ask everything. @throws `permission_denied` */
  readonly admit?: (request: IncomingMessage, signal: AbortSignal) => Promise<void>;
}

export class KubeletRoutes {
  readonly #end: NodeEnd;
  readonly #admit: KubeletRoutesComponents["admit"];

  constructor({ streams, clock, admit }: KubeletRoutesComponents) {
    this.#end = new NodeEnd({ streams: localStreams(streams), clock, answerTimeout: ANSWER_TIMEOUT });
    this.#admit = admit;
  }

  /** Never throws. */
  request(request: IncomingMessage, response: ServerResponse, stop: AbortSignal): Promise<void> {
    return answerRequest(request, response, stop, async (signal) => {
      await this.#admit?.(request, signal);
      await this.#end.request(request, response, signal);
    });
  }

  /** Never throws. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, stop: AbortSignal): Promise<void> {
    return answerUpgrade(socket, stop, async (signal) => {
      await this.#admit?.(request, signal);
      await this.#end.upgrade(request, socket, head, signal);
    });
  }
}
