import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { type FieldProblem, FieldProblems, formatProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import type { SourceProblem } from "@picolet/protocol/local-api/status.ts";
import type { Pod, PodCondition, PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { ParsePodResult } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { type Clock, type Log, podUid } from "@picolet/protocol/ports.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { type Cursor, type ObjectHash, type ObjectKey, objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { RemoteObjects } from "../core/hub/tunnel-ports.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import type {
  ApiPods,
  DesiredStore,
  EventRecorder,
  ObjectStore,
  PodStatusRecord,
  RemoteChange,
  StatusOutbox,
} from "../core/store/store-ports.ts";
import { type ArrivedPod, apiPods, podKeyOf } from "./api-pods.ts";
import { UID } from "./manifests/static-pod.ts";

/** Marks an object that only shows a static pod of this node. */
const MIRROR_ANNOTATION = "kubernetes.io/config.mirror";
const POD_PREFIX = "Pod/";
/** The kubelet's reason for a pod that it cannot take. */
const FAILED_VALIDATION = "FailedValidation";

type RemoteContent = Readonly<Record<string, unknown>>;

export interface ApiSourceComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly objects: ObjectStore;
  readonly store: DesiredStore;
  readonly statuses: StatusOutbox;
  readonly events: EventRecorder;
  readonly parser: PodParser;
}

export interface ApiSourceInit {
  readonly nodeName: string;
}

/** Parses objects of pods. Loaded with the source, and unloaded while no objects come. */
export interface PodParser {
  readonly parse: ((object: RemoteContent) => ParsePodResult) | undefined;
  load(): Promise<void>;
}

/** An object that cannot be run; what the pod was before runs on. */
interface InvalidPod {
  readonly uid: string;
  readonly message: string;
}

/** What is known of the Pod objects once a change is made. */
interface Next {
  /** The UID of each but mirror pods. */
  readonly uids: Map<ObjectKey, string>;
  readonly invalid: Map<ObjectKey, InvalidPod>;
  readonly arrived: Map<ObjectKey, ArrivedPod>;
}

/**
 * The pods that the API server wants on this node. Its objects are kept as they came; what is to run follows from them,
 * and both change together. What they said last runs on over restarts, until the hub says that it is so no more.
 */
export class ApiSource implements RemoteObjects {
  readonly #components: ApiSourceComponents;
  readonly #nodeKey: ObjectKey;
  #uids: ReadonlyMap<ObjectKey, string> = new Map();
  #invalid: ReadonlyMap<ObjectKey, InvalidPod> = new Map();
  /** Objects that had no pod when the agent started; they get one with the next message of the hub. */
  readonly #unreported = new Map<ObjectKey, ArrivedPod>();
  readonly #problems = new WatchSource<readonly SourceProblem[]>([]);
  readonly #changes = new WatchSource(0);
  readonly #node: WatchSource<RemoteContent | undefined>;

  constructor(components: ApiSourceComponents, init: ApiSourceInit) {
    this.#components = components;
    this.#nodeKey = objectKey("Node", "", init.nodeName);
    this.#node = new WatchSource(components.objects.object(this.#nodeKey));
    this.#checkAll();
  }

  get cursor(): Cursor {
    return this.#components.objects.cursor;
  }

  /** Objects that cannot be run, now. */
  get problems(): Watch<readonly SourceProblem[]> {
    return this.#problems;
  }

  /** This node's Node object as the API server has it: labels, taints, podCIDR; `undefined` while it was never sent. */
  get node(): Watch<RemoteContent | undefined> {
    return this.#node;
  }

  get changes(): Watch<number> {
    return this.#changes;
  }

  inventory(): Iterable<{ readonly key: ObjectKey; readonly hash: ObjectHash }> {
    return this.#components.objects.inventory();
  }

  digestAfter(change: Omit<RemoteChange, "cursor">): Uint8Array {
    return this.#components.objects.digestAfter(change);
  }

  object(key: ObjectKey): RemoteContent | undefined {
    return this.#components.objects.object(key);
  }

  keys(kind: string, namespace: string): readonly ObjectKey[] {
    const prefix = objectKey(kind, namespace, "");
    return [...this.inventory()].map(({ key }) => key).filter((key) => key.startsWith(prefix));
  }

  apply(change: RemoteChange): void {
    const { objects, log } = this.#components;
    if (!equalBytes(change.cursor.digest, this.digestAfter(change))) {
      throw new PicoletError(
        "conflict",
        "cannot change the API server's objects: what is here is not what was changed",
      );
    }
    const next = this.#present();
    for (const key of change.deletes) {
      for (const map of [next.uids, next.invalid, next.arrived]) map.delete(key);
    }
    for (const { key, object } of change.upserts) this.#check(key, object, next);
    this.#withdrawEnds(next.arrived);
    objects.apply(change, this.#podsAfter(next));
    this.#unreported.clear();
    this.#uids = next.uids;
    this.#reportInvalid(next);
    if (change.upserts.length + change.deletes.length === 0) return;
    log.info("the API server's objects have changed", { revision: change.cursor.revision });
    const isNode = (key: ObjectKey): boolean => key === this.#nodeKey;
    if (change.deletes.some(isNode) || change.upserts.some(({ key }) => isNode(key))) {
      this.#node.set(objects.object(this.#nodeKey));
    }
    this.#changes.set(this.#changes.current + 1);
  }

  ready({ upserts }: RemoteChange): Promise<void> | undefined {
    const { parser } = this.#components;
    const isParsed = parser.parse !== undefined || !upserts.some(({ key }) => key.startsWith(POD_PREFIX));
    return isParsed ? undefined : parser.load();
  }

  confirm(cursor: Cursor): void {
    const { epoch, revision } = this.cursor;
    const isKnown = revision === cursor.revision && equalBytes(epoch, cursor.epoch);
    if (isKnown && this.#components.store.desired.current.synced.has("api")) return;
    try {
      this.apply({ cursor, upserts: [], deletes: [] });
    } catch (error) {
      // The desired pods stay as they are; the next change from the hub tries again.
      this.#components.log.warn("cannot take the hub's word for what is here", { error: describeError(error) });
    }
  }

  /**
   * At the start: which Pod objects there are, and those that have no pod, which a newer picolet may be able to run.
   */
  #checkAll(): void {
    const next: Next = { uids: new Map(), invalid: new Map(), arrived: new Map() };
    const known = new Set(this.#rows().map((desired) => `${podKeyOf(desired)} ${apiUidOf(desired)}`));
    for (const { key } of this.inventory()) {
      if (!key.startsWith(POD_PREFIX)) continue;
      const object = this.object(key) ?? {};
      const uid = uidOf(object);
      if (known.has(`${key} ${uid}`) && !isMirror(object)) next.uids.set(key, uid);
      else this.#check(key, object, next);
    }
    this.#uids = next.uids;
    for (const [key, arrived] of next.arrived) this.#unreported.set(key, arrived);
    this.#reportInvalid(next);
  }

  /** What is known of the objects that are really there: a damaged file may have taken them away. */
  #present(): Next {
    const keys = new Set([...this.inventory()].map(({ key }) => key));
    const held = <T>(map: ReadonlyMap<ObjectKey, T>): Map<ObjectKey, T> =>
      new Map([...map].filter(([key]) => keys.has(key)));
    return { uids: held(this.#uids), invalid: held(this.#invalid), arrived: held(this.#unreported) };
  }

  #check(key: ObjectKey, object: RemoteContent, { uids, invalid, arrived }: Next): void {
    if (!key.startsWith(POD_PREFIX)) return;
    for (const map of [uids, invalid, arrived]) map.delete(key);
    if (isMirror(object)) return;
    const uid = uidOf(object);
    const { parse } = this.#components.parser;
    if (parse === undefined) throw new PicoletError("internal", "pods of the API server came before they can be read");
    const parsed = parse(object);
    const problems = parsed.ok ? identityProblems(key, uid, parsed.pod) : parsed.problems;
    uids.set(key, uid);
    if (problems.length > 0) invalid.set(key, { uid, message: formatProblems(problems) });
    const pod = parsed.ok && problems.length === 0 ? parsed.pod : undefined;
    arrived.set(key, { uid, pod, deletion: deletionOf(object), conditions: conditionsOf(object) });
  }

  /** A pod of which nothing was left and that is not to be deleted after all must not be reported as gone. */
  #withdrawEnds(arrived: ReadonlyMap<ObjectKey, ArrivedPod>): void {
    const { statuses } = this.#components;
    const returned = new Set([...arrived.values()].filter((each) => !each.deletion).map(({ uid }) => uid));
    for (const [uid, apiUid] of statuses.gone) if (returned.has(apiUid)) statuses.delete(uid);
  }

  #podsAfter({ uids, arrived }: Next): ApiPods {
    const { store, statuses } = this.#components;
    const { pods, removed, requested } = store.desired.current;
    const wanted = [...pods.values()].filter(isOwn).map((desired) => requested.get(desired.uid) ?? desired);
    const { gone } = statuses;
    const goneUids = new Set(gone.values());
    return apiPods({
      before: { wanted, removed: [...removed.values()].filter(isOwn) },
      objects: uids,
      arrived,
      isFinished: (uid) => ["Succeeded", "Failed"].includes(statuses.get(uid)?.status.phase ?? ""),
      isTaken: (uid) => pods.has(uid) || removed.has(uid) || gone.has(uid),
      isGone: (apiUid) => goneUids.has(apiUid),
    });
  }

  #rows(): DesiredPod[] {
    const { pods, removed } = this.#components.store.desired.current;
    return [...pods.values(), ...removed.values()].filter(isOwn);
  }

  /**
   * Reports pods that cannot be run: a status, an event, a problem. Of pods that can be run again it drops them.
   */
  #reportInvalid({ invalid, arrived }: Next): void {
    const { statuses } = this.#components;
    const running = new Set(this.#rows().map(apiUidOf));
    for (const [key, { uid }] of this.#invalid) {
      if (invalid.get(key)?.uid !== uid && !running.has(uid)) this.#forget(uid);
    }
    for (const [key, pod] of invalid) {
      if (this.#invalid.get(key)?.message !== pod.message) this.#recordInvalid(key, pod);
      if (running.has(pod.uid) || pod.uid === "") continue;
      const record = this.#statusOf(key, pod);
      if (arrived.get(key)?.deletion === undefined) statuses.put(record);
      else statuses.finish(record);
    }
    const isSame = this.#invalid.size === 0 && invalid.size === 0;
    this.#invalid = invalid;
    if (!isSame) this.#problems.set([...invalid].map(([key, { message }]) => problemOf(key, message)));
  }

  #forget(uid: string): void {
    const { statuses } = this.#components;
    if (!statuses.gone.has(podUid(uid))) statuses.delete(podUid(uid));
  }

  #recordInvalid(key: ObjectKey, { uid, message }: InvalidPod): void {
    const { namespace, name } = namesIn(key);
    const regarding = { kind: "Pod", namespace, name, uid, fieldPath: "" } as const;
    this.#components.log.warn("a pod of the API server cannot be run", { pod: key, problems: message });
    this.#components.events.record({ regarding, type: "Warning", reason: FAILED_VALIDATION, message });
  }

  /** Pending, not Failed: a newer picolet may run it, and there is no way back from Failed. */
  #statusOf(key: ObjectKey, { uid, message }: InvalidPod): PodStatusRecord {
    const known = this.#components.statuses.get(podUid(uid));
    const isKnown = known?.status.reason === FAILED_VALIDATION && known.status.message === message;
    const lastTransitionTime = kubeTime(this.#components.clock.wall().getTime());
    const conditions = [{ type: "Ready", status: "False", reason: FAILED_VALIDATION, lastTransitionTime }] as const;
    const status: PodStatus = { phase: "Pending", reason: FAILED_VALIDATION, message, conditions };
    return isKnown ? known : { uid: podUid(uid), apiUid: uid, ...namesIn(key), status };
  }
}

const isOwn = ({ source }: DesiredPod): boolean => source === "api";

const metadataOf = (object: RemoteContent): RemoteContent => {
  const { metadata } = object;
  return typeof metadata === "object" && metadata !== null ? (metadata as RemoteContent) : {};
};

const uidOf = (object: RemoteContent): string => {
  const { uid } = metadataOf(object);
  return typeof uid === "string" ? uid : "";
};

function isMirror(object: RemoteContent): boolean {
  const { annotations } = metadataOf(object);
  return typeof annotations === "object" && annotations !== null && MIRROR_ANNOTATION in annotations;
}

function deletionOf(object: RemoteContent): ArrivedPod["deletion"] {
  const { deletionTimestamp: timestamp, deletionGracePeriodSeconds: grace } = metadataOf(object);
  if (typeof timestamp !== "string") return undefined;
  return { timestamp, graceSeconds: typeof grace === "number" && grace >= 0 ? grace : undefined };
}

/** The hub sends those of others alone. */
function conditionsOf({ status }: RemoteContent): readonly PodCondition[] | undefined {
  const found = typeof status === "object" && status !== null ? (status as RemoteContent).conditions : undefined;
  return Array.isArray(found) && found.length > 0 ? found.filter(isCondition) : undefined;
}

const isCondition = (value: unknown): value is PodCondition =>
  typeof value === "object" &&
  value !== null &&
  ["type", "status"].every((field) => typeof (value as RemoteContent)[field] === "string");

function namesIn(key: ObjectKey): { readonly namespace: string; readonly name: string } {
  const [, namespace = "", name = ""] = key.split("/");
  return { namespace, name };
}

function identityProblems(key: ObjectKey, uid: string, { metadata }: Pod): readonly FieldProblem[] {
  const problems = new FieldProblems();
  if (!UID.test(uid)) problems.invalid("metadata.uid", uid, "must consist of letters, digits, '-', '_' and '.'");
  const own = objectKey("Pod", metadata.namespace, metadata.name);
  if (own !== key) problems.invalid("metadata.name", own, `must be that of ${key}`);
  return problems.found;
}

const problemOf = (key: ObjectKey, message: string): SourceProblem => ({
  source: "api",
  origin: key,
  line: null,
  message,
});
