/**
 * Reads `picolet.yaml` as people write it, on Windows too: with a byte order mark, CRLF, tabs. All problems at once,
 * each with its line; secrets are in none of them.
 */
import type { Board as Machine } from "@picolet/agent/config/board-defaults.ts";
import { loadConfiguration } from "@picolet/agent/config/configuration.ts";
import { makeConfigurationSchema, unknownFields } from "@picolet/agent/config/configuration-schema.ts";
import { type FieldProblem, FieldProblems, formatProblem } from "@picolet/protocol/kubernetes/field-problems.ts";
import { parseLocatedYaml, pathSteps } from "@picolet/protocol/kubernetes/located-yaml.ts";
import { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";
import { copyPlainData, type PlainDataLimits } from "@picolet/protocol/kubernetes/plain-data.ts";
import { removeInvalidValues, schemaProblem } from "@picolet/protocol/kubernetes/schema-problems.ts";
import * as z from "zod/mini";
import type { BoardFacts } from "./board-facts.ts";
import { editedConfiguration } from "./plan/agent-configuration.ts";
import { agentFields, type Fields } from "./plan/agent-fields.ts";
import { BOARD_FILE_FIELDS, type BoardFile } from "./plan/board-file-fields.ts";
import type { ReadBoard } from "./plan/board-plan.ts";
import { validateBoardFile } from "./validate-board-file.ts";

/** A file with keys, certificates and a few pods has some 30 KB. A larger one is refused unread. */
export const MAX_BOARD_FILE_BYTES = 262_144;
const LIMITS: PlainDataLimits = { maxDepth: 50, maxValues: 50_000, maxCharacters: MAX_BOARD_FILE_BYTES };

export interface Surroundings {
  readonly facts: Pick<BoardFacts, "serial" | "mac">;
  /** Fields that the image gives the agent. */
  readonly defaults: Fields;
  /** The agent's configuration as it is; "" for none. */
  readonly present: string;
  /** Fields of it that the last file set. */
  readonly owned: readonly (readonly string[])[];
  /** The name that a rule gave. */
  readonly named: { readonly rule: string; readonly name: string } | undefined;
  /** The machine that the agent's configuration must fit. */
  readonly machine: Machine;
}

export type ReadBoardFile =
  | ({ readonly ok: true } & ReadBoard)
  /** One line each: `line 12: hub.caHash: Required value`. */
  | { readonly ok: false; readonly problems: readonly string[] };

interface LocatedProblem extends FieldProblem {
  readonly line?: number | undefined;
}

/** Never throws. */
export function readBoardFile(bytes: Uint8Array, around: Surroundings): ReadBoardFile {
  const text = decode(bytes);
  if (typeof text !== "string") return refused([text]);
  const yaml = parseLocatedYaml(text);
  if (!yaml.ok)
    return refused(yaml.problems.map(({ message, line }) => ({ path: "", message: mending(message), line })));
  const copied = copyPlainData(yaml.value ?? {}, LIMITS);
  const problems = new FieldProblems();
  const read = copied.ok ? check(copied.value, around, problems) : undefined;
  if (!copied.ok) problems.add(copied.problem.path, copied.problem.message);
  if (read !== undefined && problems.found.length === 0) return { ok: true, ...read };
  const located = problems.found.map((each) => ({ ...each, line: yaml.lineOf(pathSteps(each.path)) }));
  return refused(located.sort((left, right) => (left.line ?? Infinity) - (right.line ?? Infinity) || 0));
}

function refused(problems: readonly LocatedProblem[]): ReadBoardFile {
  const lines = problems.map(
    ({ line, ...problem }) => `${line === undefined ? "" : `line ${line}: `}${formatProblem(withoutSecret(problem))}`,
  );
  return { ok: false, problems: [...new Set(lines)] };
}

/** A value of these is not shown: part of it may be right. */
const SECRET_PLACES = /^(?:hub|network\.wifi|registries|proxy)(?:$|[.[])/;
const TOKEN = /\b[a-z0-9]{6}\.[a-z0-9]{16}\b/g;

function withoutSecret({ path, message }: FieldProblem): FieldProblem {
  const isSecret = SECRET_PLACES.test(path) && !/\.(?:server|url|caHash|country|host)(?:\[\d+\])?$/.test(path);
  const shown = isSecret
    ? message.replace(/^Invalid value: .*?(?=: (?:must|may|is|has|would) )/s, "Invalid value")
    : message;
  const hidden = "******.****************";
  return { path: path.replaceAll(TOKEN, hidden), message: shown.replaceAll(TOKEN, hidden) };
}

function decode(bytes: Uint8Array): string | LocatedProblem {
  const problem = (message: string, line?: number): LocatedProblem => ({ path: "", message, line });
  if (bytes.length > MAX_BOARD_FILE_BYTES)
    return problem(`the file is too large: at most ${MAX_BOARD_FILE_BYTES} bytes are read`);
  const [first, second] = bytes;
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff))
    return problem("the file is UTF-16, which Windows calls Unicode: save it as UTF-8");
  const zero = bytes.indexOf(0);
  if (zero >= 0) return problem("the file has bytes that are no text: write it again", lineAt(bytes, zero));
  try {
    // Leaves out a byte order mark.
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return problem("a character is not UTF-8: save the file as UTF-8", lineAt(bytes, firstNonUtf8(bytes)));
  }
}

const lineAt = (bytes: Uint8Array, offset: number): number =>
  bytes.subarray(0, offset).reduce((line, byte) => line + Number(byte === 10), 1);

/** The start of the first line that is not UTF-8. */
function firstNonUtf8(bytes: Uint8Array): number {
  for (let start = 0; start < bytes.length; ) {
    const feed = bytes.indexOf(10, start);
    const end = feed < 0 ? bytes.length : feed + 1;
    if (Buffer.from(bytes.subarray(start, end)).toString("utf8").includes("�")) return start;
    start = end;
  }
  return 0;
}

/** The parser's message, and how to mend it where that is not plain. */
function mending(message: string): string {
  if (/\btabs?\b/i.test(message)) return `${message}: indent with spaces, never with the Tab key`;
  if (/implicit (?:keys?|map)/i.test(message)) return `${message}: is a space missing after a colon, or a quote?`;
  if (/indent/i.test(message)) return `${message}: fields of one mapping begin in the same column`;
  return message;
}

/** Names that other programs have for fields. YAML reads `no` as false. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  "proxy.http": "httpProxy",
  "proxy.https": "httpsProxy",
  "proxy.false": "noProxy",
  "network.wifi.psk": "password",
  "ssh.keys": "authorizedKeys",
  "node.hostname": "network.hostname",
};

function check(value: unknown, around: Surroundings, problems: FieldProblems): ReadBoard | undefined {
  const schema = makeConfigurationSchema(BOARD_FILE_FIELDS);
  const parse = () => z.safeParse(schema as z.ZodMiniType, value, { jitless: true, reportInput: true });
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    problems.add("", 'must be fields and their values, such as "hub:"');
    return undefined;
  }
  for (const { path, nearest = OTHER_NAMES[path] } of unknownFields(schema, value))
    problems.add(path, nearest === undefined ? "Unknown field" : `Unknown field, did you mean ${nearest}?`);
  let decoded = parse();
  if (!decoded.success) {
    for (const { path, message } of decoded.error.issues.map(schemaProblem)) problems.add(path, message);
    removeInvalidValues(value, decoded.error.issues);
    for (const { path } of problems.found) problems.silence(path);
    decoded = parse();
    if (!decoded.success) return undefined;
  }
  const file = decoded.data as BoardFile;
  validateBoardFile(file, problems);
  return withAgent(file, around, problems);
}

/** Judges with the agent's own rules what becomes of it. */
function withAgent(file: BoardFile, around: Surroundings, problems: FieldProblems): ReadBoard | undefined {
  const rule = file.node?.name === undefined ? (file.node?.nameRule ?? DEFAULT_NAME_RULE) : undefined;
  const nodeName = nodeNameOf(file, rule, around, problems);
  const fields = agentFields(file, nodeName, around.defaults, problems);
  const edited = editedConfiguration({ ...around, fields: fields.values });
  const agent = loadConfiguration(edited.text, "localhost", around.machine);
  if (!agent.ok) for (const { path, message } of agent.problems) problems.add(fields.pathOf(path), message);
  if (!agent.ok) return undefined;
  return {
    file,
    nodeName,
    nameRule: rule,
    configuration: edited.text,
    owned: edited.owned,
    agent: agent.configuration,
  };
}

function nodeNameOf(
  { node }: BoardFile,
  rule: string | undefined,
  { facts, named }: Surroundings,
  problems: FieldProblems,
): string {
  if (rule === undefined) return node?.name ?? "";
  if (named?.rule === rule) return named.name;
  const result = nameByRule(rule, facts);
  if (result.ok) return result.name;
  // The default is no mistake of the file.
  if (node?.nameRule === undefined) return "picolet";
  problems.invalid("node.nameRule", rule, result.problem);
  problems.silence("node.name");
  return "picolet";
}

/** Every board with a network card has it. */
const DEFAULT_NAME_RULE = "picolet-{mac:6}";
const NUMBERS = ["serial", "mac"] as const;
const PLACEHOLDER = /\{([^{}]*)\}/g;

type NameByRule = { readonly ok: true; readonly name: string } | { readonly ok: false; readonly problem: string };

/** @param rule `serial`, `mac`, or a pattern: `edge-{serial:8}` */
export function nameByRule(rule: string, { serial, mac }: Pick<BoardFacts, "serial" | "mac">): NameByRule {
  const pattern = (NUMBERS as readonly string[]).includes(rule) ? `{${rule}}` : rule;
  const values = { serial: serial?.replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-+|-+$/g, ""), mac };
  let problem: string | undefined;
  const name = pattern.replaceAll(PLACEHOLDER, (whole, inner: string) => {
    const [number = "", count, more] = inner.split(":");
    const known = NUMBERS.find((each) => each === number);
    const digits = count === undefined ? 0 : Number(count);
    if (known === undefined) {
      const nearest = nearestName(number, NUMBERS);
      problem ??= `${whole} is not known${nearest === undefined ? ": write {serial}, {mac}, {serial:8} or {mac:6}" : `, did you mean {${nearest}}?`}`;
    } else if (more !== undefined || (count !== undefined && !(/^\d{1,2}$/.test(count) && digits >= 1)))
      problem ??= `${whole} must be {${known}}, or {${known}:6} for its last 6 characters`;
    else if (values[known] === undefined || values[known] === "") {
      const [other] = NUMBERS.filter((each) => each !== known);
      problem ??= `this board has no ${known === "mac" ? "network card" : "serial number"}: use {${other}}, or node.name`;
    } else return values[known].slice(digits === 0 ? 0 : -digits).replace(/^-+/, "");
    return "";
  });
  if (problem !== undefined) return { ok: false, problem };
  if (!pattern.includes("{"))
    return {
      ok: false,
      problem: "would give every board the same name: write node.name, or use {serial:8} or {mac:6}",
    };
  return { ok: true, name };
}
