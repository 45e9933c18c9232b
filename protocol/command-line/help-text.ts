/** Help texts of a program, from its table. At most 80 columns wide. Pure. */
import { canonical, didYouMean } from "./command-line.ts";
import { type CommandText, type ExitCode, type Flag, flagLabel, type Program, usageOf } from "./program.ts";
import { usageError } from "./usage-error.ts";

const WIDTH = 80;
/** Where the texts of flags begin. */
const FLAG_COLUMN = 31;

/**
 * @param words of a command or a group; none for the overview
 * @throws a usage error for a command that there is not
 */
export function helpText(words: readonly string[], program: Program): string {
  const { commands } = program;
  if (words.length === 0) return overview(program);
  const named = canonical(words, commands);
  const found = commands.filter((each) => named.every((word, index) => each.words[index] === word));
  if (found.length === 0) {
    const word = words.join(" ");
    const names = commands.map((each) => each.words.join(" "));
    throw usageError(`there is no command "${word}"${didYouMean(word, names, "")}`);
  }
  return found.map((each) => commandHelp(each, program)).join("\n");
}

/** The flags of one group, in the order of the table. */
export function groupHelp(group: string, { commands, globals }: Program): string {
  const flags = [...commands.flatMap((command) => command.flags), ...globals].filter((flag) => flag.group === group);
  return flagBlock(group, flags);
}

/** The flags that a help lists; those of a group have a list of their own. */
const ungrouped = (flags: readonly Flag[]): readonly Flag[] => flags.filter(({ group }) => group === undefined);

function overview(program: Program): string {
  const { name, summary, globals, chapters } = program;
  const parts = [
    // `npm run bench --` is how a script is called, not its name.
    `${name.replace(/ --$/, "")} - ${summary}\n`,
    ...(isOneCommand(program) ? useOfOne(program) : useOfSeveral(program)),
    `Everywhere:\n${flagLines(globals)}\n`,
    ...chapters.map(({ title, paragraphs }) => `${title}:\n${paragraphs.map(indented).join("\n")}\n`),
    exitCodesOf(program),
  ];
  return parts.filter((each) => each !== "").join("\n");
}

/** @returns whether the program has one command, which no word names */
const isOneCommand = ({ commands: [first] }: Program): boolean => first?.words.length === 0;

function useOfOne(program: Program): string[] {
  return program.commands.flatMap((command) => [
    `Usage: ${usageOf(program, command)} [flags]\n`,
    flagBlock("Flags", ungrouped(command.flags)),
    exampleBlock(command),
  ]);
}

function useOfSeveral({ name, commands, defaultWords }: Program): string[] {
  const implied = commands.find((each) => each.words.join(" ") === defaultWords?.join(" "));
  const column = Math.max(...commands.map(({ words }) => words.join(" ").length)) + 1;
  const lines = commands.map(({ words, summary }) => `  ${words.join(" ").padEnd(column)}${summary}`);
  return [
    `Usage: ${name} ${implied === undefined ? "COMMAND" : "[COMMAND]"} [flags]\n`,
    `${lines.join("\n")}\n`,
    flagBlock(`Flags of ${implied?.words.join(" ")}, which is meant without a command`, implied?.flags ?? []),
  ];
}

function exitCodesOf(program: Program): string {
  const more = isOneCommand(program) ? "" : ` "${program.name} help COMMAND" describes one.`;
  return `${filled(`Exit codes: ${codes(program.exitCodes)}.${more}`)}\n`;
}

const codes = (exitCodes: readonly ExitCode[]): string =>
  exitCodes.map(([code, means]) => `${code} ${means}`).join(", ");

function commandHelp(command: CommandText, program: Program): string {
  const { summary, details, exitCodes = [] } = command;
  const flags = ungrouped(command.flags);
  const parts = [
    `${usageOf(program, command)}${flags.length > 0 ? " [flags]" : ""}\n  ${summary}\n`,
    details === "" ? "" : `${details}\n`,
    flagBlock("Flags", flags),
    exampleBlock(command),
    exitCodes.length === 0 ? "" : `${filled(`Exit codes: ${codes(exitCodes)}.`)}\n`,
  ];
  return parts.filter((each) => each !== "").join("\n");
}

const flagBlock = (title: string, flags: readonly Flag[]): string =>
  flags.length === 0 ? "" : `${title}:\n${flagLines(flags)}\n`;

function exampleBlock({ examples }: CommandText): string {
  if (examples.length === 0) return "";
  return `Examples:\n${examples.map(([line, does]) => `  ${line}\n      ${does}`).join("\n")}\n`;
}

/** Describes a flag with its default, and says if it may be repeated. */
export function flagText(flag: Flag): string {
  const { help, repeats, default: byDefault } = flag;
  return `${help}${repeats ? "; may be repeated" : ""}${byDefault === undefined ? "" : ` (default ${byDefault})`}`;
}

const flagLines = (flags: readonly Flag[]): string => flags.map(flagLine).join("\n");

function flagLine(flag: Flag): string {
  const label = `  ${flagLabel(flag, "    ")}`;
  const margin = " ".repeat(FLAG_COLUMN);
  const [first = "", ...rest] = lines(flagText(flag), WIDTH - FLAG_COLUMN);
  const head = label.length < FLAG_COLUMN ? [label.padEnd(FLAG_COLUMN) + first] : [label, margin + first];
  return [...head, ...rest.map((each) => margin + each)].join("\n");
}

const filled = (text: string): string => lines(text, WIDTH).join("\n");
const indented = (text: string): string =>
  lines(text, WIDTH - 2)
    .map((each) => `  ${each}`)
    .join("\n");

/** Broken at spaces; a word that is longer has a line of its own. */
function lines(text: string, width: number): string[] {
  const made: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      made.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...made, line];
}
