import type { FleetNodes } from "@picolet/hub-core/fleet.ts";
import { CONFIG_MAPS, type KubeClient, type KubeObject, NODES } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isOlder, Reflector } from "@picolet/hub-core/kube-client/reflector.ts";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { Backoff, type BackoffPolicy, FULL_JITTER } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { type Clock, type Log, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import {
  type Board,
  boardOf,
  type Turn,
  turnAnnotations,
  undoAnnotations,
  wishKey,
  withdrawAnnotations,
} from "./board.ts";
import type { Leadership } from "./leadership.ts";
import { type Blocker, type Plan, type PlannedBoard, planRollout, type TurnTimes } from "./plan-rollout.ts";
import {
  EMPTY_STATUS,
  parseRollout,
  ROLLOUT_LABEL,
  ROLLOUT_NAMESPACE,
  ROLLOUT_PHASES,
  type Rollout,
  type RolloutCondition,
  type RolloutPhase,
  type RolloutSpec,
  type RolloutStatus,
  WISH_ANNOTATIONS,
} from "./rollout.ts";

/** Changes of a second are planned together. */
const LEAST_INTERVAL = seconds(1);
/** The status of a rollout is written at once when its phase changes, else no more often than this. */
const STATUS_INTERVAL = seconds(5);
/** Writes of Nodes in one round, so at most so many a second: a fleet that heartbeats writes as much. */
const MAX_WRITES = 25;
/** Nodes that are parsed in one turn of the event loop: about 5 ms. */
const SLICE = 100;
/** Bounds what a round walks; those created later wait for a place. */
const MAX_ACTIVE = 32;
const RETRY: BackoffPolicy = { first: seconds(1), max: seconds(60), jitter: FULL_JITTER, least: millis(500) };
export const FIELD_MANAGER = "picolet-hub-rollout";

type LabelSelector = (labels: Readonly<Record<string, string>>) => boolean;

/** Events about the ConfigMap of a rollout. */
export interface RolloutEvents {
  record(
    regarding: KubeObject,
    event: {
      readonly type: "Normal" | "Warning";
      readonly reason: string;
      readonly message: string;
      readonly component: string;
    },
  ): void;
}

interface Components {
  /** As the hub itself. */
  readonly client: KubeClient;
  /** As a node, which may write its own Node. */
  readonly clientOf: (node: string) => KubeClient;
  readonly nodes: FleetNodes;
  readonly leadership: Pick<Leadership, "run">;
  readonly events: RolloutEvents;
  /** @throws for a text that is no selector */
  readonly parseSelector: (text: string) => LabelSelector;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

type Specified = Rollout & { readonly spec: RolloutSpec };

type Shown = Pick<RolloutStatus, "phase" | "message" | "selected" | "boards" | "failures">;

interface Written {
  readonly resourceVersion: string;
  readonly annotations: Readonly<Record<string, string | null>>;
}

/** The knowledge of the present leader about one rollout. */
interface Memory {
  /** By the Node's UID, `forward` and `undo` apart. */
  readonly times: { readonly forward: Map<string, TurnTimes>; readonly undo: Map<string, TurnTimes> };
  statusWrittenAtMs: number;
}

/** Carries the fleet's rollouts out. State is in ConfigMaps and Nodes alone, so any replica continues them. */
export class RolloutController implements Component {
  readonly name = "rollouts";
  readonly #components: Components;
  readonly #hub: string;
  readonly #rollouts: Reflector<Rollout>;
  readonly #alarm: Alarm;
  /** Parsed Nodes while a rollout is active; none otherwise. */
  readonly #boards = new Map<string, Board>();
  readonly #dirty = new Set<string>();
  /** Writes that the watch has not shown yet: a turn that is forgotten would be given twice. */
  readonly #written = new Map<string, Written>();
  readonly #memories = new Map<string, Memory>();
  #isLoaded = false;

  constructor(components: Components, init: { readonly hub: string }) {
    this.#components = components;
    this.#hub = init.hub;
    this.#alarm = new Alarm(components.clock);
    this.#rollouts = new Reflector(components, {
      type: CONFIG_MAPS,
      selection: { namespace: ROLLOUT_NAMESPACE, labelSelector: ROLLOUT_LABEL },
      trim: parseRollout,
      onChange: () => this.#alarm.set(millis(0)),
    });
  }

  /** Counts the rollouts of this hub in each phase, as the API server has them. */
  get phases(): ReadonlyMap<RolloutPhase, number> {
    const phases = new Map<RolloutPhase, number>(ROLLOUT_PHASES.map((phase) => [phase, 0]));
    for (const [, { spec, status }] of this.#rollouts.store.entries()) {
      if (spec === undefined || spec.hub === this.#hub) phases.set(status.phase, (phases.get(status.phase) ?? 0) + 1);
    }
    return phases;
  }

  async run(signal: AbortSignal): Promise<void> {
    using life = joinSignals(signal);
    const following = this.#rollouts.run(life.signal);
    try {
      await this.#components.leadership.run((leading) => this.#lead(leading), life.signal);
    } finally {
      life.abort();
      await following;
    }
  }

  async #lead(signal: AbortSignal): Promise<void> {
    const { nodes, clock, random, log } = this.#components;
    for (const synced of [nodes.synced, this.#rollouts.synced]) await untilTrue(synced, signal);
    this.#forget();
    using _following = nodes.follow((name) => {
      if (!this.#isLoaded) return;
      this.#dirty.add(name);
      this.#alarm.set(LEAST_INTERVAL);
    });
    const backoff = new Backoff(random, RETRY);
    this.#alarm.set(millis(0));
    while (!signal.aborted) {
      await this.#alarm.ring(signal);
      const startedAtMs = clock.monotonic();
      try {
        await this.#round(signal);
        backoff.reset();
      } catch (error) {
        if (isCancelled(error)) throw error;
        if (backoff.failures === 0) log.warn("cannot carry on with rollouts", { error: describeError(error) });
        this.#alarm.set(backoff.next());
      }
      const left = startedAtMs + LEAST_INTERVAL - clock.monotonic();
      if (left > 0) await clock.sleep(millis(left), signal);
    }
  }

  #forget(): void {
    this.#boards.clear();
    this.#dirty.clear();
    this.#written.clear();
    this.#memories.clear();
    this.#isLoaded = false;
  }

  async #round(signal: AbortSignal): Promise<void> {
    const active = this.#active();
    if (active.length === 0) {
      this.#forget();
      return;
    }
    await this.#refresh();
    const names = [...this.#boards.keys()].sort();
    const boards = names.flatMap((name) => this.#boards.get(name) ?? []);
    const owned = new Map<string, Blocker>();
    let writes = MAX_WRITES;
    for (const [key, rollout] of active) {
      await new Promise(setImmediate);
      const specified = this.#specified(rollout);
      if (typeof specified === "string") {
        await this.#writeStatus(key, rollout, { ...EMPTY_STATUS, phase: "Invalid", message: specified }, signal);
        continue;
      }
      const mine = this.#boardsOf(specified, boards, active);
      const nowMs = this.#components.clock.monotonic();
      const planned = mine.map((board) => this.#planned(specified, board, nowMs));
      const blocker = blockerOf(specified, mine, owned);
      const plan = endOfAwaiting(rollout.status, planRollout(specified, planned, blocker, nowMs));
      if (OCCUPYING.has(plan.phase))
        for (const { name } of mine) {
          const at = `${specified.spec.kind} ${name}`;
          if (!owned.has(at)) owned.set(at, { name: rollout.name, board: name });
        }
      if (plan.wakeAtMs !== undefined) this.#alarm.set(millis(Math.max(0, plan.wakeAtMs - nowMs)));
      if (!(await this.#writeStatus(key, rollout, plan, signal))) continue;
      writes -= await this.#carryOut(key, specified, plan, writes, signal);
    }
    const alive = new Set(active.map(([, { uid }]) => uid));
    for (const uid of this.#memories.keys()) if (!alive.has(uid)) this.#memories.delete(uid);
  }

  /** Those that have something left to do, the oldest first. */
  #active(): readonly (readonly [key: string, rollout: Rollout])[] {
    return [...this.#rollouts.store.entries()]
      .filter(([, rollout]) => (rollout.spec === undefined || rollout.spec.hub === this.#hub) && !isSettled(rollout))
      .sort(([, a], [, b]) => (a.order < b.order ? -1 : 1))
      .slice(0, MAX_ACTIVE);
  }

  async #refresh(): Promise<void> {
    const { nodes } = this.#components;
    if (!this.#isLoaded) {
      this.#isLoaded = true;
      for (const name of nodes.names()) this.#dirty.add(name);
    }
    let count = 0;
    for (const name of this.#dirty) {
      this.#dirty.delete(name);
      this.#refreshBoard(name);
      count += 1;
      if (count % SLICE === 0) await new Promise(setImmediate);
    }
  }

  #refreshBoard(name: string): void {
    const node = this.#components.nodes.node(name);
    const before = this.#boards.get(name);
    if (before !== undefined && before.uid !== node?.uid)
      for (const { times } of this.#memories.values())
        for (const each of [times.forward, times.undo]) each.delete(before.uid);
    if (node === undefined) {
      this.#boards.delete(name);
      this.#written.delete(name);
      return;
    }
    const written = this.#written.get(name);
    const isBehind = written !== undefined && isOlder(node.resourceVersion, written.resourceVersion);
    if (!isBehind) this.#written.delete(name);
    const annotations = isBehind ? merged(node.annotations, written.annotations) : node.annotations;
    this.#boards.set(name, boardOf({ ...node, annotations }));
  }

  /** @returns a text that says what is wrong with its ConfigMap */
  #specified(rollout: Rollout): Specified | string {
    const { spec, problem } = rollout;
    if (spec === undefined) return problem;
    try {
      this.#components.parseSelector(spec.selector);
    } catch (error) {
      return `spec.selector: ${describeError(error)}`;
    }
    return { ...rollout, spec };
  }

  #boardsOf(
    rollout: Specified,
    boards: readonly Board[],
    active: readonly (readonly [string, Rollout])[],
  ): readonly Board[] {
    const { uid, order, action, spec, status } = rollout;
    const turnOf = (board: Board): Turn | undefined => board.parts[spec.kind].turn;
    if (action === "undo") return boards.filter((board) => turnOf(board)?.uid === uid);
    const selects = this.#components.parseSelector(spec.selector);
    // A newer one that proceeds takes over the boards that an older one awaits.
    const newer = active.flatMap(([, each]) =>
      each.order > order && each.spec?.kind === spec.kind && TAKES_OVER.has(each.status.phase)
        ? [this.#components.parseSelector(each.spec.selector)]
        : [],
    );
    const isTaken = (board: Board): boolean =>
      status.phase === "Awaiting" && newer.some((selectsToo) => selectsToo(board.labels));
    return boards.filter((board) => {
      const turn = turnOf(board);
      if (!selects(board.labels) || (turn !== undefined && turn.uid !== uid && turn.order > order)) return false;
      return !isTaken(board);
    });
  }

  #planned(rollout: Specified, board: Board, nowMs: number): PlannedBoard {
    const { uid, spec } = rollout;
    const { wish, turn, progress } = board.parts[spec.kind];
    const isUndone = turn?.uid === uid && turn.isUndone;
    const { times: all } = this.#memoryOf(uid);
    const times = isUndone ? all.undo : all.forward;
    const before = times.get(board.uid);
    if (turn?.uid !== uid) return { board, times: before };
    const isOff = progress?.state === "restarting" || progress?.state === "trial";
    const isWished = wish !== undefined && progress?.target === wishKey(spec.kind, wish);
    const trialMs = before?.trialMs ?? (isOff && isWished ? nowMs : undefined);
    const now = { turnMs: before?.turnMs ?? nowMs, trialMs };
    times.set(board.uid, now);
    return { board, times: now };
  }

  #memoryOf(uid: string): Memory {
    const known = this.#memories.get(uid);
    if (known !== undefined) return known;
    const made = {
      times: { forward: new Map(), undo: new Map() },
      statusWrittenAtMs: Number.NEGATIVE_INFINITY,
    };
    this.#memories.set(uid, made);
    return made;
  }

  /** @returns the number of writes; what is beyond `most` comes with the next round */
  async #carryOut(key: string, rollout: Specified, plan: Plan, most: number, signal: AbortSignal): Promise<number> {
    const { spec, uid, name, order, action } = rollout;
    const work = [
      ...plan.withdrawals.map((node) => ({ node, isTurn: false })),
      ...plan.turns.map((node) => ({ node, isTurn: true })),
    ];
    if (work.length > 0) this.#alarm.set(LEAST_INTERVAL);
    for (const { node, isTurn } of work.slice(0, most)) {
      const board = this.#boards.get(node);
      const part = board?.parts[spec.kind];
      if (board === undefined || part === undefined) continue;
      const own = part.turn?.uid === uid ? part.turn : undefined;
      if (!isTurn) {
        if (own === undefined) continue;
        this.#memoryOf(uid).times.forward.delete(board.uid);
        await this.#annotate(board, withdrawAnnotations(spec, own), signal);
        continue;
      }
      if (action === "undo") {
        if (own !== undefined) await this.#annotate(board, undoAnnotations(spec, { ...own, isUndone: true }), signal);
        continue;
      }
      const before = part.wish === spec.target ? part.turn?.before : part.wish;
      const turn = { name, uid, order, key: wishKey(spec.kind, spec.target), before, isUndone: false };
      this.#reportOverwrite(key, rollout, board);
      await this.#annotate(board, turnAnnotations(spec, turn), signal);
    }
    return Math.min(most, work.length);
  }

  /** As the board's own node: its rights end with its Node. */
  async #annotate(board: Board, annotations: Written["annotations"], signal: AbortSignal): Promise<void> {
    const { clientOf, log } = this.#components;
    const ref = { namespace: "", name: board.name };
    this.#dirty.add(board.name);
    try {
      const patch = { metadata: { uid: board.uid, annotations } };
      const { metadata } = await clientOf(board.name).patch(
        NODES,
        ref,
        "merge",
        patch,
        { fieldManager: FIELD_MANAGER },
        signal,
      );
      this.#written.set(board.name, { resourceVersion: metadata.resourceVersion ?? "", annotations });
    } catch (error) {
      // A Node that is gone, or another one by now; the watch reports it.
      const isGone = isPicoletError(error, "not_found") || isPicoletError(error, "conflict");
      if (!isGone) throw error;
      log.debug("cannot annotate a Node", { node: board.name, error: describeError(error) });
    }
  }

  #reportOverwrite(key: string, rollout: Specified, board: Board): void {
    const { kind, target } = rollout.spec;
    const { wish, turn } = board.parts[kind];
    if (wish === undefined || wish === target || turn?.key === wishKey(kind, wish)) return;
    const was = kind === "configuration" ? `configuration ${wishKey(kind, wish)}` : wish;
    const message = `overwrites ${WISH_ANNOTATIONS[kind]} of node ${board.name}, which was set by hand: ${was}`;
    this.#record(key, rollout, "Normal", "AnnotationOverwritten", message);
  }

  #record(
    key: string,
    { uid, resourceVersion }: Rollout,
    type: "Normal" | "Warning",
    reason: string,
    message: string,
  ): void {
    const name = key.slice(key.indexOf("/") + 1);
    const metadata = { namespace: ROLLOUT_NAMESPACE, name, uid, resourceVersion };
    const regarding = { apiVersion: "v1", kind: "ConfigMap", metadata };
    this.#components.events.record(regarding, { type, reason, message, component: "picolet-hub" });
  }

  /** @returns false when the ConfigMap was changed in between: the next round sees it */
  async #writeStatus(
    key: string,
    rollout: Rollout,
    plan: Shown & Partial<Pick<Plan, "action">>,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { clock, client } = this.#components;
    const before = rollout.status;
    const status = nextStatus(before, plan, kubeTime(clock.wall()));
    if (JSON.stringify(status) === JSON.stringify(before)) return true;
    const memory = this.#memoryOf(rollout.uid);
    const left = memory.statusWrittenAtMs + STATUS_INTERVAL - clock.monotonic();
    if (left > 0 && status.phase === before.phase && plan.action === undefined) {
      this.#alarm.set(millis(left));
      return true;
    }
    memory.statusWrittenAtMs = clock.monotonic();
    const data = { status: JSON.stringify(status), ...(plan.action === undefined ? {} : { action: plan.action }) };
    const patch = { metadata: { uid: rollout.uid, resourceVersion: rollout.resourceVersion }, data };
    const ref = { namespace: ROLLOUT_NAMESPACE, name: rollout.name };
    try {
      const written = await client.patch(CONFIG_MAPS, ref, "merge", patch, { fieldManager: FIELD_MANAGER }, signal);
      this.#rollouts.adopt(key, written);
    } catch (error) {
      if (!isPicoletError(error, "conflict") && !isPicoletError(error, "not_found")) throw error;
      return false;
    }
    this.#reportChange(key, rollout, status);
    return true;
  }

  #reportChange(key: string, rollout: Rollout, { phase, message, failures }: RolloutStatus): void {
    const before = rollout.status;
    if (phase !== before.phase) {
      const [type, reason] = phase === "Progressing" ? beginning(before.phase) : EVENTS_OF[phase];
      this.#record(key, rollout, type, reason, message);
      this.#components.log.info("rollout changed", { rollout: rollout.name, phase, message });
    }
    const known = new Set(before.failures.map(({ node }) => node));
    for (const { node, reason } of failures)
      if (!known.has(node)) this.#record(key, rollout, "Warning", "BoardFailed", `board ${node} ${reason}`);
  }
}

/** Phases in which a rollout keeps newer ones from its boards. */
const OCCUPYING: ReadonlySet<RolloutPhase> = new Set(["Progressing", "Paused", "Waiting", "Undoing"]);
/** Phases in which it takes over what an older one awaits. */
const TAKES_OVER: ReadonlySet<RolloutPhase> = new Set(["Progressing", "Awaiting", "Paused"]);

const EVENTS_OF: Readonly<Record<RolloutPhase, readonly [type: "Normal" | "Warning", reason: string]>> = {
  Pending: ["Normal", "RolloutPending"],
  Waiting: ["Normal", "RolloutWaiting"],
  Progressing: ["Normal", "RolloutProgressing"],
  Awaiting: ["Normal", "RolloutAwaiting"],
  Paused: ["Normal", "RolloutPaused"],
  Stopped: ["Warning", "RolloutStopped"],
  Complete: ["Normal", "RolloutComplete"],
  Undoing: ["Normal", "RolloutUndoing"],
  Undone: ["Normal", "RolloutUndone"],
  Invalid: ["Warning", "RolloutInvalid"],
};

const beginning = (before: RolloutPhase): readonly ["Normal", string] =>
  before === "Pending" || before === "Waiting" ? ["Normal", "RolloutStarted"] : ["Normal", "RolloutResumed"];

/** A rollout whose last boards a newer one has taken over keeps the counts that it came to. */
function endOfAwaiting({ phase, selected, boards, failures }: RolloutStatus, plan: Plan): Plan {
  if (phase !== "Awaiting" || plan.phase !== "Complete" || plan.selected >= selected) return plan;
  const message = `${boards.done} of ${selected} boards done, a newer rollout has the others`;
  return { ...plan, message, selected, boards: { ...boards, away: 0 }, failures };
}

/** True when nothing is left to do until an operator changes it. */
function isSettled({ spec, problem, action, status: { phase, message, boards } }: Rollout): boolean {
  if (spec === undefined) return phase === "Invalid" && message === problem;
  if (action === "undo") return phase === "Undone";
  if (phase === "Complete" || phase === "Undone") return true;
  const isOpen = boards.updating + boards.unavailable + boards.waiting + boards.held + boards.late > 0;
  return action === "stop" && phase === "Stopped" && !isOpen;
}

const blockerOf = (
  { spec, action }: Specified,
  mine: readonly Board[],
  owned: ReadonlyMap<string, Blocker>,
): Blocker | undefined => {
  if (action === "undo") return undefined;
  for (const { name } of mine) {
    const owner = owned.get(`${spec.kind} ${name}`);
    if (owner !== undefined) return owner;
  }
  return undefined;
};

function nextStatus(
  before: RolloutStatus,
  { phase, message, selected, boards, failures }: Shown,
  at: string,
): RolloutStatus {
  const condition = (type: RolloutCondition["type"], isTrue: boolean): RolloutCondition => {
    const status = isTrue ? "True" : "False";
    const known = before.conditions.find((each) => each.type === type);
    const lastTransitionTime = known?.status === status ? known.lastTransitionTime : at;
    return { type, status, reason: phase, message, lastTransitionTime };
  };
  const isComplete = phase === "Complete" || phase === "Undone";
  const isProgressing = phase === "Progressing" || phase === "Awaiting" || phase === "Undoing";
  return {
    phase,
    message,
    selected,
    boards,
    failures,
    conditions: [condition("Progressing", isProgressing), condition("Complete", isComplete)],
  };
}

function merged(
  annotations: Readonly<Record<string, string>>,
  changes: Written["annotations"],
): Readonly<Record<string, string>> {
  const result: Record<string, string> = { ...annotations };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) delete result[name];
    else result[name] = value;
  }
  return result;
}

async function untilTrue(watch: Watch<boolean>, signal: AbortSignal): Promise<void> {
  for await (const isTrue of watch.changes(signal)) if (isTrue) return;
}
