/** Error answers of the kubelet endpoints, in words that kubectl shows. */
import type { ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { describeError, type ErrorCode, ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { endAnswer } from "../pipes/unread-body.ts";
import { kubeStatus } from "./kube-status.ts";

export const HTTP_STATUS: Readonly<Record<ErrorCode, number>> = {
  cancelled: 503,
  invalid: 400,
  not_found: 404,
  already_exists: 409,
  conflict: 400,
  unavailable: 503,
  deadline_exceeded: 504,
  resource_exhausted: 429,
  permission_denied: 403,
  unimplemented: 400,
  corrupt: 500,
  failed: 500,
  internal: 500,
};

export interface HttpFailure {
  readonly status: number;
  readonly message: string;
}

/**
 * A run of a container that there is not yet: a kubelet answers 400, of which an API server shows the text; not of 404
 * or 503.
 */
const NO_SUCH_RUN = /is waiting to start|^previous terminated container .* not found$/;

export function httpFailure(error: unknown): HttpFailure {
  const code = error instanceof PicoletError ? error.code : "internal";
  const unauthorized = error instanceof PicoletError && error.reason === "Unauthorized";
  const hasNoRun = error instanceof PicoletError && NO_SUCH_RUN.test(error.message);
  const wrongMethod = error instanceof PicoletError && error.reason === "MethodNotAllowed";
  const status = unauthorized ? 401 : hasNoRun ? 400 : wrongMethod ? 405 : HTTP_STATUS[code];
  return { status, message: describeError(error) };
}

/**
 * For answers to `kubectl logs`: of 503 and 504 an API server keeps the text to itself, of 502 it shows it
 * (k8s.io/apimachinery, NewGenericServerResponse).
 */
export function shownFailure(error: unknown): HttpFailure {
  const { status, message } = httpFailure(error);
  return { status: status === 503 || status === 504 ? 502 : status, message };
}

export function answerFailure(response: ServerResponse, { status, message }: HttpFailure): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const headers = { "content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff" };
  void endAnswer(response, status, headers, `${message}\n`);
}

const REASONS: Readonly<Record<number, string>> = {
  ...{ 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 409: "Conflict" },
  ...{
    405: "Method Not Allowed",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
  },
  504: "Gateway Timeout",
};

/**
 * On a connection whose request asked for an upgrade. A Status, as API servers pass the answer on as it is, and kubectl
 * shows of any other text only that the upgrade failed.
 */
export function refuseUpgrade(socket: Duplex, { status, message }: HttpFailure): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const body = Buffer.from(JSON.stringify(kubeStatus(status, message)));
  const head = [
    `HTTP/1.1 ${status} ${REASONS[status] ?? "Error"}`,
    "content-type: application/json",
    `content-length: ${body.length}`,
    "connection: close",
  ].join("\r\n");
  socket.on("error", ignore("a client that has gone needs no answer"));
  socket.end(Buffer.concat([Buffer.from(`${head}\r\n\r\n`), body]));
  // Discards what the client still sends.
  socket.resume();
}
