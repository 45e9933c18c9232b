/** The document of `npm run bench`: after each part a whole file, so that a run that is cut off keeps what it has. */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { ratiosOf } from "@picolet/test/bench/ratios.ts";
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
