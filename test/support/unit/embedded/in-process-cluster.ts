/** The embedded API server with its controllers, over TLS on loopback, for any client. */

import { writeFileSync } from "node:fs";
import { makeAuthority, makeServerPair } from "@picolet/hub/identity/certificate-authority.ts";
import { NodeCertifier } from "@picolet/hub/identity/node-certifier.ts";
import { NodeKeysInKubernetes, RevokedKeysInKubernetes } from "@picolet/hub/identity/node-keys.ts";
import { RequestIssuer } from "@picolet/hub/identity/request-issuer.ts";
import {
  type KubeClient,
  type KubeObject,
  NODES,
  PODS,
  type ResourceType,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { LEASES } from "@picolet/hub-core/kube-client/resource-types.ts";
import type { CertificateIssuer } from "@picolet/hub-embedded/controllers/certificates/certificate-issuer.ts";
import { ensureInitialObjects } from "@picolet/hub-embedded/controllers/cluster/initial-objects.ts";
import { EmbeddedApiServer } from "@picolet/hub-embedded/embedded-api-server.ts";
import { embeddedControllers } from "@picolet/hub-embedded/embedded-controllers.ts";
import { embeddedResources } from "@picolet/hub-embedded/embedded-resources.ts";
import type { PodAdmissionInit } from "@picolet/hub-embedded/resources/pods/pod-admission.ts";
import { FolderModelSource } from "@picolet/hub-embedded/schema/models.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { type Clock, millis, type Random } from "@picolet/protocol/ports.ts";
import { TempFolder } from "../machine/temp-folder.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { seededRandom } from "../ports/seeded-random.ts";

const TOKEN = "test-admin-token";
const ADMIN = { name: "kubernetes-admin", uid: "", groups: ["system:masters", "system:authenticated"], extra: {} };

export interface EmbeddedClusterInit {
  readonly clock?: Clock;
  readonly random?: Random;
  readonly serviceAccountTokens?: boolean;
  /** As the hub passes it; without it the server leaves a pod's tolerations to a patch, as Kubernetes does. */
  readonly tolerationsOn?: PodAdmissionInit["tolerationsOn"];
  /** The store's file, one of its own by default. */
  readonly path?: string;
  /** The controllers' client, in place of one that always works. */
  readonly controllersClient?: (client: KubeClient) => KubeClient;
}

export class EmbeddedCluster implements AsyncDisposable {
  readonly log = new RecordedLog();
  readonly client: KubeClient;
  readonly server: EmbeddedApiServer;
  readonly #clock: Clock;
  readonly #random: Random;
  protected readonly folder = new TempFolder();
  readonly caBundle: WatchSource<string>;
  readonly #issuer: CertificateIssuer;
  readonly #definitions;
  readonly #life = new AbortController();
  readonly #disconnected = new Set<string>();
  readonly #controllersClient: KubeClient;
  #controllers: { readonly stop: AbortController; readonly done: Promise<void> } | undefined;

  constructor(init: EmbeddedClusterInit = {}) {
    this.#clock = init.clock ?? systemClock;
    this.#random = init.random ?? seededRandom(1);
    const authority = makeAuthority("test", { days: 1, now: new Date() });
    const pair = makeServerPair(authority, ["127.0.0.1", "localhost"], { days: 1, now: new Date() });
    this.caBundle = new WatchSource(authority.certificate);
    const { serviceAccountTokens = false, tolerationsOn } = init;
    this.#definitions = embeddedResources({
      serviceAccountTokens,
      ...(tolerationsOn === undefined ? {} : { tolerationsOn }),
    });
    this.server = new EmbeddedApiServer(
      {
        clock: this.#clock,
        random: this.#random,
        log: this.log,
        models: new FolderModelSource("node_modules/@kubernetes/client-node/dist/gen/models"),
        kubelets: undefined,
      },
      {
        storePath: init.path ?? this.folder.at("hub.db"),
        definitions: this.#definitions,
        address: "127.0.0.1",
        port: 0,
        tls: { certificate: pair.certificate, privateKey: pair.privateKey, clientCa: this.caBundle.current },
        version: "test",
        issuer: "https://kubernetes.default.svc",
        tokens: [{ token: TOKEN, user: ADMIN.name, groups: ["system:masters"] }],
      },
    );
    this.client = this.server.client(ADMIN);
    this.#controllersClient = init.controllersClient?.(this.client) ?? this.client;
    this.#issuer = new RequestIssuer(
      { ca: { authority }, certifier: this.#certifier(), clock: { wall: () => new Date() } },
      { longest: millis(86_400_000), hubNames: ["hub.example"] },
    );
  }

  /** The record of nodes' keys, in the namespace kube-system. */
  #certifier(): NodeCertifier {
    const init = { namespace: "kube-system" };
    const parts = { client: this.client, clock: this.#clock, random: this.#random, log: this.log };
    const revoked = new RevokedKeysInKubernetes(parts, init);
    return new NodeCertifier({ ...parts, keys: new NodeKeysInKubernetes(parts, init), revoked });
  }

  /** Serves, with controllers. */
  static async start(init: EmbeddedClusterInit = {}): Promise<EmbeddedCluster> {
    const cluster = new EmbeddedCluster(init);
    await cluster.serve();
    return cluster;
  }

  async serve(): Promise<void> {
    const port = await this.server.listen();
    writeFileSync(this.kubeconfig, kubeconfigText(port, this.caBundle.current));
    void this.server.run(this.#life.signal);
    await ensureInitialObjects(this.client, this.#life.signal);
    this.startControllers();
  }

  get kubeconfig(): string {
    return this.folder.at("kubeconfig");
  }

  startControllers(): void {
    const stop = new AbortController();
    const components = embeddedControllers(
      { client: this.#controllersClient, clock: this.#clock, random: this.#random, log: this.log },
      { definitions: this.#definitions, caBundle: this.caBundle, issuer: this.#issuer },
    );
    const run = async (each: Component): Promise<void> => {
      try {
        await each.run(stop.signal);
      } catch (error) {
        if (!isCancelled(error)) throw error;
      }
    };
    this.#controllers = { stop, done: Promise.all(components.map(run)).then(() => undefined) };
  }

  /** As a process that is gone: what is under way is not waited for. */
  async stopControllers(): Promise<void> {
    this.#controllers?.stop.abort();
    await this.#controllers?.done;
    this.#controllers = undefined;
  }

  /** A node that says that it is ready, as its agent would, once. */
  async addNode(
    name: string,
    more: { labels?: Record<string, string>; allocatable?: Record<string, string> } = {},
  ): Promise<void> {
    const { signal } = this.#life;
    const labels = { "kubernetes.io/hostname": name, "kubernetes.io/arch": "arm64", ...more.labels };
    const ref = { namespace: "", name };
    await this.client.create(
      NODES,
      ref,
      { apiVersion: "v1", kind: "Node", metadata: { name, labels }, spec: {} },
      {},
      signal,
    );
    const resources = more.allocatable ?? { cpu: "4", memory: "1Gi", pods: "110" };
    const status = {
      capacity: resources,
      allocatable: resources,
      addresses: [{ type: "InternalIP", address: "10.0.0.7" }],
      nodeInfo: {
        kubeletVersion: "v1.34.0-picolet",
        osImage: "Debian",
        kernelVersion: "6.1",
        containerRuntimeVersion: "containerd://1.6",
      },
    };
    await this.client.patch(NODES, ref, "merge", { status }, { subresource: "status" }, signal);
    await this.heartbeat(name);
  }

  get #now(): string {
    return kubeTime(this.#clock.wall());
  }

  /** Says that the node is ready, and renews its lease. */
  async heartbeat(name: string): Promise<void> {
    const now = this.#now;
    const ready = {
      ...{ type: "Ready", status: "True", reason: "KubeletReady", message: "" },
      ...{ lastHeartbeatTime: now, lastTransitionTime: now },
    };
    const patch = { status: { conditions: [ready] } };
    const ref = { namespace: "", name };
    await this.client.patch(NODES, ref, "strategic", patch, { subresource: "status" }, this.#life.signal);
    await this.renew(name);
  }

  async renew(name: string): Promise<void> {
    const ref = { namespace: "kube-node-lease", name };
    const renewTime = this.#clock.wall().toISOString().replace(/Z$/, "000Z");
    const lease = {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: ref,
      spec: { holderIdentity: name, leaseDurationSeconds: 40, renewTime },
    };
    await this.client.update(LEASES, ref, lease as KubeObject, {}, this.#life.signal);
  }

  /** Resolves with the objects as soon as they are as wanted; told by a watch, never by a timer. */
  async until(
    type: ResourceType,
    isReached: (objects: readonly KubeObject[]) => boolean,
    signal: AbortSignal = this.#life.signal,
  ): Promise<readonly KubeObject[]> {
    const { items, resourceVersion } = await this.client.list(type, {}, signal);
    const objects = new Map(items.map((each) => [each.metadata.uid, each]));
    const all = (): readonly KubeObject[] => [...objects.values()];
    if (isReached(all())) return all();
    for await (const event of this.client.watch(type, { resourceVersion }, signal)) {
      if (event.type === "BOOKMARK") continue;
      if (event.type === "DELETED") objects.delete(event.object.metadata.uid);
      else objects.set(event.object.metadata.uid, event.object);
      if (isReached(all())) break;
    }
    return all();
  }

  /** Stops to simulate the node's pods until `connect`. The test must not renew its lease meanwhile. */
  disconnect(node: string): void {
    this.#disconnected.add(node);
  }

  async connect(node: string): Promise<void> {
    this.#disconnected.delete(node);
    await this.heartbeat(node);
    const { items } = await this.client.list(PODS, { fieldSelector: `spec.nodeName=${node}` }, this.#life.signal);
    for (const pod of items) await this.#play(pod);
  }

  /** Plays the agent of every node until the cluster is disposed of: pods run, and go when they are to. */
  playAgents(): void {
    void this.#follow();
  }

  async #follow(): Promise<void> {
    const { signal } = this.#life;
    try {
      const { items, resourceVersion } = await this.client.list(PODS, {}, signal);
      for (const pod of items) await this.#play(pod);
      for await (const event of this.client.watch(PODS, { resourceVersion }, signal)) {
        if (event.type === "ADDED" || event.type === "MODIFIED") await this.#play(event.object);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async #play(pod: KubeObject): Promise<void> {
    const { signal } = this.#life;
    const { namespace = "", name, uid = "", deletionTimestamp } = pod.metadata;
    const spec = pod.spec as {
      nodeName?: string;
      containers: readonly { name: string; image: string; resources?: object }[];
    };
    const ref = { namespace, name };
    if ((spec.nodeName ?? "") === "" || this.#disconnected.has(spec.nodeName ?? "")) return;
    try {
      if (deletionTimestamp !== undefined) {
        await this.client.delete(PODS, ref, { uid, gracePeriodSeconds: 0 }, signal);
      } else if ((pod.status as { phase?: string }).phase === "Pending") {
        const now = this.#now;
        const conditions = ["Initialized", "ContainersReady", "Ready"].map((type) => ({
          type,
          status: "True",
          lastTransitionTime: now,
        }));
        const containerStatuses = spec.containers.map((each) => ({
          ...{ name: each.name, image: each.image, imageID: "", ready: true, started: true, restartCount: 0 },
          ...{ state: { running: { startedAt: now } }, lastState: {}, resources: each.resources ?? {} },
        }));
        const status = {
          phase: "Running",
          podIP: "10.1.0.2",
          podIPs: [{ ip: "10.1.0.2" }],
          startTime: now,
          conditions,
          containerStatuses,
        };
        await this.client.patch(
          PODS,
          ref,
          "strategic",
          { metadata: { uid }, status },
          { subresource: "status" },
          signal,
        );
      }
    } catch {
      // It has changed or gone since: the next event says how.
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopControllers();
    this.#life.abort();
    await this.server[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}

const kubeconfigText = (port: number, caPem: string): string =>
  JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [
      {
        name: "test",
        cluster: {
          server: `https://127.0.0.1:${port}`,
          "certificate-authority-data": Buffer.from(caPem).toString("base64"),
        },
      },
    ],
    users: [{ name: "admin", user: { token: TOKEN } }],
    contexts: [{ name: "test", context: { cluster: "test", user: "admin" } }],
    "current-context": "test",
  });
