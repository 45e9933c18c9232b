/** Requests to a node's kubelet whose connection becomes a session: exec, attach, port-forward. */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Fleet } from "@picolet/hub-core/fleet.ts";
import { type BytePipe, joinPipes, SocketPipe, TunnelPipe } from "@picolet/hub-core/pipes/byte-pipe.ts";
import { PrefixedPipe } from "@picolet/hub-core/pipes/prefixed-pipe.ts";
import { acceptWebSocket, offeredProtocols } from "@picolet/hub-core/pipes/web-socket-server.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { ExecParams, OpenedStream, PortForwardParams, SessionReply } from "@picolet/protocol/tunnel/stream.ts";
import { ChannelCommand } from "../streaming/channel-command.ts";
import { type CommandSession, type CommandStreams, relayCommand } from "../streaming/command-session.ts";
import { forwardPorts, PORT_FORWARD_PROTOCOL, TUNNELLED_PORT_FORWARD_PROTOCOL } from "../streaming/port-forward.ts";
import { SPDY_COMMAND_PROTOCOLS, SpdyCommand } from "../streaming/spdy-command.ts";
import { WEB_SOCKET_COMMAND_PROTOCOLS, WebSocketCommand } from "../streaming/web-socket-command.ts";
import type { KubeletPath } from "./kubelet-path.ts";

interface Components {
  readonly fleet: Fleet;
  readonly clock: Clock;
}

interface NodeUpgrade {
  readonly node: string;
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

const SPDY = "SPDY/3.1";
const isSpdy = ({ headers }: IncomingMessage): boolean => headers.upgrade?.toLowerCase() === SPDY.toLowerCase();

/** Done when the session is over. @throws when nothing has been answered yet */
export async function serveUpgrade(
  components: Components,
  { node, path, request }: NodeUpgrade,
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
  const stream = await open(components.fleet, node, path, upgradeHeaders(request), signal);
  try {
    const mode = modeOf(stream.reply);
    if (mode === "raw") {
      const front = new PrefixedPipe(connection.head, new SocketPipe(connection.socket));
      await joinPipes(components, front, new TunnelPipe(stream), signal);
    } else if (mode === "connections" && path.kind === "portForward") {
      const front = await acceptPortForward(request, connection);
      if (front === undefined) return;
      const connect = async (port: number, life: AbortSignal): Promise<BytePipe> =>
        new TunnelPipe(await open(components.fleet, node, { ...path, ports: [port] }, undefined, life));
      await forwardPorts({ clock: components.clock, connect }, front, signal);
    } else if (mode === "channels" && path.kind !== "portForward") {
      const front = await acceptCommand(components, request, connection, path.streams, signal);
      if (front !== undefined) await relayCommand(front, new ChannelCommand(stream), signal);
    } else throw new PicoletError("corrupt", `the node's answer to ${path.kind} is none`);
  } finally {
    stream.reset({ code: "cancelled", message: "the client has gone" });
  }
}

function upgradeHeaders({ headers }: IncomingMessage): Readonly<Record<string, string>> {
  const all = UPGRADE_HEADERS.map((name) => [name, [headers[name] ?? []].flat().join(",")] as const);
  return Object.fromEntries(all.filter(([, value]) => value !== ""));
}

function open(
  fleet: Fleet,
  node: string,
  path: Session,
  upgrade: Readonly<Record<string, string>> | undefined,
  signal: AbortSignal,
): Promise<OpenedStream> {
  const { namespace, pod, uid } = path;
  if (path.kind === "portForward") {
    const params: PortForwardParams = { namespace, pod, uid, ports: path.ports, upgrade };
    return fleet.open(node, "portForward", params, "interactive", signal);
  }
  const { container, command, streams } = path;
  const params: ExecParams = { namespace, pod, uid, container, command, ...streams, upgrade };
  return fleet.open(node, path.kind, params, "interactive", signal);
}

const modeOf = (reply: unknown): SessionReply["mode"] | undefined => ((reply ?? {}) as Partial<SessionReply>).mode;

/** Undefined: the client has been answered. */
async function acceptPortForward(
  request: IncomingMessage,
  { socket, head }: Connection,
): Promise<BytePipe | undefined> {
  if (!isSpdy(request)) {
    // kubectl's way past proxies that know no SPDY: all of its bytes in a WebSocket.
    const known = [TUNNELLED_PORT_FORWARD_PROTOCOL];
    if (!offeredProtocols(request).includes(TUNNELLED_PORT_FORWARD_PROTOCOL)) throw noProtocol(known);
    return acceptWebSocket(request, socket, head, TUNNELLED_PORT_FORWARD_PROTOCOL);
  }
  const protocol = spdyProtocol(request, [PORT_FORWARD_PROTOCOL]);
  answerUpgrade(socket, protocol);
  return new PrefixedPipe(head, new SocketPipe(socket));
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
