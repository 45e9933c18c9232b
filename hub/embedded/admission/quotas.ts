/**
 * Bounds the writes of one identity, over the API and through the tunnel, where the hub acts as the node.
 * Rates as Kubernetes' EventRateLimit has them, sizes, and numbers of objects that are kept. Administrators and the hub
 * itself have none. Reads and the order of requests are `request-fairness.ts`'s.
 */

import { createHash } from "node:crypto";
import { type Rate, RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import { NODES_GROUP } from "@picolet/protocol/pki/node-subject.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { type ApiObject, type ResourceDefinition, resourceName, type UserInfo } from "../api/resource-definition.ts";
import { StatusError } from "../api/status-error.ts";
import { MASTERS } from "../auth/attributes.ts";
import { HUB_USER } from "../auth/hub-authorizer.ts";
import type { Admission, AdmissionRequest } from "../service/resource-request.ts";
import type { SubresourceHandler } from "../service/resource-service.ts";
import type { ObjectKeys, ObjectStore } from "../store/object-store.ts";
import type { DiskSpace } from "./disk-space.ts";

export type IdentityKind = "administrator" | "node" | "bootstrap" | "user" | "anonymous";

const BOOTSTRAPPERS = "system:bootstrappers";

export function identityKindOf(user: UserInfo): IdentityKind {
  const { name, groups } = user;
  // The hub itself, which writes for a whole fleet: that very object, as anyone may be called so who may impersonate.
  if (groups.includes(MASTERS) || user === HUB_USER) return "administrator";
  if (groups.includes(NODES_GROUP)) return "node";
  if (groups.includes(BOOTSTRAPPERS)) return "bootstrap";
  return name === "system:anonymous" ? "anonymous" : "user";
}

/**
 * Budgets that the service accounts of one namespace share: else a tenant that may make accounts has as many budgets as
 * it likes. Several, so that one account seldom uses up another's.
 */
export const BUDGETS_OF_NAMESPACE = 8;
/** Its accounts are the cluster's own, as in Kubernetes. */
const OWN_NAMESPACE = "kube-system";

/** @returns what the limits of a user are counted by: its name, or a service account's budget in its namespace */
export function budgetOf(user: string): string {
  const [, namespace, account = ""] = /^system:serviceaccount:([^:]*):(.*)$/s.exec(user) ?? [];
  if (namespace === undefined || namespace === OWN_NAMESPACE) return user;
  const [first = 0] = createHash("sha256").update(account).digest();
  return `system:serviceaccount:${namespace} ${first % BUDGETS_OF_NAMESPACE}`;
}

type Counted = "events" | "certificatesigningrequests.certificates.k8s.io" | "pods";

interface Allowance {
  /** Bytes of the objects that it writes. */
  readonly bytes: Rate;
  readonly events: Rate;
  readonly certificateRequests: Rate;
  readonly tokens: Rate;
  /** Access and token reviews. */
  readonly reviews: Rate;
  /** Objects that it made and that are kept. Of events the oldest go, of others no more are made. */
  readonly kept: Readonly<Partial<Record<Counted, number>>>;
}

/**
 * A board: the bytes of a full node of 110 pods that all start (5 statuses each, of 8 KiB) three times over; events as
 * the kubelet's `eventBurst` several times over; a token for each pod that starts, and its renewals; two certificates a
 * year and what fails of them; as many mirror pods as the tunnel takes.
 */
const NODE: Allowance = {
  bytes: { burst: 16 * MEBIBYTE, perSecond: 128 * KIBIBYTE },
  events: { burst: 500, perSecond: 10 },
  certificateRequests: { burst: 10, perSecond: 1 / 60 },
  tokens: { burst: 300, perSecond: 5 },
  reviews: { burst: 200, perSecond: 20 },
  kept: { events: 1000, "certificatesigningrequests.certificates.k8s.io": 16, pods: 1024 },
};
/**
 * One bootstrap token may be that of a rack of kubelets that join at once; it makes requests for certificates alone.
 */
const BOOTSTRAP: Allowance = {
  ...NODE,
  certificateRequests: { burst: 500, perSecond: 1 },
  kept: { ...NODE.kept, "certificatesigningrequests.certificates.k8s.io": 512 },
};
/** Operators, pipelines and people write what RBAC allows: no more than a disk takes for hours. */
const USER: Allowance = {
  bytes: { burst: 64 * MEBIBYTE, perSecond: MEBIBYTE },
  events: { burst: 1000, perSecond: 50 },
  certificateRequests: { burst: 100, perSecond: 1 },
  tokens: { burst: 1000, perSecond: 20 },
  reviews: { burst: 1000, perSecond: 100 },
  kept: { events: 10_000, "certificatesigningrequests.certificates.k8s.io": 512 },
};

type Limited = Exclude<IdentityKind, "administrator">;
export const ALLOWANCES: Readonly<Record<Limited, Allowance>> = {
  node: NODE,
  bootstrap: BOOTSTRAP,
  user: USER,
  anonymous: NODE,
};

/** Size of one stored object, against a disk full of a few resources. Others have the server's own limit. */
export const MAX_BYTES: Readonly<Record<string, number>> = {
  // A message of 1 KiB, and what names the object, the source and the series.
  events: 16 * KIBIBYTE,
  // A request of 8 KiB in base64, and the user's groups and extra.
  "certificatesigningrequests.certificates.k8s.io": 32 * KIBIBYTE,
};
export const MAX_NODE_BYTES: Readonly<Record<string, number>> = {
  ...MAX_BYTES,
  "leases.coordination.k8s.io": 16 * KIBIBYTE,
  // 50 images with their names, twice: the hub keeps the board's report beside the status.
  nodes: 512 * KIBIBYTE,
  pods: 512 * KIBIBYTE,
};
/** Bytes of a row besides its object: indexes, and the entry in the history. */
const ROW_BYTES = KIBIBYTE;
/** A refusal because too much is kept: something goes within the hour. */
const FULL_RETRY_SECONDS = 60;

export interface QuotasComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly store: ObjectStore;
  readonly disk: DiskSpace;
  /** Removes what is there. */
  readonly remove: (key: ObjectKeys) => void;
}

type RateName = "bytes" | "events" | "certificateRequests" | "tokens" | "reviews";

export class Quotas {
  readonly #components: QuotasComponents;
  readonly #rates: ReadonlyMap<string, RateLimits>;
  readonly #kept = new Map<string, KeptObjects>();

  constructor(components: QuotasComponents) {
    this.#components = components;
    const names: readonly RateName[] = ["bytes", "events", "certificateRequests", "tokens", "reviews"];
    const kinds = Object.entries(ALLOWANCES);
    this.#rates = new Map(
      kinds.flatMap(([kind, allowance]) =>
        names.map((name): [string, RateLimits] => [`${kind} ${name}`, new RateLimits(components, allowance[name])]),
      ),
    );
  }

  /** Before every write. @throws StatusError 413, 429, 507 */
  readonly admit: Admission = (admission) => {
    const { operation, request, object, old } = admission;
    const kind = identityKindOf(request.user);
    if (operation === "DELETE") {
      this.#forget(request.definition, old);
      return;
    }
    if (kind === "administrator" || object === undefined) return;
    const resource = resourceName(request.definition);
    const bytes = Buffer.byteLength(JSON.stringify(object));
    const most = (kind === "user" ? MAX_BYTES : MAX_NODE_BYTES)[resource];
    if (most !== undefined && bytes > most) throw tooLarge(request.definition, bytes, most);
    const isBoardsCreate = operation === "CREATE" && kind !== "user";
    this.#components.disk.require(isBoardsCreate ? "create of a board" : "other");
    const isNew = operation === "CREATE" && request.subresource === "";
    if (resource === "events") this.#spend(request.user, kind, "events");
    if (isNew && resource === CERTIFICATE_REQUESTS) this.#spend(request.user, kind, "certificateRequests");
    if (isNew) this.#requireRoom(admission, kind, resource);
    this.#spend(request.user, kind, "bytes", bytes + ROW_BYTES);
    if (isNew) this.#keep(admission, kind, resource);
  };

  /** Before a review is answered, which is not stored. @throws StatusError 429 */
  admitReview(user: UserInfo): void {
    this.#spend(user, identityKindOf(user), "reviews");
  }

  limitTokens(handler: SubresourceHandler): SubresourceHandler {
    const { create } = handler;
    if (create === undefined) return handler;
    return {
      ...handler,
      create: async (request, input, params) => {
        this.#spend(request.user, identityKindOf(request.user), "tokens");
        return await create(request, input, params);
      },
    };
  }

  #spend(user: UserInfo, kind: IdentityKind, name: RateName, cost = 1): void {
    if (kind === "administrator") return;
    const waitMs = this.#rates.get(`${kind} ${name}`)?.take(budgetOf(user.name), cost) ?? 0;
    if (waitMs === 0) return;
    const { perSecond } = ALLOWANCES[kind][name];
    const what =
      { bytes: "bytes of objects", certificateRequests: "certificate signing requests" }[name as string] ?? name;
    const pace = perSecond >= 1 ? `${perSecond} ${what} a second` : `${perSecond * 60} ${what} a minute`;
    // As EventRateLimit words it.
    throw tooMany(`limit reached on type User for key ${user.name}: ${pace}`, Math.ceil(waitMs / 1000));
  }

  #requireRoom({ request }: AdmissionRequest, kind: Limited, resource: string): void {
    const most = ALLOWANCES[kind].kept[resource as Counted];
    if (most === undefined) return;
    const user = request.user.name;
    const budget = budgetOf(user);
    const kept = this.#keptOf(resource);
    if (kept.count(budget) < most) return;
    if (resource === "events") {
      for (const key of kept.oldest(budget, kept.count(budget) - most + 1)) this.#components.remove(key);
      return;
    }
    if (kept.verify(budget) < most) return;
    const message = `limit reached on type User for key ${user}: ${most} ${resource} that are kept; delete some, or wait`;
    throw tooMany(message, FULL_RETRY_SECONDS);
  }

  #keep({ request, object }: AdmissionRequest, kind: Limited, resource: string): void {
    if (object === undefined || ALLOWANCES[kind].kept[resource as Counted] === undefined) return;
    const { name, namespace = "" } = object.metadata;
    this.#keptOf(resource).add(budgetOf(request.user.name), { resource, namespace, name });
  }

  /** An object with finalizers or a grace period stays for now; it is found to be gone when the limit is reached. */
  #forget(definition: ResourceDefinition, object: ApiObject | undefined): void {
    const resource = resourceName(definition);
    const kept = this.#kept.get(resource);
    if (kept === undefined || object === undefined || resource === "pods") return;
    const { name, namespace = "", finalizers = [] } = object.metadata;
    if (finalizers.length === 0) kept.delete({ resource, namespace, name });
  }

  #keptOf(resource: string): KeptObjects {
    const known = this.#kept.get(resource);
    if (known !== undefined) return known;
    const made = new KeptObjects(this.#components.store);
    this.#kept.set(resource, made);
    for (const { body } of this.#components.store.list(resource, "")) {
      const object = JSON.parse(body) as ApiObject;
      const owner = OWNERS[resource as Counted]?.(object) ?? "";
      const { name, namespace = "" } = object.metadata;
      if (owner !== "") made.add(budgetOf(owner), { resource, namespace, name });
    }
    return made;
  }
}

const CERTIFICATE_REQUESTS: Counted = "certificatesigningrequests.certificates.k8s.io";

interface Fields {
  readonly [field: string]: unknown;
}
const fieldsOf = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
const nodeUser = (node: unknown): string => (typeof node === "string" && node !== "" ? `system:node:${node}` : "");

/**
 * The maker of an object that an earlier run of the hub stored. An event's own claim counts: it is gone within the
 * hour.
 */
const OWNERS: Readonly<Record<Counted, (object: ApiObject) => string>> = {
  events: ({ source, reportingInstance }) => nodeUser(fieldsOf(source).host ?? reportingInstance),
  [CERTIFICATE_REQUESTS]: ({ spec }) => String(fieldsOf(spec).username ?? ""),
  pods: ({ spec, metadata }) =>
    metadata.annotations?.["kubernetes.io/config.mirror"] === undefined ? "" : nodeUser(fieldsOf(spec).nodeName),
};

/**
 * The objects of one resource by their creator's budget, in the order in which they came. May name some that are gone.
 */
class KeptObjects {
  readonly #store: ObjectStore;
  readonly #byUser = new Map<string, Map<string, ObjectKeys>>();
  readonly #users = new Map<string, string>();

  constructor(store: ObjectStore) {
    this.#store = store;
  }

  count(user: string): number {
    return this.#byUser.get(user)?.size ?? 0;
  }

  oldest(user: string, count: number): readonly ObjectKeys[] {
    return [...(this.#byUser.get(user)?.values() ?? [])].slice(0, count);
  }

  add(user: string, key: ObjectKeys): void {
    this.delete(key);
    const own = this.#byUser.get(user) ?? new Map<string, ObjectKeys>();
    this.#byUser.set(user, own.set(textOf(key), key));
    this.#users.set(textOf(key), user);
  }

  delete(key: ObjectKeys): void {
    const text = textOf(key);
    const user = this.#users.get(text);
    if (user === undefined) return;
    this.#users.delete(text);
    const own = this.#byUser.get(user);
    own?.delete(text);
    if (own?.size === 0) this.#byUser.delete(user);
  }

  /** Forgets what is gone. @returns how many are left */
  verify(user: string): number {
    for (const key of this.oldest(user, Number.POSITIVE_INFINITY)) {
      if (this.#store.get(key) === undefined) this.delete(key);
    }
    return this.count(user);
  }
}

const textOf = ({ namespace, name }: ObjectKeys): string => `${namespace}/${name}`;

const tooMany = (message: string, retryAfterSeconds: number): StatusError =>
  new StatusError("TooManyRequests", message, { retryAfterSeconds });

const tooLarge = ({ kind }: ResourceDefinition, bytes: number, most: number): StatusError =>
  new StatusError(
    "RequestEntityTooLarge",
    `Request entity too large: the ${kind} has ${bytes} bytes, limit is ${most}`,
  );
