/** The shell script that waits for runners, on the machine's own shell. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { settled } from "@picolet/test/support/unit/ports/settled.ts";
import { isAlive, killGroup, parseProcessId, signalProcess } from "./process-id.ts";
import { parseExitCode, REAPER_SHELL, type ReaperLaunch, reaperArguments } from "./reaper.ts";
import { StateFolder } from "./state-folder.ts";

const ID = "a".repeat(64);

class Bench {
  readonly folder = new TempFolder();
  readonly state = new StateFolder(this.folder.at("state"));

  constructor(context: TestContext) {
    context.after(() => this.folder[Symbol.dispose]());
    this.state.open("boot");
    mkdirSync(this.state.container("pod", ID), { recursive: true });
  }

  /** Returns the reaper's output, its own exit code, and the process. */
  async run(command: readonly string[], more: Partial<ReaperLaunch> = {}) {
    const launch = {
      directory: this.state.container("pod", ID),
      exitPath: this.state.exitPath(ID),
      oomScoreAdj: 500,
      procsFiles: [],
      command,
      ...more,
    };
    const child = spawn(REAPER_SHELL, reaperArguments(launch), {
      detached: true,
      stdio: ["ignore", "ignore", "ignore", "pipe"],
    });
    const ended = once(child, "exit");
    const said = await text(child.stdio[3] as Readable);
    return { said, ended: ended.then(([code]) => Number(code)) };
  }
}

test("the exit code is recorded, and the process is known", async (context) => {
  const bench = new Bench(context);
  const { said, ended } = await bench.run(["/bin/sh", "-c", "echo started >&3; exec 3>&-; exit 7"]);
  assert.equal(said, "started\n");
  assert.equal(await ended, 0);
  assert.equal(bench.state.exit(ID)?.exitCode, 7);
  const [reaper, runner] = [bench.state.reaper("pod", ID), bench.state.runner("pod", ID)];
  assert.ok(reaper && runner && reaper.pid !== runner.pid);
  assert.deepEqual([isAlive(reaper), isAlive(runner)], [false, false]);
});

test("an end by a signal is 128 and its number; the score for the OOM killer is inherited", async (context) => {
  const bench = new Bench(context);
  const score = bench.folder.at("score");
  const script = `cat /proc/self/oom_score_adj > ${score}; echo up >&3; exec 3>&-; sleep 100`;
  const { ended } = await bench.run(["/bin/sh", "-c", script]);
  // The reaper writes down who runs when it has said its last.
  await settled(() => (bench.state.runner("pod", ID) === undefined ? ["nobody"] : []));
  const runner = bench.state.runner("pod", ID);
  assert.ok(runner && isAlive(runner));
  assert.equal(readFileSync(score, "utf8"), "500\n");
  signalProcess({ ...runner, startTime: "1" }, "SIGKILL");
  assert.equal(isAlive(runner), true, "another process with this pid is not meant");
  signalProcess(runner, "SIGTERM");
  await ended;
  assert.equal(bench.state.exit(ID)?.exitCode, 143);
  const reaper = bench.state.reaper("pod", ID);
  assert.ok(reaper);
  killGroup(reaper);
});

test("a shell that comes after its container was given up starts nothing", async (context) => {
  const bench = new Bench(context);
  const proof = bench.folder.at("proof");
  assert.equal(bench.state.claim("pod", ID), true);
  const claimed = await bench.run(["/bin/sh", "-c", `echo ran > ${proof}`]);
  assert.equal(await claimed.ended, 125);
  rmSync(bench.state.container("pod", ID), { recursive: true });
  const removed = await bench.run(["/bin/sh", "-c", `echo ran > ${proof}`]);
  assert.equal(await removed.ended, 125);
  assert.equal(existsSync(proof), false);
  assert.equal(bench.state.exit(ID), undefined);
});

test("a container whose shell has begun cannot be claimed any more", async (context) => {
  const bench = new Bench(context);
  const { ended } = await bench.run(["/bin/true"]);
  await ended;
  assert.equal(bench.state.claim("pod", ID), false);
});

test("it joins every cgroup it is given before anything runs, and says when it cannot", async (context) => {
  const bench = new Bench(context);
  const procs = [bench.folder.at("one"), bench.folder.at("two")];
  for (const file of procs) writeFileSync(file, "");
  const { ended } = await bench.run(["/bin/true"], { procsFiles: procs });
  await ended;
  const reaper = bench.state.reaper("pod", ID);
  assert.deepEqual(
    procs.map((file) => readFileSync(file, "utf8")),
    [`${reaper?.pid}\n`, `${reaper?.pid}\n`],
  );
  const other = new Bench(context);
  const refused = await other.run(["/bin/true"], { procsFiles: ["/no/such/cgroup.procs"] });
  assert.match(refused.said, /cannot join the cgroup of \/no\/such\/cgroup\.procs/);
  assert.equal(await refused.ended, 125);
});

test("a program that is not there is 127, as shells have it", async (context) => {
  const bench = new Bench(context);
  const { said, ended } = await bench.run(["/no/such/program"]);
  await ended;
  assert.deepEqual([said, bench.state.exit(ID)?.exitCode], ["", 127]);
});

test("only whole lines are read", () => {
  assert.deepEqual(parseProcessId("12 345\n"), { pid: 12, startTime: "345" });
  for (const part of ["", "12", "12 345", "12 345\n6", "x 1\n"]) assert.equal(parseProcessId(part), undefined, part);
  assert.equal(parseExitCode("137\n"), 137);
  for (const part of ["", "1", "13x\n", "1000\n"]) assert.equal(parseExitCode(part), undefined, part);
});
