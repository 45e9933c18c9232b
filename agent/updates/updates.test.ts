import assert from "node:assert/strict";
import { test } from "node:test";
import { aborted } from "@picolet/protocol/async/abort.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { FlashReport, NodeCondition, TunnelReport } from "@picolet/protocol/local-api/status.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { parseReport, type UpdateProgress } from "@picolet/protocol/updates/node-updates.ts";
import { MemoryFiles } from "@picolet/test/support/unit/agent/memory-files.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import { UpdateFiles } from "./update-files.ts";
import type { UpdateAnswer, UpdateTask } from "./update-task.ts";
import { Updates } from "./updates.ts";

const OS = "picolet.io/os-image";
const DEADLINE = seconds(60);
const NEW = "registry.example/os:2";

/** The disk, until the power is lost: nothing is written afterwards. */
class Disk extends MemoryFiles {
  operations = 0;
  /** The number of the first operation that is not done any more. */
  cutAt = Number.POSITIVE_INFINITY;

  get isLost(): boolean {
    return this.operations >= this.cutAt;
  }

  override write(name: string, text: string): void {
    this.#count();
    super.write(name, text);
  }

  override rename(from: string, to: string): void {
    this.#count();
    super.rename(from, to);
  }

  override remove(name: string): void {
    this.#count();
    super.remove(name);
  }

  #count(): void {
    this.operations += 1;
    if (this.isLost) throw new Error("the power is lost");
  }
}

interface Running {
  readonly updates: Updates;
  readonly stop: () => Promise<void>;
}

/** A board with two slots. What `firmware/updates/boot-check` does is done by `machine`. */
class Board {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly disk = new Disk();
  readonly node = new WatchSource<Readonly<Record<string, unknown>> | undefined>(undefined);
  readonly tasks: UpdateTask[] = [];
  readonly #files = new UpdateFiles({ folder: this.disk, log: this.log });
  slot = "A";
  pods: AgentPod[] = [podNow("web", true)];
  isReadyInB = true;
  conditions: NodeCondition[] = [READY];
  tunnel: TunnelReport = { state: "connected", since: null, rttMs: null };
  flash: FlashReport = flashOf(0);
  /** Called by the program that prepares. */
  prepare: (task: UpdateTask, signal: AbortSignal) => Promise<UpdateAnswer> = async () => PREPARED;
  agentVersion = "1";
  packageVersion = "1";
  packageObstacle = "no package";
  shutdowns: string[] = [];
  isCheckStarted = false;
  agent: Running | undefined;
  allowed = ["os", "agent", "configuration"];

  annotate(annotations: Readonly<Record<string, string>>): void {
    this.node.set({ metadata: { annotations } });
  }

  start(): Updates {
    const life = new AbortController();
    const shutdown = {
      isShuttingDown: false,
      begin: async (why: string): Promise<void> => {
        this.shutdowns.push(why);
        shutdown.isShuttingDown = true;
      },
      cancel: async (): Promise<void> => {
        this.shutdowns.push("cancelled");
        shutdown.isShuttingDown = false;
      },
    };
    const updates = new Updates(
      {
        ...{ files: this.#files, node: this.node, shutdown, events: this.events, clock: this.clock, log: this.log },
        pods: () => (this.slot === "B" && !this.isReadyInB ? [podNow("web", false)] : this.pods),
        conditions: () => this.conditions,
        tunnel: () => this.tunnel,
        flash: () => this.flash,
        random: { next: () => 1 },
        access: async () => ({
          ...{ repository: "os", endpoints: [], credentials: undefined, credentialsFrom: undefined },
          proxies: { httpProxy: "", httpsProxy: "", noProxy: "" },
          limits: {} as never,
        }),
        runTask: async (task, onInstalling, signal) => {
          this.tasks.push(task);
          onInstalling();
          return await this.prepare(task, signal);
        },
        startCheck: async () => {
          this.isCheckStarted = true;
        },
      },
      {
        nodeName: "board",
        agentVersion: this.agentVersion,
        packageVersion: this.packageVersion,
        architecture: "arm64",
        software: {
          image: { version: this.slot === "A" ? "1" : "2", compatible: "c", slot: this.slot },
          obstacles: { os: "", agent: this.packageObstacle, configuration: "" },
        },
        directory: "/updates",
        keysDirectory: "/keys",
        holdFolder: "/nonexistent",
        configurationPath: "/config.yaml",
        runsNextConfiguration: false,
        check: "#!/bin/sh\n",
        allowed: this.allowed,
        bytesPerSecond: 0,
      },
    );
    const done = endOfRun(updates.run(life.signal));
    this.agent = {
      updates,
      stop: async () => {
        life.abort();
        await done;
      },
    };
    return updates;
  }

  async restart(): Promise<Updates> {
    await this.agent?.stop();
    this.isCheckStarted = false;
    return this.start();
  }

  /**
   * Lets time pass; a check that was started switches to the other slot, judges, and goes back.
   * @returns whether it did something
   */
  async machine(): Promise<void> {
    await this.clock.advance(seconds(30), () => this.isCheckStarted || this.disk.isLost);
    if (this.disk.isLost) return;
    const id = this.#files.trialId();
    if (!this.isCheckStarted || id === undefined || this.#files.result(id) !== undefined) return;
    if (this.slot === "A") {
      this.slot = "B";
      await this.restart();
    }
    const isHealthy = (): boolean => this.disk.files.get("healthy") === `id=${id}\n`;
    await this.clock.advance(DEADLINE, () => isHealthy() || this.disk.isLost);
    if (this.disk.isLost) return;
    const reason = /reason=(.*)/.exec(this.disk.files.get("unhealthy") ?? "")?.[1] ?? "it did not come up";
    const outcome = isHealthy() ? "good" : "rolledBack";
    this.disk.files.set("result", `id=${id}\noutcome=${outcome}\nreason=${isHealthy() ? "" : reason}\n`);
    if (isHealthy()) return;
    this.slot = "A";
    await this.restart();
  }

  get progress(): UpdateProgress | undefined {
    const text = this.agent?.updates.report.current;
    return text === undefined ? undefined : parseReport(text)?.updates[0];
  }

  /** `good`, `held: reason` … of the first update. */
  get shown(): string {
    const { state = "none", message = "" } = this.progress ?? {};
    return message === "" ? state : `${state}: ${message}`;
  }

  async advance(duration: Millis): Promise<void> {
    await this.clock.advance(duration);
  }

  async stop(): Promise<void> {
    await this.agent?.stop();
    assert.equal(this.clock.sleeping, 0);
  }
}

const PREPARED: UpdateAnswer = { kind: "prepared", version: "2", slot: "B", bytes: 1, totalBytes: 9 };
const READY: NodeCondition = { type: "Ready", status: "True", reason: "", message: "", lastTransitionTime: "" };

function podNow(name: string, isReady: boolean, annotations: Readonly<Record<string, string>> = {}): AgentPod {
  const conditions = [{ type: "Ready", status: isReady ? "True" : "False" }];
  return {
    desired: desired(podOf({}, { name, annotations }), `uid-${name}`),
    status: { phase: "Running", conditions } as AgentPod["status"],
    ...{ terminatingSinceMs: undefined, runtime: "cri", containers: [], logDirectory: "" },
  };
}

const flashOf = (bytes: number): FlashReport => ({
  ...{ disks: [], day: "", dailyAverage: null, agentBudgetBytes: 1, budgetBytes: bytes === 0 ? null : 100 },
  today: { bytes, agentBytes: 0, pods: [] },
});

test("a system is prepared, the pods are ended, and it is good when the pods run again", async () => {
  const board = new Board();
  board.start();
  board.annotate({ [OS]: NEW, "picolet.io/update-bandwidth": "64Ki", "picolet.io/update-health-deadline": "60s" });
  await board.machine();
  await board.machine();
  await board.advance(seconds(5));
  assert.equal(board.shown, "good");
  assert.equal(board.slot, "B");
  assert.deepEqual(board.shutdowns, ["update"]);
  const [task] = board.tasks;
  assert.ok(task?.want === "os");
  assert.deepEqual([task.bytesPerSecond, task.compatible, task.slot], [65_536, "c", "A"]);
  assert.deepEqual(
    board.events.lines.map((line) => line.slice(0, line.indexOf(":"))),
    ["Normal UpdateStarted", "Normal UpdateInstalled", "Normal UpdateStarted", "Normal UpdateSucceeded"],
  );
  assert.deepEqual(parseReport(board.agent?.updates.report.current ?? "")?.osVersion, "2");
  // The trial has left nothing.
  assert.deepEqual([...board.disk.files.keys()], ["progress.json"]);
  await board.stop();
});

test("a pod that does not run again is the reason of the way back, and that target is not tried again", async () => {
  const board = new Board();
  board.start();
  board.annotate({ [OS]: NEW, "picolet.io/update-health-deadline": "60s" });
  board.isReadyInB = false;
  await board.machine();
  await board.advance(seconds(5));
  assert.equal(board.shown, "rolledBack: not running as before: default/web");
  assert.equal(board.slot, "A");
  const count = board.tasks.length;
  await board.restart();
  await board.advance(seconds(3600));
  assert.equal(board.tasks.length, count);
  assert.equal(board.events.all.filter(({ reason }) => reason === "UpdateRolledBack").length, 1);
  board.annotate({ [OS]: "registry.example/os:3" });
  await board.advance(seconds(5));
  assert.equal(board.tasks.length, count + 1);
  await board.stop();
});

test("it waits for the window, the flash budget, pods, and an operator, and says for which", async () => {
  const board = new Board();
  board.pods = [podNow("web", true, { "picolet.io/update-hold": "filling tank 3" })];
  board.flash = flashOf(60);
  const updates = board.start();
  // The board's clock says midnight in UTC; the test's time zone is the machine's.
  const minute = board.clock.wall().getHours() * 60 + board.clock.wall().getMinutes();
  const at = (minutes: number): string =>
    [Math.floor(minutes / 60) % 24, minutes % 60].map((each) => String(each).padStart(2, "0")).join(":");
  board.annotate({ [OS]: NEW, "picolet.io/update-window": `${at(minute + 10)}-${at(minute + 120)}` });
  await board.advance(seconds(5));
  assert.match(board.shown, /^fetching: waits for a day on which less than half/);
  assert.equal(board.tasks.length, 0);
  board.flash = flashOf(10);
  await board.advance(seconds(20));
  assert.match(board.shown, /^waiting: waits for its window/);
  await board.advance(seconds(600));
  assert.equal(board.shown, "held: held by pod default/web (filling tank 3)");
  updates.hold({ reason: "harvest", forMs: 600_000 });
  board.pods = [podNow("web", true)];
  await board.advance(seconds(20));
  assert.equal(board.shown, "held: held by edgectl (harvest)");
  assert.equal(board.isCheckStarted, false);
  await board.advance(seconds(600));
  assert.equal(board.isCheckStarted, true);
  assert.equal(board.shown, "restarting");
  await board.stop();
});

test("an operator's hold survives the agent, and its release is acted upon at once", async () => {
  const board = new Board();
  board.start().hold({ reason: "", forMs: null });
  const updates = await board.restart();
  board.annotate({ [OS]: NEW });
  await board.advance(seconds(5));
  assert.equal(board.shown, "held: held by edgectl");
  updates.release();
  await board.advance(millis(10));
  assert.equal(board.isCheckStarted, true);
  await board.stop();
});

test("a link that is away is tried again for as long as it takes; what is wrong for good is not", async () => {
  const board = new Board();
  let attempts = 0;
  board.prepare = async () => {
    attempts += 1;
    throw new PicoletError("unavailable", "cannot reach registry.example", { retryable: true });
  };
  board.start();
  board.annotate({ [OS]: NEW });
  await board.advance(seconds(6 * 3600));
  assert.ok(attempts > 20 && attempts < 40, `${attempts} attempts in six hours`);
  assert.equal(board.shown, "fetching: cannot reach registry.example");
  board.prepare = async () => {
    throw new PicoletError("invalid", "1 is older than 2");
  };
  await board.advance(seconds(1800));
  assert.equal(board.shown, "failed: 1 is older than 2");
  assert.equal(board.events.all.filter(({ reason }) => reason === "UpdateFailed").length, 1);
  await board.stop();
});

test("another wish ends the fetch of the one before", async () => {
  const board = new Board();
  board.prepare = async (_, signal) => {
    await aborted(signal);
    throw new PicoletError("cancelled", "it was stopped");
  };
  board.start();
  board.annotate({ [OS]: NEW });
  await board.advance(seconds(2));
  assert.equal(board.progress?.state, "installing");
  board.prepare = async () => PREPARED;
  board.annotate({ [OS]: "registry.example/os:3" });
  await board.advance(seconds(5));
  assert.deepEqual([board.tasks.length, board.progress?.target], [2, "registry.example/os:3"]);
  assert.equal(board.isCheckStarted, true);
  await board.stop();
});

test("a wish that is taken back before its trial leaves nothing", async () => {
  const board = new Board();
  const updates = board.start();
  updates.hold({ reason: "", forMs: null });
  board.annotate({ [OS]: NEW });
  await board.advance(seconds(5));
  assert.equal(board.shown, "held: held by edgectl");
  board.annotate({});
  await board.advance(seconds(5));
  assert.equal(board.shown, "none");
  updates.release();
  await board.advance(seconds(60));
  assert.equal(board.isCheckStarted, false);
  await board.stop();
});

test("a disk that is full ends nothing but the update's progress", async () => {
  const board = new Board();
  board.start();
  board.disk.isFull = true;
  board.annotate({ [OS]: NEW });
  await board.advance(seconds(120));
  assert.equal(board.shown, "none");
  board.disk.isFull = false;
  await board.advance(seconds(60));
  assert.equal(board.isCheckStarted, true);
  await board.stop();
});

test("a file of the board is installed outside of the window, and checked without being installed", async () => {
  const board = new Board();
  const updates = board.start();
  board.annotate({ "picolet.io/update-window": "00:00-00:01" });
  board.clock.setWall(new Date(2026, 0, 1, 12).getTime());
  const { signal } = new AbortController();
  const request = { path: "/media/os.raucb", check: true, allowDowngrade: true };
  assert.deepEqual(await updates.install(request, signal), { kind: "os", version: "2", state: "good" });
  assert.equal(board.tasks[0]?.install, false);
  await updates.install({ ...request, check: false }, signal);
  await board.advance(seconds(5));
  const task = board.tasks.at(-1);
  assert.ok(task?.want === "os" && task.source.kind === "file");
  assert.deepEqual([task.source.path, task.allowDowngrade], ["/media/os.raucb", true]);
  assert.equal(board.isCheckStarted, true);
  await assert.rejects(updates.install({ ...request, check: false }, signal), /another one is on trial/);
  await assert.rejects(updates.install({ ...request, path: "/a.deb" }, signal), /no package/);
  await board.stop();
});

test("a configuration is fetched with the text that the Node asks for", async () => {
  const board = new Board();
  board.prepare = async () => ({ kind: "current", version: "x" });
  board.start();
  board.annotate({ "picolet.io/configuration": "maxPods: 20" });
  await board.advance(seconds(5));
  const [task] = board.tasks;
  assert.ok(task?.want === "configuration");
  assert.deepEqual([task.text, task.path, board.shown], ["maxPods: 20", "/config.yaml", "good"]);
  await board.stop();
});

test("a package is compared and judged by its Debian version, which has a revision", async () => {
  const board = new Board();
  Object.assign(board, { packageVersion: "1-1", packageObstacle: "" });
  board.prepare = async () => ({ ...PREPARED, version: "2-1", slot: "" });
  board.start();
  board.annotate({
    "picolet.io/agent-package": "registry.example/agent:2",
    "picolet.io/update-health-deadline": "60s",
  });
  await board.advance(seconds(5));
  const [task] = board.tasks;
  assert.ok(task?.want === "agent");
  assert.deepEqual([task.version, board.isCheckStarted], ["1-1", true]);
  await board.advance(DEADLINE);
  assert.equal(board.disk.files.has("healthy"), false, "the old agent says nothing about the new one");
  Object.assign(board, { agentVersion: "2", packageVersion: "2-1" });
  await board.restart();
  await board.advance(seconds(20));
  assert.match(board.disk.files.get("healthy") ?? "", /^id=/);
  assert.equal(board.agent?.updates.status().agentVersion, "2");
  await board.stop();
});

test("annotations that cannot be read change nothing, and are reported once", async () => {
  const board = new Board();
  const updates = board.start();
  board.annotate({ [OS]: NEW, "picolet.io/update-window": "at night" });
  await board.advance(seconds(60));
  assert.equal(board.tasks.length, 0);
  assert.match(updates.status().problems, /update-window/);
  assert.equal(board.events.all.length, 1);
  await board.stop();
});

test("the board's owner decides what a hub may update", async () => {
  const board = new Board();
  board.allowed = [];
  board.start();
  board.annotate({ [OS]: NEW });
  await board.advance(seconds(5));
  assert.match(board.shown, /^failed: updates.allowed of this board's configuration leaves it out$/);
  await board.stop();
});

test("without a Node nothing is withdrawn: a board that starts offline goes on", async () => {
  const board = new Board();
  board.start();
  board.annotate({ [OS]: NEW, "picolet.io/update-window": "00:00-00:01" });
  board.clock.setWall(new Date(2026, 0, 1, 12).getTime());
  await board.advance(seconds(5));
  assert.match(board.shown, /^waiting/);
  board.node.set(undefined);
  await board.restart();
  await board.advance(seconds(3600));
  assert.match(board.shown, /^waiting: the annotations of the Node cannot be read/);
  await board.stop();
});

for (const [name, isReady, slot, state] of [
  ["a healthy system", true, "B", "good"],
  ["a system with which the pods do not run", false, "A", "rolledBack"],
] as const)
  test(`${name} ends the same with the power lost at any write`, async () => {
    for (let cutAt = 1; ; cutAt += 1) {
      const board = new Board();
      board.disk.cutAt = cutAt;
      board.isReadyInB = isReady;
      board.start();
      board.annotate({ [OS]: NEW, "picolet.io/update-health-deadline": "60s" });
      let cuts = 0;
      for (let round = 0; round < 8; round += 1) {
        await board.machine();
        if (!board.disk.isLost) continue;
        cuts += 1;
        board.disk.cutAt = Number.POSITIVE_INFINITY;
        await board.restart();
        // The unit of the boot check starts with the board.
        board.isCheckStarted = board.disk.files.has("trial");
      }
      await board.advance(seconds(30));
      assert.deepEqual([board.progress?.state, board.slot], [state, slot], `cut at write ${cutAt}: ${board.shown}`);
      await board.stop();
      if (cuts === 0) {
        assert.ok(cutAt > 20, "some writes were cut");
        return;
      }
    }
  });
