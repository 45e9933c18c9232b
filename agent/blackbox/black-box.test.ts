import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { WhyTopic } from "@picolet/protocol/decisions/decision-kinds.ts";
import { publicMessage, publicName } from "@picolet/protocol/decisions/public-text.ts";
import { whyText } from "@picolet/protocol/local-api/why-text.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { Decision } from "../core/store/decisions.ts";
import { BlackBox, type BlackBoxInit } from "./black-box.ts";
import { answerWhy, type PodNow, readRecords } from "./reading/answer-why.ts";
import type { RingRecord } from "./ring-record.ts";

const folder = mkdtempSync(join(tmpdir(), "picolet-black-box-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const POD = desired(podOf({}, { name: "web" }), "uid-web");
const HOUR = seconds(3600);
let files = 0;

/** One board with a disk: agents, boots and power cuts follow each other. */
class Board {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly path = join(folder, `box-${++files}`);
  ending: ReturnType<BlackBoxInit["ending"]> = "asked";
  signs: readonly number[] = [];
  isClockSet = true;
  panic: ReturnType<NonNullable<BlackBoxInit["kernelPanic"]>>;
  #boot = 1;
  #bootedAt = 0;
  #stop = new AbortController();
  #run: Promise<void> = Promise.resolve();

  async start(): Promise<BlackBox> {
    const box = await BlackBox.open(
      { clock: this.clock, log: this.log, isClockSet: () => this.isClockSet },
      {
        path: this.path,
        size: 65_536,
        bootId: `${this.#boot}0000000-0000-4000-8000-000000000000`,
        uptimeAtZero: millis(-this.#bootedAt),
        signsOfLife: () => this.signs,
        kernelPanic: (isNewBoot) => (isNewBoot ? this.panic : undefined),
        ending: () => this.ending,
      },
    );
    this.#stop = new AbortController();
    this.#run = box.run(this.#stop.signal).catch(() => undefined);
    return box;
  }

  /** The agent ends in order. */
  async stop(box: BlackBox): Promise<void> {
    await this.kill();
    await box[Symbol.asyncDispose]();
  }

  /** The agent dies: what was not written is lost. */
  async kill(): Promise<void> {
    this.#stop.abort();
    await this.#run;
  }

  boot(): void {
    this.#boot += 1;
    this.#bootedAt = this.clock.monotonic();
  }

  /** Until what the clock has woken has reached the disk. */
  async pass(ms: number, box: BlackBox): Promise<void> {
    await this.clock.advance(millis(ms));
    await box.flushed();
  }

  /** Answers as `edgectl why` does, from this file. @param now undefined: the node has no such pod */
  async why(box: BlackBox, now?: Omit<PodNow, "namespace" | "name">, topic?: WhyTopic): Promise<string> {
    const answer = await answerWhy(
      {
        ...{ box, clock: this.clock, log: this.log },
        node: { name: "edge-1", judge: () => ({ now: "healthy", isWell: true }) },
        findPod: () => now && { namespace: "default", name: "web", ...now },
      },
      { pod: { namespace: undefined, name: "web" }, topic },
    );
    return whyText(answer, { decisions: 20, characters: 4096, nowMs: this.clock.wall().getTime() });
  }

  read(box: BlackBox, wanted: (record: RingRecord) => boolean = () => true): Promise<readonly RingRecord[]> {
    return readRecords(box, wanted, this.log);
  }
}

const started = (run: number): Decision => ({
  kind: "started",
  container: publicName("app"),
  cause: publicName("again"),
  figures: { run, backoffMs: 0 },
});
const kindsOf = (records: readonly RingRecord[]): string[] => records.map(({ d }) => d.kind);

test("a decision is on disk within seconds, with its pod, its boot and its times", async () => {
  const board = new Board();
  const box = await board.start();
  await board.pass(5000, box);
  box.record(started(0), POD);
  await board.pass(2000, box);
  const text = readFileSync(board.path, "utf8");
  assert.match(
    text,
    /"n":2,"b":\[1,"10000000"\],"t":\[5000,\d+\],"p":"default\/web","u":"uid-web","d":\{"kind":"started"/,
  );
  assert.deepEqual(kindsOf(await board.read(box)), ["agentStarted", "started"]);
  assert.equal(statSync(board.path).size, 65_536);
  await board.kill();
});

test("what repeats is counted, and its count is written ever more seldom", async () => {
  const board = new Board();
  const box = await board.start();
  await board.pass(5000, box);
  const written: number[] = [];
  for (let run = 0; run < 600; run += 1) {
    const before = readFileSync(board.path, "utf8");
    box.record(started(run), POD);
    await board.pass(300_000, box);
    if (readFileSync(board.path, "utf8") !== before) written.push(run);
  }
  const [record, ...others] = await board.read(box, ({ p }) => p !== undefined);
  assert.equal(others.length, 0, "equal decisions are one record");
  assert.equal(record?.c, 600);
  assert.equal(record?.f?.[0], 5000);
  assert.deepEqual(record?.d, started(599), "with the latest figures");
  // 50 hours of a crash loop.
  assert.ok(written.length <= 62, `written ${written.length} times`);
  assert.deepEqual(written.slice(0, 4), [0, 1, 3, 7]);
  await board.kill();
});

test("after an hour without it the same decision is another one", async () => {
  const board = new Board();
  const box = await board.start();
  box.record(started(1), POD);
  await board.pass(HOUR, box);
  box.record(started(2), POD);
  await board.pass(2000, box);
  assert.equal((await board.read(box, ({ p }) => p !== undefined)).length, 2);
  await board.kill();
});

test("a power cut is told from a reboot, a killed agent and an orderly stop", async () => {
  const board = new Board();
  const beginning = async (box: BlackBox): Promise<string | undefined> => {
    const last = (await board.read(box)).findLast(({ d }) => d.kind === "agentStarted")?.d;
    return last?.kind === "agentStarted" ? last.after : undefined;
  };
  let box = await board.start();
  assert.equal(await beginning(box), "first");
  await board.stop(box);
  box = await board.start();
  assert.equal(await beginning(box), "stopped");
  board.ending = "restart";
  await board.stop(box);
  box = await board.start();
  assert.equal(await beginning(box), "restarted");
  board.ending = "failed";
  await board.stop(box);
  box = await board.start();
  assert.equal(await beginning(box), "failed");
  await board.pass(2000, box);
  await board.kill();
  box = await board.start();
  assert.equal(await beginning(box), "killed");
  board.ending = "asked";
  await board.stop(box);
  board.boot();
  box = await board.start();
  assert.equal(await beginning(box), "reboot");
  assert.ok(!kindsOf(await board.read(box)).includes("powerCut"));
  await board.pass(2000, box);
  await board.kill();
  board.boot();
  box = await board.start();
  assert.equal(await beginning(box), "powerCut");
  assert.ok(kindsOf(await board.read(box)).includes("powerCut"));
  assert.equal(box.boot[0], 3, "boots are counted");
  await board.kill();
});

test("a power cut is dated by what was written last before it", async () => {
  const board = new Board();
  let box = await board.start();
  await board.pass(10_000, box);
  await board.kill();
  const lastRecord = board.clock.wall().getTime() - 10_000;
  await board.clock.advance(seconds(600));
  const now = board.clock.wall().getTime();
  // One file is of the future, because its clock was wrong, and one older than the last record.
  board.signs = [lastRecord - 5000, lastRecord + 60_000, now + 99_000];
  board.boot();
  box = await board.start();
  const cut = (await board.read(box)).find(({ d }) => d.kind === "powerCut")?.d;
  const figures = { lastSignWallMs: lastRecord + 60_000, downMs: now - lastRecord - 60_000 };
  assert.deepEqual(cut, { kind: "powerCut", figures });
  await board.kill();
});

test("a kernel's panic takes the place of the power cut, with its last words and without what may be secret", async () => {
  const board = new Board();
  let box = await board.start();
  await board.pass(10_000, box);
  await board.kill();
  board.panic = {
    message: "Kernel panic - not syncing: token=hunter2hunter2",
    path: "/var/lib/systemd/pstore/dmesg-1",
  };
  board.boot();
  box = await board.start();
  const records = await board.read(box);
  assert.deepEqual(kindsOf(records), ["agentStarted", "kernelPanic", "agentStarted"]);
  const { d } = records[1] ?? {};
  assert.ok(d?.kind === "kernelPanic");
  assert.deepEqual([d.message, d.path], ["Kernel panic - not syncing: token=***", "/var/lib/systemd/pstore/dmesg-1"]);
  assert.equal(box.kernelPanic?.message, d.message);
  assert.match(JSON.stringify(records[2]?.d), /"after":"kernelPanic"/);
  await board.kill();
});

test("why after a power cut: what the pod did before it, the cut with its length, and what took the pod's place", async () => {
  const board = new Board();
  let box = await board.start();
  box.record({ kind: "accepted", source: publicName("api") }, POD);
  box.record(started(0), POD);
  await board.pass(60_000, box);
  const reason = { reason: publicName("Error"), exitCode: 1, willRestart: true, figures: { run: 0, lastedMs: 60_000 } };
  box.record({ kind: "exited", container: publicName("app"), ...reason }, POD);
  await board.pass(2000, box);
  // In memory alone when the power goes.
  box.record(started(1), POD);
  await board.kill();
  await board.clock.advance(seconds(600));
  board.boot();
  box = await board.start();
  await board.pass(3000, box);
  box.record({ kind: "sandboxReplaced", figures: { sandbox: 1 } }, POD);
  box.record({ ...started(1), cause: publicName("newSandbox") } as Decision, POD);
  // By the records on disk and those that are not there yet.
  const told = await board.why(box, { now: "Running, ready", isWell: true });
  assert.equal(
    told.replace(/agent [\d.]+/, "agent X").replace(/ \(or the system.*?\)/, ""),
    `default/web on edge-1: Running, ready
00:11:05  Container app was started again, because the pod has a new sandbox (restart 1).
00:11:05  The pod's sandbox had died or was lost; sandbox 2 takes its place.
00:11:02  The agent X started after the power cut.
00:11:02  The power was cut at about 00:01:00, the last sign of life; the board was back after 10m.
00:01:00  Container app ended after 60s (exit code 1, Error).
00:00:00  Container app was started again, as its restart policy says.
00:00:00  The node took the pod, which the hub wants here.
`,
    "in order, and without the start that was in memory alone",
  );
  await board.kill();
});

const evicted = (signal: string): Decision => ({
  kind: "evicted",
  signal: publicName(signal),
  isHard: true,
  figures: {
    available: 80 * MEBIBYTE,
    threshold: 100 * MEBIBYTE,
    used: 210 * MEBIBYTE,
    requested: 16 * MEBIBYTE,
    candidates: 3,
  },
});
const notPulled = (tries: number): Decision => ({
  kind: "imageNotPulled",
  container: publicName("app"),
  image: publicName("registry.example/app:1"),
  reason: publicName("ErrImagePull"),
  message: publicMessage("401 for https://robot:hunter2@registry.example"),
  figures: { tries, retryInMs: tries * 10_000 },
});

interface End {
  readonly title: string;
  readonly decisions: readonly Decision[];
  readonly topic: WhyTopic;
  readonly told: RegExp;
}

/** Each is recorded by an agent that is killed afterwards, and read from the file by the next one. */
const ENDS: readonly End[] = [
  ...["memory.available", "nodefs.available"].map(
    (signal): End => ({
      title: `an eviction for ${signal}`,
      decisions: [evicted(signal)],
      topic: "evicted",
      told: new RegExp(
        `The node evicted the pod: ${signal} was 80 MiB, below the hard threshold of 100 MiB; ` +
          "it used 210 MiB of a request of 16 MiB, first of 3 by use above request, priority and use\\.",
      ),
    }),
  ),
  {
    title: "a preemption",
    decisions: [{ kind: "preempted", by: publicName("kube-system/pump") }],
    topic: "evicted",
    told: /The node ended the pod to make room for the critical pod kube-system\/pump\./,
  },
  {
    title: "an image that cannot be pulled",
    decisions: [notPulled(1), notPulled(2)],
    topic: "started",
    told: /Image registry\.example\/app:1 of container app is not here: .*ErrImagePull.*tried again in 20s.* 2 times since/,
  },
];
for (const { title, decisions, topic, told } of ENDS)
  test(`why tells of ${title} after the agent was killed, alone by its topic and with the whole story`, async () => {
    const board = new Board();
    let box = await board.start();
    box.record({ kind: "accepted", source: publicName("api") }, POD);
    for (const each of decisions) box.record(each, POD);
    await board.pass(5000, box);
    await board.kill();
    box = await board.start();
    const now = { now: "Failed", isWell: false };
    const whole = await board.why(box, now);
    assert.match(whole, told);
    assert.match(whole, /started after it was killed[\s\S]*The node took the pod/);
    assert.doesNotMatch(whole, /hunter2/);
    const alone = await board.why(box, now, topic);
    assert.match(alone, told);
    assert.doesNotMatch(alone, /The agent/);
    assert.match(await board.why(box), /it is no longer on this node/, "also of a pod that is gone");
    await board.kill();
  });

test("a clock that is set is a decision, and what was recorded before is marked", async () => {
  const board = new Board();
  board.isClockSet = false;
  const box = await board.start();
  box.record(started(0), POD);
  board.clock.setWall(board.clock.wall().getTime() + 3 * HOUR);
  board.isClockSet = true;
  box.record(started(1), POD);
  const records = await board.read(box);
  assert.deepEqual(kindsOf(records), ["agentStarted", "started", "clockCorrected"]);
  assert.equal(records[0]?.x, 1);
  assert.deepEqual(records[2]?.d, { kind: "clockCorrected", figures: { byMs: 3 * HOUR } });
  await board.kill();
});

test("a tenant who changes pods all day wears out no flash", async () => {
  const board = new Board();
  const box = await board.start();
  let writes = 0;
  for (let change = 0; change < 2000; change += 1) {
    const before = readFileSync(board.path, "latin1");
    box.record(started(0), desired(podOf({}, { name: `p${change}` }), `uid-${change}`));
    await board.pass(43_200, box);
    if (readFileSync(board.path, "latin1") !== before) writes += 1;
  }
  assert.ok(writes <= 16 + 289, `${writes} writes in a day`);
  await board.kill();
});

test("a disk that refuses costs nothing but records that are too many, and is tried again", async () => {
  const board = new Board();
  writeFileSync(board.path, "");
  rmSync(board.path);
  const inFile = `${board.path}/box`;
  writeFileSync(board.path, "no folder");
  const box = await BlackBox.open(
    { clock: board.clock, log: board.log, isClockSet: () => true },
    {
      ...{ path: inFile, size: 65_536, bootId: "1", uptimeAtZero: millis(0) },
      signsOfLife: () => [],
      ending: () => "asked",
    },
  );
  const stop = new AbortController();
  const run = box.run(stop.signal).catch(() => undefined);
  for (let n = 0; n < 1000; n += 1) box.record(started(0), desired(podOf({}, { name: `p${n}` }), `uid-${n}`));
  assert.ok(box.pending().length <= 256);
  assert.deepEqual(board.log.problems, ["cannot write to the black box; tries again"]);
  rmSync(board.path);
  await board.pass(60_000, box);
  assert.equal(box.pending().length, 0);
  assert.ok((await readRecords(box, () => true, board.log)).length >= 200);
  chmodSync(inFile, 0o600);
  stop.abort();
  await run;
});

test("no Secret gets into a record: the texts that may be in one lose credentials", () => {
  const secrets = [
    "pull https://robot:hunter2@registry.example/app failed",
    "GET https://x.example/v2?access_token=hunter2hunter2 401",
    "401 with Authorization: Bearer hunter2hunter2",
    'invalid value: password="hunter2"',
    "API_KEY=hunter2 is refused",
    "token eyJhbGciOiJIUzI1NiJ9.hunter2hunter2.hunter2hunter2 expired",
    "key hunter2Hunter2hunter2hunter2hunter2hunter2= is none",
  ];
  for (const each of secrets) {
    assert.doesNotMatch(publicMessage(each), /hunter2/i, each);
    assert.match(publicMessage(each), /\*\*\*/, each);
  }
  const digest = `cannot find image registry.example/app@sha256:${"0a".repeat(32)}`;
  assert.equal(publicMessage(digest), digest);
  const usual = 'configmap "settings" not found: back-off 40s restarting failed container=app pod=web_default';
  assert.equal(publicMessage(usual), usual);
  assert.equal(publicMessage("a\u001b[31m\r\nb"), "a [31m b");
  assert.ok(publicMessage("x ".repeat(1e5)).length <= 240);
  // @ts-expect-error A plain text fits no field.
  const plain: Decision = { kind: "nodeNotReady", message: "a text" };
  assert.ok(plain);
});
