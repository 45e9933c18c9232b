/** Kubernetes as the hub's tunnel end sees it, in memory: what nodes are to have, what they reported, and outages. */

import type { DesiredSet, FleetBackend, NodeBackend, NodePodStatus } from "@picolet/hub-core/fleet.ts";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { type ListenableWatch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { nodePodStatus } from "@picolet/protocol/pod/node-pod-status.ts";
import type { PodIdentity } from "@picolet/protocol/tunnel/compact-status.ts";
import { digestOf, mirrorsDigest, objectHash } from "@picolet/protocol/tunnel/digest.ts";
import type {
  EventItem,
  MirrorItem,
  NodeReportContent,
  ObjectHash,
  ObjectKey,
  RemoteObject,
} from "@picolet/protocol/tunnel/messages.ts";
import type {
  AccessReply,
  ReviewParams,
  ServingReply,
  TokenParams,
  TokenReply,
} from "@picolet/protocol/tunnel/stream.ts";

type Content = Readonly<Record<string, unknown>>;

/** As an API server may leave them out. */
const withoutNulls = (content: Content): unknown =>
  JSON.parse(JSON.stringify(content), (_, value: unknown) => (value === null ? undefined : value));

/** One node's part; it is there whether the node is connected or not. */
export class MemoryNode {
  readonly #objects = new Map<ObjectKey, RemoteObject>();
  readonly desired = new WatchSource<DesiredSet>(setOf(false, 0, new Map()));
  /** By UID; `undefined`: reported as gone. */
  readonly statuses = new Map<string, Content | undefined>();
  /** In the order of the writes. */
  readonly writes: NodePodStatus[] = [];
  readonly events: EventItem[] = [];
  report: NodeReportContent | undefined;
  mirrors: readonly MirrorItem[] = [];
  /** How many backends of it are held. */
  readonly held = new WatchSource(0);
  /** Statuses are written, but the hub's watch does not show them. */
  watchLags = false;

  object(key: ObjectKey): RemoteObject | undefined {
    return this.#objects.get(key);
  }

  /** Sets, or removes with `undefined`; the set that shows it follows unless it is the hub's last to know. */
  set(changes: Readonly<Record<ObjectKey, Content | undefined>>): void {
    for (const [key, object] of Object.entries(changes)) {
      if (object === undefined) this.#objects.delete(key);
      else this.#objects.set(key, { key, object, hash: objectHash(sha256, object) });
    }
    const hashes = new Map([...this.#objects].map(([key, { hash }]) => [key, hash]));
    this.desired.set(setOf(true, this.desired.current.revision + 1, hashes));
  }

  /** The set shows `shown`, while the object itself is `now` already. */
  setAhead(key: ObjectKey, shown: Content, now: Content | undefined): void {
    const hashes = new Map(this.desired.current.hashes);
    hashes.set(key, objectHash(sha256, shown));
    this.setSilently(key, now);
    this.desired.set(setOf(true, this.desired.current.revision + 1, hashes));
  }

  /** Changes an object without the set that shows it: the watch is about to. */
  setSilently(key: ObjectKey, object: Content | undefined): void {
    if (object === undefined) this.#objects.delete(key);
    else this.#objects.set(key, { key, object, hash: objectHash(sha256, object) });
  }
}

const setOf = (synced: boolean, revision: number, hashes: ReadonlyMap<ObjectKey, ObjectHash>): DesiredSet => ({
  synced,
  revision,
  hashes,
  digest: digestOf(
    sha256,
    [...hashes].map(([key, hash]) => ({ key, hash })),
  ),
});

export class MemoryFleetBackend implements FleetBackend {
  readonly problem = new WatchSource("");
  readonly #nodes = new Map<string, MemoryNode>();
  /** While it is set every write fails with it. */
  outage: PicoletError | undefined;
  /** While it is set no write ends. */
  gate: Promise<void> | undefined;
  writing = 0;
  maxWriting = 0;
  attempts = 0;
  /** After each write that has succeeded. */
  onWritten: () => void = () => undefined;

  node(name: string): MemoryNode {
    let node = this.#nodes.get(name);
    if (node === undefined) {
      node = new MemoryNode();
      this.#nodes.set(name, node);
    }
    return node;
  }

  connect(name: string): NodeBackend {
    const node = this.node(name);
    node.held.set(node.held.current + 1);
    return new HeldNode(this, node);
  }

  async write(change: () => void, signal: AbortSignal): Promise<void> {
    this.attempts += 1;
    this.writing += 1;
    this.maxWriting = Math.max(this.maxWriting, this.writing);
    try {
      if (this.gate !== undefined) await this.gate;
      if (signal.aborted) throw cancelled("the write");
      if (this.outage !== undefined) throw this.outage;
      change();
      this.onWritten();
    } finally {
      this.writing -= 1;
    }
  }
}

class HeldNode implements NodeBackend {
  readonly #fleet: MemoryFleetBackend;
  readonly #node: MemoryNode;

  constructor(fleet: MemoryFleetBackend, node: MemoryNode) {
    this.#fleet = fleet;
    this.#node = node;
  }

  get desired(): ListenableWatch<DesiredSet> {
    return this.#node.desired;
  }

  object(key: ObjectKey): RemoteObject | undefined {
    return this.#node.object(key);
  }

  mirrorsDigest(): Uint8Array | undefined {
    return this.#node.desired.current.synced ? mirrorsDigest(sha256, this.#node.mirrors) : undefined;
  }

  nodeReport(): NodeReportContent | undefined {
    return this.#node.report;
  }

  pods(): Iterable<PodIdentity> {
    return new Map(this.#node.writes.map(({ namespace, name, uid }) => [uid, { namespace, name, uid }])).values();
  }

  statusOf(_namespace: string, _name: string, uid: string): Content | undefined {
    const status = this.#node.watchLags ? undefined : this.#node.statuses.get(uid);
    return status === undefined ? undefined : nodePodStatus(withoutNulls(status));
  }

  putStatuses(statuses: readonly NodePodStatus[], signal: AbortSignal): Promise<void> {
    return this.#fleet.write(() => {
      for (const each of statuses) {
        this.#node.writes.push(each);
        this.#node.statuses.set(each.uid, each.gone ? undefined : each.status);
      }
    }, signal);
  }

  putEvents(events: readonly EventItem[], signal: AbortSignal): Promise<void> {
    return this.#fleet.write(() => this.#node.events.push(...events), signal);
  }

  putNode(report: NodeReportContent, signal: AbortSignal): Promise<void> {
    return this.#fleet.write(() => {
      this.#node.report = report;
    }, signal);
  }

  putMirrors(mirrors: readonly MirrorItem[], signal: AbortSignal): Promise<void> {
    return this.#fleet.write(() => {
      this.#node.mirrors = mirrors;
    }, signal);
  }

  requestToken(params: TokenParams, signal: AbortSignal): Promise<{ token: string; expirationTimestamp: string }> {
    if (params.serviceAccount === "other") {
      return Promise.reject(new PicoletError("permission_denied", "cannot make a token for another's service account"));
    }
    const answer = { token: `token of ${params.serviceAccount}`, expirationTimestamp: "2026-01-31T12:00:00Z" };
    return this.#fleet.write(() => undefined, signal).then(() => answer);
  }

  /** The token `good` is known, and `reader` may read statistics. */
  async review(params: ReviewParams): Promise<TokenReply | AccessReply | ServingReply> {
    if (params.review === "token") return { user: params.token === "good" ? { name: "reader", groups: [] } : null };
    if (params.review === "serving") return { state: "pending" };
    const right = params.review === "podDeletion" ? "" : params.subresource;
    return { allowed: params.user === "reader" && right === "stats" };
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#node.held.set(this.#node.held.current - 1);
    return Promise.resolve();
  }
}
