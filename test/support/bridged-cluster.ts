/** An API server with a hub's Kubernetes side in front of it, over HTTPS, with nothing but standard calls. */
import { KubernetesFleet, type KubernetesFleetInit } from "../../hub/bridge/kubernetes-fleet.ts";
import type { NodeBackend } from "../../hub/core/fleet.ts";
import { type KubeClient, type KubeObject, PODS, type ResourceType } from "../../hub/core/kube-client.ts";
import { HttpKubeClient } from "../../hub/kubernetes/http-kube-client.ts";
import { KubeTransport } from "../../hub/kubernetes/kube-transport.ts";
import { loadKubeconfigAccess } from "../../hub/kubernetes/kubeconfig-access.ts";
import { systemClock } from "../../protocol/async/system-clock.ts";
import type { NodeReportContent } from "../../protocol/tunnel/messages.ts";
import { EmbeddedCluster } from "./embedded-cluster.ts";
import { RecordedLog } from "./recorders.ts";
import { CallLog, RecordingKubeClient } from "./recording-kube-client.ts";
import { seededRandom } from "./seeded-random.ts";

export const ENDPOINT = { address: "10.9.8.7", port: 10_321 };

export class Replica implements AsyncDisposable {
  readonly fleet: KubernetesFleet;
  readonly log = new RecordedLog();
  readonly #life = new AbortController();
  readonly #running: Promise<void>;

  constructor(client: KubeClient, init: Partial<KubernetesFleetInit> = {}) {
    const components = {
      client,
      endpoints: { endpointOf: () => ENDPOINT },
      clock: systemClock,
      random: seededRandom(3),
      log: this.log,
    };
    this.fleet = new KubernetesFleet(components, { hub: "test", ...init });
    this.#running = this.fleet.run(this.#life.signal);
  }

  async ready(): Promise<this> {
    for await (const problem of this.fleet.problem.changes(this.#life.signal)) if (problem === "") break;
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.#running;
    await this.fleet[Symbol.asyncDispose]();
  }
}

export class BridgedCluster implements AsyncDisposable {
  /** As the administrator, over HTTPS. */
  readonly client: RecordingKubeClient;
  readonly #transport: KubeTransport;
  readonly #end: () => Promise<void>;
  readonly signal = new AbortController().signal;

  /** $PICOLET_TEST_KUBECONFIG: a cluster that is there; else the embedded API server. */
  static async start(): Promise<BridgedCluster> {
    const given = process.env.PICOLET_TEST_KUBECONFIG;
    const cluster = given === undefined ? await EmbeddedCluster.start() : undefined;
    const access = await loadKubeconfigAccess({ kubeconfig: given ?? cluster?.kubeconfig ?? "" });
    const transport = new KubeTransport({ access, clock: systemClock, random: seededRandom(2) });
    return new BridgedCluster(transport, async () => await cluster?.[Symbol.asyncDispose]());
  }

  private constructor(transport: KubeTransport, end: () => Promise<void>) {
    this.#transport = transport;
    this.client = new RecordingKubeClient(new HttpKubeClient(transport));
    this.#end = end;
  }

  /** What the hub asked for, without what the test did. */
  async replica(calls = new CallLog(), init: Partial<KubernetesFleetInit> = {}): Promise<Replica> {
    return await new Replica(new RecordingKubeClient(new HttpKubeClient(this.#transport), calls), init).ready();
  }

  create(type: ResourceType, object: KubeObject): Promise<KubeObject> {
    const { namespace = "", name } = object.metadata;
    return this.client.create(type, { namespace, name }, object, {}, this.signal);
  }

  /** A pod bound to `node`, as the scheduler would bind it. */
  createPod(name: string, node: string, spec: Readonly<Record<string, unknown>> = {}): Promise<KubeObject> {
    const containers = [{ name: "main", image: "registry.example/app:1" }];
    const metadata = { namespace: "default", name };
    const whole = { nodeName: node, containers, automountServiceAccountToken: false, ...spec };
    return this.create(PODS, { apiVersion: "v1", kind: "Pod", metadata, spec: whole });
  }

  /** The object under that name as soon as it is as wanted; undefined for one that is not there. */
  async until(
    type: ResourceType,
    namespace: string,
    name: string,
    isReached: (object: KubeObject | undefined) => boolean,
  ): Promise<KubeObject | undefined> {
    const selection = {
      ...(namespace === "" ? {} : { namespace }),
      fieldSelector: `metadata.name=${name}`,
    };
    const { items, resourceVersion } = await this.client.list(type, selection, this.signal);
    let [object] = items;
    if (isReached(object)) return object;
    for await (const event of this.client.watch(type, { ...selection, resourceVersion }, this.signal)) {
      if (event.type === "BOOKMARK") continue;
      object = event.type === "DELETED" ? undefined : event.object;
      if (isReached(object)) break;
    }
    return object;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#transport[Symbol.asyncDispose]();
    await this.#end();
  }
}

/** What an agent says of its node. */
export const reportOf = (node: string, more: Partial<NodeReportContent> = {}): NodeReportContent => ({
  register: true,
  labels: {
    "kubernetes.io/hostname": node,
    "kubernetes.io/arch": "arm64",
    "kubernetes.io/os": "linux",
    site: "mast-7",
  },
  taints: [],
  providerID: "",
  status: {
    capacity: { cpu: "4", memory: "1Gi", pods: "110" },
    allocatable: { cpu: "4", memory: "1Gi", pods: "110" },
    conditions: [
      condition("Ready", "True", "KubeletReady"),
      condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ],
    addresses: [
      { type: "InternalIP", address: "192.168.1.7" },
      { type: "Hostname", address: node },
    ],
    nodeInfo: {
      architecture: "arm64",
      bootID: "b",
      containerRuntimeVersion: "containerd://1.6.20",
      kernelVersion: "6.1",
      kubeProxyVersion: "",
      kubeletVersion: "v1.34.0-picolet.0.1.0",
      machineID: "m",
      operatingSystem: "linux",
      osImage: "Debian",
      systemUUID: "s",
    },
    images: [],
  },
  ...more,
});

export const condition = (type: string, status: string, reason: string): Record<string, string> => ({
  type,
  status,
  reason,
  message: reason,
  lastTransitionTime: "2026-01-01T00:00:00Z",
});

/** Resolves with the set as soon as it is as wanted. */
export async function untilDesired(
  backend: NodeBackend,
  isReached: (keys: ReadonlySet<string>) => boolean,
): Promise<readonly string[]> {
  const { signal } = new AbortController();
  for await (const { synced, hashes } of backend.desired.changes(signal)) {
    if (synced && isReached(new Set(hashes.keys()))) return [...hashes.keys()].sort();
  }
  return [];
}
