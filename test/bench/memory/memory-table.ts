import type { AgentMemory, OwnerFigures } from "./memory-figures.ts";

/** Bounds the folders of the table; the document has all. */
const MAX_FOLDERS = 40;

/** For a terminal: what each owner has, in MiB, and below it who of the sources has what of the heap, in KiB. */
export function memoryTable(title: string, memory: AgentMemory): string {
  const { anonMiB, rssMiB, mappingsMiB, attributedPercent, heapMiB, mallocMiB, filesMiB, folders } = memory;
  return [
    `\n${title}: anon ${anonMiB} MiB, RSS ${rssMiB} MiB; ${attributedPercent} % of anon has an owner`,
    ...section("anon by mapping, MiB", mappingsMiB),
    ...section("V8 heap and code", heapMiB),
    ...section("malloc", mallocMiB),
    ...section("files in memory", filesMiB),
    `  heap by source, KiB${" ".repeat(37)}code  text  data buffer  all`,
    ...Object.entries(folders).slice(0, MAX_FOLDERS).map(folderLine),
  ].join("\n");
}

const section = (name: string, figures: Readonly<Record<string, number>>): string[] => [
  `  ${name}`,
  ...Object.entries(figures)
    .filter(([, mib]) => mib !== 0)
    .map(([owner, mib]) => `    ${owner.padEnd(50)}${mib.toFixed(2).padStart(7)}`),
];

function folderLine([name, figures]: [string, OwnerFigures]): string {
  const { codeKiB, sourceTextKiB, dataKiB, arrayBuffersKiB } = figures;
  const columns = [codeKiB, sourceTextKiB, dataKiB, arrayBuffersKiB, sumOf(figures)];
  return `    ${name.slice(0, 52).padEnd(52)}${columns.map((kib) => String(kib).padStart(6)).join("")}`;
}

export const sumOf = (figures: OwnerFigures): number =>
  figures.codeKiB + figures.sourceTextKiB + figures.dataKiB + figures.arrayBuffersKiB;
