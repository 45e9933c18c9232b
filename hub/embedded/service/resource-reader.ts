import type { Random } from "@picolet/protocol/ports.ts";
import {
  type ApiObject,
  type LiveObjects,
  type ObjectLookup,
  type ResourceDefinition,
  resourceName,
  type StrategyContext,
} from "../api/resource-definition.ts";
import type { ResourceTable } from "../api/resource-table.ts";
import { parseFieldSelector, parseLabelSelector } from "../api/selectors.ts";
import { badRequest, expired, notFound, StatusError } from "../api/status-error.ts";
import type { Turns } from "../api/turns.ts";
import type { Derived, DerivedObjects } from "../store/derived-objects.ts";
import type { ObjectStore, StoredObject } from "../store/object-store.ts";
import type { ListParams, ResourceRequest } from "./resource-request.ts";

export type ObjectFilter = (object: ApiObject) => boolean;

export interface ListResult {
  /** JSON texts of whole objects. */
  readonly items: readonly string[];
  readonly revision: number;
  readonly continueToken: string;
  readonly remaining: number | undefined;
}

interface ContinueToken {
  readonly revision: number;
  readonly namespace: string;
  readonly name: string;
}

/** Bounds objects on one page: Kubernetes has no limit, its clients use 500. */
export const MAX_LIMIT = 100_000;

/** Objects read in one go. 32 of 1.5 MiB take 30 ms. */
const LIST_PAGE = 32;

/** Characters whose reading takes as long as making one live object. */
const LIVE_COST = 4096;

export const EXPIRED_CONTINUE =
  "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.";

/** The filter of these selectors; undefined: everything passes. @throws StatusError 400 */
export function objectFilter(
  definition: ResourceDefinition,
  { labelSelector, fieldSelector }: { readonly labelSelector: string; readonly fieldSelector: string },
): ObjectFilter | undefined {
  const filters: ObjectFilter[] = [];
  if (labelSelector !== "") {
    const matches = parseLabelSelector(labelSelector);
    filters.push((object) => matches(object.metadata.labels));
  }
  for (const { field, value, isEqual } of parseFieldSelector(fieldSelector)) {
    const read = fieldReader(definition, field);
    filters.push((object) => (read(object) === value) === isEqual);
  }
  if (filters.length === 0) return undefined;
  return (object) => filters.every((matches) => matches(object));
}

function fieldReader(definition: ResourceDefinition, field: string): (object: ApiObject) => string {
  if (field === "metadata.name") return ({ metadata }) => metadata.name;
  if (field === "metadata.namespace" && definition.namespaced) return ({ metadata }) => metadata.namespace ?? "";
  const read = definition.selectableFields?.[field];
  if (read === undefined) throw badRequest(`field label not supported: ${field}`);
  return read;
}

/** True when a selector may answer differently for the two. */
export function differsForSelectors(definition: ResourceDefinition, a: ApiObject, b: ApiObject): boolean {
  const left = a.metadata.labels ?? {};
  const right = b.metadata.labels ?? {};
  const keys = Object.keys(left);
  if (keys.length !== Object.keys(right).length || keys.some((key) => left[key] !== right[key])) return true;
  return Object.values(definition.selectableFields ?? {}).some((read) => read(a) !== read(b));
}

/** Reads for requests, and the lookups that strategies may make. */
export class ResourceReader implements ObjectLookup {
  readonly #store: ObjectStore;
  readonly #table: ResourceTable;
  readonly #now: () => Date;
  readonly #random: Random;
  readonly #turns: Turns;
  /** Resources that `list` was asked for: those that validations and admissions go through as a whole. */
  readonly #listed = new Map<string, DerivedObjects<ApiObject>>();

  constructor(components: {
    readonly store: ObjectStore;
    readonly table: ResourceTable;
    readonly now: () => Date;
    readonly random: Random;
    readonly turns: Turns;
  }) {
    this.#store = components.store;
    this.#table = components.table;
    this.#now = components.now;
    this.#random = components.random;
    this.#turns = components.turns;
  }

  get(resource: string, namespace: string, name: string): ApiObject | undefined {
    const definition = this.#table.named(resource);
    if (definition === undefined) return undefined;
    const stored = this.#store.get({ resource, namespace: definition.namespaced ? namespace : "", name });
    return stored === undefined ? undefined : parseObject(stored);
  }

  list(resource: string, namespace: string): readonly ApiObject[] {
    const known = this.#listed.get(resource) ?? this.#store.derive(resource, frozenObject);
    this.#listed.set(resource, known);
    return [...(namespace === "" ? known.values() : known.in(namespace))];
  }

  contextOf({
    user,
    subresource,
  }: {
    readonly user: ResourceRequest["user"];
    readonly subresource: string;
  }): StrategyContext {
    return { user, subresource, now: this.#now(), lookup: this, random: this.#random };
  }

  /** @throws StatusError 404 */
  fetch({ definition, namespace, name }: ResourceRequest): StoredObject {
    const stored = this.#store.get({ resource: resourceName(definition), namespace, name });
    if (stored === undefined) throw notFound(definition, name);
    return stored;
  }

  /** @throws StatusError 404 */
  fetchLive(live: LiveObjects, { definition, namespace, name }: ResourceRequest): ApiObject {
    const object = live.get(namespace, name);
    if (object === undefined) throw notFound(definition, name);
    return object;
  }

  /** One page with everything: there is no revision to go on from. */
  async #listLive(
    live: LiveObjects,
    { definition, namespace, user, memory }: ResourceRequest,
    params: ListParams,
  ): Promise<ListResult> {
    const filter = objectFilter(definition, params);
    const slices = this.#turns.slices(user.name);
    const items: string[] = [];
    for (const object of live.list(namespace)) {
      const body = filter === undefined || filter(object) ? JSON.stringify(object) : "";
      if (body !== "") items.push(body);
      memory?.grow(body.length);
      await slices.add(LIVE_COST + body.length);
    }
    return { items, revision: this.#store.headRevision, continueToken: "", remaining: undefined };
  }

  /**
   * A list is read in parts, with others served in between. It carries the revision that the store had when it began;
   * what was written meanwhile may be in it already, and a watch from that revision reports it again, as after a
   * `continue`.
   */
  async listFor(request: ResourceRequest, params: ListParams): Promise<ListResult> {
    const { definition, namespace, user, memory } = request;
    if (definition.live !== undefined) return await this.#listLive(definition.live, request, params);
    const filter = objectFilter(definition, params);
    const resource = resourceName(definition);
    const from = params.continueToken === "" ? undefined : this.#openToken(resource, params);
    if (from === undefined) this.#checkVersion(params);
    const revision = from?.revision ?? this.#store.headRevision;
    const limit = Math.min(params.limit === 0 ? Number.POSITIVE_INFINITY : params.limit, MAX_LIMIT);
    const items: string[] = [];
    let last: ApiObject | undefined;
    let isMore = false;
    const slices = this.#turns.slices(user.name);
    for (const stored of this.#store.list(resource, namespace, from, LIST_PAGE)) {
      const pause = slices.add(stored.body.length);
      if (pause !== undefined) {
        // The objects that were read may be part of a write that fails.
        await this.#store.settled();
        await pause;
      }
      const object = filter !== undefined || Number.isFinite(limit) ? parseObject(stored) : undefined;
      if (filter !== undefined && object !== undefined && !filter(object)) continue;
      if (items.length >= limit) {
        isMore = true;
        break;
      }
      items.push(stored.body);
      memory?.grow(stored.body.length);
      last = object;
    }
    const continueToken = isMore && last !== undefined ? sealToken(revision, last) : "";
    const countable = isMore && filter === undefined && from === undefined && namespace === "";
    const remaining = countable ? this.#store.count(resource) - items.length : undefined;
    return { items, revision, continueToken, remaining };
  }

  #openToken(resource: string, { continueToken, resourceVersion, resourceVersionMatch }: ListParams): ContinueToken {
    if (resourceVersionMatch !== "") {
      throw badRequest("resourceVersionMatch is forbidden when continue is provided");
    }
    if (resourceVersion !== "" && resourceVersion !== "0") {
      throw badRequest("specifying resource version is not allowed when using continue");
    }
    const token = readToken(continueToken);
    if (token === undefined)
      throw badRequest(`continue key is not valid: ${JSON.stringify(continueToken.slice(0, 64))}`);
    // The rest is read as it is now. A client that then watches from the token's revision gets all changes since.
    if (token.revision < this.#store.floor(resource)) throw expired(EXPIRED_CONTINUE);
    return token;
  }

  #checkVersion({ resourceVersion, resourceVersionMatch }: ListParams): void {
    if (resourceVersionMatch !== "" && resourceVersion === "") {
      throw badRequest("resourceVersionMatch is forbidden unless resourceVersion is provided");
    }
    if (!["", "Exact", "NotOlderThan"].includes(resourceVersionMatch)) {
      throw badRequest(
        `resourceVersionMatch: Unsupported value: ${JSON.stringify(resourceVersionMatch)}: supported values: "Exact", "NotOlderThan", ""`,
      );
    }
    if (resourceVersion === "" || resourceVersion === "0") return;
    const wanted = parseRevision(resourceVersion);
    const current = this.#store.headRevision;
    if (wanted > current) {
      throw new StatusError("Timeout", `Too large resource version: ${wanted}, current: ${current}`, {
        causes: [{ reason: "ResourceVersionTooLarge", message: "Too large resource version" }],
        retryAfterSeconds: 1,
      });
    }
    if (resourceVersionMatch === "Exact" && wanted < current) {
      throw expired(`The resourceVersion for the provided list is too old.`);
    }
  }
}

/** Without managed fields, and in a namespace without annotations, which a tenant may make large. */
function frozenObject({ metadata, ...object }: ApiObject): Derived<ApiObject> {
  const { managedFields: _fields, annotations, ...kept } = metadata;
  const shown = metadata.namespace === undefined && annotations !== undefined ? { ...kept, annotations } : kept;
  return { group: metadata.namespace ?? "", value: deepFreeze(structuredClone({ ...object, metadata: shown })) };
}

function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  for (const each of Object.values(value)) deepFreeze(each);
  return Object.freeze(value);
}

export const parseObject = ({ body }: { readonly body: string }): ApiObject => JSON.parse(body) as ApiObject;

/** @throws StatusError 400 */
export function parseRevision(text: string): number {
  const value = Number(text);
  if (!/^\d{1,16}$/.test(text) || !Number.isSafeInteger(value)) {
    throw badRequest(
      `Invalid value: ${JSON.stringify(text)}: strconv.ParseUint: parsing ${JSON.stringify(text)}: invalid syntax`,
    );
  }
  return value;
}

function sealToken(revision: number, { metadata }: ApiObject): string {
  const token = { v: "meta.k8s.io/v1", rv: revision, namespace: metadata.namespace ?? "", name: metadata.name };
  return Buffer.from(JSON.stringify(token)).toString("base64url");
}

function readToken(text: string): ContinueToken | undefined {
  try {
    const token: unknown = JSON.parse(Buffer.from(text, "base64url").toString("utf8"));
    if (typeof token !== "object" || token === null) return undefined;
    const { rv, namespace, name } = token as Readonly<Record<string, unknown>>;
    if (typeof rv !== "number" || !Number.isSafeInteger(rv)) return undefined;
    if (typeof namespace !== "string" || typeof name !== "string") return undefined;
    return { revision: rv, namespace, name };
  } catch {
    return undefined;
  }
}
