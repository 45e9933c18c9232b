import type { ApiObject, ResourceDefinition, UserInfo } from "../api/resource-definition.ts";

/** Bounds what requests and watches of one user keep in memory. */
export interface UserMemory {
  /** Counts further bytes of an answer in the making. @throws StatusError 413, 429 */
  grow(bytes: number): void;
  /** Resolves when a watch may keep so many bytes until its client takes them. @throws `cancelled` */
  take(bytes: number, signal: AbortSignal): Promise<KeptBytes>;
}

/** Bytes that a watch keeps, until it disposes of them. */
export interface KeptBytes extends Disposable {
  /** Counts what they are, without a wait. */
  resize(bytes: number): void;
}

/** One operation on one resource, as it came through authentication and authorization. */
export interface ResourceRequest {
  readonly user: UserInfo;
  readonly definition: ResourceDefinition;
  /** "" for the object itself. */
  readonly subresource: string;
  /** "" for what has none, and for lists over all of them. */
  readonly namespace: string;
  /** "" for collections. */
  readonly name: string;
  /** Texts for `Warning` headers; handlers add to it. */
  readonly warnings: string[];
  /** @throws StatusError 403 unless the user may create this too (an update or an apply of what is not there yet) */
  readonly authorizeCreate: () => void;
  /** Undefined: without a bound. */
  readonly memory?: UserMemory | undefined;
}

export interface WriteParams {
  readonly isDryRun: boolean;
  /** The manager's name in managedFields. */
  readonly fieldManager: string;
  readonly fieldValidation: "Strict" | "Warn" | "Ignore";
  /** True for an apply that takes fields over from other managers. */
  readonly isForced: boolean;
}

export interface ListParams {
  readonly labelSelector: string;
  readonly fieldSelector: string;
  /** 0: no limit. */
  readonly limit: number;
  readonly continueToken: string;
  /** "" for the newest. */
  readonly resourceVersion: string;
  readonly resourceVersionMatch: string;
}

export interface WatchParams extends ListParams {
  readonly wantsBookmarks: boolean;
  /** Undefined: the server's choice. */
  readonly timeoutSeconds: number | undefined;
  readonly sendInitialEvents: boolean | undefined;
}

export interface DeleteParams {
  readonly isDryRun: boolean;
  readonly gracePeriodSeconds: number | undefined;
  readonly propagationPolicy: "Orphan" | "Background" | "Foreground" | undefined;
  readonly uid: string | undefined;
  readonly resourceVersion: string | undefined;
}

/** Input of admission, after defaults and before validation. */
export interface AdmissionRequest {
  readonly operation: "CREATE" | "UPDATE" | "DELETE";
  readonly request: ResourceRequest;
  /** Undefined for DELETE. Of a subresource with a kind of its own that object: an Eviction, a TokenRequest. */
  readonly object: ApiObject | undefined;
  /** Undefined for CREATE. */
  readonly old: ApiObject | undefined;
}

/** @throws StatusError 403 */
export type Admission = (request: AdmissionRequest) => void;
