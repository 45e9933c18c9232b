/** docs/edgectl.md, or the like of another program. Pure. */
import { type CommandText, type ExitCode, type Program, usageOf } from "@picolet/protocol/command-line/program.ts";
import { code, flagTable, list, paragraph, prose, table } from "./markdown.ts";

export function commandReference(program: Program): string {
  const { name, description, commands, globals, exitCodes, environment } = program;
  const summaries = commands.map(({ words, summary }) => {
    const title = words.join(" ");
    return [`[\`${title}\`](#${anchorOf(`${name} ${title}`)})`, prose(summary)];
  });
  return [
    `# ${name}\n`,
    `<!-- Made by \`npm run docs\` of the program's table of commands: do not edit. -->\n`,
    `${paragraph(description)}\n`,
    `${table(["command", "what it does"], summaries)}\n`,
    `Flags of every command:\n\n${flagTable(globals)}\n`,
    `Exit codes: ${codes(exitCodes)}.\n`,
    `${table(
      ["variable", "meaning"],
      environment.map(([variable, meaning]) => [code(variable), prose(meaning)]),
    )}\n`,
    ...commands.map((each) => chapterOf(each, program)),
  ].join("\n");
}

/** As GitHub and others make it of a heading. */
const anchorOf = (heading: string): string => heading.toLowerCase().replaceAll(" ", "-");

const codes = (exitCodes: readonly ExitCode[]): string =>
  exitCodes.map(([number, means]) => `${number} ${means}`).join(", ");

function chapterOf(command: CommandText, program: Program): string {
  const { words, summary, details, flags, examples, exitCodes = [], alias } = command;
  const usage = `${usageOf(program, command)}${flags.length > 0 ? " [flags]" : ""}`;
  return [
    `## ${program.name} ${words.join(" ")}\n`,
    `\`\`\`text\n${usage}\n\`\`\`\n`,
    `${capitalized(summary)}.\n`,
    details === "" ? "" : `${prose(details)}\n`,
    alias === undefined ? "" : `\`${alias}\` is short for \`${words[0]}\`.\n`,
    flags.length === 0 ? "" : `${flagTable(flags)}\n`,
    exitCodes.length === 0 ? "" : `Exit codes: ${codes(exitCodes)}.\n`,
    examples.length === 0 ? "" : `${list(examples.map(([line, does]) => `\`${line}\`: ${does}`))}\n`,
  ]
    .filter((each) => each !== "")
    .join("\n");
}

const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
