/**
 * A time-series store for tests: an HTTP server that reads line protocol and OTLP/HTTP JSON strictly, and can
 * misbehave.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Line {
  readonly measurement: string;
  readonly tags: Readonly<Record<string, string>>;
  readonly fields: Readonly<Record<string, number | bigint | boolean | string>>;
  readonly timeNs: bigint;
}

/** @throws for anything that the syntax does not allow */
export function parseLine(text: string): Line {
  let at = 0;
  const until = (ends: string): string => {
    let value = "";
    while (at < text.length && !ends.includes(text[at] ?? "")) {
      const next = text[at + 1] ?? "";
      if (text[at] === "\\" && ", =".includes(next) && next !== "") at += 1;
      value += text[at];
      at += 1;
    }
    if (value === "") throw new Error(`an empty name at ${at} of ${text}`);
    return value;
  };
  const expect = (wanted: string): void => {
    if (text[at] !== wanted) throw new Error(`no ${JSON.stringify(wanted)} at ${at} of ${text}`);
    at += 1;
  };
  const quoted = (): string => {
    expect('"');
    let value = "";
    while (text[at] !== '"') {
      if (at >= text.length) throw new Error(`a text without end in ${text}`);
      if (text[at] === "\\" && ['"', "\\"].includes(text[at + 1] ?? "")) at += 1;
      value += text[at];
      at += 1;
    }
    at += 1;
    return value;
  };
  if (text.startsWith("#")) throw new Error("a comment");
  const measurement = until(", ");
  const tags: Record<string, string> = Object.create(null);
  while (text[at] === ",") {
    at += 1;
    const name = until("= ,");
    expect("=");
    if (name in tags) throw new Error(`tag ${name} twice in ${text}`);
    tags[name] = until(", ");
  }
  expect(" ");
  const fields: Record<string, number | bigint | boolean | string> = Object.create(null);
  do {
    if (text[at] === ",") at += 1;
    const name = until("= ,");
    expect("=");
    fields[name] = text[at] === '"' ? quoted() : plainValue(until(", "));
  } while (text[at] === ",");
  expect(" ");
  const time = text.slice(at);
  if (!/^[0-9]{1,19}$/.test(time)) throw new Error(`no time: ${time}`);
  return { measurement, tags, fields, timeNs: BigInt(time) };
}

function plainValue(text: string): number | bigint | boolean {
  if (text === "true" || text === "false") return text === "true";
  if (/^-?[0-9]+i$/.test(text)) return BigInt(text.slice(0, -1));
  if (/^-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?$/.test(text)) return Number(text);
  throw new Error(`no value: ${text}`);
}

export interface OtlpPoint {
  readonly name: string;
  readonly resource: Readonly<Record<string, unknown>>;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly value: number | bigint;
  readonly timeNs: bigint;
  /** Of a counter alone. */
  readonly sinceNs?: bigint;
}

export interface OtlpLog extends Omit<OtlpPoint, "value" | "sinceNs"> {
  readonly severity: number;
  readonly body: string;
}

type Json = Readonly<Record<string, unknown>>;

const listOf = (value: unknown): Json[] => {
  if (!Array.isArray(value) || value.length === 0) throw new Error(`no list: ${JSON.stringify(value)}`);
  return value as Json[];
};

function only(value: unknown, ...keys: readonly string[]): Json {
  const extra = Object.keys(value as Json).filter((key) => !keys.includes(key));
  if (extra.length > 0) throw new Error(`unknown fields ${extra.join(", ")}`);
  return value as Json;
}

function attributesOf(value: unknown): Record<string, unknown> {
  const attributes: Record<string, unknown> = Object.create(null);
  for (const each of value as Json[]) {
    const { key, value: any } = only(each, "key", "value");
    const { stringValue, boolValue } = only(any, "stringValue", "boolValue");
    if (typeof key !== "string" || key in attributes) throw new Error(`attribute ${String(key)} twice`);
    attributes[key] = stringValue ?? boolValue;
  }
  return attributes;
}

function nanoOf(value: unknown): bigint {
  if (typeof value !== "string" || !/^[0-9]+$/.test(value)) throw new Error(`no time: ${String(value)}`);
  return BigInt(value);
}

/** @throws for anything that `ExportMetricsServiceRequest` does not have */
export function parseOtlpMetrics(text: string): OtlpPoint[] {
  return listOf(only(JSON.parse(text), "resourceMetrics").resourceMetrics).flatMap((each) => {
    const resource = attributesOf(only(only(each, "resource", "scopeMetrics").resource, "attributes").attributes);
    return listOf(each.scopeMetrics).flatMap((scope) =>
      listOf(only(scope, "scope", "metrics").metrics).flatMap((metric) => {
        const { name, gauge, sum } = only(metric, "name", "gauge", "sum");
        if ((gauge === undefined) === (sum === undefined)) throw new Error("neither a gauge nor a sum");
        const { dataPoints, aggregationTemporality, isMonotonic } =
          sum === undefined
            ? only(gauge, "dataPoints")
            : only(sum, "dataPoints", "aggregationTemporality", "isMonotonic");
        if (sum !== undefined && (aggregationTemporality !== 2 || isMonotonic !== true)) throw new Error("no counter");
        return listOf(dataPoints).map((point): OtlpPoint => {
          const { timeUnixNano, startTimeUnixNano, asDouble, asInt, attributes } = only(
            point,
            ...(sum === undefined ? [] : ["startTimeUnixNano"]),
            "timeUnixNano",
            "asDouble",
            "asInt",
            "attributes",
          );
          if ((asDouble === undefined) === (asInt === undefined)) throw new Error("not one value");
          if (asInt !== undefined && typeof asInt !== "string") throw new Error("asInt is no text");
          const value = asInt === undefined ? (asDouble as number) : BigInt(asInt as string);
          return {
            name: String(name),
            resource,
            attributes: attributesOf(attributes),
            value,
            timeNs: nanoOf(timeUnixNano),
            ...(sum === undefined ? {} : { sinceNs: nanoOf(startTimeUnixNano) }),
          };
        });
      }),
    );
  });
}

/** @throws for anything that `ExportLogsServiceRequest` does not have */
export function parseOtlpLogs(text: string): OtlpLog[] {
  return listOf(only(JSON.parse(text), "resourceLogs").resourceLogs).flatMap((each) => {
    const resource = attributesOf(only(only(each, "resource", "scopeLogs").resource, "attributes").attributes);
    return listOf(each.scopeLogs).flatMap((scope) =>
      listOf(only(scope, "scope", "logRecords").logRecords).map((record): OtlpLog => {
        only(record, "timeUnixNano", "severityNumber", "severityText", "body", "eventName", "attributes");
        const { stringValue } = only(record.body, "stringValue");
        if (typeof stringValue !== "string") throw new Error("a body that is no text");
        return {
          name: String(record.eventName),
          resource,
          attributes: attributesOf(record.attributes),
          severity: Number(record.severityNumber ?? 0),
          body: stringValue,
          timeNs: nanoOf(record.timeUnixNano),
        };
      }),
    );
  });
}

type Misbehaviour = (request: IncomingMessage, body: string, response: ServerResponse) => boolean;

export class TimeSeriesStore implements AsyncDisposable {
  readonly lines: Line[] = [];
  readonly points: OtlpPoint[] = [];
  readonly logs: OtlpLog[] = [];
  readonly authorizations: string[] = [];
  readonly problems: string[] = [];
  /** @returns true when it has answered, or never will */
  misbehave: Misbehaviour = () => false;
  requests = 0;
  #changed: (() => void) | undefined;
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(): Promise<TimeSeriesStore> {
    const server = createServer();
    const store = new TimeSeriesStore(server);
    server.on("request", (request, response) => void store.#answer(request, response));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return store;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Resolves when `condition` holds, which is checked after each request. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
      });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = "";
    request.setEncoding("utf8");
    for await (const piece of request) body += piece;
    this.requests += 1;
    this.authorizations.push(request.headers.authorization ?? "");
    if (!this.misbehave(request, body, response)) {
      try {
        this.#take(request.url ?? "", body);
        response.writeHead(request.url?.startsWith("/v1/") ? 200 : 204).end();
      } catch (error) {
        this.problems.push(String(error));
        response.writeHead(400).end(String(error));
      }
    }
    this.#changed?.();
  }

  #take(url: string, body: string): void {
    if (url === "/v1/metrics") this.points.push(...parseOtlpMetrics(body));
    else if (url === "/v1/logs") this.logs.push(...parseOtlpLogs(body));
    else if (body.endsWith("\n")) this.lines.push(...body.slice(0, -1).split("\n").map(parseLine));
    else throw new Error("the last line has no end");
  }
}
