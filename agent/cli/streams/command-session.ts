/** One command in a container, or its own process: input, outputs, the size of the terminal, and how it ended. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { CHANNEL } from "@picolet/protocol/tunnel/channel-frames.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { Context } from "../context/context.ts";
import { query } from "../context/objects.ts";
import { ChannelSession } from "./channel-session.ts";

const PROTOCOL = "v5.channel.k8s.io";
/** Bounds the status at the end. */
const MAX_STATUS_BYTES = 64 * KIBIBYTE;

export interface ContainerTarget {
  readonly namespace: string;
  readonly pod: string;
  readonly container: string;
}

export interface CommandRequest {
  readonly kind: "exec" | "attach";
  readonly target: ContainerTarget;
  /** Empty for `attach`. */
  readonly command: readonly string[];
  /** Undefined: it has no input. */
  readonly input: AsyncIterable<Uint8Array> | undefined;
  readonly isTerminal: boolean;
}

export interface CommandOutput {
  out(bytes: Buffer): Promise<void>;
  error(bytes: Buffer): Promise<void>;
}

/** @returns its exit code @throws the runtime's reason when it could not be run */
export async function runCommand(context: Context, request: CommandRequest, output: CommandOutput): Promise<number> {
  const { kind, target, command, input, isTerminal } = request;
  const { namespace, pod, container } = target;
  const parameters = new URLSearchParams(command.map((word): [string, string] => ["command", word]));
  const flags = query({
    input: input && 1,
    output: 1,
    error: isTerminal ? undefined : 1,
    tty: isTerminal ? 1 : undefined,
  });
  const path = `/${[kind, namespace, pod, container].map(encodeURIComponent).join("/")}${flags}`;
  const words = parameters.toString();
  using session = await ChannelSession.open(
    context.client.socketPath,
    words === "" ? path : `${path}&${words}`,
    PROTOCOL,
  );
  using _resizing = isTerminal ? followSize(context, session) : undefined;
  if (input !== undefined) void sendInput(session, input);
  let status = Buffer.alloc(0);
  for await (const { channel, bytes } of session.messages()) {
    if (channel === CHANNEL.stdout) await output.out(bytes);
    else if (channel === CHANNEL.stderr) await output.error(bytes);
    else if (channel === CHANNEL.error && status.length < MAX_STATUS_BYTES) status = Buffer.concat([status, bytes]);
  }
  return exitCodeOf(status.toString("utf8"));
}

async function sendInput(session: ChannelSession, input: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const piece of input) await session.send(CHANNEL.stdin, piece);
  session.closeChannel(CHANNEL.stdin);
}

function followSize({ keyboard }: Context, session: ChannelSession): Disposable {
  const sendSize = (): void => {
    const { size } = keyboard;
    if (size === undefined) return;
    const text = JSON.stringify({ Width: size.columns, Height: size.rows });
    void session.send(CHANNEL.resize, Buffer.from(text));
  };
  sendSize();
  return keyboard.onResize(sendSize);
}

interface Status {
  readonly status?: string;
  readonly message?: string;
  readonly details?: { readonly causes?: readonly { readonly reason?: string; readonly message?: string }[] };
}

/** Kubernetes' way: Success, or a cause with the reason ExitCode. */
function exitCodeOf(text: string): number {
  if (text === "") throw new PicoletError("unavailable", "the session ended before the command did");
  let status: Status;
  try {
    status = JSON.parse(text) as Status;
  } catch {
    throw new PicoletError("failed", text);
  }
  if (status.status === "Success") return 0;
  const code = status.details?.causes?.find(({ reason }) => reason === "ExitCode")?.message;
  if (code === undefined || !/^\d{1,3}$/.test(code)) throw new PicoletError("failed", status.message ?? text);
  return Number(code);
}
