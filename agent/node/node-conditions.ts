import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { publicMessage, publicName } from "@picolet/protocol/decisions/public-text.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { NodePressure, PressureCondition } from "../core/node/node-pressure.ts";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";
import type { DecisionRecorder } from "../core/store/decisions.ts";
import { type EventRecorder, nodeReference, type ObjectReference } from "../core/store/store-ports.ts";
import { judgeAgent, notReadyReasons, UNASKED } from "../plan/node/judge-node.ts";
import type { ShutdownState } from "./node-shutdown.ts";

/** One entry of `status.conditions` of a node. `lastHeartbeatTime` is the time at which it is reported. */
export interface NodeCondition {
  readonly type: "Ready" | PressureCondition["type"];
  readonly status: "True" | "False" | "Unknown";
  readonly reason: string;
  readonly message: string;
  /** RFC 3339, seconds. */
  readonly lastTransitionTime: string;
}

/** Makes the condition Ready from the judgement of the runtimes, with the kubelet's reasons. Pure. */
export function readyCondition(
  health: readonly RuntimeHealth[],
  previous: NodeCondition | undefined,
  now: Date,
  isShuttingDown = false,
): NodeCondition {
  const problems = notReadyReasons(
    judgeAgent({ runtimes: health, isShuttingDown, storeProblem: undefined, podsWithoutWorker: 0 }),
  );
  const [first = "", ...more] = problems;
  const status = problems.length === 0 ? "True" : "False";
  return {
    type: "Ready",
    status,
    reason: status === "True" ? "KubeletReady" : "KubeletNotReady",
    message:
      status === "True" ? "kubelet is posting ready status" : more.length === 0 ? first : `[${problems.join(", ")}]`,
    lastTransitionTime: previous?.status === status ? previous.lastTransitionTime : timeOf(now),
  };
}

const timeOf = (now: Date): string => `${now.toISOString().slice(0, 19)}Z`;

/** The kubelet's conditions until its eviction manager reports others, in the kubelet's order. */
const NO_PRESSURE: readonly PressureCondition[] = [
  {
    type: "MemoryPressure",
    status: "False",
    reason: "KubeletHasSufficientMemory",
    message: "kubelet has sufficient memory available",
  },
  {
    type: "DiskPressure",
    status: "False",
    reason: "KubeletHasNoDiskPressure",
    message: "kubelet has no disk pressure",
  },
  {
    type: "PIDPressure",
    status: "False",
    reason: "KubeletHasSufficientPID",
    message: "kubelet has sufficient PID available",
  },
];

/** The events' reasons, by what the condition has become. */
const PRESSURE_EVENTS: Readonly<Record<NodePressure, Readonly<Record<"True" | "False", string>>>> = {
  MemoryPressure: { True: "NodeHasInsufficientMemory", False: "NodeHasSufficientMemory" },
  DiskPressure: { True: "NodeHasDiskPressure", False: "NodeHasNoDiskPressure" },
  PIDPressure: { True: "NodeHasInsufficientPID", False: "NodeHasSufficientPID" },
  FlashWearPressure: { True: "NodeHasFlashWearPressure", False: "NodeHasNoFlashWearPressure" },
  SecretsUnreadable: { True: "NodeHasUnreadableSecrets", False: "NodeHasNoUnreadableSecrets" },
};

export interface NodeConditionsComponents {
  readonly health: Watch<readonly RuntimeHealth[]>;
  readonly shutdown: Watch<ShutdownState>;
  /**
   * The watches of pressure conditions; called when this component runs. A condition that no watch reports is False.
   */
  readonly pressures: () => readonly Watch<readonly PressureCondition[]>[];
  readonly events: EventRecorder;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Follows the runtimes' health, the node's shutdown and what it is short of; says each change once, in the log and as
 * an event of the node.
 */
export class NodeConditions implements Component {
  readonly name = "node conditions";
  readonly #components: NodeConditionsComponents;
  readonly #node: ObjectReference;
  readonly #conditions: WatchSource<readonly NodeCondition[]>;

  constructor(components: NodeConditionsComponents, init: { readonly nodeName: string }) {
    this.#components = components;
    this.#node = nodeReference(init.nodeName);
    const now = components.clock.wall();
    const pressures = NO_PRESSURE.map((each) => withTransition(each, undefined, now));
    this.#conditions = new WatchSource([...pressures, readyCondition([], undefined, now)]);
  }

  /**
   * The conditions in the kubelet's order: pressures, then Ready, which is False before the first list of the runtimes.
   * Changes only when one of them does.
   */
  get conditions(): Watch<readonly NodeCondition[]> {
    return this.#conditions;
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#event("Starting", "Starting picolet.");
    const sources = this.#components.pressures();
    // The kubelet records these with each start; changes up to the first update are reported then.
    for (const condition of this.#conditions.current) this.#sayPressure(condition, undefined);
    const follow = async (changes: AsyncIterable<unknown>): Promise<void> => {
      for await (const _ of changes) this.#update(sources.flatMap(({ current }) => current));
    };
    const { health, shutdown } = this.#components;
    await Promise.all([health, shutdown, ...sources].map((each) => follow(each.changes(signal))));
  }

  #update(reported: readonly PressureCondition[]): void {
    const { health, shutdown, clock } = this.#components;
    const before = this.#conditions.current;
    const previous = (type: string): NodeCondition | undefined => before.find((each) => each.type === type);
    const now = clock.wall();
    const isShuttingDown = shutdown.current.kind !== "running";
    const ready = readyCondition(health.current, previous("Ready"), now, isShuttingDown);
    const pressures = completed(reported).map((each) => withTransition(each, previous(each.type), now));
    const next = [...pressures, ready];
    if (next.length === before.length && next.every((each) => isSame(each, previous(each.type)))) return;
    this.#conditions.set(next);
    for (const each of pressures) this.#sayPressure(each, previous(each.type));
    this.#sayReady(ready, previous("Ready"));
  }

  #sayReady(next: NodeCondition, previous: NodeCondition | undefined): void {
    if (isSame(next, previous)) return;
    const { log, decisions } = this.#components;
    if (next.status === "True") {
      decisions?.record({ kind: "nodeReady" });
      log.info("node is ready");
      this.#event("NodeReady", `Node ${this.#node.name} status is now: NodeReady`);
      return;
    }
    // Before the first answers nothing is known, which is no decision.
    if (next.message !== UNASKED) {
      decisions?.record({ kind: "nodeNotReady", message: publicMessage(next.message) });
    }
    // A runtime that is missing from the start is reported too, so that the events have the reason.
    if (previous?.status === "False" && previous.message !== UNASKED) return;
    log.warn("node is not ready", { reason: next.message });
    this.#event("NodeNotReady", `Node ${this.#node.name} status is now: NodeNotReady: ${next.message}`);
  }

  #sayPressure({ type, status, reason, message }: NodeCondition, previous: NodeCondition | undefined): void {
    if (type === "Ready" || status === "Unknown" || status === previous?.status) return;
    const { log, decisions } = this.#components;
    const condition = publicName(type);
    if (status === "True") {
      const why = { reason: publicName(reason), message: publicMessage(message) };
      decisions?.record({ kind: "conditionBegan", condition, ...why });
    } else if (previous?.status === "True") decisions?.record({ kind: "conditionEnded", condition });
    if (!isPressure(type)) {
      // A board that has been well since the start is no news.
      if (status === "False" && previous === undefined) return;
      const fields = { type, reason, message };
      if (status === "True") log.warn("the board is not well", fields);
      else log.info("the board is well again", fields);
      this.#event(reason, message, status === "True" ? "Warning" : "Normal");
      return;
    }
    const event = PRESSURE_EVENTS[type][status];
    this.#event(event, `Node ${this.#node.name} status is now: ${event}`);
    if (status === "True") log.warn("node is under pressure", { type, reason, message });
    else if (previous !== undefined) log.info("node is no longer under pressure", { type });
  }

  #event(reason: string, message: string, type: "Normal" | "Warning" = "Normal"): void {
    this.#components.events.record({ regarding: this.#node, type, reason, message });
  }
}

const isPressure = (type: PressureCondition["type"]): type is NodePressure => Object.hasOwn(PRESSURE_EVENTS, type);

function completed(reported: readonly PressureCondition[]): readonly PressureCondition[] {
  const known = NO_PRESSURE.map((each) => reported.find(({ type }) => type === each.type) ?? each);
  return [...known, ...reported.filter(({ type }) => known.every((each) => each.type !== type))];
}

const isSame = (next: NodeCondition, previous: NodeCondition | undefined): boolean =>
  previous?.status === next.status && previous.reason === next.reason && previous.message === next.message;

/** With the time of the last change of its status. */
const withTransition = (
  condition: PressureCondition,
  previous: NodeCondition | undefined,
  now: Date,
): NodeCondition => ({
  ...condition,
  lastTransitionTime: previous?.status === condition.status ? previous.lastTransitionTime : timeOf(now),
});
