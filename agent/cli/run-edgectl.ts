import { type Arguments, parseCommandLine } from "@picolet/protocol/command-line/command-line.ts";
import { usageReport } from "@picolet/protocol/command-line/usage-error.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { DEFAULT_SOCKET_PATH } from "@picolet/protocol/local-api/status.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import { EDGECTL, TIMEOUT } from "./commands.ts";
import type { Candidate } from "./completion-command.ts";
import { checkAccess, isRestricted } from "./context/access.ts";
import { AgentClient } from "./context/agent-client.ts";
import type { EdgectlProgram } from "./context/command.ts";
import type { Context, Terminal } from "./context/context.ts";
import { EXIT_HEALTHY, EXIT_USAGE, exitCodeOf } from "./context/exit-codes.ts";

/** Bounds the time of the Tab key. */
const COMPLETION_TIMEOUT = seconds(2);
/** The command that completion scripts call, with the words up to the cursor. */
const COMPLETE = "__complete";
/** The same, with each candidate's description after a tab. */
const COMPLETE_DESCRIBED = "__complete-described";

export interface EdgectlComponents {
  readonly terminal: Terminal;
  readonly clock: Pick<Clock, "wall" | "sleep">;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly workingDirectory: string;
  readonly readBeside: Context["readBeside"];
  readonly input: Context["input"];
  readonly keyboard: Context["keyboard"];
}

/** Runs one command line, without the program's name. @returns the exit code; everything wrong is said by then. */
export async function runEdgectl(
  words: readonly string[],
  around: EdgectlComponents,
  program: EdgectlProgram = EDGECTL,
): Promise<number> {
  try {
    const [first, ...rest] = words;
    if (rest.length === 0 && first === "--version") return await runEdgectl(["version", "--client"], around, program);
    if (first === COMPLETE || first === COMPLETE_DESCRIBED)
      return await complete(rest, around, { program, isDescribed: first === COMPLETE_DESCRIBED });
    const line = parseCommandLine(words, program);
    if (line.command === undefined || line.arguments.flag("help")) {
      const { helpText } = await import("@picolet/protocol/command-line/help-text.ts");
      await around.terminal.write(helpText(line.command?.words ?? [line.group ?? []].flat(), program));
      return EXIT_HEALTHY;
    }
    checkAccess(line.command, line.arguments, around.environment);
    return await line.command.run(contextOf(line.arguments, around, program), line.arguments);
  } catch (error) {
    const code = exitCodeOf(error);
    const { printableLine } = await import("./context/text-layout.ts");
    const hint = "edgectl help lists the commands; edgectl help COMMAND describes one.";
    const report = code === EXIT_USAGE ? usageReport("edgectl", error, hint) : `edgectl: ${describeError(error)}\n`;
    around.terminal.writeError(report.split("\n").map(printableLine).join("\n"));
    return code;
  }
}

function contextOf(input: Arguments, around: EdgectlComponents, program: EdgectlProgram): Context {
  return {
    program,
    client: new AgentClient({
      socketPath: socketPath(input.text("socket"), around),
      timeout: input.value(TIMEOUT),
      isRestricted: isRestricted(around.environment),
    }),
    terminal: around.terminal,
    now: () => around.clock.wall().getTime(),
    sleep: (duration, signal) => around.clock.sleep(duration, signal),
    workingDirectory: around.workingDirectory,
    readBeside: around.readBeside,
    input: around.input,
    keyboard: around.keyboard,
  };
}

const socketPath = (flag: string | undefined, { environment }: EdgectlComponents): string =>
  flag || environment.PICOLET_SOCKET || DEFAULT_SOCKET_PATH;

async function complete(
  words: readonly string[],
  around: EdgectlComponents,
  { program, isDescribed }: { readonly program: EdgectlProgram; readonly isDescribed: boolean },
): Promise<number> {
  const { completions } = await import("./completion-command.ts");
  const named = words[words.indexOf("--socket") + 1];
  const flag = words.includes("--socket") ? named : undefined;
  const client = new AgentClient({ socketPath: socketPath(flag, around), timeout: COMPLETION_TIMEOUT });
  const candidates = await completions(words, program, { client, readBeside: around.readBeside });
  const line = ({ word, does }: Candidate): string =>
    isDescribed && does !== undefined ? `${word}\t${does}\n` : `${word}\n`;
  await around.terminal.write(candidates.map(line).join(""));
  return EXIT_HEALTHY;
}
