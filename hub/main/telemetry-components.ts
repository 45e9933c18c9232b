/** Builds the store of components' telemetry, its receiver and its exporters. */
import { mkdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { TelemetryReader, TelemetryReceiver } from "@picolet/hub-core/telemetry-ports.ts";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { StoredSamples, sampleRows } from "../metrics/sample-export.ts";
import { TelemetryExporter, type TelemetrySink } from "../telemetry/exporter.ts";
import { TelemetryAnswers } from "../telemetry/telemetry-answers.ts";
import { LineProtocolSink, OtlpSink, type SinkInit } from "../telemetry/telemetry-sinks.ts";
import { TelemetryStore } from "../telemetry/telemetry-store.ts";
import { TelemetryStreams } from "../telemetry/telemetry-streams.ts";
import type { ServeArguments, TelemetryArguments, TelemetryTarget } from "./arguments.ts";
import type { HubPorts } from "./cluster.ts";

export interface HubTelemetry {
  readonly receiver: TelemetryReceiver;
  readonly reader: TelemetryReader;
  readonly store: Pick<TelemetryStore, "bytes" | "dropped">;
  readonly parts: readonly Component[];
}

const FILE = "telemetry.db";
const SAMPLES_FILE = "samples.db";
const MEMORY = ":memory:";
/** A hundred boards with a point a second each, at 25 bytes: a day, three hours. */
const DISK_BYTES = 256 * MEBIBYTE;
const MEMORY_BYTES = 32 * MEBIBYTE;

export function makeTelemetry({ clock, random, log }: HubPorts, args: ServeArguments): HubTelemetry {
  const sinks = sinksOf(args.telemetry);
  const path = pathOf(args, FILE);
  const { maxBytes = path === MEMORY ? MEMORY_BYTES : DISK_BYTES, maxAge: maxAgeMs } = args.telemetry;
  const store = new TelemetryStore(
    { clock, log },
    { path, maxBytes, maxAgeMs, exporters: sinks.map(({ name }) => name) },
  );
  return {
    store,
    receiver: new TelemetryStreams({ store, clock, log }),
    reader: new TelemetryAnswers({ store, clock }),
    parts: [
      keeperOf("store of telemetry", store),
      ...sinks.map((sink) => new TelemetryExporter({ store, sink, clock, random, log })),
    ],
  };
}

export interface HubSampleExport {
  readonly samples: StoredSamples;
  readonly parts: readonly Component[];
}

/** @returns undefined where samples are sent nowhere */
export function makeSampleExport({ clock, random, log }: HubPorts, args: ServeArguments): HubSampleExport | undefined {
  const { otlp } = args.metrics;
  if (otlp === undefined) return undefined;
  const sink = new OtlpSink(initOf(otlp));
  const path = pathOf(args, SAMPLES_FILE);
  const { maxBytes = path === MEMORY ? MEMORY_BYTES : DISK_BYTES, maxAge: maxAgeMs } = args.telemetry;
  const store = new TelemetryStore({ clock, log }, { path, maxBytes, maxAgeMs, exporters: [sink.name] });
  const exporter = new TelemetryExporter({ store, sink, what: "samples", rowsOf: sampleRows, clock, random, log });
  return { samples: new StoredSamples({ store }), parts: [keeperOf("store of samples", store), exporter] };
}

const keeperOf = (name: string, store: TelemetryStore): Component => ({
  name,
  run: (signal) => aborted(signal),
  [Symbol.asyncDispose]: async () => store[Symbol.dispose](),
});

function pathOf({ cluster, telemetry }: ServeArguments, file: string): string {
  const dir = telemetry.dir ?? (cluster.kind === "embedded" ? join(cluster.dataDir, "telemetry") : undefined);
  if (dir === undefined) return MEMORY;
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  return join(dir, file);
}

function sinksOf({ influx, otlp }: TelemetryArguments): readonly TelemetrySink[] {
  return [
    ...(influx === undefined ? [] : [new LineProtocolSink(initOf(influx))]),
    ...(otlp === undefined ? [] : [new OtlpSink(initOf(otlp))]),
  ];
}

const initOf = ({ url, tokenFile }: TelemetryTarget): SinkInit => ({
  url,
  token: tokenFile === undefined ? undefined : () => readToken(tokenFile),
});

async function readToken(path: string): Promise<string> {
  try {
    const token = (await readFile(path, "utf8")).trim();
    if (/^[\x21-\x7e]{1,4096}$/.test(token)) return token;
  } catch (cause) {
    throw new PicoletError("unavailable", `cannot read the token in ${path}`, { cause, retryable: true });
  }
  throw new PicoletError("unavailable", `there is no token in ${path}: one line without spaces`, { retryable: true });
}
