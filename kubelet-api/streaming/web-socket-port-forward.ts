/**
 * Forwarded ports over a WebSocket as kubelets serve them: the ports are in the request's query, and each is one
 * connection. The first byte of a message is its channel: of the port with index `i`, `2 * i` has the connection's
 * bytes and `2 * i + 1` an error message. The first message of each channel is the port, two bytes, little-endian.
 */

import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { describeError, ignore, PicoletError } from "@picolet/protocol/errors.ts";
import type { BytePipe, WebSocketPipe } from "../pipes/byte-pipe.ts";
import { InboundQueue } from "../pipes/inbound-queue.ts";
import { BASE64_CHANNELS, ChannelMessages } from "./channel-messages.ts";
import type { PortForwardComponents } from "./port-forward.ts";

/** Best first. */
export const WEB_SOCKET_PORT_FORWARD_PROTOCOLS = ["v4.channel.k8s.io", BASE64_CHANNELS];
/** Channels are one byte, or one digit in base64. A further port is refused. */
const MAX_PORTS = 128;
const MAX_BASE64_PORTS = 5;

interface PortForwardSession {
  readonly pipe: WebSocketPipe;
  readonly protocol: string;
  readonly ports: readonly number[];
}

/** Until all connections have ended, the client goes, or `signal` aborts. Never throws. @param ports checked */
export async function forwardWebSocketPorts(
  components: PortForwardComponents,
  { pipe, protocol, ports }: PortForwardSession,
  signal: AbortSignal,
): Promise<void> {
  using life = joinSignals(signal);
  const inbound = ports.map(() => new InboundQueue());
  const messages = new ChannelMessages(pipe, protocol);
  try {
    const reading = readAll(messages, inbound, life.signal).finally(() => life.abort());
    reading.catch(ignore("the connections end with `life`"));
    await Promise.all(
      ports.map((port, index) => forwardOne(components, messages, { port, index, inbound }, life.signal)),
    );
    pipe.close(1000);
    await reading;
  } catch {
    ignore("the client is gone, which ends its connections");
  } finally {
    life.abort();
    pipe.destroy();
  }
}

/** @throws `invalid` for ports that the protocol cannot carry */
export function checkWebSocketPorts(ports: readonly number[], protocol: string): void {
  const limit = protocol === BASE64_CHANNELS ? MAX_BASE64_PORTS : MAX_PORTS;
  if (ports.length === 0) throw new PicoletError("invalid", "query parameter `port` is required");
  if (ports.length > limit) throw new PicoletError("invalid", `more than ${limit} ports`);
}

async function readAll(
  messages: ChannelMessages,
  inbound: readonly InboundQueue[],
  signal: AbortSignal,
): Promise<void> {
  try {
    for (let message = await messages.read(signal); message !== undefined; message = await messages.read(signal)) {
      const queue = message.channel % 2 === 0 ? inbound[message.channel / 2] : undefined;
      queue?.push(message.bytes);
      await queue?.room(signal);
    }
  } finally {
    for (const queue of inbound) queue.end();
  }
}

interface ForwardedPort {
  readonly port: number;
  readonly index: number;
  readonly inbound: readonly InboundQueue[];
}

async function forwardOne(
  { connect }: PortForwardComponents,
  messages: ChannelMessages,
  { port, index, inbound }: ForwardedPort,
  signal: AbortSignal,
): Promise<void> {
  const [data, error] = [2 * index, 2 * index + 1];
  const name = Buffer.alloc(2);
  name.writeUInt16LE(port);
  for (const channel of [data, error]) await messages.write(channel, name, signal);
  let back: BytePipe | undefined;
  try {
    back = await connect(port, signal);
    const target = back;
    const forth = async (): Promise<void> => {
      for (;;) {
        const piece = await inbound[index]?.read(signal);
        if (piece === undefined) return target.end();
        await target.write(piece, signal);
      }
    };
    forth().catch(ignore("the reader of the connection sees its end"));
    for (let piece = await back.read(signal); piece !== undefined; piece = await back.read(signal)) {
      await messages.write(data, piece, signal);
    }
  } catch (failure) {
    if (signal.aborted) throw failure;
    await messages.write(error, Buffer.from(`error forwarding port ${port}: ${describeError(failure)}`), signal);
  } finally {
    back?.destroy();
  }
}
