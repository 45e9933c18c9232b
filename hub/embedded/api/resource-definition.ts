/**
 * The definition of one resource of the embedded API server. The table of these (`hub/embedded/resources/`) is data and
 * pure functions; storing, versions, finalizers, patches, watches, tables and discovery are the server's and generic.
 */

import type { KubeMetadata } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Random } from "@picolet/protocol/ports.ts";
import type { FieldError } from "./field-errors.ts";

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** An object on its way into the store: the server owns it, strategies change it in place. */
export interface ApiObject {
  apiVersion: string;
  kind: string;
  metadata: ApiMetadata;
  [field: string]: unknown;
}

export interface ApiMetadata
  extends Mutable<Omit<KubeMetadata, "labels" | "annotations" | "finalizers" | "ownerReferences">> {
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  finalizers?: string[];
  ownerReferences?: Mutable<NonNullable<KubeMetadata["ownerReferences"]>[number]>[];
  managedFields?: unknown[];
  [field: string]: unknown;
}

/** The user of a request, after authentication and impersonation. */
export interface UserInfo {
  readonly name: string;
  readonly uid: string;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

export interface ObjectLookup {
  /** @param resource as in `ResourceDefinition.plural`, `configmaps`, or with its group, `daemonsets.apps` */
  get(resource: string, namespace: string, name: string): ApiObject | undefined;
  /** Frozen, without managed fields, and in a namespace without annotations. @param namespace "" for all */
  list(resource: string, namespace: string): readonly ApiObject[];
}

/** Input of a strategy besides the object. */
export interface StrategyContext {
  readonly user: UserInfo;
  readonly now: Date;
  /** "" for the object itself; `status`, `ephemeralcontainers`, `resize` … */
  readonly subresource: string;
  readonly lookup: ObjectLookup;
  readonly random: Random;
}

/**
 * All are pure and synchronous. Order for a create: `default`, `prepareForCreate`, generic metadata, `validate`,
 * `validateCreate`. For an update or patch: `default`, `prepareForUpdate` (or `prepareForSubresource`), generic
 * metadata, `validate`, `validateUpdate`.
 * Any of them may throw a StatusError (an admission's `forbidden`).
 */
export interface ResourceStrategy {
  /** Kubernetes' defaults, in place; must tolerate any JSON whose types fit the schema, and change nothing twice. */
  default?(object: ApiObject): void;
  /** Clears what a client may not set (status), and what Kubernetes' admission plugins would add. */
  prepareForCreate?(object: ApiObject, context: StrategyContext): void;
  /**
   * Puts back what this endpoint may not change. Without one, `status` is kept from `old` if the resource has that
   * subresource.
   */
  prepareForUpdate?(object: ApiObject, old: ApiObject, context: StrategyContext): void;
  /**
   * As `prepareForUpdate`, for an update of `context.subresource`. Without one, everything but that field of the object
   * (`status`) and its labels and annotations is put back to what `old` has.
   */
  prepareForSubresource?(object: ApiObject, old: ApiObject, context: StrategyContext): void;
  /** Changes a pod together with its binding, in place. A binding is no new generation. */
  prepareForBinding?(object: ApiObject, lookup: ObjectLookup): void;
  validate?(object: ApiObject, context: StrategyContext): readonly FieldError[];
  /** Judges a new object alone, after `validate`, by rules that stored objects may break. */
  validateCreate?(object: ApiObject, context: StrategyContext): readonly FieldError[];
  validateUpdate?(object: ApiObject, old: ApiObject, context: StrategyContext): readonly FieldError[];
  /** Texts for the `Warning` headers of a client's write that succeeds; not of subresources. */
  warnings?(object: ApiObject): readonly string[];
  /** True when `metadata.generation` counts changes outside metadata and status. Default: false. */
  readonly hasGeneration?: boolean;
  /**
   * Seconds until the object may go; 0: at once. Absent: always at once. The server writes deletionTimestamp and
   * deletionGracePeriodSeconds, and a later delete may only shorten it.
   * @param requested `gracePeriodSeconds` of the request, if any
   */
  gracePeriod?(object: ApiObject, requested: number | undefined): number;
  /** Sets what a deletion that cannot be carried out at once shows (a namespace's phase Terminating), in place. */
  prepareForDelete?(object: ApiObject): void;
  /** True when the object must stay although it has no finalizers left (a namespace's `spec.finalizers`). */
  blocksDeletion?(object: ApiObject): boolean;
  /** True when a PUT on a name that does not exist creates it (leases, nodes' … as in Kubernetes). Default: false. */
  readonly createOnUpdate?: boolean;
  /**
   * True when an update without metadata.resourceVersion is accepted. Default: true; Kubernetes refuses it for some.
   */
  readonly unconditionalUpdate?: boolean;
}

export interface PrinterColumn {
  readonly name: string;
  readonly type: "string" | "integer" | "number" | "boolean" | "date";
  /** `name` marks the column of the object's name. */
  readonly format?: string;
  readonly description?: string;
  /** 0: always; 1: with `-o wide`. */
  readonly priority?: number;
  /** A cell; ages are text as kubectl shows them (`ageOf`). */
  value(object: ApiObject, now: Date): string | number | boolean | null;
}

export type Verb = "get" | "list" | "watch" | "create" | "update" | "patch" | "delete" | "deletecollection";

export const ALL_VERBS: readonly Verb[] = [
  "create",
  "delete",
  "deletecollection",
  "get",
  "list",
  "patch",
  "update",
  "watch",
];

export interface Subresource {
  /**
   * `status`, `binding`, `log` … What it does is found by `<plural>/<name>`; those it does not know are as `status`.
   */
  readonly name: string;
  /**
   * Kind of what it takes and gives, where it is not the resource's own: `{ group: "policy", version: "v1", kind:
   * "Eviction" }`.
   */
  readonly kind?: { readonly group: string; readonly version: string; readonly kind: string };
  readonly verbs: readonly ("get" | "create" | "update" | "patch" | "delete")[];
}

export interface ResourceDefinition {
  /** "" for core. */
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly singular: string;
  readonly kind: string;
  /** Default: `<kind>List`. */
  readonly listKind?: string;
  readonly namespaced: boolean;
  readonly shortNames?: readonly string[];
  readonly categories?: readonly string[];
  /** Default: ALL_VERBS. */
  readonly verbs?: readonly Verb[];
  readonly subresources?: readonly Subresource[];
  /** The model in @kubernetes/client-node that describes it: `V1Pod`. OpenAPI, decoding and merge keys come from it. */
  readonly model: string;
  /** Without: Name and Age. With: all of them, the name's too. */
  readonly columns?: readonly PrinterColumn[];
  /** Field selectors besides `metadata.name` and `metadata.namespace`. A missing field is "". */
  readonly selectableFields?: Readonly<Record<string, (object: ApiObject) => string>>;
  readonly strategy: ResourceStrategy;
  /** Loads what the strategy needs. Awaited before each write. */
  readonly load?: () => Promise<void>;
  /** The rule for `metadata.name`. Default: `subdomain`. */
  readonly nameRule?: "subdomain" | "label" | "path-segment";
  /** Objects go so long after their last write. Events: 3600. */
  readonly ttlSeconds?: number;
  /**
   * Answers a create without storing anything (reviews). The returned object is sent as it is.
   * @throws StatusError
   */
  readonly answer?: (object: ApiObject, context: StrategyContext) => ApiObject | Promise<ApiObject>;
  /** Objects that are made when they are read, and never stored. Its verbs are get and list. */
  readonly live?: LiveObjects;
}

export interface LiveObjects {
  get(namespace: string, name: string): ApiObject | undefined;
  /** @param namespace "" for all */
  list(namespace: string): Iterable<ApiObject>;
}

/** `pods`, `daemonsets.apps`: what a resource is called in messages, rules and lookups. */
export const resourceName = ({ group, plural }: { readonly group: string; readonly plural: string }): string =>
  group === "" ? plural : `${plural}.${group}`;

export const apiVersionOf = ({ group, version }: { readonly group: string; readonly version: string }): string =>
  group === "" ? version : `${group}/${version}`;
