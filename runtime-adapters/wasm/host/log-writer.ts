/**
 * A container's log in the CRI format: `<RFC 3339 time> <stdout|stderr> <P|F> <text>`, one line an entry; `P` is a piece
 * that the next entry of the same stream goes on with (Kubernetes, "Kubelet CRI support: log format").
 */
import { closeSync, constants, fstatSync, openSync, statSync, writeSync } from "node:fs";
import { basename, dirname } from "node:path";
import { entryPath, O_PATH } from "./paths.ts";

export type LogStream = "stdout" | "stderr";

/** containerd's own: longer lines are cut into pieces of this length. */
export const MAX_LINE_BYTES = 16_384;
/** Entries gathered for one write; one entry always fits. */
const BUFFER_BYTES = 32_768;
/** Time, stream, tag and the spaces. */
const MAX_HEADER_BYTES = 64;
const NEWLINE = 0x0a;
const LOG_MODE = 0o640;

export class LogWriter {
  /** Keeps the folder reachable for a process that gave up root meanwhile. */
  readonly #directory: number;
  readonly #name: string;
  readonly #wallNow: () => number;
  readonly #buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  readonly #lines: Readonly<Record<LogStream, UnfinishedLine>>;
  #used = 0;
  /** Whether what was written last has no newline. */
  #isInLine = false;
  /** Opened with the first entry: by then the process has become whom the file belongs to. */
  #fd: number | undefined;
  #timeMs = Number.NaN;
  #time = "";

  constructor(path: string, wallNow: () => number) {
    this.#directory = openSync(dirname(path), O_PATH | constants.O_DIRECTORY);
    this.#name = basename(path);
    this.#wallNow = wallNow;
    this.#lines = { stdout: new UnfinishedLine(), stderr: new UnfinishedLine() };
  }

  write(stream: LogStream, bytes: Uint8Array): void {
    const line = this.#lines[stream];
    for (let start = 0; start < bytes.length; ) {
      const newline = bytes.indexOf(NEWLINE, start);
      const end = newline < 0 ? bytes.length : newline;
      for (; start < end; start += line.append(bytes, start, end)) {
        if (line.isFull) this.#entry(stream, "P", line.take());
      }
      if (newline >= 0) {
        this.#entry(stream, "F", line.take());
        start = newline + 1;
      }
    }
    this.#flush();
  }

  /** The component has ended. @param lastWords lines about that, for stderr: behind all of its own, none of which they go on with */
  end(lastWords: string): void {
    this.flushUnfinished();
    if (lastWords !== "") this.write("stderr", Buffer.from(this.#isInLine ? `\n${lastWords}` : lastWords));
  }

  /** What has no newline yet: before the component sleeps. */
  flushUnfinished(): void {
    for (const stream of ["stdout", "stderr"] as const) {
      const line = this.#lines[stream];
      if (!line.isEmpty) this.#entry(stream, "P", line.take());
    }
    this.#flush();
  }

  /** Nothing is written after that. */
  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    closeSync(this.#directory);
  }

  #entry(stream: LogStream, tag: "P" | "F", text: Uint8Array): void {
    if (this.#used + MAX_HEADER_BYTES + text.length + 1 > BUFFER_BYTES) this.#flush();
    this.#isInLine = tag === "P";
    this.#used += this.#buffer.write(`${this.#timestamp()} ${stream} ${tag} `, this.#used, "latin1");
    this.#buffer.set(text, this.#used);
    this.#used += text.length;
    this.#buffer[this.#used] = NEWLINE;
    this.#used += 1;
  }

  #timestamp(): string {
    const now = this.#wallNow();
    if (now !== this.#timeMs) {
      this.#timeMs = now;
      this.#time = new Date(now).toISOString();
    }
    return this.#time;
  }

  #flush(): void {
    if (this.#used === 0) return;
    const end = this.#used;
    this.#used = 0;
    try {
      const fd = this.#followRotation();
      for (let start = 0; start < end; ) start += writeSync(fd, this.#buffer, start, end - start);
    } catch {
      // A full disk must not end the component: its output is lost, as it is with other runtimes.
    }
  }

  /**
   * The agent renames the file away and makes a new one; a look at the name before each write finds that at once. Between
   * the two there is none, and who may not make it goes on with the old one.
   */
  #followRotation(): number {
    const before = this.#fd;
    if (before === undefined) {
      this.#fd = this.#open();
      return this.#fd;
    }
    const named = statSync(entryPath(this.#directory, this.#name), { throwIfNoEntry: false });
    const mine = fstatSync(before);
    if (named?.ino === mine.ino && named.dev === mine.dev) return before;
    try {
      this.#fd = this.#open();
    } catch {
      return before;
    }
    closeSync(before);
    return this.#fd;
  }

  #open(): number {
    const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW;
    return openSync(entryPath(this.#directory, this.#name), flags, LOG_MODE);
  }
}

class UnfinishedLine {
  /** Made with the first output: most components never write to stderr. */
  #bytes: Uint8Array | undefined;
  #length = 0;

  get isFull(): boolean {
    return this.#length === MAX_LINE_BYTES;
  }

  get isEmpty(): boolean {
    return this.#length === 0;
  }

  /** Takes as many of `bytes` from `start` to `end` as fit and returns how many those were. */
  append(bytes: Uint8Array, start: number, end: number): number {
    this.#bytes ??= new Uint8Array(MAX_LINE_BYTES);
    const count = Math.min(end - start, MAX_LINE_BYTES - this.#length);
    this.#bytes.set(bytes.subarray(start, start + count), this.#length);
    this.#length += count;
    return count;
  }

  /** Valid until the next `append`. */
  take(): Uint8Array {
    const taken = this.#bytes?.subarray(0, this.#length) ?? new Uint8Array();
    this.#length = 0;
    return taken;
  }
}
