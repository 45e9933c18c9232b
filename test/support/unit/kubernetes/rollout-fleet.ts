/** A hub's rollouts on an API server of its own, on virtual time, with Nodes whose boards a test plays. */

import { NODE_GROUPS, nodeUser } from "@picolet/hub/bridge/well-known.ts";
import { wishKey } from "@picolet/hub/rollouts/board.ts";
import { onlyReplica } from "@picolet/hub/rollouts/leadership.ts";
import {
  parseRollout,
  ROLLOUT_LABEL,
  ROLLOUT_NAMESPACE,
  type Rollout,
  type RolloutSpec,
  rolloutData,
  WISH_ANNOTATIONS,
} from "@picolet/hub/rollouts/rollout.ts";
import { RolloutController } from "@picolet/hub/rollouts/rollout-controller.ts";
import { CONFIG_MAPS, type KubeObject, NODES } from "@picolet/hub-core/kube-client/kube-client.ts";
import { NAMESPACES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { parseLabelSelector } from "@picolet/hub-embedded/api/selectors.ts";
import { HUB_USER } from "@picolet/hub-embedded/auth/hub-authorizer.ts";
import { EventRecorder } from "@picolet/hub-embedded/controllers/event-recorder.ts";
import { UPDATE_STATUS_ANNOTATION, type UpdateState } from "@picolet/protocol/updates/node-updates.ts";
import { EmbeddedCluster } from "../embedded/in-process-cluster.ts";
import { endOfRun } from "../ports/end-of-run.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { seededRandom } from "../ports/seeded-random.ts";
import { VirtualClock } from "../ports/virtual-clock.ts";
import { Replica } from "./bridged-cluster.ts";
import { CallLog, RecordingKubeClient } from "./recording-kube-client.ts";

/** Turns of the event loop and steps of time after which a rollout that does not proceed has failed. */
const MAX_STEPS = 20_000;
const NEVER = new AbortController().signal;

export const ROLLOUT_SPEC: RolloutSpec = {
  kind: "os",
  target: "registry.example/os:2",
  selector: "role=edge",
  hub: "test",
  maxUnavailable: 2,
  maxFailures: 2,
  canary: 0,
  window: undefined,
  bandwidth: undefined,
  healthDeadline: undefined,
  allowDowngrade: false,
};

export type Nodes = ReadonlyMap<string, KubeObject>;

export class RolloutFleet implements AsyncDisposable {
  readonly cluster: EmbeddedCluster;
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  /** Requests of the rollouts' part of the hub to the API server. */
  readonly calls = new CallLog();
  readonly #bridge: Replica;
  #hub: { readonly life: AbortController; readonly end: Promise<void> } | undefined;

  private constructor(cluster: EmbeddedCluster, bridge: Replica) {
    this.cluster = cluster;
    this.#bridge = bridge;
  }

  static async start(
    nodes: readonly string[],
    labels: Record<string, string> = { role: "edge" },
  ): Promise<RolloutFleet> {
    const cluster = new EmbeddedCluster();
    await cluster.serve();
    await cluster.stopControllers();
    const metadata = { name: ROLLOUT_NAMESPACE };
    const namespace = { apiVersion: "v1", kind: "Namespace", metadata };
    await cluster.client.create(NAMESPACES, { namespace: "", name: "" }, namespace, {}, NEVER);
    for (const name of nodes) await cluster.addNode(name, { labels: { "picolet.io/hub": "test", ...labels } });
    const bridge = await new Replica(cluster.server.client(HUB_USER), { hasReplicas: false }).ready();
    const fleet = new RolloutFleet(cluster, bridge);
    fleet.startHub();
    return fleet;
  }

  /** The hub's part that carries rollouts out; after `killHub` another one, which knows nothing. */
  startHub(): void {
    const life = new AbortController();
    const client = new RecordingKubeClient(this.cluster.server.client(HUB_USER), this.calls);
    const ports = { client, clock: this.clock, random: seededRandom(5), log: this.log };
    const events = new EventRecorder(ports);
    const controller = new RolloutController(
      {
        ...ports,
        clientOf: (node) => client.as(nodeUser(node), NODE_GROUPS),
        nodes: this.#bridge.fleet.nodes,
        leadership: onlyReplica,
        events,
        parseSelector: parseLabelSelector,
      },
      { hub: "test" },
    );
    const running = [controller, events].map((each) => endOfRun(each.run(life.signal)));
    this.#hub = { life, end: Promise.all(running).then(() => undefined) };
  }

  async killHub(): Promise<void> {
    this.#hub?.life.abort();
    await this.#hub?.end;
    this.#hub = undefined;
  }

  async create(name: string, spec: Partial<RolloutSpec> = {}): Promise<void> {
    const whole = { ...ROLLOUT_SPEC, ...spec };
    const metadata = { namespace: ROLLOUT_NAMESPACE, name, labels: { [ROLLOUT_LABEL]: whole.kind } };
    const object = { apiVersion: "v1", kind: "ConfigMap", metadata, data: rolloutData(whole) };
    await this.cluster.client.create(CONFIG_MAPS, metadata, object, {}, NEVER);
  }

  async patch(name: string, data: Readonly<Record<string, string>>): Promise<void> {
    await this.cluster.client.patch(CONFIG_MAPS, { namespace: ROLLOUT_NAMESPACE, name }, "merge", { data }, {}, NEVER);
  }

  async rollout(name: string): Promise<Rollout> {
    return parseRollout(await this.cluster.client.get(CONFIG_MAPS, { namespace: ROLLOUT_NAMESPACE, name }, NEVER));
  }

  async nodes(): Promise<Nodes> {
    const { items } = await this.cluster.client.list(NODES, {}, NEVER);
    return new Map(items.map((each) => [each.metadata.name, each]));
  }

  /** The board's report about what its Node wishes at present. */
  async report(node: KubeObject, state: UpdateState, message = ""): Promise<void> {
    const target = wishKey("os", node.metadata.annotations?.[WISH_ANNOTATIONS.os] ?? "");
    const updates = [{ kind: "os", target, state, message, since: "1970-01-01T00:00:00Z" }];
    await this.annotate(node.metadata.name, { [UPDATE_STATUS_ANNOTATION]: JSON.stringify({ updates }) });
  }

  async annotate(name: string, annotations: Readonly<Record<string, string | null>>): Promise<void> {
    await this.cluster.client.patch(NODES, { namespace: "", name }, "merge", { metadata: { annotations } }, {}, NEVER);
  }

  async setReady(name: string, status: "True" | "Unknown"): Promise<void> {
    const ready = { type: "Ready", status, reason: "r", message: "" };
    const ref = { namespace: "", name };
    const patch = { status: { conditions: [ready] } };
    await this.cluster.client.patch(NODES, ref, "strategic", patch, { subresource: "status" }, NEVER);
  }

  /** Lets time pass and `play` act, until `isReached`. @throws with the last status */
  async until(
    name: string,
    isReached: (rollout: Rollout, nodes: Nodes) => boolean,
    play: (nodes: Nodes) => Promise<void> = () => Promise.resolve(),
  ): Promise<Rollout> {
    for (let step = 0; step < MAX_STEPS; step += 1) {
      const [rollout, nodes] = [await this.rollout(name), await this.nodes()];
      if (isReached(rollout, nodes)) return rollout;
      await play(nodes);
      // The store commits and the watches bring it in a few turns; an idle hub sleeps for its next second.
      for (let turn = 0; turn < 5; turn += 1) await this.clock.settle();
      await this.clock.step();
    }
    const { status } = await this.rollout(name);
    throw new Error(`the rollout did not come there: ${JSON.stringify(status)}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.killHub();
    await this.#bridge[Symbol.asyncDispose]();
    await this.cluster[Symbol.asyncDispose]();
  }
}
