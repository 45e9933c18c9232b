/** Programs of the machine that an update runs: rauc, dpkg. */
import { spawn } from "node:child_process";
import { onAbort } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

export interface CommandResult {
  readonly exitCode: number;
  readonly stdout: string;
  /** Its last lines name the problem. */
  readonly stderr: string;
}

/** @throws `unavailable` when there is no such program, `cancelled` */
export type RunCommand = (command: readonly string[], signal: AbortSignal) => Promise<CommandResult>;

/** Bounds each output of one program; `rauc info` of a bundle has some KiB. */
const MAX_OUTPUT = 256 * KIBIBYTE;
/** The agent passes no environment on. */
const ENVIRONMENT = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C", DEBIAN_FRONTEND: "noninteractive" };
/** Bounds what of an output a message shows. */
const MAX_SHOWN = 300;

export const runCommand: RunCommand = (command, signal) =>
  new Promise((resolve, reject) => {
    const [program = "", ...args] = command;
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], env: ENVIRONMENT, cwd: "/" });
    const stop = onAbort(signal, () => child.kill("SIGKILL"));
    const [stdout, stderr] = [tailOf(child.stdout), tailOf(child.stderr)];
    child.once("error", (cause) => {
      stop[Symbol.dispose]();
      reject(new PicoletError("unavailable", `cannot run ${program}`, { cause }));
    });
    child.once("close", (code) => {
      stop[Symbol.dispose]();
      if (signal.aborted) reject(new PicoletError("cancelled", `${program} was stopped`));
      else resolve({ exitCode: code ?? -1, stdout: stdout(), stderr: stderr() });
    });
  });

function tailOf(stream: NodeJS.ReadableStream): () => string {
  let text = "";
  stream.setEncoding("utf8").on("data", (part: string) => {
    text = (text + part).slice(-MAX_OUTPUT);
  });
  return () => text;
}

/** The last lines that a program printed, as one, printable. */
export function complaintOf({ exitCode, stdout, stderr }: CommandResult): string {
  const lines = (stderr.trim() === "" ? stdout : stderr)
    .split("\n")
    .map((line) => line.replace(/[^\x20-\x7e]+/g, " ").trim())
    .filter((line) => line !== "");
  const text = lines.slice(-3).join("; ");
  return text === "" ? `exit code ${exitCode}` : text.slice(-MAX_SHOWN);
}
