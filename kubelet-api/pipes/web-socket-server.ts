import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { WebSocketServer } from "ws";
import { WebSocketPipe } from "./byte-pipe.ts";

/** Bounds one message: kubectl sends 32 KiB at most. A longer one ends the connection. */
const MAX_MESSAGE_BYTES = MEBIBYTE;

const isRequest = ({ headers }: Pick<IncomingMessage, "headers">): boolean =>
  headers.upgrade?.toLowerCase() === "websocket";

/** The subprotocols that a client offers, in its order; none for what is no WebSocket request. */
export function offeredProtocols(request: Pick<IncomingMessage, "headers">): readonly string[] {
  if (!isRequest(request)) return [];
  return (request.headers["sec-websocket-protocol"] ?? "").split(",").map((each) => each.trim());
}

/**
 * Answers a WebSocket request with 101 and `protocol`.
 * @returns undefined when the request is no proper one; it has been answered then
 */
export function acceptWebSocket(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  protocol: string,
): Promise<WebSocketPipe | undefined> {
  return new Promise((resolve) => {
    const server = new WebSocketServer({
      noServer: true,
      perMessageDeflate: false,
      maxPayload: MAX_MESSAGE_BYTES,
      handleProtocols: () => protocol,
    });
    server.once("wsClientError", (error, refused) => {
      refused.end(
        `HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: ${error.message.length}\r\n\r\n${error.message}`,
      );
      resolve(undefined);
    });
    server.handleUpgrade(request, socket, head, (accepted) => resolve(new WebSocketPipe(accepted)));
  });
}
