/**
 * The one enumeration of a pod's references. The Node authorizer grants by it, admission refuses mirror pods by it,
 * the bridge sends by it. A field that is missing here is missing everywhere. Pure.
 *
 * As pkg/api/v1/pod (`VisitPodSecretNames` and its siblings) and `HasAPIObjectReference` of Kubernetes 1.34.
 */
import { volumeModels } from "@picolet/protocol/pod/volumes/volume-models.ts";
import type { KubeMetadata } from "./kube-client/kube-client.ts";

export type ReferencedKind =
  | "ClusterTrustBundle"
  | "ConfigMap"
  | "CSIDriver"
  | "Endpoints"
  | "PersistentVolumeClaim"
  | "PodCertificateRequest"
  | "ResourceClaim"
  | "RuntimeClass"
  | "Secret"
  | "ServiceAccount"
  /** A volume of a kind that is not known here. */
  | "Unknown";

export interface PodReference {
  readonly kind: ReferencedKind;
  /**
   * In the pod's namespace, or of no namespace if the kind has none; "" where the pod names none and the API chooses.
   */
  readonly name: string;
}

/** As much of a pod as is read here. */
export interface ReferringPod {
  readonly metadata: Pick<KubeMetadata, "name" | "annotations">;
  readonly [field: string]: unknown;
}

type Fields = Readonly<Record<string, unknown>>;

/**
 * Where a source has a name: fields from the source on. Without a field the source names nothing itself, and is a
 * reference all the same.
 */
type Source = readonly (readonly [kind: ReferencedKind, ...path: readonly string[]])[];

const NOTHING: Source = [];
/** Every volume type of Kubernetes 1.34. */
const VOLUMES: Readonly<Record<string, Source>> = Object.fromEntries(
  volumeModels.map(([kind, { references }]) => [kind, references ?? NOTHING]),
);

/** Every kind of source of a projected volume. */
const PROJECTIONS: Readonly<Record<string, Source>> = {
  clusterTrustBundle: [["ClusterTrustBundle", "name"]],
  configMap: [["ConfigMap", "name"]],
  downwardAPI: NOTHING,
  podCertificate: [["PodCertificateRequest"]],
  secret: [["Secret", "name"]],
  // The account is the pod's own.
  serviceAccountToken: [["ServiceAccount"]],
};

const ENVIRONMENT_SOURCES: Source = [
  ["Secret", "secretRef", "name"],
  ["ConfigMap", "configMapRef", "name"],
];
const VARIABLE_SOURCES: Source = [
  ["Secret", "valueFrom", "secretKeyRef", "name"],
  ["ConfigMap", "valueFrom", "configMapKeyRef", "name"],
];

const CONTAINER_LISTS = ["initContainers", "containers", "ephemeralContainers"] as const;

export const MIRROR_ANNOTATION = "kubernetes.io/config.mirror";

/** True when a pod of the API shows a static pod. The node wrote it, so it grants nothing. */
export const isMirrorPod = ({ metadata }: ReferringPod): boolean =>
  metadata.annotations?.[MIRROR_ANNOTATION] !== undefined;

/** The references that grant the pod's node something: none for a mirror pod, which the node itself has made. */
export const grantedReferences = (pod: ReferringPod): readonly PodReference[] =>
  isMirrorPod(pod) ? [] : podReferences(pod).filter(({ name }) => name !== "");

/** Everything the pod names, mirror pod or not; names may repeat. */
export function podReferences(pod: ReferringPod): readonly PodReference[] {
  const { spec, status } = pod;
  const found: PodReference[] = [];
  const runtimeClass = textAt(spec, ["runtimeClassName"]);
  if (runtimeClass !== "") found.push({ kind: "RuntimeClass", name: runtimeClass });
  const account = textAt(spec, ["serviceAccountName"]) || textAt(spec, ["serviceAccount"]);
  if (account !== "") found.push({ kind: "ServiceAccount", name: account });
  for (const secret of listAt(spec, "imagePullSecrets")) found.push({ kind: "Secret", name: textAt(secret, ["name"]) });
  for (const list of CONTAINER_LISTS) {
    for (const container of listAt(spec, list)) {
      for (const source of listAt(container, "envFrom")) found.push(...read(source, ENVIRONMENT_SOURCES));
      for (const variable of listAt(container, "env")) found.push(...read(variable, VARIABLE_SOURCES));
    }
  }
  for (const volume of listAt(spec, "volumes")) found.push(...volumeReferences(volume, pod.metadata.name));
  const statuses = listAt(status, "resourceClaimStatuses");
  for (const claim of listAt(spec, "resourceClaims")) {
    const made = statuses.find((each) => textAt(each, ["name"]) === textAt(claim, ["name"]));
    const name = textAt(claim, ["resourceClaimName"]) || textAt(made, ["resourceClaimName"]);
    found.push({ kind: "ResourceClaim", name });
  }
  return found;
}

function volumeReferences(volume: unknown, pod: string): readonly PodReference[] {
  if (!isFields(volume)) return [];
  return Object.entries(volume).flatMap(([kind, source]): readonly PodReference[] => {
    if (kind === "name" || !isFields(source)) return [];
    if (kind === "ephemeral") return [{ kind: "PersistentVolumeClaim", name: `${pod}-${textAt(volume, ["name"])}` }];
    if (kind !== "projected") return readKind(VOLUMES, kind, source);
    return listAt(source, "sources").flatMap((each) =>
      isFields(each)
        ? Object.entries(each).flatMap(([field, projected]) => readKind(PROJECTIONS, field, projected))
        : [],
    );
  });
}

function readKind(table: Readonly<Record<string, Source>>, kind: string, source: unknown): readonly PodReference[] {
  if (!isFields(source)) return [];
  return Object.hasOwn(table, kind) ? read(source, table[kind] ?? []) : [{ kind: "Unknown", name: "" }];
}

/** A path whose parent is missing names nothing; one whose last field is missing is a reference without a name. */
const read = (object: unknown, source: Source): readonly PodReference[] =>
  source.flatMap(([kind, ...path]): readonly PodReference[] =>
    isFields(at(object, path.slice(0, -1))) ? [{ kind, name: textAt(object, path) }] : [],
  );

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const at = (object: unknown, path: readonly string[]): unknown =>
  path.reduce<unknown>((value, key) => (isFields(value) && Object.hasOwn(value, key) ? value[key] : undefined), object);

function textAt(object: unknown, path: readonly string[]): string {
  const value = path.length === 0 ? undefined : at(object, path);
  return typeof value === "string" ? value : "";
}

function listAt(object: unknown, field: string): readonly unknown[] {
  const value = at(object, [field]);
  return Array.isArray(value) ? value : [];
}
