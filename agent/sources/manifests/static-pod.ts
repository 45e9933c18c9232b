import { hash } from "node:crypto";
import type { Pod, Toleration } from "@picolet/protocol/pod/pod.ts";
import { type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, SourceId } from "@picolet/runtime-contract/runtime-adapter.ts";

/** As the kubelet names them: pkg/kubelet/types/pod_update.go. */
const CONFIG_SOURCE = "kubernetes.io/config.source";
const CONFIG_HASH = "kubernetes.io/config.hash";
const CONFIG_SEEN = "kubernetes.io/config.seen";

/** Bounds memory: ten times the pods of a node (the kubelet's maxPods is 110) take 10 MB. Counts all files together. */
export const MAX_PODS = 1000;

/** Node problems do not end a static pod. */
const TOLERATION: Toleration = { operator: "Exists", effect: "NoExecute" };
/** The limit of a pod's name (RFC 1123 subdomain). */
const MAX_NAME_LENGTH = 253;
/** Uids that this node accepts, because they become part of paths and of cgroup names. */
export const UID = /^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?$/;
/** Hexadecimal digits, as many as the kubelet's MD5 has. */
const HASH_LENGTH = 32;

export interface StaticPodInit {
  readonly nodeName: string;
  readonly source: Exclude<SourceId, "api">;
  /** Absolute path of the manifest, a URL; for messages. */
  readonly origin: string;
  /** When the pod of this uid was first seen, if it was before; RFC 3339. */
  readonly seenBefore: (uid: PodUid) => string | undefined;
  readonly now: Date;
}

export type StaticPod =
  | { readonly ok: true; readonly desired: DesiredPod }
  | { readonly ok: false; readonly path: string; readonly message: string };

/**
 * Makes a static pod of a manifest as the kubelet does (pkg/kubelet/config/common.go): name `<name>-<node>`, a uid that
 * is a hash of the document, annotations, the node's name, one toleration. Another order of keys, comments, and another
 * file name keep the uid; so does a new default of ours, because the hash is taken before defaults.
 */
export function staticPod(written: unknown, pod: Pod, init: StaticPodInit): StaticPod {
  const name = `${pod.metadata.name}-${init.nodeName.toLowerCase()}`;
  if (name.length > MAX_NAME_LENGTH) {
    const message = `Too long: with the node's name may not be more than ${MAX_NAME_LENGTH} bytes`;
    return { ok: false, path: "metadata.name", message };
  }
  const given = pod.metadata.uid ?? "";
  if (given !== "" && !UID.test(given)) {
    const message =
      "Invalid value: must consist of letters, digits, '-', '_' and '.'; or leave it out to have one made";
    return { ok: false, path: "metadata.uid", message };
  }
  const uid = podUid(given === "" ? hashOf(written, pod, init) : given);
  const seen = init.seenBefore(uid) ?? init.now.toISOString();
  const annotations = {
    ...pod.metadata.annotations,
    [CONFIG_HASH]: uid,
    [CONFIG_SEEN]: seen,
    [CONFIG_SOURCE]: init.source,
  };
  const made: Pod = {
    ...pod,
    metadata: { ...pod.metadata, name, uid, annotations },
    spec: { ...pod.spec, nodeName: init.nodeName, tolerations: withToleration(pod.spec.tolerations ?? []) },
  };
  return { ok: true, desired: { uid, source: init.source, origin: init.origin, pod: made } };
}

export const configSeen = ({ pod }: DesiredPod): string | undefined => pod.metadata.annotations?.[CONFIG_SEEN];

function withToleration(tolerations: readonly Toleration[]): readonly Toleration[] {
  const isThere = tolerations.some(
    ({ key, operator, effect }) => !key && operator === TOLERATION.operator && effect === TOLERATION.effect,
  );
  return isThere ? tolerations : [...tolerations, TOLERATION];
}

function hashOf(written: unknown, pod: Pod, { source, nodeName }: StaticPodInit): string {
  const { namespace, name } = pod.metadata;
  const whole = JSON.stringify([source, nodeName, namespace, name, canonical(lasting(written), "status")]);
  return hash("sha256", whole, "hex").slice(0, HASH_LENGTH);
}

/** What is added to a pod that runs makes no other pod. */
function lasting(written: unknown): unknown {
  if (typeof written !== "object" || written === null || !("spec" in written)) return written;
  const { spec } = written;
  if (typeof spec !== "object" || spec === null || !("ephemeralContainers" in spec)) return written;
  const { ephemeralContainers: _, ...rest } = spec;
  return { ...written, spec: rest };
}

/**
 * Mappings as sorted lists of pairs. null and no value are one, as Kubernetes has it; `left` is left out at the top.
 */
function canonical(value: unknown, left?: string): unknown {
  if (Array.isArray(value)) return value.map((each) => canonical(each));
  if (typeof value !== "object" || value === null) return typeof value === "bigint" ? Number(value) : value;
  return Object.entries(value)
    .filter(([key, each]) => each !== null && each !== undefined && key !== left)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, each]) => ({ [key]: canonical(each) }));
}
