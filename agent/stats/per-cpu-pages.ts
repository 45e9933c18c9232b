import { readKernelFile } from "./kernel-text.ts";

const COUNT = /^ +(count:|managed) +(\d{1,15})$/gm;

/**
 * Reads the free pages in the lists of the CPUs, in bytes. `MemFree` excludes them, though an allocation gets them:
 * since Linux 6.7 up to an eighth of all memory, for minutes after a large process has ended. Takes about 80 µs on a
 * PC.
 * @param totalBytes all memory, from which the page size follows: 4 KiB, on some boards 16 or 64
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
