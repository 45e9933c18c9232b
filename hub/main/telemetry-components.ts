/** Builds the store of components' telemetry, its receiver and its exporters. */
import { mkdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { TelemetryReader, TelemetryReceiver } from "@picolet/hub-core/telemetry-ports.ts";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { TelemetryExporter, type TelemetrySink } from "../telemetry/exporter.ts";
import { TelemetryAnswers } from "../telemetry/telemetry-answers.ts";
import { LineProtocolSink, OtlpSink, type SinkInit } from "../telemetry/telemetry-sinks.ts";
import { TelemetryStore } from "../telemetry/telemetry-store.ts";
import { TelemetryStreams } from "../telemetry/telemetry-streams.ts";
import type { ServeArguments, TelemetryArguments, TelemetryTarget } from "./arguments.ts";
import type { HubPorts } from "./serve.ts";

export interface HubTelemetry {
  readonly receiver: TelemetryReceiver;
  readonly reader: TelemetryReader;
  readonly parts: readonly Component[];
}

const FILE = "telemetry.db";
const MEMORY = ":memory:";
/** A hundred boards with a point a second each, at 25 bytes: a day, three hours. */
const DISK_BYTES = 256 * 1024 * 1024;
const MEMORY_BYTES = 32 * 1024 * 1024;

export function makeTelemetry({ clock, random, log }: HubPorts, args: ServeArguments): HubTelemetry {
  const sinks = sinksOf(args.telemetry);
  const path = pathOf(args);
  const { maxBytes = path === MEMORY ? MEMORY_BYTES : DISK_BYTES, maxAge: maxAgeMs } = args.telemetry;
  const store = new TelemetryStore(
    { clock, log },
    { path, maxBytes, maxAgeMs, exporters: sinks.map(({ name }) => name) },
  );
  const keeper: Component = {
    name: "store of telemetry",
    run: (signal) => aborted(signal),
    [Symbol.asyncDispose]: async () => store[Symbol.dispose](),
  };
  return {
    receiver: new TelemetryStreams({ store, clock, log }),
    reader: new TelemetryAnswers({ store, clock }),
    parts: [keeper, ...sinks.map((sink) => new TelemetryExporter({ store, sink, clock, random, log }))],
  };
}

function pathOf({ cluster, telemetry }: ServeArguments): string {
  const dir = telemetry.dir ?? (cluster.kind === "embedded" ? join(cluster.dataDir, "telemetry") : undefined);
  if (dir === undefined) return MEMORY;
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  return join(dir, FILE);
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
