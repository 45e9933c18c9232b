/**
 * A container's log in the CRI format: `<RFC 3339 time> <stdout|stderr> <P|F> <text>`, one line an entry. `P` is a
 * piece that the next entry of the same stream continues (Kubernetes, "Kubelet CRI support: log format").
 *
 * The file is bounded here, at its source. When it is larger than `LogLimit.maxBytes` the component waits until the
 * agent has rotated it. After `patienceMs` no agent is assumed to run: the file is then emptied, at most once an hour,
 * and output is dropped in between, so that the component continues and the disk takes at most `maxBytes` an hour.
 */

import { closeSync, constants, fstatSync, ftruncateSync, openSync, statSync, writeSync } from "node:fs";
import { basename, dirname } from "node:path";
import { ignore } from "@picolet/protocol/errors.ts";
import type { LogLimitLaunch } from "../messages/launch.ts";
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
/** Between two checks whether the file has been rotated: 0.02 % of a core while a component waits. */
export const ROTATION_CHECK_MS = 100;
/** Without an agent the file is emptied this often at most. A full one of 10 MiB is then 240 MiB of flash a day. */
const EMPTIED_EVERY_MS = 3_600_000;

export interface LogLimit extends LogLimitLaunch {
  /** Milliseconds, monotonic. */
  readonly now: () => number;
  /** Blocks the thread. Undefined: others share it, so the owner has to keep the component waiting while `isFull`. */
  readonly sleep: ((milliseconds: number) => void) | undefined;
}

/** The handling of output while the file has its full size. */
type Fullness =
  | { readonly kind: "room" }
  | { readonly kind: "waiting"; readonly sinceMs: number }
  | { readonly kind: "unattended"; readonly emptiedMs: number };

const ROOM: Fullness = { kind: "room" };

export class LogWriter {
  /** Keeps the folder reachable for a process that gave up root meanwhile. */
  readonly #directory: number;
  readonly #name: string;
  readonly #wallNow: () => number;
  readonly #buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  readonly #lines: Readonly<Record<LogStream, UnfinishedLine>>;
  #used = 0;
  /** True when the last output has no newline at its end. */
  #isInLine = false;
  readonly #limit: LogLimit | undefined;
  /** Opened with the first entry: by then the process runs as the user that the file belongs to. */
  #fd: number | undefined;
  /** Size of the open file: as of the last check, plus what was written since. */
  #sizeBytes = 0;
  #fullness: Fullness = ROOM;
  /** Bytes of dropped entries, which are reported once there is room again. */
  #droppedBytes = 0;
  #isEnding = false;
  #timeMs = Number.NaN;
  #time = "";

  /** @param limit undefined: the file may grow without end */
  constructor(path: string, wallNow: () => number, limit?: LogLimit) {
    this.#limit = limit;
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

  /**
   * The component has ended.
   * @param lastWords lines about the end, for stderr. They follow the component's output, and continue none of it.
   */
  end(lastWords: string): void {
    // A component that has ended does not wait. At most two unfinished lines and the report follow.
    this.#isEnding = true;
    this.flushUnfinished();
    if (lastWords !== "") this.write("stderr", Buffer.from(this.#isInLine ? `\n${lastWords}` : lastWords));
  }

  /** Writes unfinished lines before the component sleeps. */
  flushUnfinished(): void {
    for (const stream of ["stdout", "stderr"] as const) {
      const line = this.#lines[stream];
      if (!line.isEmpty) this.#entry(stream, "P", line.take());
    }
    this.#flush();
  }

  /** @returns whether the component has to wait, for `ROTATION_CHECK_MS` and then again */
  get isFull(): boolean {
    if (this.#fullness.kind !== "waiting" || this.#limit === undefined) return false;
    try {
      this.#followRotation();
    } catch {
      return false;
    }
    return this.#sizeBytes > this.#limit.maxBytes && !this.#isUnattended(this.#limit);
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
    const bytes = this.#buffer.subarray(0, this.#used);
    this.#used = 0;
    try {
      this.#followRotation();
      if (this.#mayWrite()) this.#append(bytes);
      else this.#droppedBytes += bytes.length;
    } catch {
      ignore("a full disk must not end the component: its output is lost, as it is with other runtimes");
    }
  }

  #append(bytes: Uint8Array): void {
    if (this.#droppedBytes > 0) {
      const note = `picolet: ${this.#droppedBytes} bytes of output were dropped here: the log was full and not rotated`;
      this.#droppedBytes = 0;
      this.#append(Buffer.from(`${this.#timestamp()} stderr F ${note}\n`));
    }
    for (let start = 0; start < bytes.length; ) {
      start += writeSync(this.#fd ?? -1, bytes, start, bytes.length - start);
    }
    this.#sizeBytes += bytes.length;
  }

  /** Waits for room where it may block. @returns whether there is some */
  #mayWrite(): boolean {
    const limit = this.#limit;
    if (limit === undefined || this.#isEnding) return true;
    while (this.#sizeBytes > limit.maxBytes) {
      if (this.#isUnattended(limit)) return this.#emptied(limit);
      // Output of several calls at once, until their component waits.
      if (limit.sleep === undefined) return this.#sizeBytes <= limit.maxBytes + BUFFER_BYTES;
      limit.sleep(ROTATION_CHECK_MS);
      this.#followRotation();
    }
    if (this.#fullness.kind === "waiting") this.#fullness = ROOM;
    return true;
  }

  #isUnattended({ now, patienceMs }: LogLimit): boolean {
    const nowMs = now();
    if (this.#fullness.kind === "room") this.#fullness = { kind: "waiting", sinceMs: nowMs };
    if (this.#fullness.kind === "waiting" && nowMs - this.#fullness.sinceMs >= patienceMs) {
      this.#fullness = { kind: "unattended", emptiedMs: Number.NEGATIVE_INFINITY };
    }
    return this.#fullness.kind === "unattended";
  }

  #emptied({ now }: LogLimit): boolean {
    const nowMs = now();
    if (this.#fullness.kind !== "unattended" || nowMs - this.#fullness.emptiedMs < EMPTIED_EVERY_MS) return false;
    this.#fullness = { kind: "unattended", emptiedMs: nowMs };
    if (this.#fd !== undefined) ftruncateSync(this.#fd);
    this.#droppedBytes += this.#sizeBytes;
    this.#sizeBytes = 0;
    return true;
  }

  /**
   * The agent renames the file and creates a new one. A check of the name before each write finds that at once. Between
   * the two there is no file, and a process that may not create it goes on with the old one.
   */
  #followRotation(): void {
    const before = this.#fd;
    if (before !== undefined) {
      const named = statSync(entryPath(this.#directory, this.#name), { throwIfNoEntry: false });
      const mine = fstatSync(before);
      this.#sizeBytes = mine.size;
      if (named?.ino === mine.ino && named.dev === mine.dev) return;
      try {
        this.#fd = this.#open();
      } catch {
        return;
      }
      closeSync(before);
      this.#fullness = ROOM;
    } else this.#fd = this.#open();
    this.#sizeBytes = fstatSync(this.#fd).size;
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
