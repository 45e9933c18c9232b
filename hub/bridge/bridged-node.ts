import type { DesiredSet, KubeletEndpoints, NodeBackend, NodePodStatus } from "@picolet/hub-core/fleet.ts";
import { PODS, type ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import type { TimerWheel, WheelTimer } from "@picolet/hub-core/timer-wheel.ts";
import type { ListenableWatch } from "@picolet/protocol/async/watch.ts";
import { isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { POD_ACTION_RIGHT } from "@picolet/protocol/page/pod-actions.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { PodIdentity } from "@picolet/protocol/tunnel/compact-status.ts";
import { mirrorsDigest } from "@picolet/protocol/tunnel/digest.ts";
import type {
  EventItem,
  MirrorItem,
  NodeReportContent,
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
import type { DesiredNode } from "./desired-node.ts";
import { EventWriter } from "./event-writer.ts";
import { KubernetesReviews } from "./kubelet-reviews.ts";
import { MirrorPods } from "./mirror-pods.ts";
import { forEachConcurrently, logFailure, MAX_CONCURRENT_WRITES, type NodeConnection } from "./node-connection.ts";
import { NodeLease } from "./node-lease.ts";
import { NodeWriter } from "./node-writer.ts";
import { PodStatusWriter } from "./pod-status-writer.ts";
import { conditionsOf, type Fields, fieldsAt } from "./remote-object.ts";
import { requestServingCertificate } from "./serving-requests.ts";
import type { StoredNode, WholePod } from "./stored-objects.ts";

const SERVICE_ACCOUNTS: ResourceType = {
  group: "",
  version: "v1",
  plural: "serviceaccounts",
  kind: "ServiceAccount",
  namespaced: true,
};

const isReady = (status: unknown): boolean =>
  conditionsOf(status).some(({ type, status: value }) => type === "Ready" && value === "True");

/** The kubelet's `nodeStatusReportFrequency`. */
const HEARTBEAT = seconds(300);
/** A Lease that could not be renewed is tried again three times before it runs out. */
const RENEW_RETRY = seconds(3);
/**
 * A pod that is older gets its tolerations: an eviction cannot come sooner than in five minutes, and one that ends
 * before needs none. Each is an update of the pod's spec, which shows as a new `metadata.generation`. The embedded API
 * server needs none of them (`boardTolerations`), unless a Node or pod is no longer to be evicted when it is away.
 */
const TOLERATED_AFTER = seconds(60);

export interface NodeSessionInit {
  readonly hub: string;
  readonly endpoints: KubeletEndpoints;
  /** DNS names and addresses of the hub, which no board gets a certificate for. */
  readonly hubNames: readonly string[];
  readonly leaseDuration: Millis;
  readonly renewInterval: Millis;
}

/** One node that is connected here: everything that is done in its name, until it is away. */
export class BridgedNode implements NodeBackend {
  readonly desired: ListenableWatch<DesiredSet>;
  readonly #connection: NodeConnection;
  readonly #init: NodeSessionInit;
  readonly #wheel: TimerWheel;
  readonly #ended: (session: BridgedNode) => void;
  readonly #renewal: WheelTimer;
  readonly #statuses: PodStatusWriter;
  readonly #mirrors: MirrorPods;
  readonly #writer: NodeWriter;
  readonly #lease: NodeLease;
  readonly #life = new AbortController();
  #heartbeatAtMs: number;
  #isRenewing = false;

  constructor(
    components: {
      readonly connection: NodeConnection;
      readonly wheel: TimerWheel;
      readonly desired: DesiredNode;
      /** Called once, when the owner of the session has disposed of it. */
      readonly ended: (session: BridgedNode) => void;
    },
    init: NodeSessionInit,
  ) {
    const { connection, wheel, desired, ended } = components;
    this.desired = desired.watch;
    this.#connection = connection;
    this.#wheel = wheel;
    this.#ended = ended;
    this.#init = init;
    this.#statuses = new PodStatusWriter(connection);
    this.#mirrors = new MirrorPods(connection, this.#statuses);
    this.#writer = new NodeWriter(connection, init);
    this.#lease = new NodeLease(connection, init.leaseDuration / 1000);
    this.#renewal = { slot: undefined, onDue: () => this.#renew() };
    // The first heartbeat somewhere in the five minutes, so that a fleet that comes at once does not stay in step.
    this.#heartbeatAtMs = connection.clock.monotonic() - HEARTBEAT * connection.random.next();
  }

  get node(): string {
    return this.#connection.node;
  }

  /** To be called when the cache knows of the session. */
  start(): void {
    const { cache, node } = this.#connection;
    for (const [path, pod] of cache.podsOf(node)) this.podChanged(path, undefined, pod);
    const stored = cache.node(node);
    // Not with each change: two replicas that both think that they have the node would write in turn.
    if (stored !== undefined && this.#writer.isElsewhere(stored)) this.#heartbeat();
    else this.nodeChanged(stored);
    this.#renew();
  }

  stop(): void {
    this.#wheel.clear(this.#renewal);
    this.#life.abort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended(this);
  }

  object(key: ObjectKey): RemoteObject | undefined {
    return this.#connection.cache.object(this.#connection.node, key);
  }

  mirrorsDigest(): Uint8Array | undefined {
    const { cache, node } = this.#connection;
    if (!this.desired.current.synced) return undefined;
    const mirrors = [...cache.podsOf(node)].flatMap(([path, { mirrorOf, isDeleted }]) => {
      const [namespace = "", name = ""] = path.split("/");
      return mirrorOf === undefined || isDeleted ? [] : [{ namespace, name, uid: mirrorOf }];
    });
    return mirrorsDigest(sha256, mirrors);
  }

  nodeReport(): NodeReportContent | undefined {
    return this.#writer.report();
  }

  *pods(): Generator<PodIdentity> {
    const { cache, node } = this.#connection;
    for (const [path, { uid, mirrorOf }] of cache.podsOf(node)) {
      const [namespace = "", name = ""] = path.split("/");
      yield { namespace, name, uid: mirrorOf ?? uid };
    }
  }

  statusOf(namespace: string, name: string, uid: string): Fields | undefined {
    const { cache, node } = this.#connection;
    const pod = cache.pod(node, `${namespace}/${name}`);
    if (pod === undefined || (pod.uid !== uid && pod.mirrorOf !== uid)) return undefined;
    return JSON.parse(pod.status) as Fields;
  }

  putStatuses(statuses: readonly NodePodStatus[], signal: AbortSignal): Promise<void> {
    return this.#statuses.putAll(statuses, signal);
  }

  putEvents(events: readonly EventItem[], signal: AbortSignal): Promise<void> {
    return new EventWriter(this.#connection).putAll(events, signal);
  }

  async putNode(report: NodeReportContent, signal: AbortSignal): Promise<void> {
    await this.#writer.put(report, signal);
    this.#heartbeatAtMs = this.#connection.clock.monotonic();
    if (!this.#lease.isHeld) this.#renew();
  }

  putMirrors(mirrors: readonly MirrorItem[], signal: AbortSignal): Promise<void> {
    return this.#mirrors.put(mirrors, signal);
  }

  async requestToken(
    params: TokenParams,
    signal: AbortSignal,
  ): Promise<{ token: string; expirationTimestamp: string }> {
    const { cache, node, client } = this.#connection;
    const { namespace, serviceAccount, audiences, expirationSeconds, podName, podUid } = params;
    const pod = cache.pod(node, `${namespace}/${podName}`);
    const account = pod === undefined ? undefined : fieldsAt(pod.packed.object, "spec").serviceAccountName;
    // A mirror pod is the board's own claim: it has no account.
    if (pod?.uid !== podUid || pod.mirrorOf !== undefined || account !== serviceAccount) {
      throw new PicoletError(
        "permission_denied",
        `cannot get a token of ${namespace}/${serviceAccount} for pod ${podName}`,
      );
    }
    const request = {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenRequest",
      spec: {
        audiences,
        expirationSeconds,
        boundObjectRef: { apiVersion: "v1", kind: "Pod", name: podName, uid: podUid },
      },
    };
    const ref = { namespace, name: serviceAccount };
    const answer = await client.create(SERVICE_ACCOUNTS, ref, request, { subresource: "token" }, signal);
    const { token, expirationTimestamp } = fieldsAt(answer, "status");
    if (typeof token !== "string" || typeof expirationTimestamp !== "string") {
      throw new PicoletError("corrupt", `cannot get a token of ${namespace}/${serviceAccount}: the answer has none`);
    }
    return { token, expirationTimestamp };
  }

  async review(params: ReviewParams, signal: AbortSignal): Promise<TokenReply | AccessReply | ServingReply> {
    const { node, client } = this.#connection;
    if (params.review === "serving") {
      return await requestServingCertificate(this.#connection, params.request, this.#init.hubNames, signal);
    }
    const reviews = new KubernetesReviews({ client });
    if (params.review === "token") {
      const user = await reviews.userOfToken(params.token, signal);
      return { user: user === undefined ? null : { name: user.name, groups: user.groups } };
    }
    const { user: name, groups } = params;
    const question =
      params.review === "podDeletion"
        ? { ...POD_ACTION_RIGHT, namespace: params.namespace, name: "" }
        : { verb: params.verb, node, subresource: params.subresource };
    return { allowed: await reviews.allows({ name, groups }, question, signal) };
  }

  podChanged(path: string, before: WholePod | undefined, after: WholePod | undefined): void {
    const uid = (after ?? before)?.uid ?? "";
    this.#statuses.seen(uid, after?.resourceVersion);
    if (before !== undefined && before.uid !== uid) this.#statuses.seen(before.uid, undefined);
    if (after === undefined) {
      if (before?.mirrorOf !== undefined)
        this.#do("make a mirror pod again", path, (s) => this.#mirrors.deleted(path, before, s));
      return;
    }
    if (after.mirrorOf !== undefined && after.isDeleted) {
      this.#do("end a mirror pod", path, (s) => this.#mirrors.deleting(path, after, s));
    }
    if (after.isReadyLost)
      this.#do("restore a pod's Ready", path, (s) => this.#statuses.setReady(path, after.uid, true, s));
    if (
      before?.uid !== after.uid ||
      (after.lackingTolerations !== undefined && before.lackingTolerations === undefined)
    )
      this.#tolerate(path, after);
  }

  nodeChanged(stored: StoredNode | undefined): void {
    if (stored !== undefined && this.#writer.isDisputed(stored)) this.#heartbeat();
  }

  /**
   * Says that the node is away, unless another replica has it, and that its pods are not ready. The node lifecycle
   * controller says that of pods only when it has been the first to see the node go.
   */
  async markAway(since: Date, signal: AbortSignal): Promise<void> {
    if (await this.#lease.isRenewedElsewhere(signal)) return;
    await this.#writer.markAway(since, signal);
    const { cache, node } = this.#connection;
    const pods = [...cache.podsOf(node)];
    await forEachConcurrently(pods, MAX_CONCURRENT_WRITES, ([path, { uid }]) =>
      this.#writeTolerations(path, uid, signal),
    );
    const ready = [...cache.podsOf(node)].filter(([, { status }]) => isReady(JSON.parse(status)));
    await forEachConcurrently(ready, MAX_CONCURRENT_WRITES, ([path, { uid }]) =>
      this.#statuses.setReady(path, uid, false, signal),
    );
  }

  #tolerate(path: string, { uid, packed }: WholePod): void {
    if (this.#lackingTolerations(path, uid) === undefined) return;
    const { creationTimestamp } = fieldsAt(packed.object, "metadata");
    const age = this.#connection.clock.wall().getTime() - Date.parse(String(creationTimestamp));
    const delay = millis(Math.min(Math.max(0, TOLERATED_AFTER - age), TOLERATED_AFTER));
    this.#do("let a pod stay while its node is away", path, async (signal) => {
      if (delay > 0) await this.#wheel.sleep(delay, signal);
      await this.#writeTolerations(path, uid, signal);
    });
  }

  async #writeTolerations(path: string, uid: string, signal: AbortSignal): Promise<void> {
    const tolerations = this.#lackingTolerations(path, uid);
    if (tolerations === undefined) return;
    const [namespace = "", name = ""] = path.split("/");
    const patch = { metadata: { uid }, spec: { tolerations } };
    try {
      await this.#connection.hubClient.patch(PODS, { namespace, name }, "merge", patch, {}, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found") && !isPicoletError(error, "conflict")) throw error;
    }
  }

  /** The wanted tolerations of that very pod; `undefined`: no change. */
  #lackingTolerations(path: string, uid: string): WholePod["lackingTolerations"] {
    const { cache, node } = this.#connection;
    const pod = cache.pod(node, path);
    return pod?.uid === uid && cache.node(node)?.evictsWhenAway !== true ? pod.lackingTolerations : undefined;
  }

  #renew(): void {
    if (this.#isRenewing || this.#life.signal.aborted) return;
    this.#isRenewing = true;
    const { clock, random, node, log } = this.#connection;
    const next = (delay: Millis): void => {
      this.#isRenewing = false;
      if (!this.#life.signal.aborted) this.#wheel.set(this.#renewal, millis(delay * (0.96 + 0.08 * random.next())));
    };
    if (clock.monotonic() - this.#heartbeatAtMs >= HEARTBEAT) this.#heartbeat();
    this.#mirrors.retry(this.#life.signal).catch(logFailure(log, "cannot make mirror pods", { node }));
    this.#lease.renew(this.#life.signal).then(
      () => next(this.#init.renewInterval),
      (error: unknown) => {
        logFailure(log, "cannot renew a Lease", { node })(error);
        next(RENEW_RETRY);
      },
    );
  }

  #heartbeat(): void {
    this.#heartbeatAtMs = this.#connection.clock.monotonic();
    const { node, log } = this.#connection;
    this.#writer.heartbeat(this.#life.signal).catch((error: unknown) => {
      logFailure(log, "cannot write a node's heartbeat", { node })(error);
      // With the next renewal.
      if (!isCancelled(error)) this.#heartbeatAtMs = Number.NEGATIVE_INFINITY;
    });
  }

  /** Runs the reaction to a change in the cluster. A failure is mended by the next change or the next session. */
  #do(what: string, path: string, task: (signal: AbortSignal) => Promise<void>): void {
    const { node, log } = this.#connection;
    task(this.#life.signal).catch(logFailure(log, `cannot ${what}`, { node, pod: path }));
  }
}
