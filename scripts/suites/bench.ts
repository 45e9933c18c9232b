/** `npm run bench`: figures, floors beside them, and the goals that are missed. Its help says the rest. */
import { resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileFlag, textFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { endWithUsageError, readOptions } from "../options.ts";
import type { PartWork } from "./bench-run.ts";
import {
  describeDurations,
  describeParts,
  limitMs,
  type PartName,
  plannedSeconds,
  selectParts,
} from "./bench-timetable.ts";

/** After the document was written. */
const END_LIMIT_MS = 60_000;

const ONLY = textFlag({ name: "only", value: "PART,PART", help: "these parts alone" });
const KUBELET = fileFlag({
  name: "kubelet",
  help: "a kubelet's binary (1.34), which is measured too, in front of the same containerd",
});
const OUT = fileFlag({
  name: "out",
  help: "the document so far, written after each part: a run that is cut off keeps what it has",
  default: ".picolet/bench.json",
});

const OPTIONS = {
  name: "bench",
  summary: "figures of the agent, as one JSON document on standard output",
  flags: [
    ONLY,
    {
      name: "quick",
      help: "shorter windows and fewer runs: for a look, not for a record; what needs long windows is not judged",
    },
    KUBELET,
    OUT,
    { name: "no-judge", help: "figures alone: neither goals nor an exit code for them" },
  ],
  notes: [
    "Progress, figures as they come, tables and missed goals go to standard error. Sizes are named by their unit, times are " +
      "in seconds, floors are measured in the same run, and figures that are taken more than once have their spread. It " +
      "leaves with 0 when every goal of what was measured is met (test/bench/goals.ts), with 1 when one is missed or a " +
      "part failed; the others go on without it, and the document has its error.",
    "At the end, and in the document, is how long each part took and for which other it waited.",
    "What grows over ten thousand pods, and what is written at rest, is in npm run soak -- --what growth and --what disk.",
    "Parts, with the seconds that each has for itself on two quiet cores; all that rest do so at the same time, before " +
      "anything is timed:",
    ...describeParts(),
  ],
};

const refuse = (message: string): never => endWithUsageError(OPTIONS.name, usageError(message));

const options = readOptions(OPTIONS);
const [quick, kubelet, isUnjudged] = [options.flag("quick"), options.value(KUBELET), options.flag("no-judge")];
const wanted = wantedParts();

function wantedParts(): readonly PartName[] {
  try {
    return selectParts({ only: options.value(ONLY), hasKubelet: kubelet !== undefined });
  } catch (error) {
    return refuse(describeError(error));
  }
}

if (kubelet !== undefined) {
  const { kubeletVersion } = await import("@picolet/test/bench/agent/kubelet.ts");
  try {
    console.error(`${kubelet}: ${kubeletVersion(kubelet)}`);
  } catch (error) {
    refuse(describeError(error));
  }
}
const [{ partWorks }, { runParts }, { benchDocument, writeDocument }, goals, { step }, containerds] = await Promise.all(
  [
    import("./bench-parts.ts"),
    import("./bench-run.ts"),
    import("./bench-document.ts"),
    import("@picolet/test/bench/goals.ts"),
    import("@picolet/test/bench/measure/progress.ts"),
    import("@picolet/test/support/containerd/containerd.ts"),
  ],
);
const [{ buildPrograms }, { buildExamples }, { installTestSystem }] = await Promise.all([
  import("../build/build.ts"),
  import("../build/build-examples.ts"),
  import("../test/install-test-system.ts"),
]);
installTestSystem();
const missing = containerds.containerdMissing();
if (missing !== undefined) {
  console.error(`the bench needs a real containerd: ${missing}`);
  process.exit(1);
}
const out = resolve(options.value(OUT));
const secondsSince = (from: number): number => Math.round((performance.now() - from) / 100) / 10;
const begunAt = performance.now();
await step("build", async () => {
  await buildPrograms();
  await buildExamples();
});
const buildSeconds = secondsSince(begunAt);
const times = () => ({ buildSeconds, totalSeconds: secondsSince(begunAt) });
if (!quick)
  console.error(`these parts take some ${Math.ceil(plannedSeconds(wanted).total / 60)} minutes on two quiet cores`);

// Mostly those of a part that has failed already. The others go on.
const strays: unknown[] = [];
process.on("unhandledRejection", (error) => {
  strays.push(error);
  console.error("an error that no part waits for:", error);
});
const containerd = await containerds.Containerd.start();
const all = partWorks(containerd, { quick, kubelet, restWindowMs: quick ? 15_000 : 60_000, runs: quick ? 5 : 20 });
const works = Object.fromEntries(wanted.map((name) => [name, all[name]])) as Record<PartName, PartWork>;
const state = await runParts(works, {
  now: () => performance.now(),
  sleep: (ms, signal) => delay(ms, undefined, { signal }),
  limitMs,
  onChange: (each) => void writeDocument(out, benchDocument(each, times())),
  onError: (name, phase, error) => console.error(`\nthe part ${name} failed in its phase ${phase}:`, error),
});
const failed = Object.keys(state.errors);
const measured = wanted.filter((name) => !failed.includes(name));
const { judge, GOALS, LEAN_GOALS, describeMissed } = goals;
const verdicts = isUnjudged ? [] : judge(state.figures, [...GOALS, ...LEAN_GOALS], { parts: measured, quick });
const missedGoals = describeMissed(verdicts);
const judged = isUnjudged ? {} : { goals: verdicts, missedGoals };
process.stdout.write(writeDocument(out, benchDocument(state, times(), judged)));
for (const line of describeDurations(state.durations)) console.error(line);
for (const [name, { phase, message }] of Object.entries(state.errors))
  console.error(`FAILED ${name}, ${phase}: ${message}`);
for (const line of missedGoals) console.error(`MISSED ${line}`);
if (!isUnjudged) console.error(`${verdicts.length - missedGoals.length} of ${verdicts.length} goals are met`);
console.error(`the document is in ${out}`);
process.exitCode = failed.length + missedGoals.length + strays.length > 0 ? 1 : 0;
// Handles of a failed part must not keep this process.
setTimeout(() => process.exit(), END_LIMIT_MS).unref();
await containerd[Symbol.asyncDispose]();
