/** The record of what was applied, on the data partition. A file that is lost or damaged costs one more round of applying. */
import { isRecord } from "@picolet/protocol/guards.ts";
import { type DurableFiles, replaceFile } from "./durable-files.ts";
import { STATE_FILE } from "./plan/places.ts";

export interface BoardState {
  /** SHA-256 of what was applied whole; "" while something is under way, or nothing ever was. */
  readonly applied: string;
  /** Every file that may have been written, and is replaced or removed the next time. */
  readonly files: readonly string[];
  /** The fields of the agent's configuration that were set. */
  readonly owned: readonly (readonly string[])[];
  readonly nodeName?: string;
  /** The hub's URL; undefined: the board has none. */
  readonly hub?: string;
  /** The name that a rule gave, which stays while the rule stays. */
  readonly named?: { readonly rule: string; readonly name: string };
  /** SHA-256 of the identity ("" for none) when the token came: another one shows that it was used. */
  readonly identityBeforeToken?: string;
  /** The token was wiped from `picolet.yaml`. */
  readonly tokenWiped?: true;
}

export const NO_STATE: BoardState = { applied: "", files: [], owned: [] };

export function readState(files: DurableFiles): BoardState {
  const text = files.read(STATE_FILE)?.toString("utf8");
  if (text === undefined) return NO_STATE;
  try {
    const value: unknown = JSON.parse(text);
    if (!isRecord(value)) return NO_STATE;
    const { applied, files: paths, owned } = value;
    const isWhole = typeof applied === "string" && isTexts(paths) && Array.isArray(owned) && owned.every(isTexts);
    return isWhole ? (value as unknown as BoardState) : NO_STATE;
  } catch {
    return NO_STATE;
  }
}

const isTexts = (value: unknown): value is readonly string[] =>
  Array.isArray(value) && value.every((each) => typeof each === "string");

export const writeState = (files: DurableFiles, state: BoardState): boolean =>
  replaceFile(files, STATE_FILE, Buffer.from(`${JSON.stringify(state, undefined, 1)}\n`), 0o600);
