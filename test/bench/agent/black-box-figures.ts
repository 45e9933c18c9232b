/** The bytes that the black box writes to the disk in a day, as the kernel counts them: whole pages. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { BlackBox } from "@picolet/agent/blackbox/black-box.ts";
import type { Decision } from "@picolet/agent/core/store/decisions.ts";
import { DEFAULT_CRASH_BACKOFF } from "@picolet/agent/plan/crash-backoff.ts";
import { publicName } from "@picolet/protocol/decisions/public-text.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { desired, podOf } from "../../support/unit/pods/sample-pods.ts";
import { RecordedLog } from "../../support/unit/ports/recorders.ts";
import { VirtualClock } from "../../support/unit/ports/virtual-clock.ts";

export interface BlackBoxFigures {
  /** With a pod whose container ends at once, all day. */
  readonly bytesPerDay: number;
  readonly bytesPerDayAtRest: number;
}

const DAY = seconds(86_400);
const POD = desired(podOf({}, { name: "crash" }), "uid-crash");
const SIZE = 1024 * 1024;

/** A day on virtual time into a real file. */
export async function blackBoxFigures(): Promise<BlackBoxFigures> {
  return { bytesPerDay: await bytesOfDay(crashLoop), bytesPerDayAtRest: await bytesOfDay(() => Promise.resolve()) };
}

async function bytesOfDay(live: (box: BlackBox, pass: (time: Millis) => Promise<void>) => Promise<void>) {
  using folder = new TempFolder();
  const clock = new VirtualClock();
  const box = await BlackBox.open(
    { clock, log: new RecordedLog(), isClockSet: () => true },
    {
      ...{ path: folder.at("black-box"), size: SIZE, bootId: "bench", uptimeAtZero: millis(0) },
      signsOfLife: () => [],
      ending: () => "asked",
    },
  );
  const stop = new AbortController();
  const run = box.run(stop.signal).catch(() => undefined);
  const pass = async (time: Millis): Promise<void> => {
    await clock.advance(time);
    await box.flushed();
  };
  // The beginning is written, and the file made, once.
  await pass(seconds(10));
  const before = writtenBytes();
  await live(box, pass);
  const bytes = writtenBytes() - before;
  stop.abort();
  await run;
  return bytes;
}

async function crashLoop(box: BlackBox, pass: (time: Millis) => Promise<void>): Promise<void> {
  const container = publicName("app");
  const { initial, max } = DEFAULT_CRASH_BACKOFF;
  let wait: number = initial;
  let lived = 0;
  for (let run = 0; lived < DAY; run += 1) {
    const decisions: readonly Decision[] = [
      { kind: "started", container, cause: publicName("again"), figures: { run, backoffMs: wait } },
      {
        ...{ kind: "exited", container, reason: publicName("Error"), exitCode: 1 },
        willRestart: true,
        figures: { run, lastedMs: 5 },
      },
      { kind: "heldBack", container, figures: { run, waitMs: wait } },
    ];
    for (const each of decisions) box.record(each, POD);
    await pass(millis(wait));
    lived += wait;
    wait = Math.min(wait * 2, max);
  }
}

/** By this process to disks. */
const writtenBytes = (): number =>
  Number(/^write_bytes: (\d+)$/m.exec(readFileSync("/proc/self/io", "utf8"))?.[1] ?? 0);

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  console.log(JSON.stringify(await blackBoxFigures(), undefined, 2));
}
