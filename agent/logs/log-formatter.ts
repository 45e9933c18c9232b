import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { LogRequest, LogStream } from "../core/pods/container-logs.ts";
import { type LogHeader, logHeaderAt, MAX_HEADER_BYTES, parseLogHeader } from "./cri-log-format.ts";

export type LogFormat = Pick<LogRequest, "sinceMs" | "timestamps" | "limitBytes" | "stream">;

/**
 * How much of one stream is kept back while a line of the other one is unfinished (a line is cut into parts of 16 KiB
 * by the runtimes, so this is a few lines). When it is full the unfinished line is broken.
 */
export const MAX_HELD_BYTES = 64 * KIBIBYTE;

const LINE_END = Buffer.from("\n");
const NEWLINE = 0x0a;

type State =
  /** Between entries; `start` holds the beginning of a header that the last block cut off. */
  | { readonly kind: "header"; readonly start: string }
  | { readonly kind: "content"; readonly header: LogHeader; readonly shown: boolean; begun: boolean }
  /** In a line that is no entry. */
  | { readonly kind: "skip" };

const AT_LINE_START: State = { kind: "header", start: "" };

/**
 * Makes the text that a user sees from the blocks of a log file: parts joined to lines, headers taken off, filters
 * applied. Takes blocks cut anywhere. Memory: the output of one block and at most MAX_HELD_BYTES.
 *
 * Lines that are no entries (a power cut leaves such) are left out.
 */
export class LogFormatter {
  readonly #format: LogFormat;
  #skipLines = 0;
  #left: number;
  #state: State = AT_LINE_START;
  /** The unfinished line of each stream, and whether it is shown. */
  readonly #unfinished: Record<LogStream, { readonly shown: boolean } | undefined> = {
    stdout: undefined,
    stderr: undefined,
  };
  /** The stream whose unfinished line was put out last; the other one waits in `#held`. */
  #open: LogStream | undefined;
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** The stream whose line what is held leaves unfinished. */
  #heldOpen: LogStream | undefined;
  #out: Buffer[] = [];

  constructor(format: LogFormat) {
    this.#format = format;
    this.#left = format.limitBytes ?? Number.POSITIVE_INFINITY;
  }

  /** True when `limitBytes` is reached: no more output follows. */
  get full(): boolean {
    return this.#left <= 0;
  }

  /** Leaves out the next `count` lines. */
  skip(count: number): void {
    this.#skipLines += count;
  }

  /** A new file begins: what the last one left unfinished within an entry is no entry. */
  newFile(): void {
    this.#state = AT_LINE_START;
  }

  /** @returns what `block` adds to the output; may be empty. It shares no memory with `block`. */
  push(block: Buffer): Buffer {
    let at = 0;
    while (at < block.length) {
      if (this.#state.kind === "header") at = this.#readHeader(block, at, this.#state.start);
      else if (this.#state.kind === "content") at = this.#readContent(block, at, this.#state);
      else {
        const end = block.indexOf(NEWLINE, at);
        if (end >= 0) this.#state = AT_LINE_START;
        at = end < 0 ? block.length : end + 1;
      }
    }
    return this.#takeOutput();
  }

  /** Nothing more is there for now: what was held back must not wait any longer. */
  flush(): Buffer {
    this.#releaseHeld();
    return this.#takeOutput();
  }

  #readHeader(block: Buffer, at: number, start: string): number {
    if (start === "") {
      const found = logHeaderAt(block, at);
      if (found !== undefined) {
        this.#beginEntry(found.header);
        return found.contentAt;
      }
    }
    // No whole header in this block: gather it byte by byte until the third space.
    let text = start;
    for (let index = at; index < block.length; index += 1) {
      const character = String.fromCharCode(block[index] ?? 0);
      if (character === "\n") {
        this.#state = AT_LINE_START;
        return index + 1;
      }
      if (character === " " && text.split(" ").length === 3) {
        const header = parseLogHeader(text);
        if (header === undefined) this.#state = { kind: "skip" };
        else this.#beginEntry(header);
        return index + 1;
      }
      text += character;
      if (text.length > MAX_HEADER_BYTES) {
        this.#state = { kind: "skip" };
        return index + 1;
      }
    }
    this.#state = { kind: "header", start: text };
    return block.length;
  }

  #beginEntry(header: LogHeader): void {
    const line = this.#unfinished[header.stream] ?? { shown: this.#isShown(header) };
    const begun = this.#unfinished[header.stream] !== undefined;
    this.#unfinished[header.stream] = line;
    this.#state = { kind: "content", header, shown: line.shown && this.#skipLines === 0, begun };
  }

  #isShown(header: LogHeader): boolean {
    const { sinceMs, stream } = this.#format;
    if (stream !== undefined && stream !== header.stream) return false;
    if (sinceMs === undefined) return true;
    const written = Date.parse(header.timestamp);
    return Number.isNaN(written) || written >= sinceMs;
  }

  #readContent(block: Buffer, at: number, entry: Extract<State, { kind: "content" }>): number {
    const end = block.indexOf(NEWLINE, at);
    const content = block.subarray(at, end < 0 ? block.length : end);
    const { stream, timestamp, partial } = entry.header;
    if (entry.shown) {
      if (!entry.begun && this.#format.timestamps) this.#put(stream, Buffer.from(`${timestamp} `), false);
      const lineEnds = end >= 0 && !partial;
      if (content.length > 0) this.#put(stream, content, false);
      if (lineEnds) this.#put(stream, LINE_END, true);
    }
    entry.begun = true;
    if (end < 0) return block.length;
    if (!partial) {
      this.#unfinished[stream] = undefined;
      if (this.#skipLines > 0) this.#skipLines -= 1;
    }
    this.#state = AT_LINE_START;
    return end + 1;
  }

  #put(stream: LogStream, bytes: Buffer, endsLine: boolean): void {
    if (this.#open === undefined || this.#open === stream) {
      this.#emit(bytes);
      this.#open = endsLine ? undefined : stream;
      if (endsLine) this.#releaseHeld();
      return;
    }
    this.#held.push(Buffer.from(bytes));
    this.#heldBytes += bytes.length;
    this.#heldOpen = endsLine ? undefined : stream;
    if (this.#heldBytes > MAX_HELD_BYTES) this.#releaseHeld();
  }

  /** Puts out what the other stream wrote meanwhile; a line that is still open is broken for it. */
  #releaseHeld(): void {
    if (this.#held.length === 0) return;
    if (this.#open !== undefined) this.#emit(LINE_END);
    for (const bytes of this.#held) this.#emit(bytes);
    this.#open = this.#heldOpen;
    this.#held = [];
    this.#heldBytes = 0;
    this.#heldOpen = undefined;
  }

  #emit(bytes: Buffer): void {
    if (this.#left <= 0) return;
    const kept = bytes.length > this.#left ? bytes.subarray(0, this.#left) : bytes;
    this.#left -= kept.length;
    this.#out.push(kept);
  }

  #takeOutput(): Buffer {
    const out = Buffer.concat(this.#out);
    this.#out = [];
    return out;
  }
}
