import type { Clock, Random } from "@picolet/protocol/ports.ts";
import { requiredValue } from "../api/field-errors.ts";
import { type ApiObject, apiVersionOf, type ObjectLookup, type UserInfo } from "../api/resource-definition.ts";
import type { ResourceTable } from "../api/resource-table.ts";
import { badRequest, invalidObject, methodNotAllowed, StatusError } from "../api/status-error.ts";
import { SLICE_MS, Turns } from "../api/turns.ts";
import { applyObjectPatch, type PatchType } from "../patch/apply-patch.ts";
import { applyConfiguration } from "../patch/server-side-apply.ts";
import { checkModel } from "../schema/decode.ts";
import type { ModelSource } from "../schema/models.ts";
import type { ObjectKeys, ObjectStore } from "../store/object-store.ts";
import { type ListResult, parseObject, ResourceReader } from "./resource-reader.ts";
import type {
  Admission,
  DeleteParams,
  ListParams,
  ResourceRequest,
  WatchParams,
  WriteParams,
} from "./resource-request.ts";
import { type WatchItem, watchResource } from "./resource-watch.ts";
import { type Mutation, ResourceWriter, type WriteMode } from "./resource-writer.ts";

type Fields = Record<string, unknown>;

export interface WriteResult {
  readonly object: ApiObject;
  readonly isCreated: boolean;
}

/** A subresource that is more than a part of its object. Its requests have been admitted when they come here. */
export interface SubresourceHandler {
  create(request: ResourceRequest, input: Fields, params: WriteParams): Promise<ApiObject>;
}

export interface ServiceComponents {
  readonly store: ObjectStore;
  readonly table: ResourceTable;
  readonly models: ModelSource;
  readonly admission: Admission;
  /** Judges what `admission` let through and the resource's own validation found right. */
  readonly validation: Admission;
  /** @returns what the turns of a user are counted by */
  readonly budgetOf: (user: string) => string;
  readonly clock: Clock;
  readonly random: Random;
}

/**
 * Objects that a delete of a collection takes in one go before others get a turn. Each is 0.2 ms, or 30 ms at the
 * largest.
 */
const DELETE_PAGE = 10;
/** As in Kubernetes: a patch of an object that keeps changing. The last attempt is computed and written in one go. */
const MAX_PATCH_ATTEMPTS = 5;
/** Expired objects removed in one go; the rest follows with the next round. */
const MAX_EXPIRED = 1000;

/**
 * Everything that can be done with resources, for requests that are authorized. The HTTP side and the controllers'
 * client both call it. What it returns is safe on disk.
 */
export class ResourceService {
  /** Turns of all requests whose work is divided. */
  readonly turns: Turns;
  readonly #components: ServiceComponents;
  readonly #handlers = new Map<string, SubresourceHandler>();
  readonly #reader: ResourceReader;
  readonly #writer: ResourceWriter;

  constructor(components: ServiceComponents) {
    const { store, table, models, admission, validation, budgetOf, random, clock } = components;
    const now = (): Date => clock.wall();
    this.#components = components;
    this.turns = new Turns(budgetOf);
    this.#reader = new ResourceReader({ store, table, now, random, turns: this.turns });
    this.#writer = new ResourceWriter({ store, reader: this.#reader, models, admission, validation, random, now });
  }

  get lookup(): ObjectLookup {
    return this.#reader;
  }

  /** @param path `pods/binding` */
  addHandler(path: string, handler: SubresourceHandler): void {
    this.#handlers.set(path, handler);
  }

  /** @returns the object as JSON text */
  async get(request: ResourceRequest): Promise<string> {
    if (this.#handlerOf(request) !== undefined) throw methodNotAllowed();
    const { live } = request.definition;
    if (live !== undefined) return JSON.stringify(this.#reader.fetchLive(live, request));
    const { body } = this.#reader.fetch(request);
    await this.#components.store.settled();
    return body;
  }

  async list(request: ResourceRequest, params: ListParams): Promise<ListResult> {
    const result = await this.#reader.listFor(request, params);
    await this.#components.store.settled();
    return result;
  }

  /** @throws StatusError at once for a request that is wrong */
  watch(request: ResourceRequest, params: WatchParams, signal: AbortSignal): AsyncGenerator<WatchItem> {
    return watchResource({ ...this.#components, turns: this.turns }, request, params, signal);
  }

  async create(request: ResourceRequest, input: Fields, params: WriteParams): Promise<WriteResult> {
    const { definition, subresource } = request;
    const handler = this.#handlerOf(request);
    if (handler !== undefined) {
      const object = { metadata: { name: "" }, ...input } as ApiObject;
      this.#components.admission({ operation: "CREATE", request, object, old: undefined });
      return { object: await handler.create(request, input, params), isCreated: true };
    }
    if (subresource !== "") throw methodNotAllowed();
    if (definition.answer !== undefined) {
      const object = this.#writer.decode(request, input, params);
      definition.strategy.default?.(object);
      if (definition.namespaced) this.#writer.checkNamespace(request, object);
      this.#components.admission({ operation: "CREATE", request, object, old: undefined });
      return { object: await definition.answer(object, this.#reader.contextOf(request)), isCreated: true };
    }
    if (definition.load !== undefined) await definition.load();
    const object = this.#writer.create(request, input, params);
    await this.#components.store.settled();
    return { object, isCreated: true };
  }

  async update(request: ResourceRequest, input: Fields, params: WriteParams): Promise<WriteResult> {
    if (this.#handlerOf(request) !== undefined) throw methodNotAllowed();
    const { definition, subresource } = request;
    if (definition.strategy.createOnUpdate === true && subresource === "" && !this.#writer.exists(request)) {
      request.authorizeCreate();
      const metadata = typeof input.metadata === "object" ? input.metadata : {};
      return this.create(request, { ...input, metadata: { ...metadata, name: request.name } }, params);
    }
    if (definition.load !== undefined) await definition.load();
    const object = this.#writer.update(request, () => input, { ...params, isPut: true });
    await this.#components.store.settled();
    return { object, isCreated: false };
  }

  /** @param patch parsed JSON or YAML */
  async patch(
    request: ResourceRequest,
    type: PatchType | "apply",
    patch: unknown,
    params: WriteParams,
  ): Promise<WriteResult> {
    const { definition } = request;
    const { models, store } = this.#components;
    if (this.#handlerOf(request) !== undefined) throw methodNotAllowed();
    if (definition.load !== undefined) await definition.load();
    if (type === "apply") return this.#apply(request, patch, params);
    const mutate: Mutation = (read) => {
      const fields = applyObjectPatch(models, definition.model, type, read(), patch);
      if (params.fieldValidation !== "Ignore") this.#reportUnknown(request, fields, patch, params);
      return fields;
    };
    const object = await this.#patched(request, mutate, { ...params, fieldValidation: "Ignore" });
    await store.settled();
    return { object, isCreated: false };
  }

  async delete(request: ResourceRequest, params: DeleteParams): Promise<{ object: ApiObject; isGone: boolean }> {
    if (request.subresource !== "") throw methodNotAllowed();
    const result = this.#writer.delete(request, params);
    await this.#components.store.settled();
    return result;
  }

  /** @returns JSON texts of what was there */
  async deleteCollection(request: ResourceRequest, list: ListParams, params: DeleteParams): Promise<ListResult> {
    const result = await this.#reader.listFor(request, list);
    for (const [index, body] of result.items.entries()) {
      const { metadata } = parseObject({ body });
      const single = { ...request, name: metadata.name, namespace: metadata.namespace ?? "" };
      if (this.#writer.exists(single)) this.#writer.delete(single, params);
      if (index % DELETE_PAGE === DELETE_PAGE - 1) await this.turns.next(request.user.name);
    }
    await this.#components.store.settled();
    return result;
  }

  /**
   * Changes one object on behalf of a subresource, in one step with everything that `change` reads. The request for the
   * subresource has been admitted; what the server writes because of it is not admitted again as the client's.
   * @param change gets what is stored and changes it in place
   */
  async modify(request: ResourceRequest, change: (object: ApiObject) => void, params: WriteParams): Promise<ApiObject> {
    const mutate: Mutation = (read) => {
      const object = read();
      change(object);
      return object;
    };
    const object = this.#writer.update(request, mutate, { ...params, isPut: false, isInternal: true });
    await this.#components.store.settled();
    return object;
  }

  /** Removes what has outlived its ttl. */
  removeExpired(user: UserInfo): void {
    for (const key of this.#components.store.expiredKeys(MAX_EXPIRED)) this.remove(user, key);
  }

  /** Removes an object at once, if it is there. */
  remove(user: UserInfo, { resource, namespace, name }: ObjectKeys): void {
    const definition = this.#components.table.named(resource);
    if (definition === undefined) return;
    const common = { user, definition, subresource: "", namespace, name };
    const request = { ...common, warnings: [], authorizeCreate: () => undefined };
    if (this.#writer.exists(request)) this.#writer.delete(request, NOW);
  }

  #handlerOf({ definition, subresource }: ResourceRequest): SubresourceHandler | undefined {
    return subresource === "" ? undefined : this.#handlers.get(`${definition.plural}/${subresource}`);
  }

  #reportUnknown(
    { definition, warnings }: ResourceRequest,
    fields: Fields,
    patch: unknown,
    { fieldValidation }: WriteParams,
  ): void {
    const { unknown } = checkModel(this.#components.models, definition.model, fields);
    if (unknown.length === 0) return;
    if (fieldValidation === "Warn") {
      warnings.push(...unknown);
      return;
    }
    const shown = JSON.stringify(patch) ?? "";
    throw new StatusError(
      "Invalid",
      ` "" is invalid: patch: Invalid value: ${JSON.stringify(shown)}: strict decoding error: ${unknown.join(", ")}`,
      {
        causes: unknown.map((message) => ({
          reason: "FieldValueInvalid",
          message: `strict decoding error: ${message}`,
          field: "patch",
        })),
      },
    );
  }

  async #apply(request: ResourceRequest, patch: unknown, params: WriteParams): Promise<WriteResult> {
    const { models, clock, store } = this.#components;
    const { definition, name, subresource } = request;
    const config = this.#readConfiguration(request, patch, params);
    const common = {
      definition,
      config,
      manager: params.fieldManager,
      subresource,
      isForced: params.isForced,
      now: clock.wall(),
    };
    if (!this.#writer.exists(request) && subresource === "") {
      if (config.metadata.uid !== undefined) {
        throw new StatusError(
          "Conflict",
          `uid mismatch: the provided object specified uid ${config.metadata.uid}, and no existing object was found`,
        );
      }
      request.authorizeCreate();
      const made = applyConfiguration(models, { ...common, live: undefined });
      const object = this.#writer.create({ ...request, name: "" }, made, { ...params, isApply: true });
      await store.settled();
      return { object, isCreated: true };
    }
    const mutate: Mutation = (read) => {
      const applied = applyConfiguration(models, { ...common, live: read() });
      applied.metadata.name = name;
      return applied;
    };
    const object = await this.#patched(request, mutate, { ...params, isApply: true });
    await store.settled();
    return { object, isCreated: false };
  }

  /**
   * A patch that takes long is computed first and written in a later round of the event loop. It is computed again if
   * the object has been written in between.
   */
  async #patched(request: ResourceRequest, mutate: Mutation, params: WriteMode): Promise<ApiObject> {
    const { clock } = this.#components;
    const mode = { ...params, isPut: false };
    for (let attempt = 1; attempt < MAX_PATCH_ATTEMPTS; attempt += 1) {
      const stored = this.#reader.fetch(request);
      const start = clock.monotonic();
      const changed = mutate(() => parseObject(stored));
      if (clock.monotonic() - start < SLICE_MS) return this.#writer.update(request, () => changed, mode);
      await this.turns.next(request.user.name);
      const { revision } = this.#reader.fetch(request);
      if (revision === stored.revision) return this.#writer.update(request, () => changed, mode);
    }
    return this.#writer.update(request, mutate, mode);
  }

  #readConfiguration(request: ResourceRequest, patch: unknown, params: WriteParams): ApiObject {
    const { definition, name, namespace } = request;
    if (params.fieldManager === "") {
      throw invalidObject({ group: "meta.k8s.io", kind: "PatchOptions" }, "", [
        requiredValue("fieldManager", "is required for apply patch"),
      ]);
    }
    if (typeof patch !== "object" || patch === null || Array.isArray(patch))
      throw badRequest("error decoding YAML: expected an object");
    const fields = patch as Fields;
    if (fields.apiVersion === undefined || fields.kind === undefined) {
      throw badRequest("invalid object type: apiVersion and kind are required");
    }
    const { unknown } = checkModel(this.#components.models, definition.model, fields);
    const [first] = unknown;
    if (first !== undefined) {
      const path = /"(.*)"/.exec(first)?.[1] ?? "";
      const what = `${namespace}/${name}; ${apiVersionOf(definition)}, Kind=${definition.kind}`;
      throw badRequest(`failed to create typed patch object (${what}): .${path}: field not declared in schema`);
    }
    const config = this.#writer.decode(request, fields, params);
    if (config.metadata.managedFields !== undefined) throw badRequest("metadata.managedFields must be nil");
    if (config.metadata.name === undefined || config.metadata.name === "") config.metadata.name = name;
    if (config.metadata.name !== name) {
      throw badRequest(`the name of the object (${config.metadata.name}) does not match the name on the URL (${name})`);
    }
    this.#writer.checkNamespace(request, config);
    return config;
  }
}

const NOW: DeleteParams = {
  isDryRun: false,
  gracePeriodSeconds: 0,
  propagationPolicy: undefined,
  uid: undefined,
  resourceVersion: undefined,
};
