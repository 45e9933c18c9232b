/**
 * The hub's configuration file: YAML with a field for each flag of `picolet-hub serve`. The table of flags is the table
 * of fields too: `--server-name NAME` is `serverName: [NAME]`. Flags win over the file. Pure.
 */
import { didYouMean } from "@picolet/protocol/command-line/command-line.ts";
import type { Flag } from "@picolet/protocol/command-line/program.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import {
  formatLocatedProblem,
  type LocatedProblem,
  locateProblems,
  parseLocatedYaml,
} from "@picolet/protocol/kubernetes/located-yaml.ts";
import { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";
import { childPath, copyPlainData, type PlainDataLimits } from "@picolet/protocol/kubernetes/plain-data.ts";
import { CONFIG, HUB } from "./program.ts";

/** The reason of the error for a file that is wrong. Its message has a line for each problem. */
export const WRONG_CONFIGURATION = "WrongConfiguration";

/** A file with every field has 2 KB. Larger files are refused unread. */
export const MAX_CONFIGURATION_CHARACTERS = 65_536;
const LIMITS: PlainDataLimits = { maxDepth: 8, maxValues: 4096, maxCharacters: MAX_CONFIGURATION_CHARACTERS };

/** Name and version of the format; both may be left out. */
const FORMAT = { apiVersion: "hub.picolet.io/v1", kind: "HubConfiguration" } as const;

/** A hub with an API server of its own, at a public name. docs/hub-configuration.md shows it. */
export const EXAMPLE = `apiVersion: ${FORMAT.apiVersion}
kind: ${FORMAT.kind}

# A fleet without a Kubernetes cluster; its state is in dataDir.
embedded: true
dataDir: /var/lib/picolet-hub

# How boards and kubectl reach this hub from elsewhere.
serverName:
  - hub.example.com
  - 203.0.113.7

storeMaxBytes: 2Gi
logFormat: json
`;

export interface HubField {
  /** `serverName` */
  readonly name: string;
  readonly flag: Flag;
}

/** `server-name` is `serverName`. */
const fieldName = (flag: string): string => flag.replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase());

/** Every flag of `picolet-hub serve` but the one that names the file, in the order of the help. */
export const HUB_FIELDS: readonly HubField[] = HUB.commands
  .filter(({ name }) => name === "serve")
  .flatMap(({ flags }) =>
    flags.filter((flag) => flag !== CONFIG).map((flag) => ({ name: fieldName(flag.name), flag })),
  );

/** As the command line has them: the values of each flag by its name, a switch as "true" or "false". */
export type FlagValues = ReadonlyMap<string, readonly string[]>;

/** @throws `invalid` with the reason WRONG_CONFIGURATION; never anything else */
export function parseConfigurationFile(text: string, path: string): FlagValues {
  if (text.length > MAX_CONFIGURATION_CHARACTERS)
    throw refused(path, [
      { path: "", message: `Too long: may not be more than ${MAX_CONFIGURATION_CHARACTERS} characters` },
    ]);
  const yaml = parseLocatedYaml(text);
  if (!yaml.ok) throw refused(path, yaml.problems);
  const copied = copyPlainData(yaml.value ?? {}, LIMITS);
  if (!copied.ok) throw refused(path, [copied.problem]);
  const problems = new FieldProblems();
  const values = readFields(copied.value, problems);
  if (problems.found.length > 0) throw refused(path, locateProblems(problems.found, yaml));
  return values;
}

/** @param error of the flags and the file together, whose message names flags */
export function conflictIn(text: string, path: string, error: unknown): PicoletError {
  const message = describeError(error).replaceAll(/--([a-z][a-z-]*)/g, (_, flag: string) => fieldName(flag));
  const [first] = message.split(/\W/);
  const field = HUB_FIELDS.find(({ name }) => name === first)?.name ?? "";
  const yaml = parseLocatedYaml(text);
  return refused(path, yaml.ok ? locateProblems([{ path: field, message }], yaml) : [{ path: field, message }]);
}

const refused = (path: string, problems: readonly LocatedProblem[]): PicoletError =>
  new PicoletError("invalid", problems.map((each) => formatLocatedProblem(path, each)).join("\n"), {
    reason: WRONG_CONFIGURATION,
  });

function readFields(value: unknown, problems: FieldProblems): FlagValues {
  const values = new Map<string, readonly string[]>();
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    problems.add("", "must be a mapping of fields, such as `embedded: true`");
    return values;
  }
  const names = [...Object.keys(FORMAT), ...HUB_FIELDS.map(({ name }) => name)];
  for (const [key, given] of Object.entries(value)) {
    const path = childPath("", key);
    const field = HUB_FIELDS.find(({ name }) => name === key);
    if (key === "apiVersion" || key === "kind") {
      if (given !== FORMAT[key]) problems.unsupported(path, given, [FORMAT[key]]);
    } else if (field === undefined) {
      const nearest = nearestName(key, names);
      problems.add(path, nearest === undefined ? "Unknown field" : `Unknown field, did you mean ${nearest}?`);
    } else values.set(field.flag.name, readField(field.flag, path, given, problems));
  }
  return values;
}

function readField(flag: Flag, path: string, given: unknown, problems: FieldProblems): readonly string[] {
  if (flag.value === undefined) {
    if (typeof given !== "boolean") problems.invalid(path, given, "must be true or false");
    return [String(given)];
  }
  if (!Array.isArray(given)) return readValue(flag, path, given, problems);
  if (flag.repeats !== true) problems.invalid(path, given, "must be one value, not a list");
  return given.flatMap((each, index) => readValue(flag, `${path}[${index}]`, each, problems));
}

function readValue(flag: Flag, path: string, given: unknown, problems: FieldProblems): readonly string[] {
  const isNumber = flag.takesNumber === true && Number.isSafeInteger(given);
  if (typeof given !== "string" && !isNumber) {
    problems.invalid(path, given, "must be a string (put it in quotes)");
    return [];
  }
  const text = String(given);
  const { choices, parse } = flag;
  if (choices !== undefined && !choices.includes(text)) {
    problems.invalid(path, given, `must be one of ${choices.join(", ")}${didYouMean(text, choices, "")}`);
    return [];
  }
  try {
    parse?.(text);
  } catch (error) {
    problems.invalid(path, given, describeError(error).replace(`--${flag.name}`, "").replace(/^:? /, ""));
  }
  return [text];
}
