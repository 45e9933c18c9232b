/**
 * Reads the commands and files that a document shows. Pure.
 *
 * - A block marked `sh` has one command a line. A block marked `console` has commands after `$ `, each followed by its
 *   output. In `docs/edgectl.md` each example of a command counts too.
 * - `<!-- file: PATH -->` before a block: the reader writes the block to PATH, or adds it there with `<!-- added to:
 *   PATH -->`.
 * - `<!-- not run: REASON -->` before a block: the commands of the block cannot be run by a test.
 */

export interface DocumentedCommand {
  readonly kind: "command";
  readonly line: number;
  readonly text: string;
  /** Lines of output that the document shows; none: the document shows no output. */
  readonly expected: readonly string[];
  /** Why a test cannot run it; undefined: a test runs it. */
  readonly notRun: string | undefined;
}

export interface DocumentedFile {
  readonly kind: "file";
  readonly line: number;
  readonly path: string;
  readonly text: string;
  /** Added to what the file has, instead of replacing it. */
  readonly isAdded: boolean;
}

export type DocumentedStep = DocumentedCommand | DocumentedFile;

export interface DocumentedBlock {
  readonly line: number;
  /** After the three backticks; "" where nothing is. */
  readonly language: string;
  readonly lines: readonly string[];
  /** Name and text of the comment on the line before the block. */
  readonly mark: readonly [name: string, text: string] | undefined;
}

const FENCE = /^ *```(\S*)/;
/** In a list a block and its mark are indented. */
const MARK = /^ *<!-- (file|added to|not run):(.*)-->$/;
/** An example of the generated reference: `- \`edgectl status\`: for people`. */
const EXAMPLE = /^- `((?:edgectl|source) [^`]*)`: /;

export function blocksOf(text: string): readonly DocumentedBlock[] {
  const blocks: DocumentedBlock[] = [];
  const lines = text.split("\n");
  for (let index = 0; index < lines.length; index += 1) {
    const [, language] = FENCE.exec(lines[index] ?? "") ?? [];
    if (language === undefined) continue;
    const length = lines.slice(index + 1).findIndex((line) => FENCE.test(line));
    const [, name, reason = ""] = MARK.exec(lines[index - 1] ?? "") ?? [];
    const mark = name === undefined ? undefined : ([name, reason.trim()] as const);
    blocks.push({ line: index + 1, language, lines: lines.slice(index + 1, index + 1 + length), mark });
    index += length + 1;
  }
  return blocks;
}

/** In the order of the document. */
export function stepsOf(text: string): readonly DocumentedStep[] {
  const examples = text.split("\n").flatMap((line, index) => {
    const [, example] = EXAMPLE.exec(line) ?? [];
    return example === undefined ? [] : [commandOf(index + 1, example, undefined)];
  });
  return [...blocksOf(text).flatMap(stepsOfBlock), ...examples].toSorted((a, b) => a.line - b.line);
}

const commandOf = (
  line: number,
  text: string,
  notRun: string | undefined,
): DocumentedCommand & { expected: string[] } => ({
  kind: "command",
  line,
  text,
  expected: [],
  notRun,
});

function stepsOfBlock({ line, language, lines, mark }: DocumentedBlock): readonly DocumentedStep[] {
  const [name, text = ""] = mark ?? [];
  if (name === "file" || name === "added to")
    return [{ kind: "file", line, path: text, text: `${lines.join("\n")}\n`, isAdded: name === "added to" }];
  const commands: ReturnType<typeof commandOf>[] = [];
  for (const [index, each] of lines.entries()) {
    const shown = language === "console" ? /^\$ (.*)/.exec(each)?.[1] : each;
    if (language === "sh" ? each !== "" : language === "console" && shown !== undefined)
      commands.push(commandOf(line + 1 + index, shown ?? "", name === undefined ? undefined : text));
    else if (language === "console") commands.at(-1)?.expected.push(each);
  }
  return commands;
}

/**
 * Compares loosely: numbers, ages, units, hashes and what `…` or `...` leaves out may differ, and so may line breaks
 * and widths of columns. Names of fields, headings and sentences must be as shown, with nothing between them that is
 * not shown. A line of `…` or `...` alone leaves out lines.
 *
 * @param isPart the output may have more before and after what is shown
 * @returns the first line that the output does not have; undefined when it has all
 */
export function missingLine(expected: readonly string[], output: string, isPart = false): string | undefined {
  const text = output.replaceAll(/\s+/g, " ").trim();
  const lines = expected.map((line) => line.trim()).filter((line) => line !== "");
  if (lines.length === 0) return undefined;
  let pattern = isPart ? "" : "^";
  for (const line of lines) {
    pattern += isGap(line) ? ".*?" : ` ?${line.split(/\s+/).map(patternOf).join(" ")}(?= |$)`;
    if (!new RegExp(pattern).test(text)) return line;
  }
  return isPart || new RegExp(`${pattern}$`).test(text) ? undefined : "the end of the output";
}

const isGap = (line: string): boolean => line === "..." || line === "…";

function patternOf(word: string): string {
  if (/^(?:\d+[smhd])+[,:]?$/.test(word)) return "(?:\\d+[smhd])+[,:]?";
  // "12.1 of 40.6 MiB" can be "0 B of 1.9 MiB".
  if (/^\d+(?:\.\d+)?$/.test(word)) return "\\d+(?:\\.\\d+)?(?: (?:[KMG]i)?B)?";
  if (/^[KMG]iB,?$|^B,?$/.test(word)) return "(?:[KMG]i)?B,?";
  if (/^(?=.*\d)[0-9a-f]{12}$/.test(word)) return "[0-9a-f]{12}";
  return word
    .replaceAll(/[\\^$*+?.()|[\]{}]/g, "\\$&")
    .replaceAll(/\\\.\\\.\\\.|…/g, "\\S*")
    .replaceAll(/\d+(?:\\\.\d+)*/g, "\\d+(?:\\.\\d+)*");
}
