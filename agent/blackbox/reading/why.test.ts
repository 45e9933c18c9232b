import assert from "node:assert/strict";
import { test } from "node:test";
import { DECISION_KINDS, type Decision } from "@picolet/protocol/decisions/decision-kinds.ts";
import { publicMessage, publicName } from "@picolet/protocol/decisions/public-text.ts";
import { sentenceOf, wordingAt } from "@picolet/protocol/decisions/tell.ts";
import { whyText } from "@picolet/protocol/local-api/why-text.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { RingRecord } from "../ring-record.ts";
import { answerWhy, type WhyComponents } from "./answer-why.ts";

const NOW_MS = Date.parse("2026-11-20T14:10:30Z");
const BOOT_MS = [0, Date.parse("2026-11-20T09:00:00Z"), Date.parse("2026-11-20T14:10:00Z")];
const app = publicName("app");

let sequence = 0;
function record(boot: number, uptimeMs: number, d: Decision, fields: Partial<RingRecord> = {}): RingRecord {
  sequence += 1;
  return { n: sequence, b: [boot, "b"], t: [uptimeMs, (BOOT_MS[boot] ?? 0) + uptimeMs], d, ...fields };
}
const WEB = { p: "default/web", u: "uid-1" };

const RECORDS: readonly RingRecord[] = [
  record(1, 1000, { kind: "agentStarted", version: publicName("0.2"), after: publicName("first") }),
  record(1, 60_000, { kind: "accepted", source: publicName("file") }, WEB),
  record(
    1,
    62_000,
    { kind: "started", container: app, cause: publicName("first"), figures: { run: 0, backoffMs: 0 } },
    WEB,
  ),
  record(
    1,
    18_000_000,
    {
      ...{ kind: "exited", container: app, reason: publicName("Error"), exitCode: 1, willRestart: true },
      figures: { run: 4, lastedMs: 3000 },
    },
    { ...WEB, c: 12, f: [90_000, (BOOT_MS[1] ?? 0) + 90_000] },
  ),
  record(1, 18_000_100, { kind: "gone" }, { p: "plant/pump-edge-1", u: "uid-2" }),
  record(2, 900, {
    kind: "powerCut",
    figures: { lastSignWallMs: Date.parse("2026-11-20T14:02:00Z"), downMs: 480_000 },
  }),
  record(2, 1000, { kind: "agentStarted", version: publicName("0.2"), after: publicName("powerCut") }),
  record(
    2,
    2000,
    { kind: "started", container: app, cause: publicName("newSandbox"), figures: { run: 5, backoffMs: 0 } },
    WEB,
  ),
];

const components = (records: readonly RingRecord[] = RECORDS, change: Partial<WhyComponents> = {}): WhyComponents => ({
  box: { path: "/nowhere", pending: () => records },
  node: { name: "edge-1", judge: () => ({ now: "healthy: 1 pod", isWell: true }) },
  findPod: ({ name }) =>
    name === "web" ? { namespace: "default", name, now: "Running, ready", isWell: true } : undefined,
  clock: new VirtualClock(NOW_MS),
  log: new RecordedLog(),
  ...change,
});
const LIMITS = { decisions: 20, characters: 4096, nowMs: NOW_MS };
const about = (name: string, topic?: "restarted" | "ended", namespace?: string) => ({
  pod: { namespace, name },
  topic,
});

const POWER_CUT =
  "The power was cut at about 14:02:00, the last sign of life (or the system stopped without notice); " +
  "the board was back after 8m.";

test("the story of a pod has its own decisions and the turns of the node, newest first", async () => {
  const answer = await answerWhy(components(), about("web"));
  assert.equal(
    whyText(answer, LIMITS),
    `default/web on edge-1: Running, ready
14:10:02  Container app was started again, because the pod has a new sandbox (restart 5).
14:10:01  The agent 0.2 started after the power cut.
14:10:00  ${POWER_CUT}
14:00:00  Container app ended after 3s (exit code 1, Error). 12 times since 09:01:30.
09:01:02  Container app was started.
09:01:00  The node took the pod, which its manifest wants here.
`,
  );
  assert.equal(answer.pod?.uid, "uid-1");
});

test("a topic leaves the rest out, but never a power cut", async () => {
  const { decisions } = await answerWhy(components(), about("web", "ended"));
  assert.deepEqual(
    decisions.map(({ decision }) => decision.kind),
    ["powerCut", "exited"],
  );
});

test("a pod that is gone is found by its records, a static one without the node's name", async () => {
  const answer = await answerWhy(components(), about("pump"));
  assert.deepEqual(answer.pod, { namespace: "plant", name: "pump-edge-1", uid: "uid-2" });
  assert.match(whyText(answer, LIMITS), /is no longer on this node[\s\S]*Nothing of the pod is left/);
  await assert.rejects(answerWhy(components(), about("never")), /the black box has no record of it/);
  await assert.rejects(answerWhy(components(), about("pump", undefined, "default")), /in namespace "default"/);
});

test("a name that several pods have had is ambiguous, unless one is in the default namespace", async () => {
  const gone = (p: string): RingRecord => record(2, 9000, { kind: "gone" }, { p, u: p });
  await assert.rejects(answerWhy(components([gone("a/x"), gone("b/x")]), about("x")), /ambiguous: a\/x, b\/x/);
  const answer = await answerWhy(components([gone("a/x"), gone("default/x")]), about("x"));
  assert.equal(answer.pod?.namespace, "default");
});

test("the node's own story has no pod in it", async () => {
  const { decisions, now } = await answerWhy(components(), { pod: undefined, topic: undefined });
  assert.equal(now, "healthy: 1 pod");
  assert.deepEqual(
    decisions.map(({ decision }) => decision.kind),
    ["agentStarted", "powerCut", "agentStarted"],
  );
});

test("times from before the clock was set follow from one after it, and else from the board's start", async () => {
  const unset = { x: 1 as const, ...WEB };
  const started = (uptime: number, boot: number, fields: Partial<RingRecord>): RingRecord =>
    record(boot, uptime, { kind: "revived" }, fields);
  const records = [started(5000, 1, unset), started(7000, 2, unset), started(9000, 2, WEB)];
  const { decisions } = await answerWhy(components(records), about("web"));
  assert.deepEqual(
    decisions.map(({ at }) => at),
    ["2026-11-20T14:10:09.000Z", "2026-11-20T14:10:07.000Z", null],
  );
  const text = whyText(await answerWhy(components(records), about("web")), LIMITS);
  assert.match(text, /\nboot 1 \+5s {2}What had ended/);
});

test("an answer is bounded, and says what it left out", async () => {
  const many = Array.from({ length: 1000 }, (_, index) => record(2, index, { kind: "revived" }, WEB));
  const answer = await answerWhy(components(many), about("web"));
  assert.equal(answer.decisions.length, 300);
  assert.equal(answer.omitted, 700);
  const text = whyText(answer, LIMITS);
  assert.match(text, /\(980 earlier\)\n$/);
  assert.ok(whyText(answer, { ...LIMITS, decisions: 300 }).length <= LIMITS.characters + 20);
});

test("a record of another version is no fault", async () => {
  const other = { kind: "somethingNew" } as unknown as Decision;
  const answer = await answerWhy(components([record(2, 5, other, WEB)]), about("web"));
  assert.match(answer.decisions[0]?.sentence ?? "", /recorded by another version/);
});

test("every kind reads as sentences, whatever its fields", () => {
  const figures = {
    ...{ run: 2, backoffMs: 10_000, lastedMs: 90_000, waitMs: 20_000, graceMs: 30_000, tries: 3, retryInMs: 20_000 },
    ...{ available: 1e7, threshold: 2e7, used: 3e7, requested: 1e7, candidates: 4, failures: 3, periodMs: 10_000 },
    ...{ sandbox: 1, activeMs: 60_000, running: 2, byMs: -7_200_000, lastSignWallMs: NOW_MS, downMs: 60_000, line: 3 },
  };
  const texts = Object.fromEntries(
    ["container", "image", "reason", "source", "cause", "probe", "phase", "by", "version", "after", "condition"].map(
      (name) => [name, publicName(name)],
    ),
  );
  const others = {
    message: publicMessage("a message"),
    signal: publicName("memory.available"),
    origin: publicName("f"),
    path: publicName("/f"),
  };
  const flags = { isHard: true, exitCode: 1, willRestart: false, step: publicName("start"), runtime: publicName("x") };
  for (const kind of Object.keys(DECISION_KINDS)) {
    const rest = { outcome: publicName("UpdateRolledBack"), process: publicName("sh"), figures };
    const decision = { kind, ...texts, ...others, ...flags, ...rest } as unknown as Decision;
    const sentence = sentenceOf(decision, wordingAt(NOW_MS));
    assert.match(sentence, /^[A-Z].*\.$/s, kind);
    assert.doesNotMatch(sentence, /undefined|NaN|\[object|\.\.$/, kind);
  }
});
