export interface OwnerFigures {
  readonly codeKiB: number;
  readonly sourceTextKiB: number;
  readonly dataKiB: number;
  /** Outside the heap. */
  readonly arrayBuffersKiB: number;
}

export interface AgentMemory {
  readonly anonMiB: number;
  readonly rssMiB: number;
  /** By mapping; all of `anonMiB`. */
  readonly mappingsMiB: Readonly<Record<string, number>>;
  /** The part of `anonMiB` that is in a mapping with an owner. */
  readonly attributedPercent: number;
  /** In the mapping "V8 heap": used by space, garbage with it; and what V8 has beyond that. */
  readonly heapMiB: Readonly<Record<string, number>>;
  /** Memory in malloc's mappings, by the owners that report theirs; for SQLite it is the limit of its caches. */
  readonly mallocMiB: Readonly<Record<string, number>>;
  /** Resident, and dropped when memory is short: pages of files. */
  readonly filesMiB: Readonly<Record<string, number>>;
  /** Live heap by folder or package of the source, the greatest first. */
  readonly folders: Readonly<Record<string, OwnerFigures>>;
  readonly sourceFiles: Readonly<Record<string, OwnerFigures>>;
}

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
