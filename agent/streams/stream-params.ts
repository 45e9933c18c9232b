/** Parses a hub's parameters field by field. Every error is `invalid` and names the field. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { PAGE_DATA_PATH } from "@picolet/protocol/page/board-data.ts";
import { type PodAction, podActionOf } from "@picolet/protocol/page/pod-actions.ts";
import type { ExecParams, KubeletParams, LogsParams, PortForwardParams } from "@picolet/protocol/tunnel/stream.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Names of objects have 253 at most; UIDs, container names and option values less. */
const MAX_TEXT_LENGTH = 512;
/** Linux takes no more for one argument (MAX_ARG_STRLEN), and some megabytes for all; a tunnel message takes less. */
const MAX_WORD_LENGTH = 128 * 1024;
const MAX_WORDS = 1024;
const MAX_PORTS = 256;
/** With its query; HTTP servers stop at some 8 KiB. */
const MAX_PATH_LENGTH = 4096;
/** Browsers send some 150 characters, Prometheus 500. */
const MAX_ACCEPT_LENGTH = 1024;
const MAX_QUERY_OPTIONS = 32;

/** The headers of an upgrade to one of Kubernetes' protocols; all others of a client's request stay with the hub. */
const UPGRADE_HEADERS: ReadonlySet<string> = new Set([
  "upgrade",
  "sec-websocket-key",
  "sec-websocket-version",
  "sec-websocket-protocol",
  "sec-websocket-extensions",
  "x-stream-protocol-version",
]);

const invalid = (what: string): PicoletError => new PicoletError("invalid", `cannot open the stream: ${what}`);

function fieldsOf(value: unknown, what: string): Fields {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Fields;
  throw invalid(`${what} is no object`);
}

function text(fields: Fields, name: string, limit = MAX_TEXT_LENGTH): string {
  const value = fields[name] ?? "";
  if (typeof value !== "string" || value.length > limit)
    throw invalid(`${name} is no text of up to ${limit} characters`);
  return value;
}

function given(fields: Fields, name: string): string {
  const value = text(fields, name);
  if (value === "") throw invalid(`${name} is missing`);
  return value;
}

function flag(fields: Fields, name: string): boolean {
  const value = fields[name] ?? false;
  if (typeof value !== "boolean") throw invalid(`${name} is not true or false`);
  return value;
}

function list<T>(fields: Fields, name: string, limit: number, isItem: (item: unknown) => item is T): readonly T[] {
  const value = fields[name] ?? [];
  if (!Array.isArray(value) || value.length > limit || !value.every(isItem)) {
    throw invalid(`${name} is no list of up to ${limit} proper items`);
  }
  return value;
}

const isWord = (item: unknown): item is string => typeof item === "string" && item.length <= MAX_WORD_LENGTH;
const isPort = (item: unknown): item is number => Number.isInteger(item) && Number(item) > 0 && Number(item) < 65_536;

function upgradeOf(fields: Fields): Readonly<Record<string, string>> | undefined {
  if (fields.upgrade === undefined || fields.upgrade === null) return undefined;
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(fieldsOf(fields.upgrade, "upgrade"))) {
    const lower = name.toLowerCase();
    // They become lines of a request to the runtime.
    if (typeof value !== "string" || value.length > MAX_TEXT_LENGTH || !/^[\x20-\x7e]*$/.test(value)) {
      throw invalid(`upgrade header ${JSON.stringify(name.slice(0, 40))} is not proper`);
    }
    if (UPGRADE_HEADERS.has(lower)) headers[lower] = value;
  }
  return headers;
}

export interface PodSelector {
  readonly namespace: string;
  readonly pod: string;
  /** "" for any incarnation. */
  readonly uid: string;
}

const selectorOf = (fields: Fields): PodSelector => ({
  namespace: given(fields, "namespace"),
  pod: given(fields, "pod"),
  uid: text(fields, "uid"),
});

export function logsParams(value: unknown): LogsParams {
  const fields = fieldsOf(value, "what was asked for");
  const query = fieldsOf(fields.query ?? {}, "query");
  const options = Object.keys(query);
  if (options.length > MAX_QUERY_OPTIONS) throw invalid(`query has more than ${MAX_QUERY_OPTIONS} options`);
  return {
    ...selectorOf(fields),
    container: text(fields, "container"),
    query: Object.fromEntries(options.map((name) => [name, text(query, name)])),
  };
}

export function execParams(value: unknown): ExecParams {
  const fields = fieldsOf(value, "what was asked for");
  return {
    ...selectorOf(fields),
    container: text(fields, "container"),
    command: list(fields, "command", MAX_WORDS, isWord),
    stdin: flag(fields, "stdin"),
    stdout: flag(fields, "stdout"),
    stderr: flag(fields, "stderr"),
    tty: flag(fields, "tty"),
    upgrade: upgradeOf(fields),
  };
}

export function portForwardParams(value: unknown): PortForwardParams {
  const fields = fieldsOf(value, "what was asked for");
  return { ...selectorOf(fields), ports: list(fields, "ports", MAX_PORTS, isPort), upgrade: upgradeOf(fields) };
}

/** @throws `invalid`, for a method other than GET too, but with the path of an action */
export function kubeletParams(value: unknown): KubeletParams | { readonly action: PodAction; readonly user: string } {
  const fields = fieldsOf(value, "what was asked for");
  if (fields.method !== "GET") return podActionParams(fields);
  const path = text(fields, "path", MAX_PATH_LENGTH);
  if (!path.startsWith("/")) throw invalid("path does not start with /");
  return {
    method: "GET",
    path,
    accept: typeof fields.accept === "string" ? fields.accept.slice(0, MAX_ACCEPT_LENGTH) : "",
  };
}

function podActionParams(fields: Fields): { readonly action: PodAction; readonly user: string } {
  const path = text(fields, "path", MAX_PATH_LENGTH);
  const method = text(fields, "method");
  const action = path.startsWith(PAGE_DATA_PATH) ? podActionOf(method, path.slice(PAGE_DATA_PATH.length)) : undefined;
  if (action === undefined) throw invalid("only GET is offered here");
  return { action, user: given(fields, "user") };
}
