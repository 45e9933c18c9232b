/** Pieces of Markdown that the generated references share. */
import { flagText } from "@picolet/protocol/command-line/help-text.ts";
import { type Flag, flagLabel } from "@picolet/protocol/command-line/program.ts";

export const code = (text: string): string => (text === "" ? "" : `\`${text}\``);

/** `|` and line ends would end a cell. */
const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("\n", " ");

export const table = (headers: readonly string[], rows: readonly (readonly string[])[]): string =>
  [headers, headers.map(() => "---"), ...rows].map((row) => `| ${row.map(cell).join(" | ")} |`).join("\n");

/** Outside of code, angle brackets would be HTML to a reader of Markdown and stars emphasis. */
export const prose = (text: string): string =>
  text.replaceAll(/(`[^`]*`)|([<*])/g, (_, inCode: string | undefined, mark: string) =>
    inCode === undefined ? `\\${mark}` : inCode,
  );

export const flagTable = (flags: readonly Flag[]): string =>
  table(
    ["flag", "meaning"],
    flags.map((flag) => [code(flagLabel(flag)), prose(flagText(flag))]),
  );

const COLUMNS = 120;

/** One paragraph or list item in lines of at most `columns`; further lines are indented by `indent`. */
export function paragraph(text: string, indent = "", columns = COLUMNS): string {
  const lines: string[] = [];
  for (const word of text.split(/\s+/)) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= columns) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(last === undefined ? word : `${indent}${word}`);
  }
  return lines.join("\n");
}

export const list = (items: readonly string[]): string => items.map((each) => paragraph(`- ${each}`, "  ")).join("\n");
