import { describeError } from "@picolet/protocol/errors.ts";
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { DEFAULT_SOCKET_PATH } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Millis, seconds } from "@picolet/protocol/ports.ts";
import { COMMANDS, GLOBAL_FLAGS } from "./commands.ts";
import { AgentClient } from "./context/agent-client.ts";
import type { Command } from "./context/command.ts";
import { type Arguments, parseCommandLine } from "./context/command-line.ts";
import type { Terminal } from "./context/context.ts";
import { EXIT_HEALTHY, EXIT_USAGE, exitCodeOf, usageError } from "./context/exit-codes.ts";

/** A board under load answers within a second or two. */
const DEFAULT_TIMEOUT = seconds(10);
/** Nobody waits longer for the Tab key. */
const COMPLETION_TIMEOUT = seconds(2);

export interface EdgectlComponents {
  readonly terminal: Terminal;
  readonly clock: Pick<Clock, "wall" | "sleep">;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly workingDirectory: string;
  readonly input: () => AsyncIterable<Buffer>;
}

/** Runs one command line, without the program's name. @returns the exit code; everything wrong is said by then. */
export async function runEdgectl(words: readonly string[], around: EdgectlComponents): Promise<number> {
  try {
    if (words[0] === "__complete") return await complete(words.slice(1), around);
    const line = parseCommandLine(words, COMMANDS, GLOBAL_FLAGS);
    if (line.command === undefined || line.arguments.flag("help")) {
      const { helpText } = await import("./help-command.ts");
      await around.terminal.write(helpText(line.command?.words ?? [line.group ?? []].flat(), COMMANDS));
      return EXIT_HEALTHY;
    }
    checkOperands(line.command, line.arguments);
    return await line.command.run(
      {
        client: new AgentClient({
          socketPath: socketPath(line.arguments.text("socket"), around),
          timeout: timeout(line.arguments.text("timeout")),
        }),
        terminal: around.terminal,
        now: () => around.clock.wall().getTime(),
        sleep: (duration, signal) => around.clock.sleep(duration, signal),
        workingDirectory: around.workingDirectory,
        input: around.input,
      },
      line.arguments,
    );
  } catch (error) {
    const code = exitCodeOf(error);
    const { printableLine } = await import("./context/text-layout.ts");
    const lines = describeError(error).split("\n").map(printableLine);
    around.terminal.writeError(`edgectl: ${lines.join("\n")}\n`);
    if (code === EXIT_USAGE)
      around.terminal.writeError("edgectl help lists the commands; edgectl help COMMAND tells more.\n");
    return code;
  }
}

const socketPath = (flag: string | undefined, { environment }: EdgectlComponents): string =>
  flag || environment.PICOLET_SOCKET || DEFAULT_SOCKET_PATH;

/** A bare number is seconds. */
function timeout(flag: string | undefined): Millis {
  if (flag === undefined) return DEFAULT_TIMEOUT;
  const duration = parseDuration(/^\d+$/.test(flag) ? `${flag}s` : flag);
  if (duration === undefined || duration <= 0) throw usageError(`--timeout takes a duration as 5s, not "${flag}"`);
  return duration;
}

function checkOperands(command: Command, { positionals }: Arguments): void {
  const name = command.words.join(" ");
  const [extra] = positionals.slice(command.atMost);
  if (extra !== undefined) throw usageError(`${name} takes no "${extra}"`);
  if (positionals.length < command.atLeast) throw usageError(`${name} needs ${command.operands}`);
}

async function complete(words: readonly string[], around: EdgectlComponents): Promise<number> {
  const { completions } = await import("./completion-command.ts");
  const named = words[words.indexOf("--socket") + 1];
  const flag = words.includes("--socket") ? named : undefined;
  const client = new AgentClient({ socketPath: socketPath(flag, around), timeout: COMPLETION_TIMEOUT });
  const candidates = await completions(words, COMMANDS, client);
  await around.terminal.write(candidates.map((each) => `${each}\n`).join(""));
  return EXIT_HEALTHY;
}
