/**
 * Applies a plan so that a power cut at any point costs nothing: first the state says which files may be written, then
 * each is replaced whole, then the state says that it was done. The next boot does again what was not finished.
 */
import { dirname } from "node:path";
import type { BoardState } from "./board-state.ts";
import { writeState } from "./board-state.ts";
import { type DurableFiles, removeFile, replaceFile } from "./durable-files.ts";
import type { BoardPlan } from "./plan/board-plan.ts";
import { AGENT_CONFIGURATION } from "./plan/places.ts";

const union = <T>(one: readonly T[], other: readonly T[]): readonly T[] => [
  ...new Map([...one, ...other].map((each) => [JSON.stringify(each), each])).values(),
];

/** @returns the state that is on disk now */
export function applyBoard(files: DurableFiles, before: BoardState, plan: BoardPlan, next: BoardState): BoardState {
  const written = [...plan.keys()].filter((path) => path !== AGENT_CONFIGURATION);
  writeState(files, {
    ...next,
    applied: "",
    files: union(before.files, written),
    owned: union(before.owned, next.owned),
  });
  for (const path of before.files) if (!plan.has(path)) removeFile(files, path);
  for (const [path, { content, mode }] of plan) {
    if (path.startsWith("/var/lib/")) files.makeFolder(dirname(path), 0o700);
    replaceFile(files, path, Buffer.from(content), mode);
  }
  const state = { ...next, files: written };
  writeState(files, state);
  return state;
}
