import type {
  BoundPods,
  FleetBackend,
  FleetNodes,
  KubeletEndpoints,
  NodeBackend,
  PodQuestions,
} from "@picolet/hub-core/fleet.ts";
import type { KubeClient } from "@picolet/hub-core/kube-client/kube-client.ts";
import { TimerWheel, type WheelTimer } from "@picolet/hub-core/timer-wheel.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { type Clock, type Log, type Millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import { BridgedNode, type NodeSessionInit } from "./bridged-node.ts";
import { FleetCache } from "./fleet-cache.ts";
import { logFailure } from "./node-connection.ts";
import { NODE_GROUPS, nodeUser } from "./well-known.ts";

/** The kubelet's. */
const DEFAULT_LEASE_DURATION = seconds(40);
const DEFAULT_RENEW_INTERVAL = seconds(10);
/**
 * How long a node may be without a session before its Node says so: longer than a reconnect takes, shorter than the 40
 * s after which the node lifecycle controller would say less.
 */
const DEFAULT_AWAY_AFTER = seconds(30);

export interface KubernetesFleetInit {
  /** Value of the label picolet.io/hub; replicas of one hub share it. */
  readonly hub: string;
  /** DNS names and addresses of the hub, which no board gets a certificate for. None by default. */
  readonly hubNames?: readonly string[];
  /**
   * True (the default) when other replicas serve the same nodes. Then each connection costs a list of the node's pods,
   * or of all pods when many connect together, to be sure that this replica is not behind another.
   */
  readonly hasReplicas?: boolean;
  readonly leaseDuration?: Millis;
  readonly renewInterval?: Millis;
  readonly awayAfter?: Millis;
}

interface Components {
  /** As the hub itself. */
  readonly client: KubeClient;
  readonly endpoints: KubeletEndpoints;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

interface Away {
  readonly timer: WheelTimer;
  readonly since: Date;
}

/** A Kubernetes API server as the hub's backend: one watch per resource for the whole fleet, writes as the nodes. */
export class KubernetesFleet implements FleetBackend, Component {
  readonly name = "kubernetes fleet";
  readonly #components: Components;
  readonly #init: KubernetesFleetInit;
  readonly #sessionInit: NodeSessionInit;
  readonly #cache: FleetCache;
  readonly #wheel: TimerWheel;
  readonly #problem = new WatchSource("the API server has not been listed yet");
  /** The latest session of each node; one that was superseded may still be writing its last. */
  readonly #sessions = new Map<string, BridgedNode>();
  readonly #away = new Map<string, Away>();
  readonly #life = new AbortController();
  readonly #ended = (session: BridgedNode): void => this.#disconnected(session.node, session);

  constructor(components: Components, init: KubernetesFleetInit) {
    this.#components = components;
    this.#init = init;
    this.#sessionInit = {
      hub: init.hub,
      endpoints: components.endpoints,
      hubNames: init.hubNames ?? [],
      leaseDuration: init.leaseDuration ?? DEFAULT_LEASE_DURATION,
      renewInterval: init.renewInterval ?? DEFAULT_RENEW_INTERVAL,
    };
    this.#wheel = new TimerWheel(components.clock);
    this.#cache = new FleetCache(components, {
      hub: init.hub,
      hasReplicas: init.hasReplicas ?? true,
      onPod: (node, path, before, after) => this.#sessions.get(node)?.podChanged(path, before, after),
      onNode: (node, after) => this.#sessions.get(node)?.nodeChanged(after),
    });
  }

  get problem(): Watch<string> {
    return this.#problem;
  }

  get nodes(): FleetNodes {
    return this.#cache.fleetNodes;
  }

  get pods(): BoundPods {
    return this.#cache.boundPods;
  }

  get questions(): PodQuestions {
    return this.#cache.questions;
  }

  /** As `FleetCache.readiness`. */
  readiness(): Iterable<string> {
    return this.#cache.readiness();
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#cache.run(signal), this.#wheel.run(signal), this.#watchProblems(signal)]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    for (const session of this.#sessions.values()) session.stop();
    this.#sessions.clear();
    this.#cache[Symbol.dispose]();
  }

  connect(node: string): NodeBackend {
    this.#sessions.get(node)?.stop();
    this.#forgetAway(node);
    const { client, clock, random, log } = this.#components;
    const connection = {
      node,
      client: client.as(nodeUser(node), NODE_GROUPS),
      hubClient: client,
      cache: this.#cache,
      clock,
      random,
      log,
    };
    const desired = this.#cache.connect(node);
    const session = new BridgedNode({ connection, wheel: this.#wheel, desired, ended: this.#ended }, this.#sessionInit);
    this.#sessions.set(node, session);
    session.start();
    return session;
  }

  #disconnected(node: string, session: BridgedNode): void {
    session.stop();
    if (this.#sessions.get(node) !== session) return;
    this.#sessions.delete(node);
    this.#cache.disconnect(node);
    if (this.#life.signal.aborted) return;
    const { clock, log } = this.#components;
    const since = clock.wall();
    const onDue = (): void => {
      this.#away.delete(node);
      session.markAway(since, this.#life.signal).catch(logFailure(log, "cannot report that a node is away", { node }));
    };
    const timer: WheelTimer = { slot: undefined, onDue };
    this.#away.set(node, { timer, since });
    this.#wheel.set(timer, this.#init.awayAfter ?? DEFAULT_AWAY_AFTER);
  }

  #forgetAway(node: string): void {
    const away = this.#away.get(node);
    if (away !== undefined) this.#wheel.clear(away.timer);
    this.#away.delete(node);
  }

  async #watchProblems(signal: AbortSignal): Promise<void> {
    const { reflectors } = this.#cache;
    const judge = (): void => {
      const behind = reflectors.find(({ synced }) => !synced.current);
      const text = behind === undefined ? "" : `the ${behind.name} has not listed yet${reason(behind.problem.current)}`;
      if (text !== this.#problem.current) this.#problem.set(text);
    };
    const follow = async (watch: Watch<unknown>): Promise<void> => {
      for await (const _ of watch.changes(signal)) judge();
    };
    await Promise.all(reflectors.flatMap(({ synced, problem }) => [follow(synced), follow(problem)]));
  }
}

const reason = (problem: string): string => (problem === "" ? "" : `: ${problem}`);
