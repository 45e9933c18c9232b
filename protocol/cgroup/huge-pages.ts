/** Huge pages in resources (`hugepages-2Mi`) and as the kernel's hugetlb controller names them (`2MB`). Pure. */
import { parseQuantity, quantityValue } from "../kubernetes/quantity.ts";

const PREFIX = "hugepages-";

/** Formats a size in the largest unit of which it is a whole number: `2MB`, `64KB`, `1GB`. */
export function hugePageName(bytes: number): string {
  let size = bytes;
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  while (units.length > 1 && size >= 1024 && size % 1024 === 0) {
    size /= 1024;
    units.shift();
  }
  return `${size}${units[0]}`;
}

/** Bytes by the kernel's name of the page size. */
export function* hugePagesIn(texts: Readonly<Record<string, string>> | undefined): Iterable<[string, number]> {
  for (const [name, amount] of Object.entries(texts ?? {})) {
    if (name.startsWith(PREFIX)) yield [hugePageName(bytesOf(name.slice(PREFIX.length))), bytesOf(amount)];
  }
}

/**
 * Returns every page size of the machine, with 0 for those that are not requested: without a limit the kernel gives a
 * cgroup all pages there are.
 */
export function hugePageLimits(
  wanted: Iterable<readonly [string, number]>,
  sizes: readonly string[],
): Readonly<Record<string, number>> {
  const amounts = new Map(wanted);
  return Object.fromEntries(sizes.map((size) => [size, amounts.get(size) ?? 0]));
}

function bytesOf(text: string): number {
  const result = parseQuantity(text);
  return result.ok ? Number(quantityValue(result.quantity)) : 0;
}
