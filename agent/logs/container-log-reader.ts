import { type FSWatcher, watch } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { LogRequest } from "../core/pods/container-logs.ts";
import {
  BLOCK_BYTES,
  closeAll,
  countLines,
  findTail,
  type LogFile,
  openLogFile,
  openLogFiles,
  plainBlocks,
  rotatedNames,
  unzippedBlocks,
} from "./log-files.ts";
import { LogFormatter } from "./log-formatter.ts";

/** What is known of the container that writes the log. */
export interface LogWriter {
  /** False once it has ended: nothing more will be written. */
  running(): boolean;
  /**
   * Resolves when all that an ended container wrote is in its file, a moment after its end. Resolves at once for a
   * running one, and when `signal` aborts.
   */
  settled(signal: AbortSignal): Promise<void>;
  /**
   * Resolves when all lines from before a rotation are in the renamed file: runtimes open the new file first, and
   * write the lines that they hold to the old one a moment later.
   *
   * @param changedAtMs when the renamed file was changed last, in milliseconds of Unix time; missing: just now
   */
  arrived(signal: AbortSignal, changedAtMs?: number): Promise<void>;
  /** Yields whenever `running` may have changed. */
  changes(signal: AbortSignal): AsyncIterable<unknown>;
}

/**
 * The log at `path` as a user sees it, in pieces of at most some 100 KiB; read only as fast as the consumer takes it.
 * Rotated files are read too, oldest first. Ends early, without an error, when `signal` aborts.
 *
 * @param path absolute, of the file that is being written: `<pod's log folder>/<container>/<attempt>.log`.
 * @throws `not_found` when there is no log; `resource_exhausted` when the kernel gives no inotify watch.
 */
export async function* readContainerLog(
  path: string,
  request: LogRequest,
  writer: LogWriter,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const formatter = new LogFormatter(request);
  // Watched before anything is read: what is written in between must wake us.
  using changes = request.follow ? new LogChanges(path, writer, signal) : undefined;
  if (!request.follow) await writer.settled(signal);
  const files = await openSettledFiles(path, writer, signal);
  try {
    if (files.length === 0 && !request.follow) throw new PicoletError("not_found", "there is no log yet");
    for (const segment of await planSegments(files, request)) {
      formatter.newFile();
      formatter.skip(segment.skipLines);
      const { file, start } = segment;
      yield* formatted(formatter, file.compressed ? unzippedBlocks(file) : plainBlocks(file, start, file.size), signal);
    }
    if (changes !== undefined) yield* new LogFollower(path, formatter, changes, writer).follow(files, signal);
    const rest = formatter.flush();
    if (rest.length > 0 && !signal.aborted) yield rest;
  } finally {
    await closeAll(files);
  }
}

/** As `openLogFiles`; of a log that is being rotated just now, with all that was written before the rotation. */
async function openSettledFiles(path: string, writer: LogWriter, signal: AbortSignal): Promise<LogFile[]> {
  const files = await openLogFiles(path);
  try {
    const rotated = files.findLast((file) => file.name !== basename(path));
    if (rotated === undefined || rotated.compressed) return files;
    await writer.arrived(signal, rotated.modifiedAtMs);
    files[files.indexOf(rotated)] = { ...rotated, size: (await rotated.handle.stat()).size };
    return files;
  } catch (error) {
    await closeAll(files);
    throw error;
  }
}

interface Segment {
  readonly file: LogFile;
  /** Byte offset, of plain files. */
  readonly start: number;
  /** For compressed files, which cannot be read from the middle. */
  readonly skipLines: number;
}

/** @returns the parts of files that the request needs, oldest first */
async function planSegments(files: readonly LogFile[], request: LogRequest): Promise<Segment[]> {
  const { tailLines, sinceMs } = request;
  // The last change of a file is the time of its newest entry, or later.
  const recent = files.filter((file, index) => {
    return sinceMs === undefined || index === files.length - 1 || file.modifiedAtMs >= sinceMs;
  });
  if (tailLines === undefined) return recent.map((file) => ({ file, start: 0, skipLines: 0 }));
  const segments: Segment[] = [];
  let wanted = tailLines;
  for (const file of recent.toReversed()) {
    if (wanted <= 0) break;
    if (file.compressed) {
      const lines = await countLines(file);
      segments.unshift({ file, start: 0, skipLines: Math.max(0, lines - wanted) });
      wanted -= lines;
    } else {
      const { start, lines } = await findTail(file, wanted, file === files.at(-1));
      segments.unshift({ file, start, skipLines: 0 });
      wanted -= lines;
    }
  }
  return segments;
}

async function* formatted(
  formatter: LogFormatter,
  blocks: AsyncIterable<Buffer>,
  signal: AbortSignal,
): AsyncGenerator<Buffer, number> {
  let read = 0;
  for await (const block of blocks) {
    if (signal.aborted || formatter.full) break;
    read += block.length;
    const text = formatter.push(block);
    if (text.length > 0) yield text;
  }
  return read;
}

/** Goes on after the end of what was there at first. */
class LogFollower {
  readonly #path: string;
  readonly #formatter: LogFormatter;
  readonly #changes: LogChanges;
  readonly #writer: LogWriter;
  /** The file being read, how far, and the rotated files that are older than it. */
  #file: LogFile | undefined;
  #position = 0;
  #older = new Set<string>();
  readonly #block = Buffer.allocUnsafe(BLOCK_BYTES);

  constructor(path: string, formatter: LogFormatter, changes: LogChanges, writer: LogWriter) {
    this.#path = path;
    this.#formatter = formatter;
    this.#changes = changes;
    this.#writer = writer;
  }

  /** @param files those read already, which the caller closes; always holds what is open here. */
  async *follow(files: LogFile[], signal: AbortSignal): AsyncGenerator<Buffer> {
    // Renamed, and not made again yet: the container goes on writing to the renamed file.
    const current = files.at(-1)?.compressed === false ? files.at(-1) : undefined;
    this.#older = new Set(files.filter((file) => file !== current).map((file) => file.name.replace(/\.gz$/, "")));
    this.#file = current;
    this.#position = current?.size ?? 0;
    await closeAll(files.splice(0, current === undefined ? files.length : files.length - 1));
    while (!signal.aborted && !this.#formatter.full) {
      this.#changes.clear();
      // Asked before reading: when it has ended by now, the reading below sees all that it wrote.
      const running = this.#writer.running();
      if (!running) await this.#writer.settled(signal);
      yield* this.#readOn(signal);
      if (yield* this.#moveOn(files, signal)) continue;
      const held = this.#formatter.flush();
      if (held.length > 0) yield held;
      if (!running) return;
      await this.#changes.next();
    }
  }

  async *#readOn(signal: AbortSignal): AsyncGenerator<Buffer> {
    if (this.#file === undefined) return;
    const blocks = plainBlocks(this.#file, this.#position, Number.POSITIVE_INFINITY, this.#block);
    this.#position += yield* formatted(this.#formatter, blocks, signal);
  }

  /** @returns whether the log goes on in another file, or from the start of this one. */
  async *#moveOn(files: LogFile[], signal: AbortSignal): AsyncGenerator<Buffer, boolean> {
    const now = await stat(this.#path).catch(ignore("the log is gone, or is being replaced"));
    if (now === undefined) return false;
    if (now.ino === this.#file?.inode) {
      if (now.size >= this.#position) return false;
      this.#position = 0;
      this.#formatter.newFile();
      return true;
    }
    const next = await openLogFile(this.#path);
    if (next === undefined) return true;
    files.push(next);
    yield* this.#readRest(signal);
    yield* this.#readBetween(next, signal);
    await closeAll(files.splice(0, files.length - 1));
    this.#formatter.newFile();
    this.#file = next;
    this.#position = 0;
    return true;
  }

  /** Reads the renamed file until nothing more arrives in it. */
  async *#readRest(signal: AbortSignal): AsyncGenerator<Buffer> {
    if (this.#file === undefined) return;
    yield* this.#readOn(signal);
    let before: number;
    do {
      before = this.#position;
      await this.#writer.arrived(signal);
      yield* this.#readOn(signal);
    } while (this.#position > before && !signal.aborted && !this.#formatter.full);
  }

  /** Reads the files that were rotated after the one that was read here, and before `next` was opened. */
  async *#readBetween(next: LogFile, signal: AbortSignal): AsyncGenerator<Buffer> {
    const newer = (await rotatedNames(this.#path)).filter((name) => !this.#older.has(name.replace(/\.gz$/, "")));
    // The oldest of them is the one that was read here.
    let isRead = this.#file !== undefined;
    for (const name of newer) {
      const file = await openLogFile(join(dirname(this.#path), name));
      try {
        // Renamed in the meantime: it is read as `next`, and those that follow after it.
        if (file?.inode === next.inode) return;
        this.#older.add(name.replace(/\.gz$/, ""));
        if (file !== undefined && !isRead) yield* this.#readWhole(file, signal);
        isRead = false;
      } finally {
        await file?.handle.close();
      }
    }
  }

  async *#readWhole(file: LogFile, signal: AbortSignal): AsyncGenerator<Buffer> {
    this.#formatter.newFile();
    const blocks = file.compressed ? unzippedBlocks(file) : plainBlocks(file, 0, file.size);
    yield* formatted(this.#formatter, blocks, signal);
  }
}

/** One slot that is filled whenever the log's folder or the state of its container changes. */
class LogChanges implements Disposable {
  readonly #watcher: FSWatcher;
  readonly #stop: ReturnType<typeof joinSignals>;
  #changed = false;
  #failure: PicoletError | undefined;
  #wake: (() => void) | undefined;

  constructor(path: string, writer: LogWriter, signal: AbortSignal) {
    this.#stop = joinSignals(signal);
    this.#stop.signal.addEventListener("abort", () => this.#set(), { once: true });
    try {
      this.#watcher = watch(dirname(path), () => this.#set());
    } catch (error) {
      this.#stop[Symbol.dispose]();
      throw watchFailure(error);
    }
    this.#watcher.on("error", (error) => {
      this.#failure = watchFailure(error);
      this.#set();
    });
    void this.#watchWriter(writer);
  }

  clear(): void {
    this.#changed = false;
  }

  /** Resolves when something changed since `clear`, or when the signal aborts. */
  async next(): Promise<void> {
    if (!this.#changed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#failure !== undefined) throw this.#failure;
  }

  [Symbol.dispose](): void {
    this.#watcher.close();
    this.#stop.abort();
    this.#stop[Symbol.dispose]();
  }

  async #watchWriter(writer: LogWriter): Promise<void> {
    try {
      for await (const _ of writer.changes(this.#stop.signal)) this.#set();
    } catch (error) {
      this.#failure = toPicoletError(error, "internal", "cannot watch the container");
      this.#set();
    }
  }

  #set(): void {
    this.#changed = true;
    this.#wake?.();
  }
}

function watchFailure(error: unknown): PicoletError {
  const code = errnoOf(error);
  if (code === "ENOENT") return new PicoletError("not_found", "there is no log yet");
  const exhausted = code === "ENOSPC" || code === "EMFILE";
  return toPicoletError(error, exhausted ? "resource_exhausted" : "failed", "cannot watch the log's folder");
}
