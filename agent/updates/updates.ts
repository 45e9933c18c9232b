/**
 * Carries out what the Node's annotations ask of this board, and what an operator asks on it. The progress is on disk
 * before each step; what runs on trial is judged by the boot check, to which the agent only says whether it is healthy.
 */
import { createHash, randomUUID } from "node:crypto";
import { type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type BackoffPolicy, backoffDelay, EQUAL_JITTER } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { publicMessage, publicName } from "@picolet/protocol/decisions/public-text.ts";
import { describeError, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { isRecord } from "@picolet/protocol/guards.ts";
import { parseImageReference, type RegistryReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type {
  FlashReport,
  NodeCondition,
  TunnelReport,
  UpdateHoldRequest,
  UpdateInstallAnswer,
  UpdateInstallRequest,
  UpdateStatusAnswer,
} from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type MonotonicMs, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import {
  DEFAULT_HEALTH_DEADLINE_MS,
  MAX_MESSAGE_LENGTH,
  parseDirective,
  type UpdateDirective,
  type UpdateKind,
  type UpdateProgress,
  type UpdateReport,
  type UpdateState,
} from "@picolet/protocol/updates/node-updates.ts";
import type { RegistryAccess } from "@picolet/runtime-wasm/shared/messages/pull-request.ts";
import type { NodeShutdownControl } from "../core/node/node-shutdown-control.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { DecisionRecorder } from "../core/store/decisions.ts";
import { type EventRecorder, MAX_EVENT_MESSAGE_LENGTH, nodeReference } from "../core/store/store-ports.ts";
import { healthProblem } from "../plan/updates/judge-health.ts";
import { planUpdate, UPDATE_ORDER, type UpdateStep } from "../plan/updates/plan-update.ts";
import {
  begin,
  FILE_TARGET,
  isOver,
  type TrialOutcome,
  transition,
  type UpdateEvent,
  type UpdatePhase,
  type UpdateRecord,
  type UpdateRecords,
} from "../plan/updates/update-state.ts";
import type { BoardSoftware } from "./board-software.ts";
import { healthBefore, healthNow } from "./trial-health.ts";
import type { UpdateFiles } from "./update-files.ts";
import { activeHold, updateHolds } from "./update-holds.ts";
import type { UpdateAnswer, UpdateTask } from "./update-task.ts";

export interface UpdatesComponents {
  readonly files: UpdateFiles;
  /** This node's object as the API server has it; undefined: it was never sent. */
  readonly node: Watch<Readonly<Record<string, unknown>> | undefined>;
  readonly pods: () => readonly AgentPod[];
  readonly conditions: () => readonly NodeCondition[];
  readonly tunnel: () => TunnelReport;
  readonly flash: () => FlashReport;
  readonly shutdown: NodeShutdownControl;
  readonly access: (reference: RegistryReference, signal: AbortSignal) => Promise<RegistryAccess>;
  /** Runs the program that fetches. @throws what it says, with its code */
  readonly runTask: (task: UpdateTask, onInstalling: () => void, signal: AbortSignal) => Promise<UpdateAnswer>;
  /** Starts the unit that judges; nothing happens where it is running. */
  readonly startCheck: (signal: AbortSignal) => Promise<void>;
  readonly events: EventRecorder;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

export interface UpdatesInit {
  readonly nodeName: string;
  /** The release of the agent that runs. */
  readonly agentVersion: string;
  /** The Debian version of its package, by which packages are compared; `agentVersion` where there is no package. */
  readonly packageVersion: string;
  /** Debian's name: `arm64`. */
  readonly architecture: string;
  readonly software: BoardSoftware;
  /** The folder of updates. */
  readonly directory: string;
  readonly keysDirectory: string;
  readonly holdFolder: string;
  readonly configurationPath: string;
  /** True when this agent was started with the configuration that is on trial. */
  readonly runsNextConfiguration: boolean;
  /** The text of the boot check. */
  readonly check: string;
  /** `updates.allowed` */
  readonly allowed: readonly string[];
  /** `updates.bytesPerSecond`; 0: no limit. */
  readonly bytesPerSecond: number;
}

/** Joins changes that come together to one round. */
const SETTLE = seconds(1);
/** Windows, holds of pods and files, and the flash budget are read so often, while an update waits for them. */
const WAIT_INTERVAL = seconds(15);
const JUDGE_INTERVAL = seconds(2);
/** A pod that crashes at once is ready for a moment too. */
const STEADY = seconds(10);
/** A link that is away for a day costs an attempt every quarter of an hour. */
const RETRY: BackoffPolicy = { first: seconds(15), max: seconds(900), jitter: EQUAL_JITTER };
/** Failures that are none of the link's are not repeated for ever. */
const MAX_FAILURES = 5;
/** Steps of one round; each changes the progress, so that more would be a fault of the planner. */
const MAX_STEPS = 16;
const NAMES: Readonly<Record<UpdateKind, string>> = { os: "system", agent: "agent", configuration: "configuration" };

interface Task {
  readonly record: UpdateRecord;
  readonly life: JoinedSignal;
  readonly ended: Promise<void>;
}

interface Waiting {
  readonly state: UpdateState;
  readonly message: string;
  readonly sinceMs: number;
}

export class Updates implements Component {
  readonly name = "updates";
  readonly #components: UpdatesComponents;
  readonly #init: UpdatesInit;
  readonly #alarm: Alarm;
  readonly #report = new WatchSource<string | undefined>(undefined);
  #records: UpdateRecords;
  readonly #waiting = new Map<UpdateKind, Waiting>();
  readonly #retryAt = new Map<UpdateKind, MonotonicMs>();
  #task: Task | undefined;
  #directive: UpdateDirective | undefined;
  #problems = "";
  #healthySince: MonotonicMs | undefined;
  #unhealthy = "";
  #isCheckStarted = false;

  constructor(components: UpdatesComponents, init: UpdatesInit) {
    this.#components = components;
    this.#init = init;
    this.#alarm = new Alarm(components.clock);
    this.#records = components.files.records();
    this.#publish();
  }

  /** JSON of the `UpdateReport`; undefined: there is nothing to report. */
  get report(): Watch<string | undefined> {
    return this.#report;
  }

  async run(signal: AbortSignal): Promise<void> {
    using life = joinSignals(signal);
    const follow = async (): Promise<void> => {
      for await (const _ of this.#components.node.changes(life.signal)) this.#alarm.set(SETTLE);
    };
    const following = follow();
    try {
      this.#alarm.set(millis(0));
      for (;;) {
        await this.#alarm.ring(life.signal);
        await this.#round(life.signal);
      }
    } finally {
      life.abort();
      await Promise.all([following, this.#task?.ended]);
    }
  }

  status(): UpdateStatusAnswer {
    const { agentVersion, software } = this.#init;
    const operator = activeHold(this.#components.files.hold(), this.#nowMs());
    return {
      agentVersion,
      osVersion: software.image?.version ?? null,
      slot: software.image?.slot ?? null,
      updates: this.#progress(),
      holds: this.#holds(),
      hold:
        operator === undefined
          ? null
          : {
              reason: operator.reason,
              until: operator.untilMs === undefined ? null : new Date(operator.untilMs).toISOString(),
            },
      problems: this.#problems,
    };
  }

  hold({ reason, forMs }: UpdateHoldRequest): void {
    const untilMs = forMs === null ? undefined : this.#nowMs() + forMs;
    this.#components.files.saveHold({ reason, untilMs });
    this.#alarm.set(millis(0));
  }

  release(): void {
    this.#components.files.saveHold(undefined);
    this.#alarm.set(millis(0));
  }

  /**
   * Takes a file of this board: a bundle of RAUC, or a package with its signature beside it.
   * @throws `invalid`, `conflict` while another update is on trial; for a check, what the program says
   */
  async install(
    { path, check, allowDowngrade }: UpdateInstallRequest,
    signal: AbortSignal,
  ): Promise<UpdateInstallAnswer> {
    const kind: UpdateKind = path.endsWith(".deb") ? "agent" : "os";
    const obstacle = this.#init.software.obstacles[kind];
    if (obstacle !== "") throw new PicoletError("conflict", `cannot update the ${NAMES[kind]}: ${obstacle}`);
    const before = this.#records.get(kind);
    const record: UpdateRecord = {
      ...begin(kind, `${FILE_TARGET}${path}`, before?.asked ?? "", this.#nowMs()),
      allowDowngrade,
    };
    if (check) {
      if (this.#task !== undefined) throw new PicoletError("conflict", "cannot check a file: an update is fetched");
      const answer = await this.#components.runTask(await this.#taskOf(record, false, signal), () => undefined, signal);
      if (answer.kind !== "prepared" && answer.kind !== "current")
        throw new PicoletError("internal", "the update program answers something else");
      return { kind, version: answer.version, state: answer.kind === "current" ? "current" : "good" };
    }
    if ([...this.#records.values()].some(({ phase }) => phase.kind === "trial"))
      throw new PicoletError("conflict", "cannot begin an update: another one is on trial");
    await this.#stopTaskOf(kind);
    this.#began(record);
    this.#alarm.set(millis(0));
    return { kind, version: "", state: "began" };
  }

  /** A fault here must not end the agent, which the pods need. */
  async #round(signal: AbortSignal): Promise<void> {
    try {
      this.#readDirective();
      for (let count = 0; count < MAX_STEPS; count += 1) {
        const step = this.#plan();
        if (!(await this.#carryOut(step, signal))) break;
      }
    } catch (error) {
      if (signal.aborted && isCancelled(error)) throw error;
      this.#components.log.error("cannot go on with an update", { error: describeError(error) });
      this.#alarm.set(WAIT_INTERVAL);
    }
    this.#publish();
  }

  #readDirective(): void {
    const node = this.#components.node.current;
    if (node === undefined) return;
    const result = parseDirective(annotationsOf(node));
    this.#directive = result.ok ? result.directive : undefined;
    const problems = result.ok ? "" : result.problems.join("; ");
    if (problems !== this.#problems && problems !== "") this.#event("Warning", "UpdateFailed", problems);
    this.#problems = problems;
  }

  #plan(): UpdateStep {
    const { clock } = this.#components;
    const { software, allowed } = this.#init;
    const obstacle = (kind: UpdateKind): string =>
      allowed.includes(kind) ? software.obstacles[kind] : "updates.allowed of this board's configuration leaves it out";
    const wall = clock.wall();
    return planUpdate({
      asked: this.#directive === undefined ? undefined : targetsOf(this.#directive),
      records: this.#records,
      obstacles: { os: obstacle("os"), agent: obstacle("agent"), configuration: obstacle("configuration") },
      window: this.#directive?.window,
      minute: wall.getHours() * 60 + wall.getMinutes(),
      holds: this.#holds(),
      shortage: flashShortage(this.#components.flash()),
      backingOff: new Set(UPDATE_ORDER.filter((kind) => (this.#retryAt.get(kind) ?? 0) > clock.monotonic())),
      nowMs: wall.getTime(),
    });
  }

  /** @returns whether the next step is due at once */
  async #carryOut(step: UpdateStep, signal: AbortSignal): Promise<boolean> {
    switch (step.kind) {
      case "record":
        await this.#stopTaskOf(step.record.kind);
        if (step.began) this.#began(step.record);
        else this.#keep(step.record);
        return true;
      case "drop":
        await this.#stopTaskOf(step.of);
        this.#save(new Map([...this.#records].filter(([kind]) => kind !== step.of)));
        this.#waiting.delete(step.of);
        return true;
      case "fetch":
        this.#startTask(step.record, signal);
        return false;
      case "restart":
        await this.#restart(step.record, signal);
        return true;
      case "judge":
        return await this.#judge(step.record, signal);
      case "wait":
        this.#wait(step.record.kind, step.state, step.message);
        this.#alarm.set(this.#waitOf(step.record));
        return false;
      case "nothing":
        return false;
    }
  }

  #waitOf({ kind }: UpdateRecord): ReturnType<typeof millis> {
    const left = (this.#retryAt.get(kind) ?? 0) - this.#components.clock.monotonic();
    return left > 0 ? millis(left) : WAIT_INTERVAL;
  }

  /** It is not awaited: the Node's annotations may change meanwhile. */
  #startTask(record: UpdateRecord, signal: AbortSignal): void {
    if (this.#task !== undefined) return;
    this.#waiting.delete(record.kind);
    const life = joinSignals(signal);
    const unwritten = (error: unknown): void => {
      this.#components.log.error("cannot write down an update's progress", { error: describeError(error) });
      this.#retryAt.set(record.kind, (this.#components.clock.monotonic() + RETRY.first) as MonotonicMs);
    };
    const ended = this.#fetch(record, life.signal)
      .catch(unwritten)
      .finally(() => {
        life[Symbol.dispose]();
        this.#task = undefined;
        this.#alarm.set(millis(0));
      });
    this.#task = { record, life, ended };
  }

  async #stopTaskOf(kind: UpdateKind): Promise<void> {
    const task = this.#task;
    if (task?.record.kind !== kind) return;
    task.life.abort();
    await task.ended;
  }

  async #fetch(record: UpdateRecord, signal: AbortSignal): Promise<void> {
    const { kind } = record;
    try {
      const task = await this.#taskOf(record, true, signal);
      const onInstalling = (): void => void this.#happened(kind, { kind: "installing" });
      const answer = await this.#components.runTask(task, onInstalling, signal);
      if (answer.kind === "prepared") {
        const { version, slot, bytes, totalBytes } = answer;
        this.#components.log.info("an update is prepared", { update: kind, version, bytes, totalBytes });
        this.#happened(kind, { kind: "prepared", version, slot });
        this.#event(
          "Normal",
          "UpdateInstalled",
          `${NAMES[kind]} ${version} is ready: ${bytes} of ${totalBytes} bytes were fetched`,
        );
      } else if (answer.kind === "current") {
        this.#happened(kind, answer);
        this.#event("Normal", "UpdateSucceeded", `${NAMES[kind]} ${answer.version} is what runs`);
      }
    } catch (error) {
      if (signal.aborted) return;
      this.#failed(kind, error);
    }
  }

  #failed(kind: UpdateKind, error: unknown): void {
    const { clock, random, log } = this.#components;
    const message = describeError(error);
    const phase = this.#records.get(kind)?.phase;
    const failures = phase?.kind === "fetching" ? phase.failures + 1 : 1;
    const isOfLink = isPicoletError(error, "unavailable") || isPicoletError(error, "resource_exhausted");
    const isFinal = (isPicoletError(error) && !error.retryable) || (!isOfLink && failures >= MAX_FAILURES);
    const retryIn = backoffDelay(RETRY, failures, random.next());
    this.#retryAt.set(kind, (clock.monotonic() + retryIn) as MonotonicMs);
    this.#happened(kind, { kind: "attemptFailed", message, isFinal });
    log.warn("an update could not be prepared", { update: kind, isFinal, error: message });
    if (isFinal) this.#event("Warning", "UpdateFailed", `${NAMES[kind]}: ${message}`);
  }

  /** The trial is on disk before anything ends; the boot check goes on from there, also after a power cut. */
  async #restart(record: UpdateRecord, signal: AbortSignal): Promise<void> {
    const { shutdown, log } = this.#components;
    const tried = this.#happened(record.kind, { kind: "trialBegan", id: randomUUID() });
    if (tried === undefined || tried.phase.kind !== "trial") return;
    this.#beginTrial(tried, tried.phase);
    this.#event("Normal", "UpdateStarted", `${NAMES[record.kind]} ${tried.phase.version} is on trial`);
    this.#wait(record.kind, "restarting", "");
    this.#publish();
    if (record.kind === "os") {
      try {
        await shutdown.begin("update");
      } catch (error) {
        // No time is configured for it: systemd ends the pods.
        if (!isPicoletError(error, "conflict")) throw error;
      }
    }
    log.info("an update is on trial", { update: record.kind, target: record.target });
    await this.#startCheck(signal);
  }

  #beginTrial({ kind }: UpdateRecord, { id, version, slot }: Extract<UpdatePhase, { kind: "trial" }>): void {
    const { configurationPath, check } = this.#init;
    const { healthDeadlineMs } = this.#directive ?? { healthDeadlineMs: DEFAULT_HEALTH_DEADLINE_MS };
    const trial = { id, kind, deadlineMs: healthDeadlineMs, version, slot, path: configurationPath };
    this.#components.files.beginTrial(trial, healthBefore(this.#components), check);
    this.#isCheckStarted = false;
  }

  async #startCheck(signal: AbortSignal): Promise<void> {
    await this.#components.startCheck(signal);
    this.#isCheckStarted = true;
  }

  async #judge(record: UpdateRecord, signal: AbortSignal): Promise<boolean> {
    const { files } = this.#components;
    const { phase } = record;
    if (phase.kind !== "trial") return false;
    const { id } = phase;
    const result = files.result(id);
    if (result !== undefined) {
      await this.#settle(record, result);
      return true;
    }
    this.#alarm.set(JUDGE_INTERVAL);
    // The power was lost between the two writes.
    if (files.trialId() !== id) this.#beginTrial(record, phase);
    if (!this.#isCheckStarted) await this.#startCheck(signal);
    if (this.#isNew(record.kind, phase)) {
      this.#waiting.delete(record.kind);
      this.#say(id);
    }
    return false;
  }

  /** The old one is healthy too, until it is replaced. */
  #isNew(kind: UpdateKind, { version, slot }: Extract<UpdatePhase, { kind: "trial" }>): boolean {
    const { software, packageVersion, runsNextConfiguration } = this.#init;
    if (kind === "os") return software.image?.slot === slot;
    return kind === "agent" ? packageVersion === version : runsNextConfiguration;
  }

  #say(id: string): void {
    const { files, clock } = this.#components;
    const before = files.before();
    const problem = before === undefined ? undefined : healthProblem(before, healthNow(this.#components));
    const now = clock.monotonic();
    if (problem === undefined) {
      this.#healthySince ??= now;
      if (now - this.#healthySince >= STEADY && this.#unhealthy !== HEALTHY) {
        files.sayHealthy(id);
        this.#unhealthy = HEALTHY;
      }
      return;
    }
    this.#healthySince = undefined;
    if (problem !== this.#unhealthy) files.sayUnhealthy(id, problem);
    this.#unhealthy = problem;
  }

  async #settle(record: UpdateRecord, { outcome, reason }: { outcome: TrialOutcome; reason: string }): Promise<void> {
    const { files, shutdown, log } = this.#components;
    const { kind, target } = record;
    const message = reason.slice(0, MAX_MESSAGE_LENGTH);
    this.#happened(kind, { kind: "trialEnded", outcome, reason: message });
    files.endTrial();
    this.#healthySince = undefined;
    this.#unhealthy = "";
    log.info("an update has ended", { update: kind, target, outcome, reason });
    if (outcome === "good") this.#event("Normal", "UpdateSucceeded", `${NAMES[kind]}: ${target} runs and is healthy`);
    else if (outcome === "rolledBack")
      this.#event("Warning", "UpdateRolledBack", `${NAMES[kind]}: ${target} was taken back: ${message}`);
    else this.#event("Warning", "UpdateFailed", `${NAMES[kind]}: ${target}: ${message}`);
    // The board was to restart, and does not.
    if (shutdown.isShuttingDown) await shutdown.cancel();
  }

  #began(record: UpdateRecord): void {
    const { kind, target, phase, message } = record;
    this.#retryAt.delete(kind);
    this.#keep(record);
    if (phase.kind === "failed") this.#event("Warning", "UpdateFailed", `${NAMES[kind]}: ${target}: ${message}`);
    else this.#event("Normal", "UpdateStarted", `${NAMES[kind]}: ${target} is fetched`);
  }

  #happened(kind: UpdateKind, event: UpdateEvent): UpdateRecord | undefined {
    const record = this.#records.get(kind);
    if (record === undefined) return undefined;
    const next = transition(record, event, this.#nowMs());
    if (next !== record) this.#keep(next);
    return next;
  }

  #keep(record: UpdateRecord): void {
    const next = new Map(this.#records);
    next.set(record.kind, { ...record, message: record.message.slice(0, MAX_MESSAGE_LENGTH) });
    this.#save(next);
    this.#waiting.delete(record.kind);
    this.#publish();
  }

  /** On the disk before anything follows from it. */
  #save(next: UpdateRecords): void {
    this.#components.files.saveRecords(next);
    this.#records = next;
  }

  #wait(kind: UpdateKind, state: UpdateState, message: string): void {
    const before = this.#waiting.get(kind);
    if (before?.state === state && before.message === message) return;
    const isSame = before?.state === state;
    this.#waiting.set(kind, { state, message, sinceMs: isSame ? before.sinceMs : this.#nowMs() });
  }

  #progress(): readonly UpdateProgress[] {
    return UPDATE_ORDER.flatMap((kind) => {
      const record = this.#records.get(kind);
      if (record === undefined) return [];
      const waiting = isOver(record) ? undefined : this.#waiting.get(kind);
      const { state, message, sinceMs } = waiting ?? { ...record, state: stateOf(record.phase) };
      return { kind, target: record.target, state, message, since: new Date(sinceMs).toISOString() };
    });
  }

  #publish(): void {
    const { image } = this.#init.software;
    const updates = this.#progress();
    if (image === undefined && updates.length === 0 && this.#report.current === undefined) return;
    const report: UpdateReport = { osVersion: image?.version, slot: image?.slot, updates };
    const text = JSON.stringify(report);
    if (text !== this.#report.current) this.#report.set(text);
  }

  async #taskOf(record: UpdateRecord, install: boolean, signal: AbortSignal): Promise<UpdateTask> {
    const { directory, software, packageVersion, keysDirectory, architecture, configurationPath: path } = this.#init;
    const { kind, target } = record;
    if (kind === "configuration") {
      const text = this.#directive?.configuration ?? "";
      if (configurationTarget(text) !== target)
        throw new PicoletError("unavailable", "the annotations of the Node cannot be read", { retryable: true });
      return { want: kind, directory, install, text, path };
    }
    const common = {
      ...{ directory, install },
      source: await this.#sourceOf(target, signal),
      bytesPerSecond: this.#directive?.bytesPerSecond ?? this.#init.bytesPerSecond,
      allowDowngrade: record.allowDowngrade ?? this.#directive?.allowDowngrade ?? false,
    };
    if (kind === "agent") return { ...common, want: kind, version: packageVersion, keysDirectory, architecture };
    const { version, compatible, slot } = software.image ?? { version: "", compatible: "", slot: "" };
    return { ...common, want: kind, version, compatible, slot };
  }

  async #sourceOf(target: string, signal: AbortSignal): Promise<Extract<UpdateTask, { want: "os" }>["source"]> {
    if (target.startsWith(FILE_TARGET)) return { kind: "file", path: target.slice(FILE_TARGET.length) };
    const parsed = parseImageReference(target);
    if (!parsed.ok || parsed.reference.kind !== "registry")
      throw new PicoletError("invalid", `${target} is no artifact of a registry`);
    const { reference } = parsed;
    const access = await this.#components.access(reference, signal);
    return { kind: "registry", access, reference: reference.digest ?? reference.tag ?? "latest" };
  }

  #holds(): readonly string[] {
    const { pods, files } = this.#components;
    return updateHolds({
      ...{ pods: pods(), operator: files.hold(), folder: this.#init.holdFolder, nowMs: this.#nowMs() },
    });
  }

  #nowMs(): number {
    return this.#components.clock.wall().getTime();
  }

  #event(type: "Normal" | "Warning", reason: string, message: string): void {
    const decided = { outcome: publicName(reason), message: publicMessage(message) };
    this.#components.decisions?.record({ kind: "updated", ...decided });
    const regarding = nodeReference(this.#init.nodeName);
    this.#components.events.record({ regarding, type, reason, message: message.slice(0, MAX_EVENT_MESSAGE_LENGTH) });
  }
}

/** In the place of a problem. */
const HEALTHY = "healthy";

function annotationsOf(node: Readonly<Record<string, unknown>>): Readonly<Record<string, string>> {
  const { annotations } = isRecord(node.metadata) ? node.metadata : {};
  if (!isRecord(annotations)) return {};
  return Object.fromEntries(
    Object.entries(annotations).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

const targetsOf = ({
  osImage,
  agentPackage,
  configuration,
}: UpdateDirective): Readonly<Record<UpdateKind, string>> => ({
  os: osImage ?? "",
  agent: agentPackage ?? "",
  configuration: configurationTarget(configuration ?? ""),
});

const configurationTarget = (text: string): string =>
  text === "" ? "" : createHash("sha256").update(text).digest("hex").slice(0, 16);

/** An update is begun on a day of which half the budget is left: waiting for all of it would be waiting for ever. */
function flashShortage({ today, budgetBytes }: FlashReport): string {
  if (budgetBytes === null || today.bytes === null || today.bytes < budgetBytes / 2) return "";
  return "waits for a day on which less than half of budget.flashBytesPerDay is written";
}

function stateOf(phase: UpdatePhase): UpdateState {
  switch (phase.kind) {
    case "fetching":
      return phase.isInstalling ? "installing" : "fetching";
    case "prepared":
      return "waiting";
    default:
      return phase.kind;
  }
}
