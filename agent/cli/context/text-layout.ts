/** Text for people: at most so wide, ASCII only, free of control characters. Pure. */
import { humanBytes, humanDuration } from "@picolet/protocol/human-figures.ts";

export { humanBytes, humanDuration };

/** The width of a serial console, and of an unknown terminal. */
export const DEFAULT_WIDTH = 80;

const GAP = "  ";
/**
 * With less room than this a text that does not fit its column goes below its row, where it takes fewer lines, and
 * fewer spaces over a slow line.
 */
const MIN_WRAPPED_WIDTH = 50;

const LOOKALIKES: ReadonlyMap<string, string> = new Map([
  ["\u2018", "'"],
  ["\u2019", "'"],
  ["\u201c", '"'],
  ["\u201d", '"'],
  ["\u2013", "-"],
  ["\u2014", "-"],
  ["\u2026", "..."],
  ["\u00a0", " "],
  ["\u00b5", "u"],
  ["\u03bc", "u"],
]);

/** Words with one space between them; unambiguous, so that no text makes it slow. */
const PRINTABLE = /^[!-~]*(?: [!-~]+)*$/;

/** One line that no terminal can mistake for a command: line ends become spaces, what is not ASCII "?" or its like. */
export function printableLine(text: string): string {
  // Nearly always: the other expressions would take longer to compile than all else here to run.
  if (PRINTABLE.test(text)) return text;
  return text.replace(/\s+/g, " ").replace(/[^\x20-\x7e]/gu, (character) => LOOKALIKES.get(character) ?? "?");
}

/** Less and less indent for a word that does not fit. */
const SHALLOW_INDENTS = [4, 2, 0];

/**
 * `text` in lines of at most `width`, all but the first `indent` deep. Breaks at spaces; a word too long for that gets
 * a line of its own with less indent, and is broken only when it is longer than a line.
 * @param start the column where the first line starts
 */
export function wrap(text: string, width: number, indent: number, start = 0): string {
  const clean = printableLine(text);
  if (clean.length <= width - start) return clean.trimEnd();
  const lines: string[] = [];
  let line = "";
  let room = width - start;
  const nextLine = (depth: number): void => {
    lines.push(line);
    line = " ".repeat(depth);
    room = width;
  };
  for (const word of clean.split(" ")) {
    if (word === "") continue;
    const joint = line.trim() === "" ? "" : " ";
    if (line.length + joint.length + word.length <= room) {
      line += joint + word;
      continue;
    }
    const depth = [indent, ...SHALLOW_INDENTS].find((each) => each <= indent && each + word.length <= width);
    if (depth !== undefined) {
      nextLine(depth);
      line += word;
      continue;
    }
    let rest = word;
    if (joint !== "") nextLine(indent);
    while (line.length + rest.length > room) {
      const cut = Math.max(1, room - line.length);
      line += rest.slice(0, cut);
      rest = rest.slice(cut);
      nextLine(Math.min(indent, width - 1));
    }
    line += rest;
  }
  lines.push(line);
  return lines.join("\n");
}

export interface TableInit {
  readonly headers: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** `undefined`: as wide as it gets. */
  readonly width: number | undefined;
  readonly withHeaders: boolean;
  /** The last column is text, which is wrapped. */
  readonly textLast?: boolean;
  /** Columns are at least so wide; for rows that are still to come. */
  readonly minWidths?: readonly number[];
  /** How many columns at the left name a thing: in a row that is too wide they get a line of their own, never cut. */
  readonly nameColumns?: number;
  /** Changes how a cell looks, not how wide it is. */
  readonly paint?: (cell: string, column: number, row: readonly string[]) => string;
}

/** Lines, each ended. */
export function renderTable(init: TableInit): string {
  const rows = init.rows.map((row) => row.map(printableLine));
  const shown = init.withHeaders ? [[...init.headers], ...rows] : rows;
  const widths = columnWidths(init, shown);
  return shown.map((row) => renderRow(init, row, widths, row === shown[0] && init.withHeaders)).join("");
}

function columnWidths(init: TableInit, rows: readonly (readonly string[])[]): number[] {
  const widths = init.headers.map((_, column) =>
    Math.max(init.minWidths?.[column] ?? 0, ...rows.map((row) => row[column]?.length ?? 0)),
  );
  const lastName = (init.nameColumns ?? 0) - 1;
  if (init.width === undefined || lastName < 0 || init.textLast === true) return widths;
  const others = widths.reduce((sum, each, column) => sum + (column === lastName ? 0 : each + GAP.length), 0);
  const room = Math.max(0, init.width - others);
  // Names that do not fit get a line of their own and do not make the column wide.
  const fitting = rows.map((row) => row[lastName]?.length ?? 0).filter((length) => length <= room);
  widths[lastName] = Math.max(0, ...fitting, Math.min(room, init.minWidths?.[lastName] ?? 0));
  return widths;
}

function renderRow(init: TableInit, row: readonly string[], widths: readonly number[], isHeader: boolean): string {
  const textColumn = init.textLast === true ? widths.length - 1 : undefined;
  const names = init.nameColumns ?? 0;
  let line = "";
  let at = 0;
  let first = 0;
  if (init.width !== undefined && names > 0 && (row[names - 1]?.length ?? 0) > (widths[names - 1] ?? 0)) {
    at = widths.slice(0, names).reduce((sum, each) => sum + each + GAP.length, 0);
    line = `${wrap(row.slice(0, names).join(" "), init.width, 2)}\n${" ".repeat(at)}`;
    first = names;
  }
  for (let column = first; column < (textColumn ?? widths.length); column += 1) {
    const cell = row[column] ?? "";
    const padding = " ".repeat(Math.max(0, (widths[column] ?? 0) - cell.length) + GAP.length);
    line += (isHeader || init.paint === undefined ? cell : init.paint(cell, column, row)) + padding;
    at += cell.length + padding.length;
  }
  if (textColumn !== undefined) {
    const text = row[textColumn] ?? "";
    if (init.width === undefined || text.length <= init.width - at) line += text;
    else if (init.width - at >= MIN_WRAPPED_WIDTH) line += wrap(text, init.width, at, at);
    else line = `${line.trimEnd()}\n    ${wrap(text, init.width, 4, 4)}`;
  }
  return `${line.trimEnd()}\n`;
}

/** Formats the time since an RFC 3339 time; `<unknown>` without one, as kubectl does. */
export function age(time: string | null | undefined, nowMs: number): string {
  const then = Date.parse(time ?? "");
  return Number.isNaN(then) ? "<unknown>" : humanDuration(nowMs - then);
}

/** `611 of 925 MiB`. */
export function formatShare(part: number, whole: number): string {
  const [value, unit] = humanBytes(part).split(" ");
  const all = humanBytes(whole);
  return all.endsWith(` ${unit}`) ? `${value} of ${all}` : `${value} ${unit} of ${all}`;
}
