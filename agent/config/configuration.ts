/**
 * The configuration file: KubeletConfiguration v1beta1 with picolet's own fields beside it, read strictly, all of its
 * problems at once. The caller prints them and exits with 78 (EX_CONFIG); nothing here exits.
 */
import { hostname, totalmem } from "node:os";
import { isDeepStrictEqual } from "node:util";
import { type FieldProblem, FieldProblems, formatProblem } from "@picolet/protocol/kubernetes/field-problems.ts";
import { childPath, copyPlainData, type PlainDataLimits } from "@picolet/protocol/kubernetes/plain-data.ts";
import { removeInvalidValues, schemaProblem } from "@picolet/protocol/kubernetes/schema-problems.ts";
import type { Immutable } from "@picolet/protocol/pod/fields/field-schemas.ts";
import * as z from "zod/mini";
import { isContainerfsSignal } from "../plan/eviction/eviction-thresholds.ts";
import { type Board, type BoardDefaults, boardDefaults, type DerivedValue } from "./board-defaults.ts";
import { applyConfigurationDefaults, type ConfigurationInput } from "./configuration-defaults.ts";
import { CONFIGURATION_FIELDS, type FieldTable } from "./configuration-fields.ts";
import { makeConfigurationSchema, unknownFields } from "./configuration-schema.ts";
import { validateConfiguration } from "./configuration-validation.ts";
import { parseLocatedYaml, pathSteps } from "./located-yaml.ts";

/** Plain data: can be printed, stored and sent as it is. Durations are milliseconds, sizes bytes. */
export type Configuration = Immutable<ReturnType<typeof applyConfigurationDefaults>>;

export interface ConfigurationProblem extends FieldProblem {
  /** The line in the file, from 1, where it is known. */
  readonly line?: number;
}

/** The origins of values; paths as in problems. A value that is neither given nor derived is a default. */
export interface ConfigurationOrigins {
  /** The paths that the file sets: mappings, and the fields in them. */
  readonly given: readonly string[];
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
  | { readonly ok: false; readonly problems: readonly ConfigurationProblem[] };

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
 */
export function loadConfiguration(
  text: string,
  hostName: string = hostname(),
  board: Board = { memoryBytes: totalmem() },
  table: FieldTable = CONFIGURATION_FIELDS,
): LoadConfigurationResult {
  if (text.length > MAX_CONFIGURATION_CHARACTERS) {
    return refused({ path: "", message: `Too long: may not be more than ${MAX_CONFIGURATION_CHARACTERS} characters` });
  }
  const yaml = parseLocatedYaml(text);
  if (!yaml.ok) return refused(...yaml.problems.map((problem) => ({ path: "", ...problem })));
  const copied = copyPlainData(yaml.value ?? {}, LIMITS);
  if (!copied.ok) return refused(copied.problem);
  const problems = new FieldProblems();
  const given = check(copied.value, { hostName, board, table }, problems);
  if (given !== undefined && problems.found.length === 0) {
    const { configuration, defaults } = given;
    const origins = originsOf(copied.value, configuration, defaults);
    return { ok: true, configuration, notActedUpon: notActedUpon(given, { hostName, table }), origins };
  }
  const located = problems.found.map((problem): ConfigurationProblem => {
    const line = yaml.lineOf(pathSteps(problem.path));
    return line === undefined ? problem : { ...problem, line };
  });
  return refused(...located.sort((left, right) => (left.line ?? Infinity) - (right.line ?? Infinity) || 0));
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

/** Every field of a mapping that is plain data, and of those in it. */
function* pathsIn(value: unknown, path: string): Iterable<string> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return;
  for (const [key, inner] of Object.entries(value)) {
    const at = childPath(path, key);
    yield at;
    yield* pathsIn(inner, at);
  }
}

const refused = (...problems: readonly ConfigurationProblem[]): LoadConfigurationResult => ({ ok: false, problems });

/** One line for each problem: `/etc/picolet/config.yaml:12: maxPods: Invalid value: …`. */
export const formatConfigurationProblem = (origin: string, problem: ConfigurationProblem): string =>
  `${origin}${problem.line === undefined ? "" : `:${problem.line}`}: ${formatProblem(problem)}`;
