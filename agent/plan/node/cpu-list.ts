/** Lists of CPUs and memory nodes as the kernel and the kubelet write them: "0-3,8". Pure. */

/** Linux is built for 8192 at most. */
const MAX_CPU = 8191;
/** Longer than that no list of them is. */
const MAX_LENGTH = 65_536;

/** In ascending order, each once; "" is none. Undefined when `text` is no list. */
export function parseCpuList(text: string): readonly number[] | undefined {
  if (text === "") return [];
  if (text.length > MAX_LENGTH) return undefined;
  const found = new Set<number>();
  for (const part of text.split(",")) {
    const [, from, to] = /^(\d{1,4})(?:-(\d{1,4}))?$/.exec(part) ?? [];
    if (from === undefined) return undefined;
    const [first, last] = [Number(from), Number(to ?? from)];
    if (first > last || last > MAX_CPU) return undefined;
    for (let cpu = first; cpu <= last; cpu += 1) found.add(cpu);
  }
  return [...found].sort((left, right) => left - right);
}
