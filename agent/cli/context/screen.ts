import type { Terminal } from "./context.ts";

/** ECMA-48: the cursor goes up by lines, and to the line's beginning; the rest of the line, or all below, is erased. */
const up = (lines: number): string => (lines === 0 ? "\r" : `\x1b[${lines}F`);
const ERASE_LINE = "\x1b[K";
const ERASE_BELOW = "\x1b[J";

/**
 * Shows a text again and again. Where the terminal can move its cursor, only lines that changed are written again,
 * because a serial line carries 960 bytes a second; elsewhere the whole text is printed, and only when it has changed.
 */
export class Screen {
  readonly #terminal: Terminal;
  #shown: readonly string[] = [];
  #text = "";

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  /** @param text whole lines. Lines that the terminal has no room for are left out, with their number. */
  async show(text: string): Promise<void> {
    if (text === this.#text) return;
    const isFirst = this.#text === "";
    this.#text = text;
    if (!this.#terminal.movesCursor) {
      await this.#terminal.write(isFirst ? text : `\n${text}`);
      return;
    }
    const lines = this.#fitted(text.replace(/\n$/, "").split("\n"));
    const before = this.#shown;
    this.#shown = lines;
    let output = isFirst ? "" : up(before.length);
    let skipped = 0;
    for (const [at, line] of lines.entries()) {
      if (line === before[at]) {
        skipped += 1;
        continue;
      }
      output += `${"\n".repeat(skipped)}${line}${at < before.length ? ERASE_LINE : ""}\n`;
      skipped = 0;
    }
    output += "\n".repeat(skipped);
    await this.#terminal.write(lines.length < before.length ? output + ERASE_BELOW : output);
  }

  #fitted(lines: readonly string[]): readonly string[] {
    // The cursor stands below the last line.
    const room = (this.#terminal.rows ?? lines.length + 1) - 1;
    if (lines.length <= room) return lines;
    return [...lines.slice(0, room - 1), `... ${lines.length - room + 1} more lines`];
  }
}
