/** An API server with a hub's Kubernetes side in front of it, over HTTPS, with nothing but standard calls. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { KubernetesFleet, type KubernetesFleetInit } from "@picolet/hub/bridge/kubernetes-fleet.ts";
import type { ClusterAccess } from "@picolet/hub/kubernetes/cluster-access.ts";
import { HttpKubeClient } from "@picolet/hub/kubernetes/http-kube-client.ts";
import { KubeTransport } from "@picolet/hub/kubernetes/kube-transport.ts";
import { loadKubeconfigAccess } from "@picolet/hub/kubernetes/kubeconfig-access.ts";
import type { NodeBackend } from "@picolet/hub-core/fleet.ts";
import {
  type KubeClient,
  type KubeObject,
  type ListOptions,
  PODS,
  type ResourceType,
  type WatchEvent,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { NodeReportContent } from "@picolet/protocol/tunnel/messages.ts";
import { parseAllDocuments } from "yaml";
import { EmbeddedCluster } from "../embedded/in-process-cluster.ts";
import { endOfRun } from "../ports/end-of-run.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { seededRandom } from "../ports/seeded-random.ts";
import { fixedAccess } from "./fixed-access.ts";
import { CallLog, RecordingKubeClient } from "./recording-kube-client.ts";

/** An address that no board gets a certificate for. */
export const HUB_ADDRESS = "192.0.2.200";
export const ENDPOINT = { address: "10.9.8.7", port: 10_321 };

export class Replica implements AsyncDisposable {
  readonly fleet: KubernetesFleet;
  readonly log = new RecordedLog();
  readonly #life = new AbortController();
  readonly #running: Promise<void>;

  constructor(client: KubeClient, init: Partial<KubernetesFleetInit> = {}, clock: Clock = systemClock) {
    const components = {
      client,
      endpoints: { endpointOf: () => ENDPOINT },
      clock,
      random: seededRandom(3),
      log: this.log,
    };
    this.fleet = new KubernetesFleet(components, { hub: "test", hubNames: [HUB_ADDRESS], ...init });
    this.#running = endOfRun(this.fleet.run(this.#life.signal));
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

const typeOf = (group: string, plural: string, kind: string, namespaced: boolean): ResourceType => ({
  group,
  version: "v1",
  plural,
  kind,
  namespaced,
});
const RBAC = "rbac.authorization.k8s.io";
/** The manifests that say who the hub is and what it may do. */
const DEPLOYED: readonly ResourceType[] = [
  typeOf("", "namespaces", "Namespace", false),
  typeOf("", "serviceaccounts", "ServiceAccount", true),
  typeOf(RBAC, "clusterroles", "ClusterRole", false),
  typeOf(RBAC, "clusterrolebindings", "ClusterRoleBinding", false),
  typeOf(RBAC, "roles", "Role", true),
  typeOf(RBAC, "rolebindings", "RoleBinding", true),
];
const SERVICE_ACCOUNTS = typeOf("", "serviceaccounts", "ServiceAccount", true);
const HUB_ACCOUNT = { namespace: "picolet-system", name: "picolet-hub" };
const TOKEN_SECONDS = 3600;

/** Every object of the manifests that hub/deploy/kustomization.yaml names, in their order. */
export function deployedObjects(): readonly KubeObject[] {
  const documents = (file: string): unknown[] =>
    parseAllDocuments(readFileSync(join("hub", "deploy", file), "utf8")).map((each) => each.toJS() as unknown);
  const [kustomization] = documents("kustomization.yaml") as [{ readonly resources: readonly string[] }];
  return kustomization.resources.flatMap(documents) as KubeObject[];
}

export class BridgedCluster implements AsyncDisposable {
  /** As the administrator, over HTTPS. */
  readonly client: RecordingKubeClient;
  readonly #access: ClusterAccess;
  readonly #transports: KubeTransport[] = [];
  readonly #end: () => Promise<void>;
  readonly signal = new AbortController().signal;
  #hub: HttpKubeClient | undefined;

  /** $PICOLET_TEST_KUBECONFIG: a cluster that is there; else the embedded API server. */
  static async start(): Promise<BridgedCluster> {
    const given = process.env.PICOLET_TEST_KUBECONFIG;
    const embedded = given === undefined ? await EmbeddedCluster.start() : undefined;
    const access = await loadKubeconfigAccess({ kubeconfig: given ?? embedded?.kubeconfig ?? "" });
    const cluster = new BridgedCluster(access, async () => await embedded?.[Symbol.asyncDispose]());
    await cluster.#deploy();
    return cluster;
  }

  private constructor(access: ClusterAccess, end: () => Promise<void>) {
    this.#access = access;
    this.client = new RecordingKubeClient(this.#open(access));
    this.#end = end;
  }

  /** A client as the hub that hub/deploy deploys: with its service account's token and no right but its own. */
  get hub(): KubeClient {
    if (this.#hub === undefined) throw new Error("the hub is not deployed");
    return this.#hub;
  }

  /** @param calls what the hub asked for, without what the test did */
  async replica(calls = new CallLog(), init: Partial<KubernetesFleetInit> = {}, clock?: Clock): Promise<Replica> {
    return await new Replica(new RecordingKubeClient(this.hub, calls), init, clock).ready();
  }

  /** One that hears of pods only when `gate` is open. */
  async laggingReplica(gate: Watch<boolean>): Promise<Replica> {
    return await new Replica(lagging(this.hub, gate), {}).ready();
  }

  #open(access: ClusterAccess): HttpKubeClient {
    const transport = new KubeTransport({ access, clock: systemClock, random: seededRandom(2) });
    this.#transports.push(transport);
    return new HttpKubeClient(transport);
  }

  async #deploy(): Promise<void> {
    for (const object of deployedObjects()) {
      const type = DEPLOYED.find(({ kind }) => kind === object.kind);
      if (type !== undefined) await this.#ensure(type, object);
    }
    const request = {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenRequest",
      spec: { expirationSeconds: TOKEN_SECONDS },
    };
    const answer = await this.client.create(
      SERVICE_ACCOUNTS,
      HUB_ACCOUNT,
      request,
      { subresource: "token" },
      this.signal,
    );
    const { token } = answer.status as { readonly token: string };
    const { tls } = await this.#access.credentials();
    const { cert: _cert, key: _key, ...server } = tls;
    this.#hub = this.#open(
      fixedAccess(this.#access.server, { tls: server, headers: { authorization: `Bearer ${token}` } }),
    );
  }

  async #ensure(type: ResourceType, object: KubeObject): Promise<void> {
    try {
      await this.create(type, object);
    } catch (error) {
      if (!isPicoletError(error, "already_exists")) throw error;
    }
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
    for (const transport of this.#transports) await transport[Symbol.asyncDispose]();
    await this.#end();
  }
}

function lagging(client: KubeClient, gate: Watch<boolean>): KubeClient {
  async function* watch(type: ResourceType, options: ListOptions, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    for await (const event of client.watch(type, options, signal)) {
      if (type === PODS) for await (const isOpen of gate.changes(signal)) if (isOpen) break;
      yield event;
    }
  }
  return {
    get: (...args) => client.get(...args),
    list: (...args) => client.list(...args),
    create: (...args) => client.create(...args),
    update: (...args) => client.update(...args),
    patch: (...args) => client.patch(...args),
    delete: (...args) => client.delete(...args),
    as: (...args) => client.as(...args),
    watch,
  };
}

/** The report of an agent about its node. */
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

/** Every node has it. */
export const API_SERVICE = "Service/default/kubernetes";

/** Resolves with the set, but for what every node has, as soon as it is as wanted. */
export async function untilDesired(
  backend: NodeBackend,
  isReached: (keys: ReadonlySet<string>) => boolean,
): Promise<readonly string[]> {
  const { signal } = new AbortController();
  for await (const { synced, hashes } of backend.desired.changes(signal)) {
    if (synced && isReached(new Set(hashes.keys()))) {
      return [...hashes.keys()].filter((key) => key !== API_SERVICE).sort();
    }
  }
  return [];
}
