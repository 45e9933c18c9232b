/** Requests to a node's kubelet whose connection becomes a session: exec, attach, port-forward. */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type {
  ExecParams,
  OpenedStream,
  PortForwardParams,
  SessionReply,
  StreamOpener,
} from "@picolet/protocol/tunnel/stream.ts";
import { type BytePipe, joinPipes, SocketPipe, TunnelPipe } from "../pipes/byte-pipe.ts";
import { PrefixedPipe } from "../pipes/prefixed-pipe.ts";
import { acceptWebSocket, offeredProtocols } from "../pipes/web-socket-server.ts";
import { ChannelCommand } from "../streaming/channel-command.ts";
import { type CommandSession, type CommandStreams, relayCommand } from "../streaming/command-session.ts";
import {
  forwardPorts,
  PORT_FORWARD_PROTOCOL,
  type PortForwardComponents,
  TUNNELLED_PORT_FORWARD_PROTOCOL,
} from "../streaming/port-forward.ts";
import { SPDY_COMMAND_PROTOCOLS, SpdyCommand } from "../streaming/spdy-command.ts";
import { translateCommand } from "../streaming/translate-command.ts";
import {
  TRANSLATED_PROTOCOL,
  WEB_SOCKET_COMMAND_PROTOCOLS,
  WebSocketCommand,
} from "../streaming/web-socket-command.ts";
import {
  checkWebSocketPorts,
  forwardWebSocketPorts,
  WEB_SOCKET_PORT_FORWARD_PROTOCOLS,
} from "../streaming/web-socket-port-forward.ts";
import type { KubeletPath } from "./kubelet-path.ts";
import { SPDY, spdyConnectionOf, spdyHeaders } from "./spdy-upgrade.ts";

interface Components {
  readonly streams: StreamOpener;
  readonly clock: Clock;
}

interface NodeUpgrade {
  readonly path: KubeletPath;
  readonly request: IncomingMessage;
}

interface Connection {
  readonly socket: Duplex;
  readonly head: Buffer;
}

type Session = Extract<KubeletPath, { kind: "exec" | "attach" | "portForward" }>;

/** Headers of a request that the agent passes to the runtime in the client's name. */
const UPGRADE_HEADERS = [
  "upgrade",
  "sec-websocket-key",
  "sec-websocket-version",
  "sec-websocket-protocol",
  "sec-websocket-extensions",
  "x-stream-protocol-version",
];

const isSpdy = ({ headers }: IncomingMessage): boolean => headers.upgrade?.toLowerCase() === SPDY.toLowerCase();

/** Done when the session is over. @throws when nothing has been answered yet */
export async function serveUpgrade(
  components: Components,
  { path, request }: NodeUpgrade,
  connection: Connection,
  signal: AbortSignal,
): Promise<void> {
  if (path.kind !== "exec" && path.kind !== "attach" && path.kind !== "portForward") {
    throw new PicoletError("invalid", "there is nothing to upgrade here");
  }
  if (!isSpdy(request) && offeredProtocols(request).length === 0) {
    throw new PicoletError(
      "invalid",
      `cannot upgrade to ${request.headers.upgrade ?? "nothing"}: use ${SPDY} or a WebSocket`,
    );
  }
  const translation = translationOf(path, request);
  const stream = await open(components.streams, path, translation ?? upgradeHeaders(request), signal);
  try {
    const mode = modeOf(stream.reply);
    if (mode === "raw" && translation !== undefined) {
      await translate(components, stream, { path, request }, connection, signal);
    } else if (mode === "raw") {
      const front = new PrefixedPipe(connection.head, new SocketPipe(connection.socket));
      await joinPipes(components, front, new TunnelPipe(stream), signal);
    } else if (mode === "connections" && path.kind === "portForward") {
      const connect = async (port: number, life: AbortSignal): Promise<BytePipe> =>
        new TunnelPipe(await open(components.streams, { ...path, ports: [port] }, undefined, life));
      await acceptPortForward({ clock: components.clock, connect }, { path, request }, connection, signal);
    } else if (mode === "channels" && path.kind !== "portForward") {
      const front = await acceptCommand(components, request, connection, path.streams, signal);
      if (front !== undefined) await relayCommand(front, new ChannelCommand(stream), signal);
    } else throw new PicoletError("corrupt", `the node's answer to ${path.kind} is none`);
  } finally {
    stream.reset({ code: "cancelled", message: "the client has gone" });
  }
}

/**
 * Runtimes speak SPDY, and not the newer protocols of WebSockets that clients speak to API servers.
 * @returns the headers for the runtime; undefined: the client's own
 */
function translationOf(path: Session, request: IncomingMessage): Readonly<Record<string, string>> | undefined {
  const [newer, older] =
    path.kind === "portForward"
      ? [TUNNELLED_PORT_FORWARD_PROTOCOL, [PORT_FORWARD_PROTOCOL]]
      : [TRANSLATED_PROTOCOL, SPDY_COMMAND_PROTOCOLS];
  return offeredProtocols(request).includes(newer) ? spdyHeaders(older) : undefined;
}

async function translate(
  components: Components,
  stream: OpenedStream,
  { path, request }: { readonly path: Session; readonly request: IncomingMessage },
  { socket, head }: Connection,
  signal: AbortSignal,
): Promise<void> {
  const { protocol, pipe } = await spdyConnectionOf(stream, signal);
  const isCommand = path.kind !== "portForward";
  const front = await acceptWebSocket(
    request,
    socket,
    head,
    isCommand ? TRANSLATED_PROTOCOL : TUNNELLED_PORT_FORWARD_PROTOCOL,
  );
  if (front === undefined) return;
  if (isCommand) await translateCommand(components, front, pipe, { protocol, streams: path.streams }, signal);
  else await joinPipes(components, front, pipe, signal);
}

function upgradeHeaders({ headers }: IncomingMessage): Readonly<Record<string, string>> {
  const all = UPGRADE_HEADERS.map((name) => [name, [headers[name] ?? []].flat().join(",")] as const);
  return Object.fromEntries(all.filter(([, value]) => value !== ""));
}

function open(
  streams: StreamOpener,
  path: Session,
  upgrade: Readonly<Record<string, string>> | undefined,
  signal: AbortSignal,
): Promise<OpenedStream> {
  const { namespace, pod, uid } = path;
  if (path.kind === "portForward") {
    const params: PortForwardParams = { namespace, pod, uid, ports: path.ports, upgrade };
    return streams.open("portForward", params, "interactive", signal);
  }
  const { container, command, streams: wanted } = path;
  const params: ExecParams = { namespace, pod, uid, container, command, ...wanted, upgrade };
  return streams.open(path.kind, params, "interactive", signal);
}

const modeOf = (reply: unknown): SessionReply["mode"] | undefined => ((reply ?? {}) as Partial<SessionReply>).mode;

async function acceptPortForward(
  components: PortForwardComponents,
  { path, request }: { readonly path: Extract<Session, { kind: "portForward" }>; readonly request: IncomingMessage },
  { socket, head }: Connection,
  signal: AbortSignal,
): Promise<void> {
  if (isSpdy(request)) {
    const protocol = spdyProtocol(request, [PORT_FORWARD_PROTOCOL]);
    answerUpgrade(socket, protocol);
    return await forwardPorts(components, new PrefixedPipe(head, new SocketPipe(socket)), signal);
  }
  // The first is kubectl's way past proxies that know no SPDY: all of its bytes in a WebSocket.
  const known = [TUNNELLED_PORT_FORWARD_PROTOCOL, ...WEB_SOCKET_PORT_FORWARD_PROTOCOLS];
  const offered = offeredProtocols(request);
  const protocol = known.find((each) => offered.includes(each));
  if (protocol === undefined) throw noProtocol(known);
  if (protocol !== TUNNELLED_PORT_FORWARD_PROTOCOL) checkWebSocketPorts(path.ports, protocol);
  const front = await acceptWebSocket(request, socket, head, protocol);
  if (front === undefined) return;
  if (protocol === TUNNELLED_PORT_FORWARD_PROTOCOL) await forwardPorts(components, front, signal);
  else await forwardWebSocketPorts(components, { pipe: front, protocol, ports: path.ports }, signal);
}

/** Undefined: no protocol could be agreed upon, and the client has been answered. */
async function acceptCommand(
  components: Components,
  request: IncomingMessage,
  { socket, head }: Connection,
  streams: CommandStreams,
  signal: AbortSignal,
): Promise<CommandSession | undefined> {
  if (!isSpdy(request)) {
    const offered = offeredProtocols(request);
    const protocol = WEB_SOCKET_COMMAND_PROTOCOLS.find((each) => offered.includes(each));
    if (protocol === undefined) throw noProtocol(WEB_SOCKET_COMMAND_PROTOCOLS);
    const pipe = await acceptWebSocket(request, socket, head, protocol);
    return pipe === undefined ? undefined : new WebSocketCommand(pipe, protocol, streams);
  }
  const protocol = spdyProtocol(request, SPDY_COMMAND_PROTOCOLS);
  answerUpgrade(socket, protocol);
  try {
    return await SpdyCommand.accept(
      components,
      new PrefixedPipe(head, new SocketPipe(socket)),
      protocol,
      streams,
      signal,
    );
  } catch {
    // It has ended the connection; an HTTP answer would come too late.
    return undefined;
  }
}

/** A client that names none means the first there was. @param known best first */
function spdyProtocol({ headers }: IncomingMessage, known: readonly string[]): string {
  const offered = [headers["x-stream-protocol-version"] ?? known.slice(-1)].flat().join(",").split(",");
  const protocol = known.find((each) => offered.some((offer) => offer.trim() === each));
  if (protocol === undefined) throw noProtocol(known);
  return protocol;
}

function answerUpgrade(socket: Duplex, protocol: string): void {
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: ${SPDY}\r\nx-stream-protocol-version: ${protocol}\r\n\r\n`,
  );
}

const noProtocol = (known: readonly string[]): PicoletError =>
  new PicoletError("permission_denied", `unable to negotiate protocol: the server supports ${known.join(", ")}`);
