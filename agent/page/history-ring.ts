/**
 * The ring of history on disk: blocks of 4 KiB in a file of fixed size, each with the samples of some minutes of one
 * boot. A block is written once and whole, and has a checksum: a power cut damages the block that is being written
 * alone, and a damaged block is left out.
 */
import { hash } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, mkdir, open } from "node:fs/promises";
import { dirname } from "node:path";
import { ignore } from "@picolet/protocol/errors.ts";
import { HISTORY_SERIES, type HistoryFigures } from "@picolet/protocol/page/board-data.ts";

/** A page of flash file systems. */
export const BLOCK_BYTES = 4096;
/** A day at a block for each 20 minutes, and a third more for agents that end sooner. */
export const RING_BLOCKS = 96;
const MAGIC = 0x50_43_4c_48;
const FORMAT = 1;
const HEADER_BYTES = 64;
const BOOT_ID_BYTES = 36;
const SAMPLE_BYTES = 4 + 4 * HISTORY_SERIES.length;
const CHECKSUM_BYTES = 32;
/** As many as fit into one block. */
export const MAX_BLOCK_SAMPLES = Math.floor((BLOCK_BYTES - HEADER_BYTES - CHECKSUM_BYTES) / SAMPLE_BYTES);

/** `HISTORY_SERIES` and the second since the boot. */
export interface HistorySample {
  readonly uptimeSeconds: number;
  readonly figures: HistoryFigures;
}

export interface HistoryBlock {
  /** Grows by one with each block, over boots. */
  readonly sequence: number;
  /** The kernel's boot_id. */
  readonly boot: string;
  /** The clock's time at second 0 of the boot, as the clock was when the block was written. Milliseconds; NaN: it was not set. */
  readonly bootedAtMs: number;
  /** At most MAX_BLOCK_SAMPLES. */
  readonly samples: readonly HistorySample[];
}

export function encodeBlock({ sequence, boot, bootedAtMs, samples }: HistoryBlock): Uint8Array {
  const block = Buffer.alloc(BLOCK_BYTES);
  const kept = samples.slice(-MAX_BLOCK_SAMPLES);
  block.writeUInt32BE(MAGIC, 0);
  block.writeUInt8(FORMAT, 4);
  block.writeUInt8(kept.length, 5);
  block.writeUInt8(HISTORY_SERIES.length, 6);
  block.writeUInt32BE(sequence, 8);
  block.writeDoubleBE(bootedAtMs, 12);
  block.write(boot.slice(0, BOOT_ID_BYTES), 20, "latin1");
  kept.forEach(({ uptimeSeconds, figures }, index) => {
    const at = HEADER_BYTES + index * SAMPLE_BYTES;
    block.writeUInt32BE(Math.min(uptimeSeconds, 0xff_ff_ff_ff), at);
    HISTORY_SERIES.forEach((name, field) => void block.writeFloatBE(figures[name], at + 4 + 4 * field));
  });
  checksumOf(block).copy(block, BLOCK_BYTES - CHECKSUM_BYTES);
  return block;
}

const checksumOf = (block: Buffer): Buffer => hash("sha256", block.subarray(0, BLOCK_BYTES - CHECKSUM_BYTES), "buffer");

/** @returns undefined for anything but a whole block of this format */
export function decodeBlock(bytes: Uint8Array): HistoryBlock | undefined {
  const block = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (block.length !== BLOCK_BYTES || block.readUInt32BE(0) !== MAGIC || block.readUInt8(4) !== FORMAT)
    return undefined;
  const count = block.readUInt8(5);
  if (block.readUInt8(6) !== HISTORY_SERIES.length || count > MAX_BLOCK_SAMPLES) return undefined;
  if (!checksumOf(block).equals(block.subarray(BLOCK_BYTES - CHECKSUM_BYTES))) return undefined;
  const samples = Array.from({ length: count }, (_, index): HistorySample => {
    const at = HEADER_BYTES + index * SAMPLE_BYTES;
    const figures = HISTORY_SERIES.map((name, field) => [name, block.readFloatBE(at + 4 + 4 * field)] as const);
    return { uptimeSeconds: block.readUInt32BE(at), figures: Object.fromEntries(figures) as HistoryFigures };
  });
  const boot = block.toString("latin1", 20, 20 + BOOT_ID_BYTES).replace(/\0+$/, "");
  return { sequence: block.readUInt32BE(8), boot, bootedAtMs: block.readDoubleBE(12), samples };
}

/** @returns the blocks that can be read, oldest first; none where there is no file */
export async function readRing(path: string): Promise<readonly HistoryBlock[]> {
  const file = await open(path, "r").catch(ignore("a board without history has none to show"));
  if (file === undefined) return [];
  try {
    const blocks: HistoryBlock[] = [];
    for (let slot = 0; slot < RING_BLOCKS; slot += 1) {
      const block = await readSlot(file, slot);
      if (block !== undefined) blocks.push(block);
    }
    return blocks.sort((a, b) => a.sequence - b.sequence);
  } finally {
    await file.close();
  }
}

async function readSlot(file: FileHandle, slot: number): Promise<HistoryBlock | undefined> {
  const { bytesRead, buffer } = await file.read(Buffer.alloc(BLOCK_BYTES), 0, BLOCK_BYTES, slot * BLOCK_BYTES);
  return bytesRead === BLOCK_BYTES ? decodeBlock(buffer) : undefined;
}

/**
 * Writes the block after the newest one, over the oldest. The kernel decides when it reaches the disk.
 * @param sequence undefined: the ring is read in order to find it
 * @returns the sequence number of the next block
 */
export async function appendBlock(
  path: string,
  block: Omit<HistoryBlock, "sequence">,
  sequence: number | undefined,
): Promise<number> {
  const next = sequence ?? ((await readRing(path)).at(-1)?.sequence ?? -1) + 1;
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await open(path, constants.O_CREAT | constants.O_RDWR, 0o600);
  try {
    await file.write(encodeBlock({ ...block, sequence: next }), 0, BLOCK_BYTES, (next % RING_BLOCKS) * BLOCK_BYTES);
  } finally {
    await file.close();
  }
  return next + 1;
}
