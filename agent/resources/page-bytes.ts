import { readFile } from "node:fs/promises";

/** Of the auxiliary vector (getauxval(3)): what tells a program how large the kernel's pages are. */
const AT_PAGESZ = 6n;
const ENTRY_BYTES = 16;
/** Of kernels that do not tell. */
const DEFAULT_PAGE_BYTES = 4096;

/** Bytes: 4096, on some boards 16384 or 65536. @param path only tests name another one */
export async function pageBytes(path = "/proc/self/auxv"): Promise<number> {
  const vector = await readFile(path).catch(() => Buffer.alloc(0));
  return pageBytesIn(vector);
}

/** Of machines with 64 bits in a word, smallest byte first, which is what there is. */
export function pageBytesIn(vector: Buffer): number {
  for (let at = 0; at + ENTRY_BYTES <= vector.length; at += ENTRY_BYTES) {
    if (vector.readBigUInt64LE(at) !== AT_PAGESZ) continue;
    const size = Number(vector.readBigUInt64LE(at + ENTRY_BYTES / 2));
    const isPower = Number.isSafeInteger(size) && size >= DEFAULT_PAGE_BYTES && Number.isInteger(Math.log2(size));
    return isPower ? size : DEFAULT_PAGE_BYTES;
  }
  return DEFAULT_PAGE_BYTES;
}
