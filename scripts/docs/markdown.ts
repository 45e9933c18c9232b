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
