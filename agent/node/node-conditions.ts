import type { Component } from "../../protocol/async/component.ts";
import { type Watch, WatchSource } from "../../protocol/async/watch.ts";
import type { Clock, Log } from "../../protocol/ports.ts";
import { type EventRecorder, nodeReference, type ObjectReference } from "../core/store.ts";
import type { ShutdownState } from "./node-shutdown.ts";

/** How one runtime is, as whoever relists it sees it. */
export interface RuntimeHealth {
  /** The adapter's name. */
  readonly name: string;
  readonly healthy: boolean;
  /** CamelCase; `RuntimeNotReady` when the runtime does not answer or says that it is not ready. "" while healthy. */
  readonly reason: string;
  readonly message: string;
}

/** One entry of `status.conditions` of a node. `lastHeartbeatTime` is the time at which it is reported. */
export interface NodeCondition {
  readonly type: "Ready";
  readonly status: "True" | "False";
  readonly reason: string;
  readonly message: string;
  /** RFC 3339, seconds. */
  readonly lastTransitionTime: string;
}

const NOT_CHECKED = "container runtime status check may not have completed yet";
const SHUTTING_DOWN = "node is shutting down";
const PLEG_REASON = "PLEGNotHealthy";
const RUNTIME_REASON = "RuntimeNotReady";

/** The condition Ready of a node whose runtimes are so, with the kubelet's reasons. Pure. */
export function readyCondition(
  health: readonly RuntimeHealth[],
  previous: NodeCondition | undefined,
  now: Date,
  isShuttingDown = false,
): NodeCondition {
  const ill = health.length === 0 ? [NOT_CHECKED] : health.filter((each) => !each.healthy).map(problemOf);
  const problems = isShuttingDown ? [...ill, SHUTTING_DOWN] : ill;
  const [first = "", ...more] = problems;
  const status = problems.length === 0 ? "True" : "False";
  return {
    type: "Ready",
    status,
    reason: status === "True" ? "KubeletReady" : "KubeletNotReady",
    message:
      status === "True" ? "kubelet is posting ready status" : more.length === 0 ? first : `[${problems.join(", ")}]`,
    lastTransitionTime:
      previous?.status === status ? previous.lastTransitionTime : `${now.toISOString().slice(0, 19)}Z`,
  };
}

function problemOf({ name, reason, message }: RuntimeHealth): string {
  if (reason === RUNTIME_REASON) return `${RUNTIME_REASON}: ${name}: ${message}`;
  if (reason === PLEG_REASON) return `PLEG is not healthy: ${name}: ${message}`;
  return `container runtime is down: ${name}: ${message}`;
}

/** Follows the runtimes' health and the node's shutdown; says each change once, in the log and as an event of the node. */
export class NodeConditions implements Component {
  readonly name = "node conditions";
  readonly #health: Watch<readonly RuntimeHealth[]>;
  readonly #shutdown: Watch<ShutdownState>;
  readonly #events: EventRecorder;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #node: ObjectReference;
  readonly #conditions: WatchSource<readonly NodeCondition[]>;

  constructor(
    components: {
      readonly health: Watch<readonly RuntimeHealth[]>;
      readonly shutdown: Watch<ShutdownState>;
      readonly events: EventRecorder;
      readonly clock: Clock;
      readonly log: Log;
    },
    init: { readonly nodeName: string },
  ) {
    this.#health = components.health;
    this.#shutdown = components.shutdown;
    this.#events = components.events;
    this.#clock = components.clock;
    this.#log = components.log;
    this.#node = nodeReference(init.nodeName);
    this.#conditions = new WatchSource([readyCondition([], undefined, this.#clock.wall())]);
  }

  /** Changes only when a status, a reason or a message does. Before the first look at the runtimes: not ready. */
  get conditions(): Watch<readonly NodeCondition[]> {
    return this.#conditions;
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#event("Starting", "Starting picolet.");
    const follow = async (changes: AsyncIterable<unknown>): Promise<void> => {
      for await (const _ of changes) this.#update();
    };
    await Promise.all([follow(this.#health.changes(signal)), follow(this.#shutdown.changes(signal))]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing is held.
  }

  #update(): void {
    const [previous] = this.#conditions.current;
    const isShuttingDown = this.#shutdown.current.kind !== "running";
    const next = readyCondition(this.#health.current, previous, this.#clock.wall(), isShuttingDown);
    if (previous?.status === next.status && previous.message === next.message) return;
    this.#conditions.set([next]);
    if (next.status === "True") {
      this.#log.info("node is ready");
      this.#event("NodeReady", `Node ${this.#node.name} status is now: NodeReady`);
      return;
    }
    // The first look that finds a runtime missing counts too: whoever reads the events shall see why.
    if (previous?.status === "False" && previous.message !== NOT_CHECKED) return;
    this.#log.warn("node is not ready", { reason: next.message });
    this.#event("NodeNotReady", `Node ${this.#node.name} status is now: NodeNotReady: ${next.message}`);
  }

  #event(reason: string, message: string): void {
    this.#events.record({ regarding: this.#node, type: "Normal", reason, message });
  }
}
