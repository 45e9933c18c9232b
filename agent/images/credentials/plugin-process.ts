import { type ChildProcess, spawn } from "node:child_process";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";

export interface PluginCall {
  readonly program: string;
  readonly args: readonly string[];
  /** On top of the agent's own. */
  readonly env: Readonly<Record<string, string>>;
  readonly input: string;
}

/** The kubelet's. */
const TIME_LIMIT = seconds(60);
/** Bounds the output of a plugin: credentials of a registry have about 4 KiB. A larger output ends the program. */
const MAX_OUTPUT_BYTES = MEBIBYTE;
/** Bounds the plugin's error output in the message: an event has 1024 characters. */
const MAX_COMPLAINT_LENGTH = 512;

/**
 * Runs a program that reads its input, writes one answer and ends.
 * @returns what it wrote
 * @throws `failed`, `deadline_exceeded`, `resource_exhausted`, `cancelled`; the program and what it started have ended
 * then
 */
export async function runPlugin(call: PluginCall, clock: Clock, signal: AbortSignal): Promise<string> {
  if (signal.aborted) throw new PicoletError("cancelled", `the plugin ${call.program} was cancelled`);
  using life = joinSignals(signal);
  // A group of its own, so that all of it can be ended.
  const child = spawn(call.program, [...call.args], { env: { ...process.env, ...call.env }, detached: true });
  try {
    return await Promise.race([outcomeOf(child, call.input), ending(clock, life.signal)]);
  } finally {
    life.abort();
    endGroup(child);
  }
}

function outcomeOf(child: ChildProcess, input: string): Promise<string> {
  const outcome = new Promise<string>((resolve, reject) => {
    const answer: Buffer[] = [];
    let size = 0;
    let complaint = "";
    child.stdout?.on("data", (piece: Buffer) => {
      size += piece.length;
      if (size <= MAX_OUTPUT_BYTES) answer.push(piece);
      else reject(new PicoletError("resource_exhausted", `it wrote more than ${MAX_OUTPUT_BYTES} bytes`));
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      complaint = (complaint + text).slice(0, MAX_COMPLAINT_LENGTH);
    });
    child.on("error", (cause) => reject(new PicoletError("failed", "cannot start it", { cause })));
    child.on("close", (code, by) => {
      if (code === 0) return resolve(Buffer.concat(answer).toString("utf8"));
      const how = by === null ? `exit status ${code}` : `signal: ${by}`;
      reject(new PicoletError("failed", [how, complaint.trim()].filter((each) => each !== "").join(": ")));
    });
  });
  outcome.catch(ignore("the race with the deadline may be over before it ends"));
  child.stdin?.on(
    "error",
    ignore("a program that does not read its input breaks the pipe; its exit is the better error"),
  );
  child.stdin?.end(input);
  return outcome;
}

async function ending(clock: Clock, signal: AbortSignal): Promise<never> {
  await clock.sleep(TIME_LIMIT, signal);
  throw new PicoletError("deadline_exceeded", `it did not end within ${TIME_LIMIT / 1000} s`);
}

function endGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    ignore("the process group has ended");
  }
}
