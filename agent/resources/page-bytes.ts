import { readFile } from "node:fs/promises";

/** The entry of the auxiliary vector (getauxval(3)) with the size of the kernel's pages. */
const AT_PAGESZ = 6n;
const ENTRY_BYTES = 16;
/** The page size of kernels without that entry. */
const DEFAULT_PAGE_BYTES = 4096;

/** Bytes: 4096, on some boards 16384 or 65536. @param path only tests name another one */
export async function pageBytes(path = "/proc/self/auxv"): Promise<number> {
  const vector = await readFile(path).catch(() => Buffer.alloc(0));
  return pageBytesIn(vector);
}

/** Reads a vector of a machine with 64-bit words, least significant byte first, which all of ours are. */
export function pageBytesIn(vector: Buffer): number {
  for (let at = 0; at + ENTRY_BYTES <= vector.length; at += ENTRY_BYTES) {
    if (vector.readBigUInt64LE(at) !== AT_PAGESZ) continue;
    const size = Number(vector.readBigUInt64LE(at + ENTRY_BYTES / 2));
    const isPower = Number.isSafeInteger(size) && size >= DEFAULT_PAGE_BYTES && Number.isInteger(Math.log2(size));
    return isPower ? size : DEFAULT_PAGE_BYTES;
  }
  return DEFAULT_PAGE_BYTES;
}
