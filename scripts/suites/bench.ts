/** `npm run bench`: figures, floors beside them, and the goals that are missed. Its help says the rest. */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fileFlag, textFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { endWithUsageError, readOptions } from "../start/options.ts";

export interface Settings {
  readonly quick: boolean;
  readonly restWindowMs: number;
  readonly runs: number;
  readonly kubelet: string | undefined;
}

interface Part {
  /** The time of a whole run on a quiet machine; parts that wait run side by side. */
  readonly minutes: number;
  readonly what: string;
}

/** In the order of the document. */
const PARTS = {
  floors: { minutes: 2, what: "bare Node, and with one TLS connection, at rest (waits)" },
  agent: { minutes: 4, what: "the agent at rest with 0, 10 and 50 pods, without and with a hub (waits)" },
  kubelet: { minutes: 17, what: "the same of the kubelet that --kubelet names, standalone and joined to a hub" },
  lean: { minutes: 5, what: "what the guard in npm test sees: memory, bytes, wake-ups, system calls at rest (waits)" },
  memory: { minutes: 3, what: "its memory by owner: heap by space and source file, malloc, stacks, libraries" },
  latency: { minutes: 3, what: "pods that start, crash, are adopted; the CRI calls by hand" },
  tunnel: { minutes: 9, what: "bytes and round trips to the hub (waits), exec and logs through it" },
  wasm: { minutes: 6, what: "components: memory, restarts, pulls, HTTP, key-value store" },
  probes: { minutes: 4, what: "300 probes every 10 s" },
  eviction: { minutes: 5, what: "pods that leak memory" },
  stats: { minutes: 1, what: "collection of usage" },
  edgectl: { minutes: 1, what: "edgectl status" },
} as const satisfies Readonly<Record<string, Part>>;

export type PartName = keyof typeof PARTS;
const PART_NAMES = Object.keys(PARTS) as PartName[];

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
      "in seconds, floors are measured in the same run. It leaves with 0 when every goal of what was measured is met " +
      "(test/bench/goals.ts), with 1 when one is missed or a part failed.",
    "What grows over ten thousand pods, and what is written at rest, is in npm run soak -- --what growth and --what disk.",
    "Parts, with the minutes that each takes; those that wait do so at the same time:",
    ...Object.entries(PARTS).map(([name, { minutes, what }]) => `${name} (${minutes}): ${what}`),
  ],
};

const refuse = (message: string): never => endWithUsageError(OPTIONS.name, usageError(message));

/** Parts that are measured, in the document's order. */
function partsOf(only: string | undefined, kubelet: string | undefined): readonly PartName[] {
  const names: readonly string[] = PART_NAMES;
  const wanted: string[] = only?.split(",") ?? names.filter((name) => name !== "kubelet" || kubelet !== undefined);
  const unknown = wanted.filter((name) => !names.includes(name));
  if (unknown.length > 0) refuse(`the bench has no part ${unknown.join(", ")}`);
  if (wanted.includes("kubelet") && kubelet === undefined) refuse("the part kubelet needs --kubelet FILE");
  if (kubelet !== undefined && only !== undefined && !wanted.includes("kubelet")) wanted.push("kubelet");
  return PART_NAMES.filter((name) => wanted.includes(name));
}

const options = readOptions(OPTIONS);
const [quick, kubelet, isUnjudged] = [options.flag("quick"), options.value(KUBELET), options.flag("no-judge")];
const wanted = partsOf(options.value(ONLY), kubelet);
if (kubelet !== undefined) {
  const { kubeletVersion } = await import("@picolet/test/bench/agent/kubelet.ts");
  try {
    console.error(`${kubelet}: ${kubeletVersion(kubelet)}`);
  } catch (error) {
    refuse(describeError(error));
  }
}
const [{ MEASURES }, { describeMissed, GOALS, judge, LEAN_GOALS }, { ratiosOf }, { step }, containerds] =
  await Promise.all([
    import("./bench-parts.ts"),
    import("@picolet/test/bench/goals.ts"),
    import("@picolet/test/bench/ratios.ts"),
    import("@picolet/test/bench/measure/progress.ts"),
    import("@picolet/test/support/containerd/containerd.ts"),
  ]);
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
await step("build", async () => {
  await buildPrograms();
  await buildExamples();
});

const settings: Settings = {
  ...{ quick, kubelet },
  restWindowMs: quick ? 15_000 : 60_000,
  runs: quick ? 5 : 20,
};
const out = resolve(options.value(OUT));
const figures: Record<string, unknown> = {};
const failed: PartName[] = [];
{
  await using containerd = await containerds.Containerd.start();
  const waited: Partial<Record<PartName, unknown>> = {};
  await Promise.all(
    wanted.map((name) =>
      attempt(name, async () => {
        const { wait, measure } = MEASURES[name];
        if (wait === undefined) return;
        waited[name] = await wait(containerd, settings);
        if (measure === undefined) keep(name, waited[name]);
      }),
    ),
  );
  for (const name of wanted) {
    const { measure } = MEASURES[name];
    if (measure === undefined || failed.includes(name)) continue;
    await attempt(name, async () => keep(name, await measure(containerd, settings, waited[name])));
  }
}

/** Measures one part. A part that fails loses no results of the others. */
async function attempt(name: PartName, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    failed.push(name);
    console.error(`\nthe part ${name} failed:`, error);
  }
}

/** Into the document, in its order. */
function keep(name: PartName, result: unknown): void {
  figures[name] = result;
  writeDocument({ failed, unfinished: wanted.filter((each) => !(each in figures) && !failed.includes(each)) });
}

function writeDocument(rest: object): string {
  const ordered = Object.fromEntries(PART_NAMES.filter((each) => each in figures).map((each) => [each, figures[each]]));
  const text = `${JSON.stringify({ ...ordered, ratios: ratiosOf(figures), ...rest }, null, 2)}\n`;
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(`${out}.new`, text);
  renameSync(`${out}.new`, out);
  return text;
}

const measured = wanted.filter((name) => !failed.includes(name));
const verdicts = isUnjudged ? [] : judge(figures, [...GOALS, ...LEAN_GOALS], { parts: measured, quick });
const missedGoals = describeMissed(verdicts);
const judged = isUnjudged ? {} : { goals: verdicts, missedGoals };
process.stdout.write(writeDocument({ failed, ...judged }));
for (const line of missedGoals) console.error(`MISSED ${line}`);
if (!isUnjudged) console.error(`${verdicts.length - missedGoals.length} of ${verdicts.length} goals are met`);
console.error(`the document is in ${out}`);
process.exitCode = failed.length + missedGoals.length > 0 ? 1 : 0;
