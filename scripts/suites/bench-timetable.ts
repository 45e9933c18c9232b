/**
 * The timetable of `npm run bench`: its parts, what each waits for, and how many seconds it takes on two quiet cores.
 * `scripts/suites/bench-run.ts` has the phases. `npm run bench` prints what they took beside this, and its document has
 * it as `durations`.
 */
import { PHASES, type Phase, type RunState, type Seconds } from "./bench-run.ts";

export interface Part {
  readonly what: string;
  /** The reason that `rest` takes what it takes. */
  readonly waits?: string;
  readonly seconds: Seconds;
}

/** Building the programs and the example components. */
const BUILD_SECONDS = 20;
/** A whole run. */
export const LIMIT_SECONDS = 12 * 60;

/** In the order of the document. */
export const PARTS = {
  floors: {
    what: "bare Node, and with one TLS connection, at rest",
    waits: "15 s until garbage is collected, a window of 60 s",
    seconds: { setUp: 1, rest: 75, end: 1 },
  },
  agent: {
    what: "the agent at rest with 0, 10 and 50 pods, without and with a hub",
    waits: "90 s until the starts are reported, a window of 60 s",
    seconds: { setUp: 24, rest: 150, end: 33 },
  },
  kubelet: {
    what: "the same of the kubelet that --kubelet names, standalone and joined to a hub",
    seconds: { measure: 1020 },
  },
  lean: {
    what: "what the guard in npm test sees: memory, bytes, wake-ups, system calls at rest",
    waits: "20 s, up to 30 s until a heartbeat, 3 heartbeats of 30 s",
    seconds: { setUp: 8, rest: 145, end: 29 },
  },
  memory: {
    what: "its memory by owner: heap by space and source file, malloc, stacks, libraries",
    waits: "60 s until the agents have settled",
    seconds: { setUp: 19, rest: 60, end: 49 },
  },
  devices: {
    what: "memory that one device plugin adds to an agent at rest; a pod that starts with a device",
    waits: "90 s until garbage is collected, a window of 60 s",
    seconds: { setUp: 12, rest: 150, end: 3, measure: 20 },
  },
  latency: { what: "pods that start, crash, are adopted; the CRI calls by hand", seconds: { measure: 59 } },
  tunnel: {
    what: "bytes and round trips to the hub; apply, exec and logs through it",
    waits: "90 s until the starts are reported, up to 30 s until a heartbeat, 3 heartbeats of 30 s",
    seconds: { setUp: 7, rest: 195, end: 29, measure: 22 },
  },
  wasm: { what: "components: memory, restarts, pulls, HTTP, key-value store", seconds: { measure: 84 } },
  probes: {
    what: "300 probes every 10 s",
    waits: "12 s until each has run, a window of 60 s, both kinds at once",
    seconds: { setUp: 1, rest: 73, end: 1, measure: 73 },
  },
  eviction: { what: "pods that leak memory", seconds: { measure: 57 } },
  blackbox: { what: "bytes that the black box writes in a day of a crash loop", seconds: { measure: 2 } },
  stats: { what: "collection of usage", seconds: { measure: 3 } },
  edgectl: { what: "edgectl status", seconds: { measure: 2 } },
  page: { what: "a board's page in a browser", seconds: { measure: 4 } },
  hub: { what: "the fleet's page of 10,000 boards in a browser", seconds: { measure: 6 } },
  api: {
    what: "memory of the kubelet's port after a client has come",
    waits: "90 s until the starts are reported, a window of 60 s",
    seconds: { setUp: 7, rest: 150, end: 12 },
  },
  metrics: {
    what: "scrapes of 50 pods, and samples that a board with 10 pods pushes",
    waits: "90 s until the starts are reported, 90 s of samples",
    seconds: { setUp: 5, rest: 180, end: 6, measure: 25 },
  },
} as const satisfies Readonly<Record<string, Part>>;

export type PartName = keyof typeof PARTS;
export const PART_NAMES = Object.keys(PARTS) as PartName[];

export interface Selection {
  /** Names with commas between them. Undefined: all. */
  readonly only: string | undefined;
  readonly hasKubelet: boolean;
}

/** Parts that are measured, in the document's order. @throws a sentence that names a part that does not exist */
export function selectParts({ only, hasKubelet }: Selection): readonly PartName[] {
  const wanted = new Set<string>(only?.split(",") ?? PART_NAMES.filter((name) => name !== "kubelet"));
  const unknown = [...wanted].filter((name) => !(name in PARTS));
  if (unknown.length > 0) throw new Error(`the bench has no part ${unknown.join(", ")}`);
  if (wanted.has("kubelet") && !hasKubelet) throw new Error("the part kubelet needs --kubelet FILE");
  if (hasKubelet) wanted.add("kubelet");
  return PART_NAMES.filter((name) => wanted.has(name));
}

/** Adds up the timetable's seconds: a phase in which parts are side by side takes as long as its longest part. */
export function plannedSeconds(names: readonly PartName[]): { readonly phases: Seconds; readonly total: number } {
  const phases: Seconds = {};
  for (const phase of PHASES) {
    const all = names.map((name) => partOf(name).seconds[phase] ?? 0);
    phases[phase] = isSideBySide(phase) ? Math.max(0, ...all) : all.reduce((sum, each) => sum + each, 0);
  }
  return { phases, total: BUILD_SECONDS + Object.values(phases).reduce((sum, each) => sum + each, 0) };
}

/** A busy machine has been seen to take five times as long. */
const SLOWNESS = 10;
const LEAST_LIMIT_MS = 600_000;

/** A part that takes longer than this will never come to an end. */
export const limitMs = (name: PartName, phase: Phase): number =>
  Math.max(LEAST_LIMIT_MS, (partOf(name).seconds[phase] ?? 0) * 1000 * SLOWNESS);

export const partOf = (name: PartName): Part => PARTS[name];

const isSideBySide = (phase: Phase): boolean => phase === "rest" || phase === "end";

/** Lines of a help text. */
export function describeParts(): string[] {
  return PART_NAMES.map((name) => {
    const { what, waits, seconds } = partOf(name);
    const own = PHASES.filter((phase) => phase !== "rest").reduce((sum, phase) => sum + (seconds[phase] ?? 0), 0);
    const rest = waits === undefined ? "" : ` It rests for ${seconds.rest} s: ${waits}.`;
    return `${name} (${own} s): ${what}.${rest}`;
  });
}

const TITLES: Readonly<Record<Phase, string>> = {
  setUp: "set-up",
  rest: "rest",
  end: "end",
  measure: "alone",
};

/** Formats the seconds of each part, with the timetable's in parentheses, and the part that it waited for. */
export function describeDurations({ phases, parts }: RunState<PartName>["durations"]): string[] {
  const names = PART_NAMES.filter((name) => name in parts);
  const rows = names.map((name) => [
    name,
    ...PHASES.map((phase) => {
      const [seconds, planned] = [parts[name]?.[phase], partOf(name).seconds[phase]];
      if (seconds === undefined) return "";
      return planned === undefined ? `${seconds}` : `${seconds} (${planned})`;
    }),
    waitedFor(name, parts),
  ]);
  const sums = ["all", ...PHASES.map((phase) => `${phases[phase] ?? ""}`), ""];
  return aligned([["part", ...PHASES.map((phase) => TITLES[phase]), "waited for"], ...rows, sums]);
}

/** The part whose rest lasted longest; that part waits for none. */
function waitedFor(name: PartName, parts: RunState<PartName>["durations"]["parts"]): string {
  const own = parts[name]?.rest;
  if (own === undefined) return "";
  const [last, longest] = PART_NAMES.map((each) => [each, parts[each]?.rest ?? 0] as const).reduce((one, other) =>
    other[1] > one[1] ? other : one,
  );
  return last === name ? "" : `${last}, ${(longest - own).toFixed(1)} s`;
}

function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}
