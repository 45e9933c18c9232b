/** Fields of the configuration that the command line sets, and how they meet those of the file. Pure. */
import type { FieldTable } from "./configuration-fields.ts";

/** A field that a flag sets. It wins over the file. */
export interface FlagSetting {
  /** As messages name it: `--max-pods=110`, or the name alone where the value may be a secret. */
  readonly flag: string;
  /** The field's name, or the names down to it. */
  readonly path: readonly string[];
  /** As a file would have it. */
  readonly value: unknown;
  /** Why the text is no such value. */
  readonly problem?: string;
}

type Mapping = Readonly<Record<string, unknown>>;

const isMapping = (value: unknown): value is Mapping =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Puts the flags' values in the place of the file's. Feature gates that no flag names stay the file's, as in the
 * kubelet. A file that is no mapping stays as it is, so that its problem is reported.
 */
export function withFlags(file: unknown, flags: readonly FlagSetting[], table: FieldTable): unknown {
  if (file !== undefined && !isMapping(file)) return file;
  let merged: Mapping = file ?? {};
  for (const { path, value, problem } of flags) {
    if (problem !== undefined) continue;
    const field = table[path[0] ?? ""];
    const isMerged = field !== undefined && "kind" in field && field.kind === "flagMap";
    merged = withValue(merged, path, value, isMerged);
  }
  return merged;
}

function withValue(mapping: Mapping, path: readonly string[], value: unknown, isMerged: boolean): Mapping {
  const [name = "", ...rest] = path;
  const before = mapping[name];
  if (rest.length === 0) {
    return { ...mapping, [name]: isMerged && isMapping(before) && isMapping(value) ? { ...before, ...value } : value };
  }
  if (before !== undefined && before !== null && !isMapping(before)) return mapping;
  return { ...mapping, [name]: withValue(isMapping(before) ? before : {}, rest, value, isMerged) };
}

/** The flag that set the value at `steps`, or the mapping that it is in. */
export const flagAt = (steps: readonly string[], flags: readonly FlagSetting[]): FlagSetting | undefined =>
  flags.findLast(({ path }) => path.every((step, index) => steps[index] === step));
