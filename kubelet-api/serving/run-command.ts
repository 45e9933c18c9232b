/** The kubelet's /run: a command without input, answered with what it wrote. */
import type { ServerResponse } from "node:http";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { CHANNEL } from "@picolet/protocol/tunnel/channel-frames.ts";
import type { ExecParams, SessionReply, StreamOpener } from "@picolet/protocol/tunnel/stream.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { CommandChannel } from "../streaming/command-session.ts";
import { SPDY_COMMAND_PROTOCOLS, SpdyCommand } from "../streaming/spdy-command.ts";
import type { KubeletPath } from "./kubelet-path.ts";
import { spdyConnectionOf, spdyHeaders } from "./spdy-upgrade.ts";

/** Bounds both outputs in memory; a command that writes more is answered with an error. Larger outputs need exec. */
const MAX_OUTPUT_BYTES = MEBIBYTE;
const STREAMS = { stdin: false, stdout: true, stderr: true, tty: false };

interface ExitStatus {
  readonly status?: unknown;
  readonly message?: unknown;
}

export async function runCommand(
  components: { readonly streams: StreamOpener; readonly clock: Clock },
  { namespace, pod, uid, container, command }: Extract<KubeletPath, { kind: "run" }>,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  const upgrade = spdyHeaders(SPDY_COMMAND_PROTOCOLS);
  const params: ExecParams = { namespace, pod, uid, container, command, ...STREAMS, upgrade };
  const stream = await components.streams.open("exec", params, "interactive", signal);
  using life = joinSignals(signal);
  try {
    if ((stream.reply as Partial<SessionReply> | null)?.mode !== "raw") {
      throw new PicoletError("unimplemented", "the node runs no commands in this way");
    }
    const { protocol, pipe } = await spdyConnectionOf(stream, life.signal);
    using session = await SpdyCommand.open(components, pipe, protocol, STREAMS, life.signal);
    const output = new Output();
    const [message] = await Promise.all([
      collect(session.channel(CHANNEL.error), new Output(), life.signal),
      collect(session.channel(CHANNEL.stdout), output, life.signal),
      collect(session.channel(CHANNEL.stderr), output, life.signal),
    ]);
    answer(response, message.text, output.text);
  } finally {
    life.abort();
    stream.reset({ code: "cancelled", message: "the command has ended" });
  }
}

class Output {
  readonly #pieces: Uint8Array[] = [];
  #bytes = 0;

  get text(): string {
    return Buffer.concat(this.#pieces).toString("utf8");
  }

  push(piece: Uint8Array): void {
    this.#bytes += piece.length;
    if (this.#bytes > MAX_OUTPUT_BYTES) {
      throw new PicoletError("resource_exhausted", "the command writes more than a MiB; use exec");
    }
    this.#pieces.push(piece);
  }
}

async function collect(channel: CommandChannel | undefined, into: Output, signal: AbortSignal): Promise<Output> {
  for (let piece = await channel?.read(signal); piece !== undefined; piece = await channel?.read(signal)) {
    into.push(piece);
  }
  return into;
}

/** As the kubelet: what it wrote, or with 500 how it failed. */
function answer(response: ServerResponse, status: string, output: string): void {
  const { status: verdict, message } = (status === "" ? {} : JSON.parse(status)) as ExitStatus;
  const failed = verdict !== "Success";
  response.writeHead(failed ? 500 : 200, { "content-type": "text/plain; charset=utf-8" });
  response.end(failed ? `${output}${String(message ?? "the command was lost")}\n` : output);
}
