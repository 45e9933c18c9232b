/** Serves one HTTP exchange from its first byte to its last, and answers failures. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";
import type { StreamOpener } from "@picolet/protocol/tunnel/stream.ts";
import { answerFailure, httpFailure, refuseUpgrade, shownFailure } from "./http-answers.ts";
import { parseKubeletPath } from "./kubelet-path.ts";
import { serveRequest } from "./node-requests.ts";
import { serveUpgrade } from "./node-upgrades.ts";

/** Never throws. @param serve gets a signal that aborts when the client is gone; its errors are answered */
export async function answerRequest(
  request: IncomingMessage,
  response: ServerResponse,
  stop: AbortSignal,
  serve: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  using life = joinSignals(stop);
  response.once("close", () => life.abort());
  response.on("error", () => life.abort());
  try {
    await serve(life.signal);
  } catch (error) {
    const isLog = (request.url ?? "").startsWith("/containerLogs/");
    answerFailure(response, isLog ? shownFailure(error) : httpFailure(error));
  }
}

/** As `answerRequest`, for a request with `Connection: Upgrade`. */
export async function answerUpgrade(
  socket: Duplex,
  stop: AbortSignal,
  serve: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  using life = joinSignals(stop);
  const onClose = (): void => life.abort();
  socket.once("close", onClose);
  socket.on("error", onClose);
  try {
    await serve(life.signal);
  } catch (error) {
    refuseUpgrade(socket, httpFailure(error));
  } finally {
    socket.off("close", onClose);
  }
}

export interface NodeEndComponents {
  /** The node's. */
  readonly streams: StreamOpener;
  readonly clock: Clock;
  /** Bounds how long a client may take nothing of an answer that is no log and no session; undefined: no limit. */
  readonly answerTimeout?: Millis;
}

/** The kubelet's API of one node, on any listener. Its caller has judged who asks. */
export class NodeEnd {
  readonly #components: NodeEndComponents;

  constructor(components: NodeEndComponents) {
    this.#components = components;
  }

  /** @throws when nothing has been answered yet */
  async request(request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const path = parseKubeletPath(request.url ?? "");
    const { method = "", headers } = request;
    await serveRequest(this.#components, { path, method, accept: headers.accept }, response, signal);
  }

  /** Done when the session is over. @throws when nothing has been answered yet */
  async upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, signal: AbortSignal): Promise<void> {
    const path = parseKubeletPath(request.url ?? "");
    await serveUpgrade(this.#components, { path, request }, { socket, head }, signal);
  }
}
