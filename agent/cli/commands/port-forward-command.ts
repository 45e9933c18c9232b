/** `edgectl port-forward`: ports of this machine that lead into a pod. */
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { describeError, ignore, toPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { NEVER, seconds } from "@picolet/protocol/ports.ts";
import type { Context } from "../context/context.ts";
import { usageError } from "../context/exit-codes.ts";
import { parsePodName, podPath } from "../context/objects.ts";
import { printableLine } from "../context/text-layout.ts";
import { ChannelSession } from "../streams/channel-session.ts";

const PROTOCOL = "v4.channel.k8s.io";
const [DATA, ERROR] = [0, 1];
/** The first message of each channel is the port. */
const PORT_BYTES = 2;
/** The agent has as many sessions for all clients; a further connection waits in the kernel's queue. */
const MAX_CONNECTIONS = 12;
const MAX_PORT = 65_535;
/** A service that answers at the end of its input does so within it. */
const HALF_CLOSED = seconds(10);

interface Forwarding {
  /** 0: any free one. */
  readonly local: number;
  readonly remote: number;
}

/** Until Ctrl-C. */
export async function runPortForward(context: Context, input: Arguments): Promise<number> {
  const [text = "", ...ports] = input.positionals;
  const forwardings = ports.map(parsePorts);
  const { metadata } = await context.client.get<Pod>(podPath(parsePodName(text, input.text("namespace"))));
  const addresses = (input.text("address") ?? "localhost").split(",").map((each) => each.trim());
  const servers: Server[] = [];
  try {
    for (const forwarding of forwardings) {
      for (const address of addresses.flatMap((each) => (each === "localhost" ? ["127.0.0.1", "::1"] : [each]))) {
        const server = await listen(context, metadata, forwarding, address);
        if (server === undefined) continue;
        servers.push(server);
        const { port, family, address: host } = server.address() as AddressInfo;
        const at = family === "IPv6" ? `[${host}]:${port}` : `${host}:${port}`;
        await context.terminal.write(`Forwarding from ${at} -> ${forwarding.remote}\n`);
      }
    }
    await Promise.race(servers.map((server) => once(server, "close")));
  } finally {
    for (const server of servers) server.close();
  }
  return 1;
}

/** `8080`, `8080:80`, `:80`, as kubectl takes them. */
function parsePorts(text: string): Forwarding {
  const [, first = "", second] = /^(\d{0,5})(?::(\d{1,5}))?$/.exec(text) ?? [];
  const remote = Number(second ?? first);
  const local = Number(first);
  if (!(remote >= 1 && remote <= MAX_PORT && local <= MAX_PORT) || text === "")
    throw usageError(`"${text}" is no port of the pod: name it as 80, 8080:80 or :80`);
  return { local, remote };
}

type Target = Pick<Pod["metadata"], "namespace" | "name">;

/** @returns undefined: this machine has no IPv6 */
async function listen(
  context: Context,
  target: Target,
  { local, remote }: Forwarding,
  address: string,
): Promise<Server | undefined> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    forward(context, target, remote, socket).catch((error: unknown) =>
      context.terminal.writeError(`edgectl: port ${remote}: ${printableLine(describeError(error))}\n`),
    );
  });
  server.maxConnections = MAX_CONNECTIONS;
  server.listen({ host: address, port: local });
  try {
    await once(server, "listening");
    return server;
  } catch (error) {
    if (address === "::1") return undefined;
    throw toPicoletError(error, "failed", `cannot listen on ${address}, port ${local}`);
  }
}

async function forward(
  { client, terminal, sleep }: Context,
  target: Target,
  port: number,
  socket: Socket,
): Promise<void> {
  const { namespace, name } = target;
  socket.on("error", ignore("the session ends with the connection"));
  const path = `/portForward/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}?port=${port}`;
  try {
    using session = await ChannelSession.open(client.socketPath, path, PROTOCOL);
    socket.once("close", () => session[Symbol.dispose]());
    sendAll(session, socket)
      .then(() => lingers(sleep, socket))
      .catch(ignore("the reader of the session sees its end"));
    const skipped = [PORT_BYTES, PORT_BYTES];
    for await (const { channel, bytes } of session.messages()) {
      const skip = Math.min(skipped[channel] ?? 0, bytes.length);
      skipped[channel] = (skipped[channel] ?? 0) - skip;
      const rest = bytes.subarray(skip);
      if (rest.length === 0) continue;
      if (channel === DATA && !socket.write(rest)) await Promise.race([once(socket, "drain"), once(socket, "close")]);
      if (channel === ERROR) terminal.writeError(`edgectl: ${printableLine(rest.toString("utf8"))}\n`);
    }
    socket.end();
  } catch (error) {
    if (!socket.destroyed) throw error;
  } finally {
    socket.destroySoon();
  }
}

/**
 * The protocol has no half-closed connections. A client that has ended gets what comes back, until nothing has come for
 * a while.
 */
async function lingers(sleep: Context["sleep"], socket: Socket): Promise<void> {
  for (let before = -1; before !== socket.bytesWritten && !socket.destroyed; ) {
    before = socket.bytesWritten;
    await sleep(HALF_CLOSED, NEVER);
  }
  socket.destroy();
}

async function sendAll(session: ChannelSession, socket: Socket): Promise<void> {
  for await (const piece of socket as AsyncIterable<Buffer>) await session.send(DATA, piece);
}
