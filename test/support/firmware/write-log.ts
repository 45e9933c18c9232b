/**
 * The log of a disk's writes and flushes (dm-log-writes, as QEMU's blklogwrites writes it), and the disks that a power
 * cut at a point of it may leave: all before the last flush is there, of what came after it any part, in any order, and
 * of each write any of its sectors (a sector is whole: NVMe, ATA and SD cards write none by halves).
 */
import { closeSync, fstatSync, openSync, readSync, writeSync } from "node:fs";

const SECTOR = 512;
/** "jshgwsj\0" of drivers/md/dm-log-writes.c. */
const MAGIC = 0x6a736677736872n;
const FLAGS = { flush: 1, fua: 2, discard: 4, mark: 8 } as const;
/** The share of writes on the disk that are there as a whole; of the others there is a part. */
const WHOLE_SHARE = 0.7;
/** Bounds one entry of a damaged log; QEMU's largest request has 32 MiB. */
const MAX_SECTORS = 65_536;

export interface LogEntry {
  readonly kind: "write" | "flush" | "discard";
  /** The first one, in sectors of 512 bytes of the disk. */
  readonly sector: number;
  readonly sectors: number;
  /** It is on the disk when it is over (FUA). */
  readonly isDurable: boolean;
  /** The place of its content in the log's file, in bytes. */
  readonly dataAt: number;
}

export interface WriteLog {
  readonly path: string;
  readonly entries: readonly LogEntry[];
}

/** @param path of a machine that was killed: its last entry may be cut off */
export function readWriteLog(path: string): WriteLog {
  const file = openSync(path, "r");
  try {
    const head = Buffer.alloc(SECTOR);
    const size = fstatSync(file).size;
    readSync(file, head, 0, SECTOR, 0);
    if (head.readBigUInt64LE(0) !== MAGIC) throw new Error(`${path} is no log of writes`);
    const unit = head.readUInt32LE(24);
    const entries: LogEntry[] = [];
    for (let at = unit; at + unit <= size; ) {
      readSync(file, head, 0, 32, at);
      const [sector, sectors, flags] = [0, 8, 16].map((offset) => Number(head.readBigUInt64LE(offset))) as Three;
      // Beyond the last entry there are zeros.
      if ((sectors === 0 && flags === 0) || sectors > MAX_SECTORS * (flags & FLAGS.discard ? 1024 : 1)) break;
      const hasData = (flags & (FLAGS.discard | FLAGS.flush | FLAGS.mark)) === 0;
      const end = at + unit + (hasData ? sectors * unit : 0);
      if (end > size) break;
      if ((flags & FLAGS.mark) === 0)
        entries.push({
          kind: flags & FLAGS.flush ? "flush" : flags & FLAGS.discard ? "discard" : "write",
          ...{ sector: (sector * unit) / SECTOR, sectors: (sectors * unit) / SECTOR },
          ...{ isDurable: (flags & FLAGS.fua) !== 0, dataAt: at + unit },
        });
      at = end;
    }
    return { path, entries };
  } finally {
    closeSync(file);
  }
}

type Three = [number, number, number];

/** How many entries of the log had begun when its file had that size. */
export function entriesAt({ entries }: WriteLog, bytes: number): number {
  const index = entries.findIndex(({ dataAt }) => dataAt > bytes);
  return index < 0 ? entries.length : index;
}

/** The part of a disk that one file holds. */
export interface DiskPiece {
  readonly name: string;
  /** In sectors. */
  readonly start: number;
  readonly sectors: number;
  readonly path: string;
}

interface Change {
  readonly piece: number;
  /** In bytes of the piece. */
  readonly at: number;
  readonly content: Buffer;
}

/** The disk at one point of the log after the other; forwards only. */
export class ReplayedDisk implements Disposable {
  readonly #log: WriteLog;
  readonly #pieces: readonly DiskPiece[];
  readonly #files: readonly number[];
  readonly #source: number;
  #next = 0;
  #undo: Change[] = [];
  /** Changes with each write to a piece: what was found out of it holds while this is the same. */
  readonly #versions = new Map<string, string>();

  constructor(log: WriteLog, pieces: readonly DiskPiece[]) {
    this.#log = log;
    this.#pieces = pieces;
    this.#files = pieces.map(({ path }) => openSync(path, "r+"));
    this.#source = openSync(log.path, "r");
  }

  /** Names the content of a piece: it differs wherever the content may differ. */
  versionOf(name: string): string {
    return this.#versions.get(name) ?? "";
  }

  /**
   * Makes the disk that a power cut after `count` entries leaves, until `restore`.
   * @param random of [0, 1)
   */
  cut(count: number, random: () => number): void {
    const { entries } = this.#log;
    let flush = count;
    while (flush > 0 && entries[flush - 1]?.kind !== "flush") flush -= 1;
    for (; this.#next < flush; this.#next += 1) this.#apply(entries[this.#next]);
    const loose = entries.slice(flush, count);
    // Some caches lose all, some nothing.
    const share = [0, 1, random(), random()][Math.floor(random() * 4)] ?? 0;
    const chosen = loose.filter((entry) => entry.isDurable || random() < share);
    for (const entry of shuffled(chosen, random)) {
      const isWhole = entry.isDurable || random() < WHOLE_SHARE;
      this.#applyForNow(entry, isWhole ? [0, entry.sectors] : part(entry.sectors, random));
    }
  }

  /** Back to the last flush. */
  restore(): void {
    for (const { piece, at, content } of this.#undo.reverse())
      writeSync(this.#files[piece] ?? -1, content, 0, content.length, at);
    this.#undo = [];
    for (const [name, version] of this.#versions) this.#versions.set(name, version.split("/")[0] ?? "");
  }

  #apply(entry: LogEntry | undefined): void {
    if (entry === undefined || entry.kind === "flush") return;
    const { piece, file, at } = this.#placeOf(entry);
    const content = this.#contentOf(entry);
    writeSync(file, content, 0, content.length, at);
    this.#versions.set(piece.name, String(entry.dataAt));
  }

  #applyForNow(entry: LogEntry, [from, to]: readonly [number, number]): void {
    const { index, piece, file, at } = this.#placeOf(entry);
    const place = at + from * SECTOR;
    const before = Buffer.alloc((to - from) * SECTOR);
    readSync(file, before, 0, before.length, place);
    this.#undo.push({ piece: index, at: place, content: before });
    writeSync(file, this.#contentOf(entry), from * SECTOR, before.length, place);
    const version = this.#versions.get(piece.name) ?? "";
    this.#versions.set(piece.name, `${version}${version.includes("/") ? "" : "/"}:${entry.dataAt}+${from}-${to}`);
  }

  #placeOf({ sector }: LogEntry): { index: number; piece: DiskPiece; file: number; at: number } {
    const index = this.#pieces.findIndex(({ start, sectors }) => sector >= start && sector < start + sectors);
    const [piece, file] = [this.#pieces[index], this.#files[index]];
    if (piece === undefined || file === undefined) throw new Error(`sector ${sector} is in no piece of the disk`);
    return { index, piece, file, at: (sector - piece.start) * SECTOR };
  }

  #contentOf({ kind, sectors, dataAt }: LogEntry): Buffer {
    const content = Buffer.alloc(sectors * SECTOR);
    // The content of a discarded sector is undefined; QEMU's are zeros.
    if (kind === "write") readSync(this.#source, content, 0, content.length, dataAt);
    return content;
  }

  [Symbol.dispose](): void {
    for (const file of [...this.#files, this.#source]) closeSync(file);
  }
}

/** The first or the last sectors. */
function part(sectors: number, random: () => number): [from: number, to: number] {
  const middle = Math.floor(random() * (sectors + 1));
  return random() < 0.5 ? [0, middle] : [middle, sectors];
}

function shuffled<T>(list: readonly T[], random: () => number): T[] {
  const result = [...list];
  for (let index = result.length - 1; index > 0; index -= 1) {
    const other = Math.floor(random() * (index + 1));
    [result[index], result[other]] = [result[other] as T, result[index] as T];
  }
  return result;
}
