/** Requests to a node's kubelet that need no upgrade. */
import type { ServerResponse } from "node:http";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { FOREIGN_CONTENT_HEADERS } from "@picolet/protocol/page/page-headers.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";
import type {
  KubeletParams,
  KubeletReply,
  LogsParams,
  PodActionParams,
  StreamOpener,
  TunnelStream,
} from "@picolet/protocol/tunnel/stream.ts";
import { onceAny } from "../pipes/byte-pipe.ts";
import type { KubeletPath } from "./kubelet-path.ts";
import { runCommand } from "./run-command.ts";

export interface NodeRequest {
  readonly path: KubeletPath;
  readonly method: string;
  /** The header of that name. */
  readonly accept?: string | undefined;
}

export interface NodeRequestComponents {
  readonly streams: StreamOpener;
  readonly clock: Clock;
  readonly answerTimeout?: Millis;
}

/** @throws when nothing has been answered yet; what breaks later breaks the answer off */
export async function serveRequest(
  components: NodeRequestComponents,
  { path, method, accept }: NodeRequest,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  const { streams, answerTimeout = 0 } = components;
  // The node says why it makes none.
  const isCheckpoint = path.kind === "get" && path.path.startsWith("/checkpoint/");
  const allowed = path.kind === "run" || isCheckpoint ? "POST" : "GET";
  if (path.kind === "exec" || path.kind === "attach" || path.kind === "portForward") {
    throw new PicoletError("invalid", "this needs a request that can be upgraded to SPDY/3.1 or a WebSocket");
  }
  if (method !== allowed && !(method === "HEAD" && path.kind === "get")) {
    const why = `method ${method} is not offered here, only ${allowed}`;
    throw new PicoletError("unimplemented", why, { reason: "MethodNotAllowed" });
  }
  switch (path.kind) {
    case "logs": {
      const { namespace, pod, container, query } = path;
      const params: LogsParams = { namespace, pod, uid: "", container, query };
      const stream = await streams.open("logs", params, "logs", signal);
      return await answerWith(stream, response, { status: 200, contentType: "text/plain" }, signal);
    }
    case "run":
      return await runCommand(components, path, response, signal);
    case "get": {
      response.setTimeout(answerTimeout, () => response.destroy());
      const params: KubeletParams = { method: "GET", path: path.path, ...(accept === undefined ? {} : { accept }) };
      const stream = await streams.open("kubelet", params, "bulk", signal);
      return await answerWith(stream, response, kubeletReply(stream.reply), signal);
    }
  }
}

/**
 * Passes a user's restart or deletion of a pod on to the node. Its caller has judged the user's rights.
 * @throws as `serveRequest`
 */
export async function servePodAction(
  streams: StreamOpener,
  params: PodActionParams,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  const stream = await streams.open("kubelet", params, "bulk", signal);
  await answerWith(stream, response, kubeletReply(stream.reply), signal);
}

/** Never more than one piece ahead of what the client takes. */
async function answerWith(
  stream: TunnelStream,
  response: ServerResponse,
  { status, contentType }: KubeletReply,
  signal: AbortSignal,
): Promise<void> {
  try {
    // Nothing is sent to the node; what it reads is the end.
    stream.end();
    // A stolen board may say anything, and a browser reads it at the origin of a hub or of kubectl proxy.
    response.writeHead(status, { ...FOREIGN_CONTENT_HEADERS, "content-type": contentType });
    // A followed log may have nothing to say for long.
    response.flushHeaders();
    for (;;) {
      const piece = await stream.read(signal);
      if (piece === undefined) break;
      if (!response.write(piece)) await onceAny(response, ["drain", "close"], signal);
    }
    response.end();
  } catch (error) {
    stream.reset({ code: "cancelled", message: "the client has gone" });
    throw error;
  }
}

function kubeletReply(reply: unknown): KubeletReply {
  const { status, contentType } = (reply ?? {}) as Partial<Record<keyof KubeletReply, unknown>>;
  const valid = typeof status === "number" && Number.isInteger(status) && status >= 200 && status < 600;
  // It becomes a header.
  if (valid && typeof contentType === "string" && /^[\x20-\x7e]{1,200}$/.test(contentType))
    return { status, contentType };
  throw new PicoletError("corrupt", "the node's answer is none");
}
