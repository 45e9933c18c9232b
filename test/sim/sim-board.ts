/** A board in a simulation: its clock, its runtimes, its disk and manifests, and one agent after the other. */
import { copyFileSync, existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { PlanPod } from "@picolet/agent/plan/pod-view.ts";
import type { DecisionKind } from "@picolet/protocol/decisions/decision-kinds.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Log, millis } from "@picolet/protocol/ports.ts";
import { FakeAdapter } from "@picolet/runtime-test-kit/fake/fake-adapter.ts";
import type { FakeCall, FakeFault } from "@picolet/runtime-test-kit/fake/fake-faults.ts";
import { FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import { FakePodEnvironment } from "../support/unit/agent/fake-pod-environment.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { AgentLife } from "./agent-life.ts";
import { Dice } from "./dice.ts";
import { Laws } from "./laws.ts";
import { Manifests } from "./memory-manifest-folder.ts";
import { SimHub } from "./sim-hub.ts";
import { IMAGE, REMOTE_IMAGE } from "./sim-manifests.ts";

export interface BoardInit {
  readonly seed: number;
  /** A folder for databases, in memory. */
  readonly folder: string;
  readonly trace: (line: string) => void;
  /** Instead of the real one, to see that the simulation finds what is wrong with it. */
  readonly planPod?: PlanPod;
  /** A decision that the agent does not record. */
  readonly silent?: DecisionKind;
  /** Parses a Pod object as the agent does; the object as it is by default. */
  readonly parse?: (object: object) => Pod;
}

/** How unkind the world is; drawn once for each seed. */
interface Climate {
  readonly latencyMs: number;
  readonly faults: number;
  readonly lostHints: number;
  readonly lateHintsMs: number;
  readonly exitLagMs: number;
  /** Mean number of calls in an agent's life; 0: it lives until it is killed. */
  readonly callsPerLife: number;
  readonly smallDisk: number;
  /** How often a start finds nothing on the disk. */
  readonly lostDisk: number;
}

const NO_LIMIT = Number.MAX_SAFE_INTEGER;

export class Board {
  readonly clock: VirtualClock;
  readonly dice: Dice;
  readonly laws: Laws;
  readonly runtimes: readonly FakeRuntime[];
  readonly manifests = new Manifests();
  readonly hub = new SimHub();
  readonly disk = new FakePodEnvironment();
  readonly #init: BoardInit;
  readonly #climate: Climate;
  readonly #end = new AbortController();
  readonly #adapters: readonly FakeAdapter[];
  #life: AgentLife | undefined;
  #lives = 0;
  #kind = false;
  #isDiskSmall = false;
  #hasLostDisks = false;

  constructor(init: BoardInit) {
    this.#init = init;
    const dice = new Dice(init.seed);
    this.dice = dice;
    this.clock = new VirtualClock(undefined, dice);
    this.laws = new Laws({
      clock: this.clock,
      hub: this.hub,
      disk: this.disk,
      runtimes: () => this.runtimes,
      trace: (line) => this.trace(line),
    });
    this.#climate = {
      latencyMs: dice.pick([0, 3, 40, 400]),
      faults: dice.pick([0, 0, 0.01, 0.05, 0.15]),
      lostHints: dice.pick([0, 0, 0.2, 1]),
      lateHintsMs: dice.pick([0, 0, 200, 5000]),
      exitLagMs: dice.pick([0, 0, 20, 300]),
      callsPerLife: dice.pick([0, 0, 20, 100, 400]),
      smallDisk: dice.pick([0, 0, 0.5]),
      lostDisk: dice.pick([0, 0, 0, 0.3]),
    };
    this.hub.lossiness = dice.pick([0, 0, 0.2]);
    this.runtimes = ["cri", "wasm"].map(() => this.#newRuntime());
    this.#adapters = this.runtimes.map((runtime, index) => new FakeAdapter(runtime, index === 0 ? "cri" : "wasm"));
  }

  get life(): AgentLife | undefined {
    return this.#life?.fence.dead === false ? this.#life : undefined;
  }

  /**
   * True when an agent found its disk empty: folders of pods that only the lost store knew are for the next start's
   * sweep.
   */
  get hasLostDisks(): boolean {
    return this.#hasLostDisks;
  }

  trace(line: string): void {
    this.#init.trace(`${String(this.clock.monotonic()).padStart(8)} ${line}`);
  }

  /** Begins the first or the next life of the agent. */
  start(): void {
    if (this.life !== undefined) return;
    const path = this.#nextDisk();
    const { dice } = this;
    const { callsPerLife, smallDisk } = this.#climate;
    const calls = callsPerLife === 0 || this.#kind ? NO_LIMIT : dice.between(1, callsPerLife * 2);
    this.#isDiskSmall = !this.#kind && dice.chance(smallDisk);
    const maxBytes = this.#isDiskSmall ? dice.between(10, 20) * 4096 : undefined;
    const syncAfterMs = { file: dice.between(0, 500), api: dice.pick([0, 2000, 30_000]) };
    this.trace(`agent starts, ${calls === NO_LIMIT ? "for ever" : `${calls} calls`}`);
    this.laws.lifeBegan();
    try {
      this.#life = new AgentLife(
        {
          ...{ clock: this.clock, dice, laws: this.laws, adapters: this.#adapters, disk: this.disk },
          manifests: this.manifests,
          hub: this.hub,
          log: this.#log(),
          died: () => this.#died(),
        },
        { path, maxBytes, calls, syncAfterMs, mutants: this.#init },
      );
    } catch (error) {
      this.laws.broken(`the agent does not start: ${String(error)}`);
    }
  }

  /** From now on nothing goes wrong any more. */
  becomeKind(): void {
    this.#kind = true;
    this.hub.lossiness = 0;
    this.hub.setReachable(true);
    for (const runtime of this.runtimes) {
      runtime.comeBack();
      runtime.faults.fault = () => undefined;
      runtime.faults.hintDelays = () => [millis(0)];
      runtime.faults.latency = () => millis(1);
      runtime.faults.exitLag = () => millis(0);
    }
    // An agent whose disk is full cannot recover; half of the others must recover without a restart.
    if (this.#isDiskSmall || this.dice.chance(0.5)) this.#life?.fence.kill();
    else this.#life?.fence.spare();
  }

  after(delayMs: number, act: () => void): void {
    this.clock.sleep(millis(delayMs), this.#end.signal).then(act, () => undefined);
  }

  /** @returns what is wrong after an orderly end: things left behind. */
  async end(): Promise<string | undefined> {
    const { life } = this;
    if (life === undefined) return "no agent lives at the end";
    await life.stop();
    for (let turn = 0; turn < 3; turn += 1) await this.clock.settle();
    const { pending } = life.fence;
    await this[Symbol.asyncDispose]();
    if (pending > 0) return `${pending} timers or calls outlive the agent`;
    if (this.clock.sleeping > 0) return `${this.clock.sleeping} sleepers outlive everything`;
    return undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end.abort();
    this.#life?.fence.kill();
    this.#life?.fence.cutOff();
    await this.#life?.store[Symbol.asyncDispose]();
    this.#life = undefined;
    for (const runtime of this.runtimes) runtime[Symbol.dispose]();
    await this.clock.settle();
    this.#removeDisk(this.#pathOf(this.#lives));
  }

  #newRuntime(): FakeRuntime {
    const { dice } = this;
    const { latencyMs, faults, lostHints, lateHintsMs, exitLagMs } = this.#climate;
    const runtime = new FakeRuntime({ clock: this.clock }, { onChange: (change) => this.laws.happened(change) });
    runtime.addImage(IMAGE);
    runtime.addImage(REMOTE_IMAGE, "registry");
    runtime.faults.latency = () => dice.millis(0, latencyMs);
    runtime.faults.fault = (call) => (dice.chance(faults) ? this.#fault(call) : undefined);
    runtime.faults.exitLag = () => dice.millis(0, exitLagMs);
    runtime.faults.hintDelays = () => {
      if (dice.chance(lostHints)) return [];
      const delay = dice.millis(0, lateHintsMs);
      return dice.chance(0.1) ? [delay, dice.millis(0, 1000)] : [delay];
    };
    return runtime;
  }

  #fault(call: FakeCall): FakeFault {
    const code = this.dice.pick(["unavailable", "failed", "deadline_exceeded", "internal"] as const);
    const error = new PicoletError(code, `cannot carry out ${call.kind}`, { retryable: true });
    // A pull may take any time; the adapter itself ends one that hangs.
    const late: FakeFault = { kind: "refuse", error, after: this.dice.millis(1000, 60_000) };
    const image = call.kind === "imageStatus" || call.kind === "imagePull";
    const fault = this.dice.pick<FakeFault>([
      { kind: "refuse", error },
      { kind: "refuse", error },
      { kind: "loseAnswer", error },
      image ? late : { kind: "hang", heedsSignal: true },
      image ? late : { kind: "hang", heedsSignal: false },
    ]);
    this.trace(`fault ${call.kind} ${call.uid ?? ""} ${fault.kind}`);
    return fault;
  }

  #died(): void {
    this.trace("agent dies");
    this.laws.lifeEnded();
    this.after(this.dice.between(0, 3000), () => {
      this.#life?.fence.cutOff();
      // The runtime finishes its work for the dead agent before the new one starts.
      this.after(1, () => this.start());
    });
  }

  /** The disk after a crash: all that was committed, nothing that was kept back; sometimes nothing at all. */
  #nextDisk(): string {
    const from = this.#pathOf(this.#lives);
    this.#lives += 1;
    const to = this.#pathOf(this.#lives);
    const isInMemory = this.#life?.store.state.current.kind === "inMemory";
    if (this.dice.chance(this.#climate.lostDisk) || isInMemory) {
      this.#hasLostDisks = true;
      this.laws.diskLost();
    } else {
      for (const suffix of ["", "-wal"]) if (existsSync(from + suffix)) copyFileSync(from + suffix, to + suffix);
    }
    this.#life?.store[Symbol.asyncDispose]().catch(() => undefined);
    this.#removeDisk(from);
    return to;
  }

  #pathOf(life: number): string {
    return join(this.#init.folder, `${this.#init.seed}-${life}.db`);
  }

  #removeDisk(path: string): void {
    for (const suffix of ["", "-wal"]) rmSync(path + suffix, { force: true });
  }

  #log(): Log {
    const write = (message: string, fields: object = {}): void =>
      this.trace(`log ${message} ${JSON.stringify(fields)}`);
    const error = (message: string, fields: object = {}): void => {
      write(message, fields);
      if (message === "cannot go on with a pod for now") this.laws.broken(JSON.stringify(fields));
    };
    const log: Log = { debug: write, info: write, warn: write, error, child: () => log };
    return log;
  }
}
