import { GLOBAL_FLAGS } from "./commands.ts";
import type { Command } from "./context/command.ts";
import { type Arguments, canonical, didYouMean, type Flag } from "./context/command-line.ts";
import type { Context } from "./context/context.ts";
import { EXIT_HEALTHY, usageError } from "./context/exit-codes.ts";

/** `edgectl help [COMMAND]`. */
export async function runHelp(context: Context, input: Arguments, commands: readonly Command[]): Promise<number> {
  await context.terminal.write(helpText(input.positionals, commands));
  return EXIT_HEALTHY;
}

/** All of it fits 80 columns as it is written. @throws a usage error for a command that there is not */
export function helpText(words: readonly string[], commands: readonly Command[]): string {
  if (words.length === 0) return overview(commands);
  const named = canonical(words, commands);
  const found = commands.filter((each) => named.every((word, index) => each.words[index] === word));
  const names = commands.map((each) => each.words.join(" "));
  if (found.length === 0) {
    const word = words.join(" ");
    throw usageError(`there is no command "${word}"${didYouMean(word, names, "")}`);
  }
  return found.map(commandHelp).join("\n");
}

function overview(commands: readonly Command[]): string {
  const lines = commands.map((each) => `  ${each.words.join(" ").padEnd(14)}${each.summary}`);
  return `edgectl - what the picolet agent of this board does

Usage: edgectl COMMAND [flags]

${lines.join("\n")}

Everywhere:
${flagLines(GLOBAL_FLAGS)}

Exit codes: 0 all is well, 1 it is not, or the command failed, 2 no agent
answers, 64 wrong usage. "edgectl help COMMAND" tells more.
`;
}

function commandHelp(command: Command): string {
  const usage = ["edgectl", ...command.words, command.operands, command.flags.length > 0 ? "[flags]" : ""];
  const parts = [
    `${usage.filter((each) => each !== "").join(" ")}\n  ${command.summary}\n`,
    command.details === "" ? "" : `${command.details}\n`,
    command.flags.length === 0 ? "" : `Flags:\n${flagLines(command.flags)}\n`,
    `Examples:\n${command.examples.map(([line, does]) => `  ${line}\n      ${does}`).join("\n")}\n`,
  ];
  return parts.filter((each) => each !== "").join("\n");
}

const flagLines = (flags: readonly Flag[]): string =>
  flags
    .map(({ name, short, value, help }) => {
      const label = `${short === undefined ? "    " : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`;
      return `  ${label.padEnd(28)} ${help}`;
    })
    .join("\n");
