import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { TelemetryReader } from "@picolet/hub-core/telemetry-ports.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { lineOf } from "./line-protocol.ts";
import { type RecordRow, recordRowsOf } from "./record-rows.ts";
import type { TelemetryQuery, TelemetryStore } from "./telemetry-store.ts";

type Format = "json" | "line";

interface Question {
  readonly query: TelemetryQuery;
  readonly kind: "point" | "event" | undefined;
  readonly limit: number;
  readonly format: Format;
}

const CONTENT_TYPES: Readonly<Record<Format, string>> = {
  json: "application/x-ndjson",
  line: "text/plain; charset=utf-8",
};
const KNOWN: ReadonlySet<string> = new Set(["namespace", "pod", "kind", "since", "until", "limit", "format"]);
/** Records of one answer, unless the query says less. */
const MAX_RECORDS = 100_000;

/** `GET /telemetry` of a node: what the hub has of it, as JSON lines or in line protocol. */
export class TelemetryAnswers implements TelemetryReader {
  readonly #store: TelemetryStore;
  readonly #clock: Clock;

  constructor({ store, clock }: { readonly store: TelemetryStore; readonly clock: Clock }) {
    this.#store = store;
    this.#clock = clock;
  }

  async answer(node: string, url: string, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const parameters = new URL(url, "http://node").searchParams;
    const { query, kind, limit, format } = questionOf(node, parameters, this.#clock.wall().getTime());
    response.writeHead(200, { "content-type": CONTENT_TYPES[format] });
    let left = limit;
    for (const batch of this.#store.query(query)) {
      const rows = recordRowsOf(batch).filter(
        (row) => isMeant(row, query) && (kind === undefined || row.record.kind === kind),
      );
      const lines = rows.slice(0, left).map((row) => `${format === "line" ? lineOf(row) : jsonOf(row)}\n`);
      left -= lines.length;
      if (signal.aborted) return;
      if (lines.length > 0 && !response.write(lines.join(""))) await once(response, "drain", { signal });
      if (left === 0) break;
    }
    response.end();
  }
}

function questionOf(node: string, parameters: URLSearchParams, nowMs: number): Question {
  for (const name of parameters.keys()) {
    if (!KNOWN.has(name)) throw wrong(name, `is not one of ${[...KNOWN].join(", ")}`);
  }
  const kind = parameters.get("kind") ?? undefined;
  if (kind !== undefined && kind !== "point" && kind !== "event") throw wrong("kind", "is neither point nor event");
  const format = parameters.get("format") ?? "json";
  if (format !== "json" && format !== "line") throw wrong("format", "is neither json nor line");
  const limit = parameters.get("limit") ?? String(MAX_RECORDS);
  if (!/^[1-9][0-9]{0,8}$/.test(limit)) throw wrong("limit", "is no number above 0");
  const [namespace, pod] = [parameters.get("namespace"), parameters.get("pod")];
  const [since, until] = ["since", "until"].map((name) => timeOf(name, parameters.get(name), nowMs));
  return {
    query: {
      node,
      ...(namespace === null ? {} : { namespace }),
      ...(pod === null ? {} : { pod }),
      ...(since === undefined ? {} : { sinceUs: since }),
      ...(until === undefined ? {} : { untilUs: until }),
    },
    kind,
    limit: Math.min(MAX_RECORDS, Number(limit)),
    format,
  };
}

/** RFC 3339, or how long ago: "15m". Microseconds. */
function timeOf(name: string, text: string | null, nowMs: number): number | undefined {
  if (text === null) return undefined;
  const ago = parseDuration(text);
  const timeMs = ago === undefined ? Date.parse(text) : nowMs - ago;
  if (Number.isNaN(timeMs) || timeMs < 0) throw wrong(name, "is neither a time (RFC 3339) nor a duration (15m)");
  return timeMs * 1000;
}

const wrong = (name: string, problem: string): PicoletError =>
  new PicoletError("invalid", `cannot answer for telemetry: ${name} ${problem}`);

function isMeant({ timeNs }: RecordRow, { sinceUs = 0, untilUs = Number.MAX_SAFE_INTEGER }: TelemetryQuery): boolean {
  const us = Number(timeNs / 1000n);
  return us >= sinceUs && us <= untilUs;
}

/** Whole numbers beyond 2^53 are texts, which JSON's readers would round otherwise. */
const jsonValue = (_name: string, value: unknown): unknown => {
  if (typeof value !== "bigint") return value;
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
};

function jsonOf({ node, origin, record, timeNs, isEstimated }: RecordRow): string {
  const { namespace, pod, uid, container, labels } = origin;
  const where = { node, namespace, pod, uid, container, labels: Object.fromEntries(labels) };
  const when = { time: timeText(timeNs), ...(isEstimated ? { timeEstimated: true } : {}) };
  if (record.kind === "event") {
    const { kind, name, severity, message, attributes } = record;
    return JSON.stringify({
      ...when,
      ...where,
      kind,
      name,
      severity,
      message,
      attributes: Object.fromEntries(attributes),
    });
  }
  const { kind, measurement, tags, fields } = record;
  const values = { tags: Object.fromEntries(tags), fields: Object.fromEntries(fields) };
  return JSON.stringify({ ...when, ...where, kind, measurement, ...values }, jsonValue);
}

/** RFC 3339 with nanoseconds. */
function timeText(timeNs: bigint): string {
  const seconds = new Date(Number(timeNs / 1_000_000_000n) * 1000).toISOString().slice(0, -5);
  return `${seconds}.${String(timeNs % 1_000_000_000n).padStart(9, "0")}Z`;
}
