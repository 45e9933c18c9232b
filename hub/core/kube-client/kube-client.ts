/**
 * The Kubernetes API as everything in the hub uses it: the bridge over HTTPS, the embedded server's controllers alike.
 */

export interface KubeObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: KubeMetadata;
  readonly [field: string]: unknown;
}

export interface KubeMetadata {
  readonly name: string;
  readonly generateName?: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly generation?: number;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly deletionGracePeriodSeconds?: number;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly finalizers?: readonly string[];
  readonly ownerReferences?: readonly {
    readonly apiVersion: string;
    readonly kind: string;
    readonly name: string;
    readonly uid: string;
    readonly controller?: boolean;
    readonly blockOwnerDeletion?: boolean;
  }[];
}

export interface ResourceType {
  /** "" for core. */
  readonly group: string;
  readonly version: string;
  /** `pods`, as in the path. */
  readonly plural: string;
  readonly kind: string;
  readonly namespaced: boolean;
}

export const PODS: ResourceType = { group: "", version: "v1", plural: "pods", kind: "Pod", namespaced: true };
export const NODES: ResourceType = { group: "", version: "v1", plural: "nodes", kind: "Node", namespaced: false };
export const SECRETS: ResourceType = { group: "", version: "v1", plural: "secrets", kind: "Secret", namespaced: true };
export const CONFIG_MAPS: ResourceType = {
  group: "",
  version: "v1",
  plural: "configmaps",
  kind: "ConfigMap",
  namespaced: true,
};

export const PERSISTENT_VOLUME_CLAIMS: ResourceType = {
  group: "",
  version: "v1",
  plural: "persistentvolumeclaims",
  kind: "PersistentVolumeClaim",
  namespaced: true,
};
export const PERSISTENT_VOLUMES: ResourceType = {
  group: "",
  version: "v1",
  plural: "persistentvolumes",
  kind: "PersistentVolume",
  namespaced: false,
};
export const RESOURCE_CLAIMS: ResourceType = {
  group: "resource.k8s.io",
  version: "v1",
  plural: "resourceclaims",
  kind: "ResourceClaim",
  namespaced: true,
};
export const SERVICES: ResourceType = {
  group: "",
  version: "v1",
  plural: "services",
  kind: "Service",
  namespaced: true,
};
export const RUNTIME_CLASSES: ResourceType = {
  group: "node.k8s.io",
  version: "v1",
  plural: "runtimeclasses",
  kind: "RuntimeClass",
  namespaced: false,
};

export const CSI_DRIVERS: ResourceType = {
  group: "storage.k8s.io",
  version: "v1",
  plural: "csidrivers",
  kind: "CSIDriver",
  namespaced: false,
};
export const CSI_NODES: ResourceType = {
  group: "storage.k8s.io",
  version: "v1",
  plural: "csinodes",
  kind: "CSINode",
  namespaced: false,
};
export const VOLUME_ATTACHMENTS: ResourceType = {
  group: "storage.k8s.io",
  version: "v1",
  plural: "volumeattachments",
  kind: "VolumeAttachment",
  namespaced: false,
};

export interface ObjectRef {
  /** "" for what has no namespace. */
  readonly namespace: string;
  readonly name: string;
}

export interface ListOptions {
  /** Undefined: all. */
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  /** Items of one page; undefined: everything in one answer. */
  readonly limit?: number;
  readonly continue?: string;
  /** "0": any version that the server has in its cache. */
  readonly resourceVersion?: string;
  /**
   * Objects may come with nothing but apiVersion, kind and metadata (PartialObjectMetadata). A server that cannot sends
   * all of them.
   */
  readonly metadataOnly?: boolean;
}

export interface KubeList {
  readonly items: readonly KubeObject[];
  readonly resourceVersion: string;
  readonly continue: string | undefined;
}

export type WatchEvent =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly object: KubeObject }
  | { readonly type: "BOOKMARK"; readonly resourceVersion: string };

export type PatchKind = "json" | "merge" | "strategic" | "apply";

export interface WriteOptions {
  /** `status`, `binding`, `token`, `approval`, `eviction`, `resize` … */
  readonly subresource?: string;
  readonly dryRun?: boolean;
  readonly fieldManager?: string;
}

export interface DeleteOptions {
  readonly gracePeriodSeconds?: number;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly propagationPolicy?: "Orphan" | "Background" | "Foreground";
}

/**
 * All errors are PicoletErrors: `not_found`, `already_exists`, `conflict` (also a stale resourceVersion), `invalid`,
 * `permission_denied`, `unavailable` (retryable: no connection, 429, 5xx), `resource_exhausted` (413, quota),
 * `deadline_exceeded`; `reason` is the Status' reason (`Expired` for 410, which a watcher answers with a new list).
 */
export interface KubeClient {
  get(type: ResourceType, ref: ObjectRef, signal: AbortSignal): Promise<KubeObject>;
  list(type: ResourceType, options: ListOptions, signal: AbortSignal): Promise<KubeList>;
  /**
   * From `resourceVersion` on, until the server ends it (the iteration ends) or something breaks (it throws).
   * Bookmarks are asked for.
   */
  watch(type: ResourceType, options: ListOptions, signal: AbortSignal): AsyncIterable<WatchEvent>;
  /** @param ref the name is "" for generateName; with a subresource, the object it belongs to */
  create(
    type: ResourceType,
    ref: ObjectRef,
    object: Readonly<Record<string, unknown>>,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject>;
  update(
    type: ResourceType,
    ref: ObjectRef,
    object: KubeObject,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject>;
  patch(
    type: ResourceType,
    ref: ObjectRef,
    kind: PatchKind,
    patch: unknown,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject>;
  delete(type: ResourceType, ref: ObjectRef, options: DeleteOptions, signal: AbortSignal): Promise<void>;
  /** The same client acting as another user (Impersonate-User, Impersonate-Group). */
  as(user: string, groups: readonly string[]): KubeClient;
}
