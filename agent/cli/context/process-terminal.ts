import { writeSync } from "node:fs";
import { isatty } from "node:tty";
import { ignore } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Terminal } from "./context.ts";

const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;

/** Terminals that show colours; a `vt100` on a serial line and `dumb` do not. */
const COLOUR_TERMINALS = /color|xterm|screen|tmux|linux|rxvt|konsole|alacritty|kitty|foot/;

/** Terminals that only print, as teletypes do. */
const IMMOBILE_TERMINALS = /^(?:dumb|unknown|network|dialup|emacs|teletype)$/;

/**
 * Standard output and error of this process. Written without Node's streams: they take longer to set up than edgectl
 * takes for all else. A write blocks, as it does in any small program, so nothing is read that cannot be shown.
 */
export class ProcessTerminal implements Terminal {
  readonly columns: number | undefined;
  readonly rows: number | undefined;
  readonly movesCursor: boolean;
  readonly colour: boolean;
  readonly interactive: boolean;
  /** Called when the reader of standard output has gone. */
  readonly #onClosed: () => never;

  constructor(init: {
    readonly environment: Readonly<Record<string, string | undefined>>;
    readonly onClosed: () => never;
  }) {
    const { TERM = "", NO_COLOR = "" } = init.environment;
    this.#onClosed = init.onClosed;
    // A serial console says 0 columns.
    this.columns = isatty(STDOUT) ? process.stdout.columns || 80 : undefined;
    this.rows = this.columns === undefined ? undefined : process.stdout.rows || undefined;
    this.movesCursor = this.columns !== undefined && TERM !== "" && !IMMOBILE_TERMINALS.test(TERM);
    this.interactive = this.columns !== undefined && isatty(STDIN);
    this.colour = this.columns !== undefined && NO_COLOR === "" && COLOUR_TERMINALS.test(TERM);
  }

  async write(text: string | Buffer): Promise<void> {
    const bytes = typeof text === "string" ? Buffer.from(text) : text;
    let written = 0;
    try {
      while (written < bytes.length) written += writeSync(STDOUT, bytes, written);
    } catch (error) {
      if (errnoOf(error) === "EPIPE") this.#onClosed();
      if (errnoOf(error) !== "EAGAIN") throw error;
      await this.#writeLater(bytes.subarray(written));
    }
  }

  /** A process that shares the terminal made it non-blocking: Node's own stream can wait. */
  #writeLater(bytes: Buffer): Promise<void> {
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void => {
        if (errnoOf(error) === "EPIPE") this.#onClosed();
        reject(error);
      };
      process.stdout.once("error", fail);
      process.stdout.write(bytes, (error) => {
        process.stdout.removeListener("error", fail);
        if (error) fail(error);
        else resolve();
      });
    });
  }

  writeError(text: string): void {
    try {
      writeSync(STDERR, text);
    } catch {
      ignore("the reader is gone; the exit code remains");
    }
  }
}
