/** Answers to requests whose body is not read to its end: too large, or of a client that may not send it. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { MEBIBYTE } from "@picolet/protocol/units.ts";

/**
 * Bounds the bytes of one connection that are received for nothing; more than twice the largest body that any server
 * here takes (3 MiB). The server's `requestTimeout` bounds the time. A client that sends more may lose its answer.
 */
export const MAX_DISCARDED_BYTES = 8 * MEBIBYTE;

/**
 * As `writeHead` and `end`. A body that has not arrived is received and dropped before the connection is closed: a
 * connection that is closed with data unread is reset, and the client loses an answer that it has not read yet.
 * @returns when the answer is with the system, or the client is gone; the rest of the body may still be on its way
 */
export function endAnswer(
  response: ServerResponse,
  status: number,
  headers: Readonly<Record<string, string | number>>,
  body: Buffer | string = "",
): Promise<void> {
  const { req: request } = response;
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  return new Promise((resolve) => {
    if (response.destroyed) return resolve();
    response.once("close", resolve);
    const whole = { ...headers, "content-length": bytes.length };
    if (!hasUnread(request)) {
      response.writeHead(status, whole).end(bytes, resolve);
      return;
    }
    // Its length tells the client where the answer ends, and no request can follow.
    response.writeHead(status, { ...whole, connection: "close" });
    response.write(bytes, () => resolve());
    discard(request, () => response.end());
  });
}

/** A request without a body counts as incomplete, too, while its head is being parsed. */
const hasUnread = ({ complete, headers }: IncomingMessage): boolean =>
  !complete && (headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0);

/** @param done called when the body is complete, too long, or its client gone; once or more */
function discard(request: IncomingMessage, done: () => void): void {
  let left = MAX_DISCARDED_BYTES;
  request.on("data", (piece: Buffer) => {
    left -= piece.length;
    if (left < 0) done();
  });
  for (const event of ["end", "close", "error"]) request.once(event, done);
  request.resume();
}

/** The pieces of a body. Its reader may stop before its end, and `endAnswer` discards the rest. */
export const bodyOf = (request: IncomingMessage): AsyncIterable<Buffer> =>
  request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
