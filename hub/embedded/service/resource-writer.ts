import { isDeepStrictEqual } from "node:util";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import type { Random } from "@picolet/protocol/ports.ts";
import type { FieldError } from "../api/field-errors.ts";
import { invalidValue } from "../api/field-errors.ts";
import { MAX_OBJECT_BYTES, tooLarge } from "../api/limits.ts";
import {
  generateName,
  initializeMetadata,
  keepSystemMetadata,
  validateMetadata,
  validateMetadataUpdate,
} from "../api/object-meta.ts";
import {
  type ApiObject,
  apiVersionOf,
  type ResourceDefinition,
  resourceName,
  type StrategyContext,
} from "../api/resource-definition.ts";
import {
  alreadyExists,
  badRequest,
  conflict,
  forbidden,
  invalidObject,
  notFound,
  STALE_VERSION,
  StatusError,
} from "../api/status-error.ts";
import { type TrackedWrite, trackUpdate } from "../patch/managed-fields.ts";
import { decodeInto } from "../schema/decode.ts";
import type { ModelSource } from "../schema/models.ts";
import type { ObjectStore, StoredObject } from "../store/object-store.ts";
import { differsForSelectors, parseObject, type ResourceReader } from "./resource-reader.ts";
import type { Admission, DeleteParams, ResourceRequest, WriteParams } from "./resource-request.ts";

/** Names are drawn again so often when they are taken; 5 characters of 27 make 14 million. */
const MAX_NAME_DRAWS = 8;

/** Makes the new object of a patch or PUT from the old one, whose copy from `read` may be changed and returned. */
export type Mutation = (read: () => ApiObject) => Record<string, unknown>;

/** Options of a write. */
export interface WriteMode extends WriteParams {
  /** The managedFields are right already. */
  readonly isApply?: boolean;
  /** The server's own change: what an endpoint lets its clients change does not count. */
  readonly isInternal?: boolean;
}

export interface Components {
  readonly store: ObjectStore;
  readonly reader: ResourceReader;
  readonly models: ModelSource;
  readonly admission: Admission;
  readonly validation: Admission;
  readonly random: Random;
  readonly now: () => Date;
}

/** All writes of objects. Synchronous: what a call reads and writes is one transaction. */
export class ResourceWriter {
  readonly #components: Components;

  constructor(components: Components) {
    this.#components = components;
  }

  /** @param input is changed */
  create(request: ResourceRequest, input: Record<string, unknown>, params: WriteMode): ApiObject {
    const { definition } = request;
    const object = this.decode(request, input, params);
    this.checkNamespace(request, object);
    const { metadata } = object;
    if (metadata.resourceVersion !== undefined && metadata.resourceVersion !== "") {
      throw badRequest("resourceVersion should not be set on objects to be created");
    }
    const isGenerated = !metadata.name && metadata.generateName !== undefined && metadata.generateName !== "";
    for (let draw = 1; isGenerated; draw += 1) {
      metadata.name = generateName(metadata.generateName ?? "", this.#components.random);
      if (!this.#exists(request, metadata.name) || draw >= MAX_NAME_DRAWS) break;
    }
    const context = this.#components.reader.contextOf(request);
    const { strategy } = definition;
    strategy.default?.(object);
    strategy.prepareForCreate?.(object, context);
    initializeMetadata(object, context.now, this.#components.random, strategy.hasGeneration === true);
    this.#components.admission({ operation: "CREATE", request, object, old: undefined });
    this.#checkNamespaceExists(request);
    this.#refuse(definition, object, [
      ...validateMetadata(object, definition),
      ...(strategy.validate?.(object, context) ?? []),
      ...(strategy.validateCreate?.(object, context) ?? []),
    ]);
    this.#components.validation({ operation: "CREATE", request, object, old: undefined });
    if (this.#exists(request, metadata.name)) throw alreadyExists(definition, metadata.name);
    this.#track(params, {
      definition,
      object,
      old: undefined,
      subresource: "",
      now: context.now,
    });
    checkSize(object, 0);
    request.warnings.push(...(strategy.warnings?.(object) ?? []));
    if (!params.isDryRun) this.#put(request, "ADDED", object, undefined);
    return object;
  }

  /**
   * A PUT or a patch of what is stored.
   * @param isPut the body replaces the object: its name and version are held against it in a PUT's way
   */
  update(request: ResourceRequest, mutate: Mutation, params: WriteMode & { readonly isPut: boolean }): ApiObject {
    const { definition, name, subresource } = request;
    const stored = this.#components.reader.fetch(request);
    const old = parseObject(stored);
    const object = this.decode(
      request,
      mutate(() => parseObject(stored)),
      params,
    );
    this.checkNamespace(request, object);
    this.#checkIdentity(request, object, old, params.isPut);
    const context = this.#components.reader.contextOf(request);
    if (params.isInternal === true) keepSystemMetadata(object.metadata, old.metadata);
    else this.#prepare(definition, object, old, context);
    if (params.isInternal !== true) this.#components.admission({ operation: "UPDATE", request, object, old });
    const errors = [
      ...validateMetadata(object, definition),
      ...validateMetadataUpdate(object.metadata, old.metadata),
      ...(definition.strategy.validate?.(object, context) ?? []),
      ...(params.isInternal === true ? [] : (definition.strategy.validateUpdate?.(object, old, context) ?? [])),
    ];
    this.#refuse(definition, object, errors);
    this.#components.validation({ operation: "UPDATE", request, object, old });
    this.#track(params, {
      definition,
      object,
      old,
      subresource,
      now: context.now,
    });
    if (subresource === "") request.warnings.push(...(definition.strategy.warnings?.(object) ?? []));
    object.metadata.resourceVersion = String(stored.revision);
    if (isDeepStrictEqual(object, old)) return old;
    checkSize(object, Buffer.byteLength(stored.body));
    if (params.isDryRun) return object;
    if (this.#mayGoNow(definition, object)) this.#put({ ...request, name }, "DELETED", object, old);
    else this.#put(request, "MODIFIED", object, old);
    return object;
  }

  /** True when the object exists. A PUT or an apply may create one that does not. */
  exists(request: ResourceRequest): boolean {
    return this.#exists(request, request.name);
  }

  /** @returns the object as it is then, and whether it is gone */
  delete(request: ResourceRequest, params: DeleteParams): { readonly object: ApiObject; readonly isGone: boolean } {
    const { definition, name } = request;
    const stored = this.#fetchForDeletion(request);
    const old = parseObject(stored);
    checkPreconditions(definition, name, old, params);
    this.#components.admission({ operation: "DELETE", request, object: undefined, old });
    const object = parseObject(stored);
    const isPending = this.#markDeleted(definition, object, params);
    if (isPending) {
      if (!params.isDryRun && !isDeepStrictEqual(object, old)) this.#put(request, "MODIFIED", object, old);
      return { object, isGone: false };
    }
    if (!params.isDryRun) this.#put(request, "DELETED", object, undefined);
    return { object, isGone: true };
  }

  /** A stored Secret may be damaged (`Vault`): it can be deleted all the same, and then made again. */
  #fetchForDeletion(request: ResourceRequest): Pick<StoredObject, "body"> {
    try {
      return this.#components.reader.fetch(request);
    } catch (error) {
      if (!isPicoletError(error, "corrupt")) throw error;
      const { definition, namespace, name } = request;
      const metadata = { name, ...(definition.namespaced ? { namespace } : {}) };
      return { body: JSON.stringify({ apiVersion: apiVersionOf(definition), kind: definition.kind, metadata }) };
    }
  }

  /** The body as an object of the path's kind. @throws StatusError 400 */
  decode(
    { definition, warnings }: ResourceRequest,
    input: Record<string, unknown>,
    { fieldValidation }: Pick<WriteParams, "fieldValidation">,
  ): ApiObject {
    const { kind, model } = definition;
    const apiVersion = apiVersionOf(definition);
    checkKind(definition, input);
    const { unknown, mismatch } = decodeInto(this.#components.models, model, input);
    const cannot = `${kind} in version "${definition.version}" cannot be handled as a ${kind}`;
    if (mismatch !== undefined) throw badRequest(`${cannot}: ${mismatch}`);
    if (unknown.length > 0 && fieldValidation === "Strict") {
      throw badRequest(`${cannot}: strict decoding error: ${unknown.join(", ")}`);
    }
    if (fieldValidation === "Warn") warnings.push(...unknown);
    // Not spread: the order of fields is the client's, and apiVersion and kind come first.
    return { apiVersion, kind, ...input, metadata: input.metadata ?? { name: "" } } as ApiObject;
  }

  /** The object's namespace is the path's. @throws StatusError 400 */
  checkNamespace({ definition, namespace }: ResourceRequest, { metadata }: ApiObject): void {
    if (!definition.namespaced) {
      delete metadata.namespace;
      return;
    }
    if (metadata.namespace !== undefined && metadata.namespace !== "" && metadata.namespace !== namespace) {
      throw badRequest("the namespace of the provided object does not match the namespace sent on the request");
    }
    metadata.namespace = namespace;
  }

  #track({ isApply = false, fieldManager }: WriteMode, write: Omit<TrackedWrite, "manager">): void {
    if (!isApply) trackUpdate(this.#components.models, { ...write, manager: fieldManager });
  }

  #exists({ definition, namespace }: ResourceRequest, name: string): boolean {
    return this.#components.store.get({ resource: resourceName(definition), namespace, name }) !== undefined;
  }

  #checkIdentity({ definition, name }: ResourceRequest, { metadata }: ApiObject, old: ApiObject, isPut: boolean): void {
    if (!metadata.name && isPut) metadata.name = name;
    if (metadata.name !== name) {
      throw badRequest(`the name of the object (${metadata.name}) does not match the name on the URL (${name})`);
    }
    if (metadata.uid !== undefined && metadata.uid !== "" && metadata.uid !== old.metadata.uid) {
      throw conflict(definition, name, uidMismatch(metadata.uid, old));
    }
    const wanted = metadata.resourceVersion;
    if (wanted === undefined || wanted === "" || wanted === "0") {
      if (definition.strategy.unconditionalUpdate === false) {
        throw invalidObject(definition, name, [
          invalidValue("metadata.resourceVersion", 0, "must be specified for an update"),
        ]);
      }
    } else if (wanted !== old.metadata.resourceVersion) throw conflict(definition, name, STALE_VERSION);
  }

  #prepare(definition: ResourceDefinition, object: ApiObject, old: ApiObject, context: StrategyContext): void {
    const { strategy, subresources = [] } = definition;
    keepSystemMetadata(object.metadata, old.metadata);
    strategy.default?.(object);
    if (context.subresource === "") {
      if (strategy.prepareForUpdate !== undefined) strategy.prepareForUpdate(object, old, context);
      else if (subresources.some(({ name }) => name === "status")) keepField(object, old, "status");
    } else if (strategy.prepareForSubresource !== undefined) strategy.prepareForSubresource(object, old, context);
    else keepAllBut(object, old, context.subresource);
    if (strategy.hasGeneration === true && differsInSpec(object, old)) {
      object.metadata.generation = (old.metadata.generation ?? 0) + 1;
    }
  }

  #refuse(definition: ResourceDefinition, object: ApiObject, errors: readonly FieldError[]): void {
    if (errors.length > 0) throw invalidObject(definition, object.metadata.name, errors);
  }

  /** Kubernetes' NamespaceLifecycle. */
  #checkNamespaceExists({ definition, namespace, name }: ResourceRequest): void {
    if (!definition.namespaced) return;
    const found = this.#components.reader.get("namespaces", "", namespace);
    if (found === undefined) throw notFound({ group: "", plural: "namespaces" }, namespace);
    if (found.metadata.deletionTimestamp === undefined) return;
    const why = `unable to create new content in namespace ${namespace} because it is being terminated`;
    const error = forbidden(definition, name, why);
    const causes = [
      {
        reason: "NamespaceTerminating",
        message: `namespace ${namespace} is being terminated`,
        field: "metadata.namespace",
      },
    ];
    throw new StatusError("Forbidden", error.message, { ...error.details, causes });
  }

  #mayGoNow(definition: ResourceDefinition, object: ApiObject): boolean {
    const { deletionTimestamp, deletionGracePeriodSeconds = 0, finalizers = [] } = object.metadata;
    if (deletionTimestamp === undefined || finalizers.length > 0) return false;
    return deletionGracePeriodSeconds === 0 && definition.strategy.blocksDeletion?.(object) !== true;
  }

  /** Kubernetes' BeforeDelete. @returns whether the object stays for now */
  #markDeleted(definition: ResourceDefinition, object: ApiObject, params: DeleteParams): boolean {
    const { strategy } = definition;
    const { metadata } = object;
    setPropagation(object, params.propagationPolicy);
    const seconds = strategy.gracePeriod?.(object, params.gracePeriodSeconds) ?? 0;
    const now = this.#components.now();
    if (metadata.deletionTimestamp !== undefined) {
      const current = metadata.deletionGracePeriodSeconds ?? 0;
      // Only a request that names a shorter time changes it.
      const wanted = params.gracePeriodSeconds === undefined ? current : Math.min(seconds, current);
      if (wanted < current)
        setDeletion(
          object,
          new Date(Math.min(now.getTime() + wanted * 1000, Date.parse(metadata.deletionTimestamp))),
          wanted,
        );
    } else {
      if (strategy.hasGeneration === true) metadata.generation = (metadata.generation ?? 0) + 1;
      setDeletion(object, new Date(now.getTime() + seconds * 1000), seconds);
      strategy.prepareForDelete?.(object);
    }
    return !this.#mayGoNow(definition, object);
  }

  #put(
    { definition, namespace }: ResourceRequest,
    type: "ADDED" | "MODIFIED" | "DELETED",
    object: ApiObject,
    old: ApiObject | undefined,
  ): void {
    const { store, now } = this.#components;
    const differs = old !== undefined && differsForSelectors(definition, object, old);
    store.put({
      key: { resource: resourceName(definition), namespace, name: object.metadata.name },
      type,
      object,
      previous: differs ? JSON.stringify(old) : undefined,
      expiresAt: definition.ttlSeconds === undefined ? undefined : now().getTime() + definition.ttlSeconds * 1000,
    });
  }
}

/**
 * @param storedBytes the size so far: what was stored before there was a limit may shrink, and lose its finalizers
 * @throws StatusError 413, where Kubernetes answers 500 with etcd's own error: it is the request that has to change
 */
function checkSize(object: ApiObject, storedBytes: number): void {
  const bytes = Buffer.byteLength(JSON.stringify(object));
  if (bytes <= MAX_OBJECT_BYTES || bytes <= storedBytes) return;
  throw tooLarge(`the object would be stored with ${bytes} bytes, limit is ${MAX_OBJECT_BYTES}`);
}

function checkKind(definition: ResourceDefinition, input: Record<string, unknown>): void {
  const expected = apiVersionOf(definition);
  const { version, kind: expectedKind } = definition;
  const { apiVersion = expected, kind = expectedKind } = input;
  // Any value may be there, and an object's own toString may be anything as well.
  const show = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));
  if (apiVersion !== expected && apiVersion !== "") {
    const given = show(apiVersion);
    throw badRequest(`the API version in the data (${given}) does not match the expected API version (${expected})`);
  }
  if (kind !== expectedKind && kind !== "") {
    const conversion = `converting (${version}.${show(kind)}) to (${version}.${expectedKind}): unknown conversion`;
    throw badRequest(`${show(kind)} in version "${version}" cannot be handled as a ${expectedKind}: ${conversion}`);
  }
  input.apiVersion = expected;
  input.kind = expectedKind;
}

const uidMismatch = (wanted: string, { metadata }: ApiObject): string =>
  `Precondition failed: UID in precondition: ${wanted}, UID in object meta: ${metadata.uid ?? ""}`;

/** @throws StatusError 409 */
export function checkPreconditions(
  definition: ResourceDefinition,
  name: string,
  object: ApiObject,
  { uid, resourceVersion }: Pick<DeleteParams, "uid" | "resourceVersion">,
): void {
  if (uid !== undefined && uid !== object.metadata.uid) throw conflict(definition, name, uidMismatch(uid, object));
  if (resourceVersion !== undefined && resourceVersion !== object.metadata.resourceVersion) {
    const why = `Precondition failed: ResourceVersion in precondition: ${resourceVersion}, ResourceVersion in object meta: ${object.metadata.resourceVersion ?? ""}`;
    throw conflict(definition, name, why);
  }
}

function setDeletion({ metadata }: ApiObject, at: Date, graceSeconds: number): void {
  metadata.deletionTimestamp = kubeTime(at);
  metadata.deletionGracePeriodSeconds = graceSeconds;
}

/** The garbage collector acts upon these finalizers. */
function setPropagation({ metadata }: ApiObject, policy: DeleteParams["propagationPolicy"]): void {
  if (policy === undefined) return;
  const others = (metadata.finalizers ?? []).filter((each) => each !== "orphan" && each !== "foregroundDeletion");
  const own = policy === "Orphan" ? ["orphan"] : policy === "Foreground" ? ["foregroundDeletion"] : [];
  const finalizers = [...others, ...own];
  if (finalizers.length > 0) metadata.finalizers = finalizers;
  else delete metadata.finalizers;
}

function keepField(object: ApiObject, old: ApiObject, field: string): void {
  if (old[field] === undefined) delete object[field];
  else object[field] = old[field];
}

function keepAllBut(object: ApiObject, old: ApiObject, field: string): void {
  for (const key of new Set([...Object.keys(object), ...Object.keys(old)])) {
    if (key === field) continue;
    if (key === "metadata") {
      const { labels, annotations, managedFields } = object.metadata;
      const kept = Object.entries({ labels, annotations, managedFields }).filter(([, value]) => value !== undefined);
      object.metadata = { ...old.metadata, ...Object.fromEntries(kept) };
    } else keepField(object, old, key);
  }
}

/** True when anything but metadata and status differs. */
function differsInSpec(a: ApiObject, b: ApiObject): boolean {
  const { metadata: _a, status: _as, ...left } = a;
  const { metadata: _b, status: _bs, ...right } = b;
  return !isDeepStrictEqual(left, right);
}
