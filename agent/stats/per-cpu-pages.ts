import { readKernelFile } from "./kernel-text.ts";

const COUNT = /^ +(count:|managed) +(\d{1,15})$/gm;

/**
 * Free pages that CPUs keep for themselves, in bytes. `MemFree` does not count them, though whoever asks for memory
 * gets them: since Linux 6.7 up to an eighth of it all, for minutes after a large process has ended. Takes some 80 µs
 * on a PC.
 * @param totalBytes of memory, by which the size of a page is told: 4 KiB, on some boards 16 or 64
 */
export function perCpuFreeBytes(proc: string, totalBytes: number): number {
  let [kept, managed] = [0, 0];
  for (const [, name, digits] of (readKernelFile(`${proc}/zoneinfo`) ?? "").matchAll(COUNT)) {
    if (name === "managed") managed += Number(digits);
    else kept += Number(digits);
  }
  if (managed === 0 || totalBytes <= 0) return 0;
  const pageBytes = 2 ** Math.round(Math.log2(totalBytes / managed));
  return Math.min(kept * pageBytes, totalBytes);
}
