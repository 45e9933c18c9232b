/**
 * The configuration file: KubeletConfiguration v1beta1 with picolet's own fields beside it, read strictly, all of its
 * problems at once. The caller prints them and exits with 78 (EX_CONFIG); nothing here exits.
 */
import { hostname, totalmem } from "node:os";
import { isDeepStrictEqual } from "node:util";
import { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import {
  type LocatedProblem,
  locateProblems,
  parseLocatedYaml,
  pathSteps,
} from "@picolet/protocol/kubernetes/located-yaml.ts";
import { childPath, copyPlainData, type PlainDataLimits } from "@picolet/protocol/kubernetes/plain-data.ts";
import { removeInvalidValues, schemaProblem } from "@picolet/protocol/kubernetes/schema-problems.ts";
import * as z from "zod/mini";
import { isContainerfsSignal } from "../plan/eviction/eviction-thresholds.ts";
import { type Board, type BoardDefaults, boardDefaults, type DerivedValue } from "./board-defaults.ts";
import { applyConfigurationDefaults, type Configuration, type ConfigurationInput } from "./configuration-defaults.ts";
import { CONFIGURATION_FIELDS, type FieldTable } from "./configuration-fields.ts";
import { makeConfigurationSchema, unknownFields } from "./configuration-schema.ts";
import { validateConfiguration } from "./configuration-validation.ts";
import { type FlagSetting, flagAt, withFlags } from "./flag-settings.ts";

export { formatLocatedProblem as formatConfigurationProblem } from "@picolet/protocol/kubernetes/located-yaml.ts";
export type { Configuration } from "./configuration-defaults.ts";

/** The origins of values; paths as in problems. A value that is neither given nor derived is a default. */
export interface ConfigurationOrigins {
  /** The paths that file and flags set: mappings, and the fields in them. */
  readonly given: readonly string[];
  /** Those that flags set. Missing: none. */
  readonly flags?: readonly { readonly path: string; readonly flag: string }[];
  /** Defaults that follow from this machine. */
  readonly derived: readonly DerivedValue[];
}

export type LoadConfigurationResult =
  | {
      readonly ok: true;
      readonly configuration: Configuration;
      /**
       * Fields that the kubelet acts upon and this version of picolet does not, set to something else than their
       * default.
       */
      readonly notActedUpon: readonly string[];
      readonly origins: ConfigurationOrigins;
    }
  | { readonly ok: false; readonly problems: readonly LocatedProblem[] };

/** A full KubeletConfiguration has some 10 KB. Larger files are refused unread. */
export const MAX_CONFIGURATION_CHARACTERS = 262_144;
const LIMITS: PlainDataLimits = { maxDepth: 20, maxValues: 20_000, maxCharacters: MAX_CONFIGURATION_CHARACTERS };

/**
 * The default configuration, which holds when there is no file, is that of an empty text.
 *
 * @param text YAML or JSON.
 * @param hostName becomes `nodeName`, lower-cased, when the file gives none. Never throws.
 * @param board what the configuration has to fit, and some defaults follow from
 * @param table the fields that there are
 * @param flags what the command line sets
 */
export function loadConfiguration(
  text: string,
  hostName: string = hostname(),
  board: Board = { memoryBytes: totalmem() },
  table: FieldTable = CONFIGURATION_FIELDS,
  flags: readonly FlagSetting[] = [],
): LoadConfigurationResult {
  if (text.length > MAX_CONFIGURATION_CHARACTERS) {
    return refused({ path: "", message: `Too long: may not be more than ${MAX_CONFIGURATION_CHARACTERS} characters` });
  }
  const yaml = parseLocatedYaml(text);
  if (!yaml.ok) return refused(...yaml.problems);
  const copied = copyPlainData(withFlags(yaml.value, flags, table), LIMITS);
  if (!copied.ok) return refused(copied.problem);
  const problems = new FieldProblems();
  for (const { path, problem } of flags) {
    if (problem === undefined) continue;
    problems.add(path.join("."), problem);
    problems.silence(path.join("."));
  }
  const given = check(copied.value, { hostName, board, table }, problems);
  if (given !== undefined && problems.found.length === 0) {
    const { configuration, defaults } = given;
    const origins = { ...originsOf(copied.value, configuration, defaults), ...flagOrigins(flags) };
    return { ok: true, configuration, notActedUpon: notActedUpon(given, { hostName, table }), origins };
  }
  const found = problems.found.map((problem): LocatedProblem => {
    const flag = flagAt(pathSteps(problem.path), flags)?.flag;
    return flag === undefined ? problem : { ...problem, flag };
  });
  return refused(...locateProblems(found, yaml));
}

interface Checked {
  readonly configuration: Configuration;
  readonly defaults: BoardDefaults;
}

interface Setting {
  readonly hostName: string;
  readonly board: Board;
  readonly table: FieldTable;
}

function check(value: unknown, { hostName, board, table }: Setting, problems: FieldProblems): Checked | undefined {
  const schema = makeConfigurationSchema(table);
  // Compiling the schema to a function would cost memory for something that runs once.
  const safeParse = () => z.safeParse(schema as z.ZodMiniType, value, { jitless: true, reportInput: true });
  for (const { path, nearest } of unknownFields(schema, value)) {
    problems.add(path, nearest === undefined ? "Unknown field" : `Unknown field, did you mean ${nearest}?`);
  }
  let decoded = safeParse();
  if (!decoded.success) {
    for (const { path, message } of decoded.error.issues.map(schemaProblem)) problems.add(path, message);
    removeInvalidValues(value, decoded.error.issues);
    for (const { path } of problems.found) problems.silence(path);
    decoded = safeParse();
    if (!decoded.success) return undefined;
  }
  const given = decoded.data as ConfigurationInput;
  const defaults = boardDefaults(board, given.containerRuntimeEndpoint !== "");
  const configuration: Configuration = applyConfigurationDefaults(given, hostName, defaults, table);
  validateConfiguration(configuration, { board, table }, problems);
  return { configuration, defaults };
}

/**
 * Lists fields that are set but not acted upon. Thresholds for containerfs are listed one by one: the kubelet accepts
 * them, and uses values of its own.
 */
function notActedUpon(
  { configuration, defaults: board }: Checked,
  { hostName, table }: Pick<Setting, "hostName" | "table">,
): string[] {
  const defaults: Readonly<Record<string, unknown>> = applyConfigurationDefaults({}, hostName, board, table);
  const fields = Object.entries(configuration)
    .filter(([name, value]) => table[name]?.isActedUpon !== true && !isDeepStrictEqual(value, defaults[name]))
    .map(([name]) => name);
  const thresholds = (["evictionHard", "evictionSoft"] as const).flatMap((field) =>
    Object.keys(configuration[field])
      .filter(isContainerfsSignal)
      .map((signal) => childPath(field, signal)),
  );
  return [...fields, ...thresholds];
}

function originsOf(value: unknown, configuration: Configuration, { derived }: BoardDefaults): ConfigurationOrigins {
  const given = [...pathsIn(value, "")];
  const isUsed = ({ path }: DerivedValue): boolean => {
    const [field = "", key = ""] = pathSteps(path);
    const values = (configuration as unknown as Readonly<Record<string, Readonly<Record<string, unknown>>>>)[field];
    return values !== undefined && Object.hasOwn(values, key) && !given.includes(path);
  };
  return { given, derived: derived.filter(isUsed) };
}

/** The value is in the configuration; what is shown of a flag is its name. */
function flagOrigins(flags: readonly FlagSetting[]): Pick<ConfigurationOrigins, "flags"> {
  if (flags.length === 0) return {};
  return { flags: flags.map(({ flag, path }) => ({ path: path.join("."), flag: flag.replace(/=.*/s, "") })) };
}

/** Every field of a mapping that is plain data, and of those in it. */
function* pathsIn(value: unknown, path: string): Iterable<string> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return;
  for (const [key, inner] of Object.entries(value)) {
    const at = childPath(path, key);
    yield at;
    yield* pathsIn(inner, at);
  }
}

const refused = (...problems: readonly LocatedProblem[]): LoadConfigurationResult => ({ ok: false, problems });
