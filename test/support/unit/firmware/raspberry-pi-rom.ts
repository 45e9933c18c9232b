/**
 * How a Raspberry Pi's firmware chooses a partition, by the documentation of autoboot.txt: the settings of `[all]`, and
 * those of `[tryboot]` over them when the flag is set; the first partition where there are none.
 */

/** The firmware reads so much of the file. */
const AUTOBOOT_BYTES = 512;

/** @param isTryboot the flag, which holds for one start @returns the number of the partition */
export function bootedPartition(autoboot: string, isTryboot: boolean): number {
  let applies = true;
  let partition = 1;
  let isAb = false;
  for (const line of autoboot.slice(0, AUTOBOOT_BYTES).split(/\r?\n/)) {
    const text = line.replace(/#.*/, "").trim();
    const filter = /^\[(\w+)\]$/.exec(text)?.[1];
    if (filter !== undefined) applies = filter === "all" || (filter === "tryboot" && isTryboot);
    const [, name, value] = /^(\w+)=(\d+)$/.exec(text) ?? [];
    if (!applies || name === undefined) continue;
    if (name === "boot_partition") partition = Number(value);
    if (name === "tryboot_a_b") isAb = value === "1";
  }
  if (isTryboot && !isAb) throw new Error("tryboot.txt would be read, which no slot has");
  return partition;
}
