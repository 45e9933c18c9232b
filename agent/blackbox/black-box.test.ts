import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { publicMessage, publicName } from "@picolet/protocol/decisions/public-text.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { Decision } from "../core/store/decisions.ts";
import { BlackBox, type BlackBoxInit } from "./black-box.ts";
import { readRecords } from "./reading/read-records.ts";
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
