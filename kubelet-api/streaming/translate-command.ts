import { ignore } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { BytePipe, WebSocketPipe } from "../pipes/byte-pipe.ts";
import { type CommandStreams, failureStatus, relayCommand } from "./command-session.ts";
import { SpdyCommand } from "./spdy-command.ts";
import { TRANSLATED_PROTOCOL, WebSocketCommand } from "./web-socket-command.ts";

interface Session {
  /** The subprotocol that was agreed on `back`. */
  readonly protocol: string;
  readonly streams: CommandStreams;
}

/**
 * Carries a command between a client's WebSocket (`TRANSLATED_PROTOCOL`) and a runtime's SPDY connection until it has
 * ended, as API servers do. Never throws: the client's status says what went wrong.
 */
export async function translateCommand(
  { clock }: { readonly clock: Clock },
  client: WebSocketPipe,
  back: BytePipe,
  { protocol, streams }: Session,
  signal: AbortSignal,
): Promise<void> {
  const front = new WebSocketCommand(client, TRANSLATED_PROTOCOL, streams);
  const command = await SpdyCommand.open({ clock }, back, protocol, streams, front.closed).catch(
    ignore("the client gets a status below"),
  );
  if (command !== undefined) return await relayCommand(front, command, signal);
  await front.fail(failureStatus("the container runtime did not open the command's streams"));
}
