/** The document of `npm run bench`: after each part a whole file, so that a run that is cut off keeps what it has. */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { round } from "@picolet/test/bench/measure/process-usage.ts";
import type { RunState } from "./bench-run.ts";
import { PART_NAMES, type PartName } from "./bench-timetable.ts";

export interface BenchTimes {
  readonly buildSeconds: number;
  readonly totalSeconds: number;
}

/** @param verdicts goals, when all parts are over */
export function benchDocument(
  { figures, errors, unfinished, durations }: RunState<PartName>,
  { buildSeconds, totalSeconds }: BenchTimes,
  verdicts: object = {},
): object {
  const ordered = Object.fromEntries(PART_NAMES.flatMap((name) => (name in figures ? [[name, figures[name]]] : [])));
  return {
    ...ordered,
    ratios: ratiosOf(ordered),
    // Seconds.
    durations: { total: totalSeconds, build: buildSeconds, ...durations },
    failed: Object.keys(errors),
    errors,
    ...(unfinished.length > 0 && { unfinished }),
    ...verdicts,
  };
}

/** At no moment is there less at `path` than before. @returns the text */
export function writeDocument(path: string, document: object): string {
  const text = `${JSON.stringify(document, null, 2)}\n`;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(`${path}.new`, text);
  renameSync(`${path}.new`, path);
  return text;
}

/** The compared figures of a process at rest. */
const COMPARED = ["anonMiB", "rssMiB", "cpuPercent"] as const;

type Figures = Partial<Record<(typeof COMPARED)[number], number>>;
type ByPods = Readonly<Record<string, Figures | undefined>>;

interface Document {
  readonly agent?: { readonly withHub?: ByPods };
  readonly kubelet?: { readonly withHub?: ByPods };
  readonly floors?: { readonly bareTls?: Figures };
}

interface Ratios {
  /** The agent with a hub, by what a kubelet that has joined that hub takes with as many pods. */
  readonly ofKubelet: Readonly<Record<string, Figures>>;
  /** The same by a bare Node with one TLS connection, whose CPU time is next to none. */
  readonly ofBareTls: Readonly<Record<string, Figures>>;
}

/** Divides figures of one run, so that the machine's speed is in both of them. */
function ratiosOf(document: Document): Ratios {
  const ofKubelet: Record<string, Figures> = {};
  const ofBareTls: Record<string, Figures> = {};
  for (const [pods, figures] of Object.entries(document.agent?.withHub ?? {})) {
    const { anonMiB, rssMiB } = document.floors?.bareTls ?? {};
    ofKubelet[pods] = ratioOf(figures, document.kubelet?.withHub?.[pods]);
    ofBareTls[pods] = ratioOf(figures, { ...(anonMiB && { anonMiB }), ...(rssMiB && { rssMiB }) });
  }
  return { ofKubelet, ofBareTls };
}

function ratioOf(figures: Figures = {}, by: Figures = {}): Figures {
  const ratios: Figures = {};
  for (const name of COMPARED) {
    const [above, below] = [figures[name], by[name]];
    if (above !== undefined && below) ratios[name] = round(above / below);
  }
  return ratios;
}
