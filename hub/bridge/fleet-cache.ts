/**
 * The fleet's pods, nodes and what they name, followed for all nodes together, and what each connected node is to have.
 */

import type {
  AskingPod,
  BoundPod,
  BoundPods,
  FleetBoardView,
  FleetNode,
  FleetNodes,
  PodQuestions,
} from "@picolet/hub-core/fleet.ts";
import { type KubeClient, type KubeObject, NODES, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { type CachedObject, type Change, Reflector } from "@picolet/hub-core/kube-client/reflector.ts";
import { ignoreCancelled } from "@picolet/protocol/async/abort.ts";
import { Backoff, type BackoffPolicy, FULL_JITTER } from "@picolet/protocol/async/backoff.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { ObjectHash, ObjectKey, RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import { UPDATE_STATUS_ANNOTATION } from "@picolet/protocol/updates/node-updates.ts";
import { DataCache, type DataState } from "./data-cache.ts";
import { DesiredNode } from "./desired-node.ts";
import { Freshness } from "./freshness.ts";
import { attachmentKey } from "./remote-data.ts";
import { ServiceCache } from "./service-cache.ts";
import {
  nodeOf,
  type StoredNode,
  type StoredPod,
  storedNode,
  stubOf,
  type WholePod,
  wholePod,
} from "./stored-objects.ts";
import { NODE_GROUPS, nodeUser } from "./well-known.ts";

const RETRY: BackoffPolicy = { first: millis(200), max: seconds(10), jitter: FULL_JITTER, least: millis(100) };

export interface FleetCacheInit {
  /** Value of the label picolet.io/hub. */
  readonly hub: string;
  /** True when another replica may have sent a node more than this one knows. */
  readonly hasReplicas: boolean;
  /** A pod or the Node of a connected node has changed, or has come with the connection. */
  readonly onPod: (node: string, path: string, before: WholePod | undefined, after: WholePod | undefined) => void;
  readonly onNode: (node: string, after: StoredNode | undefined) => void;
}

interface Components {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

type Followed = Pick<Reflector<CachedObject>, "name" | "synced" | "problem" | "run">;

interface Connected {
  readonly desired: DesiredNode;
  /** True while an object that was cached as a stub is being read. */
  isPromoting: boolean;
  /** True until it is certain that nothing is missing which another replica has sent the node. */
  isStale: boolean;
  isDirty: boolean;
  /** Attachments of the volumes that its pods claim. */
  attachments: ReadonlySet<ObjectKey>;
}

export class FleetCache {
  readonly nodes: Reflector<StoredNode>;
  readonly pods: Reflector<StoredPod>;
  readonly data: DataCache;
  readonly services: ServiceCache;
  readonly #components: Components;
  readonly #init: FleetCacheInit;
  readonly #freshness: Freshness;
  readonly #connected = new Map<string, Connected>();
  readonly #life = new AbortController();
  /** Nodes by the attachments of volumes that their pods claim. */
  readonly #attachedTo = new Map<ObjectKey, string>();
  readonly #followers = new Set<(node: string) => void>();
  readonly #askedFollowers = new Set<Parameters<PodQuestions["follow"]>[0]>();
  /** Counts over all nodes together; each node sees its own revision grow. */
  #revision = 0;

  constructor(components: Components, init: FleetCacheInit) {
    this.#components = components;
    this.#init = init;
    this.nodes = new Reflector<StoredNode>(components, {
      type: NODES,
      trim: (node) => storedNode(node, init.hub, this.#connected.has(node.metadata.name)),
      onChange: (change) => this.#nodeChanged(change),
    });
    this.pods = new Reflector<StoredPod>(components, {
      type: PODS,
      trim: (pod) => {
        const node = nodeOf(pod);
        if (node === "") return undefined;
        return this.#isOurs(node) ? wholePod(pod) : stubOf(pod, node);
      },
      indexes: {
        node: ({ node }) => [node],
        reference: (pod) => (pod.kind === "whole" ? pod.references : []),
        services: (pod) => (pod.kind === "whole" && pod.hasServiceLinks ? [pod.namespace] : []),
      },
      onChange: (change) => this.#podChanged(change),
    });
    this.#freshness = new Freshness(components, { pods: this.pods, onFresh: (node) => this.#isFresh(node) });
    this.data = new DataCache(components, {
      readerOf: (key) => this.#readerOf(key),
      isNamed: (key) => this.#attachedTo.has(key) || this.pods.store.keysBy("reference", key).size > 0,
      onChange: (key) => {
        this.#touch(this.#attachedTo.get(key));
        for (const path of this.pods.store.keysBy("reference", key)) this.#touch(this.pods.store.get(path)?.node);
      },
    });
    this.services = new ServiceCache(components, {
      onChange: (namespace) => {
        for (const path of this.pods.store.keysBy("services", namespace)) this.#touch(this.pods.store.get(path)?.node);
      },
      onApiServiceChange: () => this.#touchAll(),
    });
  }

  /** All reflectors; nothing is certain before each has listed. */
  get reflectors(): readonly Followed[] {
    return [this.nodes, this.pods, ...this.data.reflectors, this.services.services];
  }

  #isFresh(node: string): void {
    const connected = this.#connected.get(node);
    if (connected === undefined) return;
    connected.isStale = false;
    this.#touch(node);
  }

  get isSynced(): boolean {
    return this.reflectors.every(({ synced }) => synced.current);
  }

  /** Nodes first: what they say decides what is kept of pods. Until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const running: Promise<void>[] = [this.nodes.run(signal)];
    for await (const synced of this.nodes.synced.changes(signal)) if (synced) break;
    const others = this.reflectors.filter((each) => each !== this.nodes);
    for (const each of others) running.push(each.run(signal));
    for (const { synced } of others) for await (const done of synced.changes(signal)) if (done) break;
    this.#touchAll();
    await Promise.all(running);
  }

  [Symbol.dispose](): void {
    this.#life.abort();
    this.#freshness[Symbol.dispose]();
    this.data[Symbol.dispose]();
  }

  connect(node: string): DesiredNode {
    const desired = new DesiredNode(() => {
      this.#revision += 1;
      return this.#revision;
    });
    this.#connected.set(node, {
      desired,
      isPromoting: false,
      isStale: this.#init.hasReplicas,
      isDirty: false,
      attachments: new Set(),
    });
    if (this.#init.hasReplicas) this.#freshness.check(node);
    for (const path of this.pods.store.keysBy("node", node)) {
      const pod = this.pods.store.get(path);
      if (pod?.kind === "whole") for (const key of pod.references) this.data.want(key);
    }
    this.#promote(node);
    this.#touch(node);
    return desired;
  }

  disconnect(node: string): void {
    const connected = this.#connected.get(node);
    if (connected !== undefined) this.#followAttachments(node, connected, new Set());
    this.#connected.delete(node);
  }

  isConnected(node: string): boolean {
    return this.#connected.has(node);
  }

  /** @param path `namespace/name`. Undefined too for a pod of another node. */
  pod(node: string, path: string): WholePod | undefined {
    const pod = this.pods.store.get(path);
    return pod?.kind === "whole" && pod.node === node ? pod : undefined;
  }

  *podsOf(node: string): Generator<readonly [path: string, pod: WholePod]> {
    for (const path of [...this.pods.store.keysBy("node", node)]) {
      const pod = this.pod(node, path);
      if (pod !== undefined) yield [path, pod];
    }
  }

  /** The pods of all boards of this hub, for what concerns the fleet and not one session. */
  get boundPods(): BoundPods {
    return {
      podsOf: (node) => this.#boundPodsOf(node),
      pod: (namespace, name) => {
        const path = `${namespace}/${name}`;
        const pod = wholeOf(this.pods.store.get(path));
        return pod === undefined ? undefined : boundPod(path, pod);
      },
    };
  }

  /** The pods of all boards of this hub that ask why they are as they are. */
  get questions(): PodQuestions {
    return {
      follow: (onChange) => {
        const follower: typeof onChange = (path, asking) => onChange(path, asking);
        this.#askedFollowers.add(follower);
        return { [Symbol.dispose]: () => void this.#askedFollowers.delete(follower) };
      },
    };
  }

  *#boundPodsOf(node: string): Generator<BoundPod> {
    for (const [path, pod] of this.podsOf(node)) yield boundPod(path, pod);
  }

  node(node: string): StoredNode | undefined {
    return this.nodes.store.get(node);
  }

  /** The addresses of all Nodes of the cluster but one, as `addressKey` has them. Reads every Node: for rare requests. */
  addressesOfOthers(node: string): ReadonlySet<string> {
    const found = new Set<string>();
    for (const [name, { addresses }] of this.nodes.store.entries()) {
      if (name !== node) for (const address of addresses.split(" ")) found.add(address);
    }
    return found;
  }

  /** The Nodes of this hub, for what concerns the fleet and not one session. */
  get fleetNodes(): FleetNodes {
    const { store, synced } = this.nodes;
    return {
      synced,
      names: () => store.keys(),
      node: (name) => fleetNodeOf(name, store.get(name)),
      view: (name) => viewOf(store.get(name)),
      follow: (onChange) => {
        // An object of its own for each caller.
        const follower = (name: string): void => onChange(name);
        this.#followers.add(follower);
        return { [Symbol.dispose]: () => void this.#followers.delete(follower) };
      },
    };
  }

  /** The status of the condition Ready of each Node of this hub; "" where there is none. Parses no Node. */
  *readiness(): Generator<string> {
    for (const [, stored] of this.nodes.store.entries()) if (stored.packed !== undefined) yield readyIn(stored);
  }

  /** The content of `key` for this node; undefined unless the node's desired set has it. */
  object(node: string, key: ObjectKey): RemoteObject | undefined {
    if (!this.#connected.get(node)?.desired.watch.current.hashes.has(key)) return undefined;
    if (key.startsWith("Service/")) return this.services.object(key)?.remote();
    if (this.data.has(key)) {
      const found = this.data.state(key);
      return typeof found === "string" ? undefined : found.remote();
    }
    if (key.startsWith("Node/")) return this.node(node)?.packed?.remote();
    return this.pod(node, key.slice("Pod/".length))?.packed.remote();
  }

  #isOurs(node: string): boolean {
    return this.#connected.has(node) || this.nodes.store.get(node)?.packed !== undefined;
  }

  #readerOf(key: ObjectKey): KubeClient | undefined {
    const attached = this.#attachedTo.get(key);
    if (attached !== undefined) return this.#components.client.as(nodeUser(attached), NODE_GROUPS);
    for (const path of this.pods.store.keysBy("reference", key)) {
      const node = this.pods.store.get(path)?.node ?? "";
      if (this.#connected.has(node)) return this.#components.client.as(nodeUser(node), NODE_GROUPS);
    }
    return undefined;
  }

  #nodeChanged({ key: node, before, after }: Change<StoredNode>): void {
    for (const follower of this.#followers) follower(node);
    if (before?.packed === undefined && after?.packed !== undefined) this.#promote(node);
    if (!this.#connected.has(node)) return;
    this.#touch(node);
    this.#init.onNode(node, after);
  }

  #podChanged({ key: path, before, after }: Change<StoredPod>): void {
    this.#freshness.podChanged(path, after?.resourceVersion);
    const [old, now] = [wholeOf(before), wholeOf(after)];
    if (old?.asksWhy === true || now?.asksWhy === true) this.#asked(path, now);
    if (old !== undefined) for (const key of old.references) if (now === undefined) this.data.release(key);
    if (old !== undefined && old.node !== now?.node) this.#podMoved(path, old, undefined);
    if (now !== undefined) this.#podMoved(path, old?.node === now.node ? old : undefined, now);
  }

  #asked(path: string, pod: WholePod | undefined): void {
    const asking = pod?.asksWhy === true ? askingPod(path, pod) : undefined;
    for (const follower of this.#askedFollowers) follower(path, asking);
  }

  #podMoved(path: string, before: WholePod | undefined, after: WholePod | undefined): void {
    const node = (after ?? before)?.node ?? "";
    const connected = this.#connected.get(node);
    if (connected === undefined) return;
    if (after !== undefined) for (const key of after.references) this.data.want(key);
    this.#init.onPod(node, path, before, after);
    this.#touch(node);
  }

  #touchAll(): void {
    for (const node of this.#connected.keys()) this.#touch(node);
  }

  /** Several changes in one turn are one change of the set. */
  #touch(node: string | undefined): void {
    const connected = node === undefined ? undefined : this.#connected.get(node);
    if (node === undefined || connected === undefined || connected.isDirty) return;
    connected.isDirty = true;
    queueMicrotask(() => {
      connected.isDirty = false;
      if (this.#connected.get(node) === connected) this.#recompute(node, connected);
    });
  }

  #recompute(node: string, connected: Connected): void {
    const sent = connected.desired.watch.current.hashes;
    const hashes = new Map<ObjectKey, ObjectHash>();
    const namespaces = new Set<string>();
    const attachments = new Set<ObjectKey>();
    let isLoading = false;
    const own = this.node(node)?.packed;
    if (own !== undefined) hashes.set(own.key, own.hash);
    for (const [, pod] of this.podsOf(node)) {
      if (pod.hasServiceLinks) namespaces.add(pod.namespace);
      if (pod.mirrorOf !== undefined || pod.isOver) continue;
      const found = pod.references.flatMap((key) => this.data.states(key));
      const isWaiting = found.includes("loading");
      // Before the first whole set, a missing pod would count as removed.
      isLoading ||= isWaiting;
      // A new pod is sent with all that it references, or its first start would fail.
      if (isWaiting && !sent.has(pod.packed.key)) continue;
      hashes.set(pod.packed.key, pod.packed.hash);
      for (const each of found) if (typeof each !== "string") hashes.set(each.key, each.hash);
      for (const key of this.#attachmentsOf(node, found)) attachments.add(key);
    }
    this.#followAttachments(node, connected, attachments);
    for (const key of attachments) {
      const attachment = this.data.state(key);
      if (typeof attachment !== "string") hashes.set(attachment.key, attachment.hash);
    }
    this.services.addTo(hashes, namespaces);
    const wasSynced = connected.desired.watch.current.synced;
    const isWhole = this.isSynced && !connected.isPromoting && !connected.isStale && !isLoading;
    connected.desired.update(hashes, wasSynced || isWhole);
  }

  #attachmentsOf(node: string, found: readonly DataState[]): readonly ObjectKey[] {
    return found.flatMap((each) => {
      if (typeof each === "string" || !each.key.startsWith("PersistentVolume/")) return [];
      return attachmentKey(each.object, node) ?? [];
    });
  }

  /** No object names an attachment: its name follows from volume and node. */
  #followAttachments(node: string, connected: Connected, attachments: ReadonlySet<ObjectKey>): void {
    const before = connected.attachments;
    connected.attachments = attachments;
    for (const key of attachments) {
      this.#attachedTo.set(key, node);
      this.data.want(key);
    }
    for (const key of before) {
      if (attachments.has(key)) continue;
      this.#attachedTo.delete(key);
      this.data.release(key);
    }
  }

  /**
   * A node has become ours whose pods were of no interest before: reads them one by one. Until that has succeeded a
   * connected node's set says nothing of what is missing.
   */
  #promote(node: string): void {
    const connected = this.#connected.get(node);
    if (this.#stubsOf(node).length === 0 && !this.#isNodeMissing(node)) return;
    if (connected !== undefined) connected.isPromoting = true;
    this.#promoteUntilDone(node)
      .catch(ignoreCancelled)
      .finally(() => {
        if (connected === undefined) return;
        connected.isPromoting = false;
        this.#touch(node);
      });
  }

  async #promoteUntilDone(node: string): Promise<void> {
    const { clock, random, log } = this.#components;
    const { signal } = this.#life;
    const backoff = new Backoff(random, RETRY);
    while (this.#isOurs(node)) {
      try {
        await this.#readWhole(node, signal);
        return;
      } catch (error) {
        if (isCancelled(error)) throw error;
        if (backoff.failures === 0)
          log.warn("cannot read the pods of a new node", { node, error: describeError(error) });
        await clock.sleep(backoff.next(), signal);
      }
    }
  }

  async #readWhole(node: string, signal: AbortSignal): Promise<void> {
    const { client } = this.#components;
    if (this.#isNodeMissing(node)) {
      const object = await unlessGone(client.get(NODES, { namespace: "", name: node }, signal));
      if (object !== undefined && this.node(node)?.uid === object.metadata.uid) this.nodes.adopt(node, object);
    }
    for (const path of this.#stubsOf(node)) {
      const [namespace = "", name = ""] = path.split("/");
      const object = await unlessGone(client.get(PODS, { namespace, name }, signal));
      // If it is gone or was made again meanwhile, the watch reports it.
      if (object === undefined || this.pods.store.get(path)?.uid !== object.metadata.uid) continue;
      this.pods.adopt(path, object);
      const pod = wholeOf(this.pods.store.get(path));
      if (pod?.asksWhy === true) this.#asked(path, pod);
    }
  }

  #stubsOf(node: string): readonly string[] {
    return [...this.pods.store.keysBy("node", node)].filter((path) => this.pods.store.get(path)?.kind === "stub");
  }

  #isNodeMissing(node: string): boolean {
    const known = this.node(node);
    return known !== undefined && known.packed === undefined && this.#connected.has(node);
  }
}

async function unlessGone(reading: Promise<KubeObject>): Promise<KubeObject | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (isPicoletError(error, "not_found")) return undefined;
    throw error;
  }
}

function boundPod(path: string, { node, uid, mirrorOf, namespace, packed }: WholePod): BoundPod {
  const labels = (): Readonly<Record<string, string>> => (packed.object as unknown as KubeObject).metadata.labels ?? {};
  return { node, namespace, name: path.slice(namespace.length + 1), uid: mirrorOf ?? uid, labels };
}

const askingPod = (path: string, { node, uid, namespace }: WholePod): AskingPod => ({
  node,
  namespace,
  name: path.slice(namespace.length + 1),
  uid,
});

function fleetNodeOf(name: string, stored: StoredNode | undefined): FleetNode | undefined {
  if (stored?.packed === undefined) return undefined;
  const { metadata } = stored.packed.object as unknown as KubeObject;
  const { [UPDATE_STATUS_ANNOTATION]: updateReport, ...turns } = stored.updates;
  const ready = readyIn(stored);
  return {
    name,
    uid: stored.uid,
    resourceVersion: stored.resourceVersion,
    labels: metadata.labels ?? {},
    annotations: { ...metadata.annotations, ...turns },
    ready,
    updateReport,
  };
}

const readyIn = ({ conditions }: StoredNode): string => /(?:^|,)Ready=([^,]*)/.exec(conditions)?.[1] ?? "";

function viewOf(stored: StoredNode | undefined): FleetBoardView | undefined {
  if (stored?.packed === undefined) return undefined;
  const { conditions, version, updates } = stored;
  return { conditions, version, updateReport: updates[UPDATE_STATUS_ANNOTATION] };
}

const wholeOf = (pod: StoredPod | undefined): WholePod | undefined => (pod?.kind === "whole" ? pod : undefined);
