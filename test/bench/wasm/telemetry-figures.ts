/** The cost of telemetry: a real component that writes as fast as it can, and the disk writes of an offline board. */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { Connection } from "@picolet/agent/store/connection.ts";
import { faultOf } from "@picolet/agent/store/faults.ts";
import { Telemetry } from "@picolet/agent/telemetry/telemetry.ts";
import { TelemetryService } from "@picolet/agent/telemetry/telemetry-service.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { endOfRun } from "../../support/unit/ports/end-of-run.ts";
import { RecordedLog } from "../../support/unit/ports/recorders.ts";
import { VirtualClock } from "../../support/unit/ports/virtual-clock.ts";
import { TelemetryBoard } from "../../support/unit/tunnel/telemetry-board.ts";
import { point } from "../../support/unit/tunnel/telemetry-samples.ts";
import { testComponent } from "../../support/wasm/components.ts";
import { WasmPod, WasmRuntime } from "../../support/wasm/wasm-runtime.ts";
import { round, type Spreads, spreadOf } from "../measure/process-usage.ts";

export interface TelemetryFigures {
  /** Points that one component hands over, 100 in a call, while the hub is away. */
  readonly telemetryPointsPerSecond: number;
  /** Written by the agent, with the log of SQLite, of points that come one a second and are flushed every minute. */
  readonly telemetryBytesPer1000Points: number;
  readonly spread: Spreads;
}

const IMAGE = "localhost/telemetry:1";
const POINTS = 100_000;
const PER_CALL = 100;
const NEVER = new AbortController().signal;
/** `wrote …` a call, and `told`. */
const LINES = POINTS / PER_CALL + 1;
/** For the spread. */
const PARTS = 10;

export async function telemetryFigures(): Promise<TelemetryFigures> {
  const { all, parts } = await pointsPerSecond();
  return {
    telemetryPointsPerSecond: all,
    telemetryBytesPer1000Points: await bytesPer1000Points(),
    spread: { telemetryPointsPerSecond: spreadOf(parts) },
  };
}

async function pointsPerSecond(): Promise<{ readonly all: number; readonly parts: readonly number[] }> {
  using folder = new TempFolder();
  await using telemetry = new Telemetry(
    {
      databases: {
        open: (path, maxBytes) => new Connection(path, maxBytes),
        isDamage: (error) => faultOf(error) === "damaged",
      },
      time: { bootId: "bench", nowUs: () => Number(process.hrtime.bigint() / 1000n), wallUs: () => undefined },
      clock: systemClock,
      log: new RecordedLog(),
    },
    {
      path: folder.at("telemetry.db"),
      maxBytes: 16 * 1024 * 1024,
      maxAge: seconds(86_400),
      flushInterval: seconds(60),
      queue: randomBytes(8).toString("hex"),
    },
  );
  const life = new AbortController();
  const running = endOfRun(telemetry.run(life.signal));
  const service = new TelemetryService({ put: (handover) => telemetry.put(handover), labelsOf: () => [] });
  await using runtime = await WasmRuntime.create({ services: { telemetry: () => service } });
  await using adapter = runtime.adapter();
  await adapter.images.import(await testComponent("telemetry.c"), IMAGE, NEVER);
  const annotations = { "wasm.picolet.io/interfaces": "telemetry" };
  const args = ["0", String(POINTS), String(PER_CALL), "0"];
  await using pod = await WasmPod.create(runtime, adapter, { name: "writer", image: IMAGE, annotations });
  const container = await pod.start({ args });
  const lines = await pod.lines(container, LINES);
  life.abort();
  await running;
  const rate = (from: number, to: number, points: number): number => {
    const [first = 0, last = 0] = [lines[from], lines[to]].map((line) => Date.parse(line?.time ?? ""));
    return Math.round(points / ((last - first) / 1000));
  };
  const callsAPart = POINTS / PER_CALL / PARTS;
  return {
    all: rate(0, LINES - 1, POINTS - PER_CALL),
    parts: Array.from({ length: PARTS - 1 }, (_, part) =>
      rate(part * callsAPart, (part + 1) * callsAPart, callsAPart * PER_CALL),
    ),
  };
}

async function bytesPer1000Points(): Promise<number> {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const board = new TelemetryBoard(clock, folder.path, 1);
  const before = writtenBytes();
  for (let second = 0; second < 1000; second += 1) {
    await board.put([{ ...point("climate", 20 + second / 100), tags: [["bed", "3"]] }]);
    await clock.advance(millis(1000));
  }
  await board.end();
  return round(writtenBytes() - before);
}

/** Bytes that this process gave to write(2), on any file system. */
const writtenBytes = (): number => Number(/^wchar: (\d+)$/m.exec(readFileSync("/proc/self/io", "utf8"))?.[1] ?? 0);

if (import.meta.main) console.log(JSON.stringify(await telemetryFigures(), null, 2));
