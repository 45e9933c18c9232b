import { type KubeObject, NODES, type ObjectRef, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { MIRROR_ANNOTATION } from "@picolet/hub-core/pod-references.ts";
import { describeError, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { EventItem, MirrorItem } from "@picolet/protocol/tunnel/messages.ts";
import { EventWriter } from "./event-writer.ts";
import { forEachConcurrently, MAX_CONCURRENT_WRITES, type NodeConnection } from "./node-connection.ts";
import type { PodStatusWriter } from "./pod-status-writer.ts";
import { defined, type Fields, fieldsAt, isFields } from "./remote-object.ts";
import type { WholePod } from "./stored-objects.ts";
import { CONFIG_HASH_ANNOTATION, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION } from "./well-known.ts";

/** Interval between attempts at a refused pod: as often as the kubelet comes by a static pod. */
const RETRY_AFTER = seconds(60);
const REFUSALS = ["permission_denied", "invalid", "not_found"] as const;

/** Remaining work for one mirror pod. */
interface Unfinished {
  readonly dueMs: number;
  readonly task: (signal: AbortSignal) => Promise<void>;
}

/** The mirror pods of one node: one for each pod that did not come from the API server, and none else. */
export class MirrorPods {
  readonly #connection: NodeConnection;
  readonly #statuses: PodStatusWriter;
  /** By path. Undefined until the agent has reported: then the API server's mirror pods are the wanted ones. */
  #wanted: ReadonlyMap<string, MirrorItem> | undefined;
  /** By path, at most one each: what the API server did not take, for what it names may come yet, and what failed. */
  #unfinished: Map<string, Unfinished> | undefined;
  /** By path: why the API server refused a mirror pod when that was last reported. At most one for each wanted pod. */
  #refusals: Map<string, string> | undefined;

  constructor(connection: NodeConnection, statuses: PodStatusWriter) {
    this.#connection = connection;
    this.#statuses = statuses;
  }

  /** Makes them what `items` says. @throws when the API server cannot be reached; what it refuses is left out */
  async put(items: readonly MirrorItem[], signal: AbortSignal): Promise<void> {
    const wanted = new Map(items.map((item) => [`${item.namespace}/${item.name}`, item]));
    this.#wanted = wanted;
    this.#unfinished = undefined;
    for (const path of this.#refusals?.keys() ?? []) if (!wanted.has(path)) this.#refusals?.delete(path);
    const { cache, node } = this.#connection;
    const surplus = [...cache.podsOf(node)].filter(
      ([path, { mirrorOf }]) => mirrorOf !== undefined && wanted.get(path)?.uid !== mirrorOf,
    );
    await forEachConcurrently(surplus, MAX_CONCURRENT_WRITES, ([path, pod]) =>
      this.#statuses.remove(refOf(path), pod.uid, signal),
    );
    await forEachConcurrently(wanted.values(), MAX_CONCURRENT_WRITES, (item) => this.#ensure(item, signal));
  }

  /** Does, now and then, what is still to be done. @throws the first failure, when all has been tried */
  async retry(signal: AbortSignal): Promise<void> {
    const unfinished = this.#unfinished;
    if (unfinished === undefined || unfinished.size === 0) return;
    const now = this.#connection.clock.monotonic();
    const due = [...unfinished].filter(([, { dueMs }]) => dueMs <= now);
    await forEachConcurrently(due, MAX_CONCURRENT_WRITES, async ([path, each]) => {
      // Overtaken by what has been wanted since.
      if (this.#unfinished?.get(path) !== each) return;
      this.#unfinished.delete(path);
      await this.#orLater(path, each.task, signal);
    });
  }

  /** A client has deleted a mirror pod. While the static pod lives, it is created again with its last status. */
  async deleted(path: string, before: WholePod, signal: AbortSignal): Promise<void> {
    const item = this.#wanted === undefined ? itemOf(path, before) : this.#wanted.get(path);
    if (item === undefined || item.uid !== before.mirrorOf) return;
    this.#statuses.expect(item, JSON.parse(before.status) as Fields);
    await this.#orLater(path, (within) => this.#ensure(item, within), signal);
  }

  /** A deletion with a grace period waits for the node, and a mirror pod has nothing to wait for. */
  async deleting(path: string, pod: WholePod, signal: AbortSignal): Promise<void> {
    await this.#orLater(path, (within) => this.#statuses.remove(refOf(path), pod.uid, within), signal);
  }

  /** Retries work that a change in the cluster caused; no other part would. */
  async #orLater(path: string, task: Unfinished["task"], signal: AbortSignal): Promise<void> {
    try {
      await task(signal);
    } catch (error) {
      if (!isCancelled(error)) this.#later(path, { dueMs: this.#connection.clock.monotonic(), task });
      throw error;
    }
  }

  #later(path: string, unfinished: Unfinished): void {
    this.#unfinished ??= new Map();
    this.#unfinished.set(path, unfinished);
  }

  async #ensure(item: MirrorItem, signal: AbortSignal): Promise<void> {
    const { cache, node, log } = this.#connection;
    const path = `${item.namespace}/${item.name}`;
    const there = cache.pod(node, path);
    if (there?.mirrorOf === item.uid && !there.isDeleted) {
      await this.#statuses.place(item.uid, undefined, signal);
      return;
    }
    if (there !== undefined && there.mirrorOf === undefined) {
      log.warn("a pod of the API server has the name of a static pod", { pod: path });
      return;
    }
    await this.#create(item, signal);
  }

  async #create(item: MirrorItem, signal: AbortSignal): Promise<void> {
    const { client } = this.#connection;
    if (isFields(item.pod.status)) this.#statuses.expect(item, item.pod.status);
    const ref = { namespace: item.namespace, name: item.name };
    let made: KubeObject | undefined;
    try {
      made = await client.create(PODS, ref, await this.#mirror(item, signal), {}, signal);
    } catch (error) {
      if (REFUSALS.some((code) => isPicoletError(error, code))) {
        await this.#refused(item, error, signal);
        return;
      }
      // By a watch that lags behind it seemed to be missing, or the answer to an earlier request was lost.
      if (!isPicoletError(error, "already_exists")) throw error;
    }
    this.#refusals?.delete(`${item.namespace}/${item.name}`);
    await this.#statuses.place(item.uid, made, signal);
  }

  /** The static pod runs all the same. An event and a line in the log say why it has no mirror, once for each cause. */
  async #refused(item: MirrorItem, error: unknown, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#connection;
    const path = `${item.namespace}/${item.name}`;
    const task = (within: AbortSignal): Promise<void> => this.#ensure(item, within);
    this.#later(path, { dueMs: clock.monotonic() + RETRY_AFTER, task });
    const cause = describeError(error);
    if (this.#refusals?.get(path) === cause) return;
    this.#refusals ??= new Map();
    this.#refusals.set(path, cause);
    log.warn("the API server does not take a mirror pod", { pod: path, error: cause });
    try {
      await new EventWriter(this.#connection).putAll([refusalEvent(item, cause, clock.wall().getTime())], signal);
    } catch (failure) {
      if (isCancelled(failure)) throw failure;
      log.debug("cannot write an event of a mirror pod", { pod: path, error: describeError(failure) });
    }
  }

  async #mirror(item: MirrorItem, signal: AbortSignal): Promise<Fields> {
    const { cache, node, clock } = this.#connection;
    const uid = cache.node(node)?.uid ?? (await this.#nodeUid(signal));
    return mirrorPod(item, { node, uid, seenAt: clock.wall() });
  }

  async #nodeUid(signal: AbortSignal): Promise<string> {
    const { client, node } = this.#connection;
    const object = await client.get(NODES, { namespace: "", name: node }, signal);
    if (object.metadata.uid === undefined) throw new PicoletError("corrupt", `cannot find the UID of node ${node}`);
    return object.metadata.uid;
  }
}

interface Owner {
  readonly node: string;
  readonly uid: string;
  readonly seenAt: Date;
}

/**
 * As the kubelet makes them, within what NodeRestriction lets a node make: no service account, its Node as owner.
 * Priority is admission's to fill in.
 */
export function mirrorPod(item: MirrorItem, { node, uid, seenAt }: Owner): Fields {
  const { labels, annotations } = fieldsAt(item.pod, "metadata");
  const {
    serviceAccountName: _name,
    serviceAccount: _account,
    priority: _priority,
    ...spec
  } = fieldsAt(item.pod, "spec");
  const tolerations = Array.isArray(spec.tolerations) ? spec.tolerations : [];
  const always = { operator: "Exists", effect: "NoExecute" };
  const hasAlways = tolerations.some(
    (each: unknown) => isFields(each) && each.operator === "Exists" && (each.key ?? "") === "",
  );
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: defined({
      namespace: item.namespace,
      name: item.name,
      labels,
      annotations: {
        [CONFIG_SEEN_ANNOTATION]: kubeTime(seenAt),
        ...(isFields(annotations) ? annotations : {}),
        [CONFIG_SOURCE_ANNOTATION]: item.source,
        [CONFIG_HASH_ANNOTATION]: item.uid,
        [MIRROR_ANNOTATION]: item.uid,
      },
      ownerReferences: [{ apiVersion: "v1", kind: "Node", name: node, uid, controller: true }],
    }),
    spec: { ...spec, nodeName: node, tolerations: hasAlways ? tolerations : [...tolerations, always] },
  };
}

function refusalEvent({ namespace, name, uid }: MirrorItem, cause: string, nowMs: number): EventItem {
  return {
    id: `mirror pod refused\n${namespace}/${name}\n${uid}\n${cause}`,
    regarding: { kind: "Pod", namespace, name, uid, fieldPath: "" },
    type: "Warning",
    reason: "FailedMirrorPod",
    message: `The static pod runs, but has no mirror pod: ${cause}`,
    ...{ count: 1, firstAtMs: nowMs, lastAtMs: nowMs },
  };
}

function refOf(path: string): ObjectRef {
  const [namespace = "", name = ""] = path.split("/");
  return { namespace, name };
}

/** The item that a mirror pod shows of its static pod. */
function itemOf(path: string, mirror: WholePod): MirrorItem {
  const pod = mirror.packed.object as unknown as KubeObject;
  return {
    ...refOf(path),
    uid: mirror.mirrorOf ?? "",
    source: pod.metadata.annotations?.[CONFIG_SOURCE_ANNOTATION] ?? "file",
    pod,
  };
}
