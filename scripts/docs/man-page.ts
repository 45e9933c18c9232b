/** A man page of a program's table, in the macros of man(7). Pure. */
import { flagText } from "@picolet/protocol/command-line/help-text.ts";
import { type CommandText, type Flag, type Program, usageOf } from "@picolet/protocol/command-line/program.ts";

interface ManPageInit {
  readonly version: string;
  /** Names and sections of related pages. */
  readonly others: readonly Pick<Program, "name" | "section">[];
}

export function manPage(program: Program, { version, others }: ManPageInit): string {
  const { name, section, summary, description, commands, globals, defaultWords, exitCodes, environment, files } =
    program;
  const named = commands.filter(({ words }) => words.length > 0);
  const main = commands.find(({ words }) => words.join(" ") === defaultWords?.join(" "));
  const lines = [
    `.TH ${name.toUpperCase()} ${section} "" "picolet ${version}"`,
    // Neither hyphenated nor stretched: a path that is broken cannot be copied.
    ".nh",
    ".ad l",
    ".SH NAME",
    `${escaped(name)} \\- ${escaped(summary)}`,
    ".SH SYNOPSIS",
    `.B ${escaped(name)}`,
    synopsis(named, main),
    ".SH DESCRIPTION",
    escaped(description),
    ...(main === undefined
      ? []
      : [".SH OPTIONS", ...(named.length === 0 ? [] : optionsHead(main)), ...optionsOf(main)]),
    ...(named.length === 0
      ? []
      : [".SH COMMANDS", ...named.flatMap((each) => commandLines(each, program, each === main))]),
    ".SH COMMON OPTIONS",
    ...flags(globals),
    ".SH EXIT STATUS",
    ...exitCodes.flatMap(([code, means]) => tagged(String(code), means)),
    ".SH ENVIRONMENT",
    ...environment.flatMap(([variable, means]) => tagged(variable, means)),
    ".SH FILES",
    ...files.flatMap(([path, means]) => tagged(path, means)),
    ...program.chapters.flatMap(({ title, paragraphs }) => [
      `.SH ${escaped(title.toUpperCase())}`,
      ...paragraphs.flatMap((each, index) => (index === 0 ? [escaped(each)] : [".PP", escaped(each)])),
    ]),
    ".SH SEE ALSO",
    others.map((each) => `.BR ${escaped(each.name)} (${each.section})`).join(" ,\n"),
  ];
  return `${lines.join("\n")}\n`;
}

function synopsis(named: readonly CommandText[], main: CommandText | undefined): string {
  if (named.length === 0) return "[\\fIflags\\fR]";
  return `${main === undefined ? "\\fICOMMAND\\fR" : "[\\fICOMMAND\\fR]"} [\\fIflags\\fR]`;
}

const optionsHead = ({ words }: CommandText): string[] => [
  `Of \\fB${escaped(words.join(" "))}\\fR, which is meant without a command:`,
];

/** @param isMain its flags are listed already */
function commandLines(command: CommandText, program: Program, isMain: boolean): string[] {
  const { summary, details, examples, exitCodes = [] } = command;
  return [
    `.SS ${quoted(usageOf(program, command))}`,
    `${escaped(capitalized(summary))}.`,
    ...(details === "" ? [] : [".PP", escaped(details)]),
    ...(isMain ? [] : flags(command.flags)),
    ...(exitCodes.length === 0
      ? []
      : [".PP", "Exit status:", ...exitCodes.flatMap(([code, means]) => tagged(String(code), means))]),
    ...examples.flatMap(([line, does]) => [
      ".PP",
      `${escaped(capitalized(does))}:`,
      ".PP",
      ".EX",
      `  ${escaped(line)}`,
      ".EE",
    ]),
  ];
}

const flags = (all: readonly Flag[]): string[] => all.flatMap((flag) => taggedLine(labelOf(flag), flagText(flag)));

/** Flags of a group are in a section of their own. */
function optionsOf({ flags: all }: CommandText): string[] {
  const byGroup = Map.groupBy(all, ({ group }) => group);
  return [...byGroup].flatMap(([group, members]) => [
    ...(group === undefined ? [] : [`.SS ${quoted(group)}`]),
    ...flags(members),
  ]);
}

function labelOf({ name, short, value, implied }: Flag): string {
  const long = `\\fB\\-\\-${escaped(name)}\\fR`;
  const both = short === undefined ? long : `\\fB\\-${short}\\fR, ${long}`;
  if (value === undefined) return both;
  return implied === undefined ? `${both} \\fI${escaped(value)}\\fR` : `${both}[=\\fI${escaped(value)}\\fR]`;
}

const tagged = (label: string, text: string): string[] => taggedLine(`\\fB${escaped(label)}\\fR`, text);
const taggedLine = (label: string, text: string): string[] => [".TP", label, escaped(text)];

const quoted = (text: string): string => `"${escaped(text).replaceAll('"', "\\(dq")}"`;

/** Every hyphen is a minus: what is shown can be copied. A line may begin with neither a dot nor a quote. */
function escaped(text: string): string {
  const plain = text.replaceAll("\\", "\\e").replaceAll("-", "\\-");
  return plain.replaceAll(/^(?=[.'])/gm, "\\&");
}

const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
