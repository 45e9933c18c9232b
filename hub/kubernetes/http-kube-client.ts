import type {
  DeleteOptions,
  KubeClient,
  KubeList,
  KubeObject,
  ListOptions,
  ObjectRef,
  PatchKind,
  ResourceType,
  WatchEvent,
  WriteOptions,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { KubeCall, KubeTransport } from "./kube-transport.ts";
import { LineSplitter } from "./line-splitter.ts";
import { responseError } from "./response-error.ts";

/** etcd holds 1.5 MiB an object, in protobuf; JSON and base64 make it larger, but never five times. */
const MAX_WATCH_LINE_BYTES = 8 * MEBIBYTE;
/** The server ends a watch after this, so that load spreads over its replicas again. */
const WATCH_SECONDS = 540;

const PATCH_CONTENT_TYPES: Readonly<Record<PatchKind, string>> = {
  json: "application/json-patch+json",
  merge: "application/merge-patch+json",
  strategic: "application/strategic-merge-patch+json",
  apply: "application/apply-patch+yaml",
};

const METADATA_ONLY = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST_ONLY = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

type Headers = Readonly<Record<string, string | readonly string[]>>;

/** A KubeClient over HTTPS. Cheap: all that is expensive is the transport's, which the clients of `as` share. */
export class HttpKubeClient implements KubeClient {
  readonly #transport: KubeTransport;
  readonly #identity: Headers;

  /** @param identity headers that say who acts; `as` makes them */
  constructor(transport: KubeTransport, identity: Headers = {}) {
    this.#transport = transport;
    this.#identity = identity;
  }

  as(user: string, groups: readonly string[]): KubeClient {
    return new HttpKubeClient(this.#transport, { "impersonate-user": user, "impersonate-group": groups });
  }

  async get(type: ResourceType, ref: ObjectRef, signal: AbortSignal): Promise<KubeObject> {
    return await this.#object("GET", objectPath(type, ref), {}, undefined, describe("get", type, ref), signal);
  }

  async list(type: ResourceType, options: ListOptions, signal: AbortSignal): Promise<KubeList> {
    const path = `${collectionPath(type, options.namespace)}${query(listQuery(options))}`;
    const accept = options.metadataOnly
      ? `application/json;${METADATA_LIST_ONLY},application/json`
      : "application/json";
    const what = `list ${type.plural}`;
    const call: KubeCall = { method: "GET", path, headers: { ...this.#identity, accept }, what };
    return listOf(await this.#transport.send(call, signal), type, what);
  }

  async *watch(type: ResourceType, options: ListOptions, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    const parameters = {
      ...listQuery(options),
      watch: "1",
      allowWatchBookmarks: "true",
      timeoutSeconds: WATCH_SECONDS,
    };
    const path = `${collectionPath(type, options.namespace)}${query(parameters)}`;
    const accept = options.metadataOnly ? `application/json;${METADATA_ONLY},application/json` : "application/json";
    const what = `watch ${type.plural}`;
    const call: KubeCall = { method: "GET", path, headers: { ...this.#identity, accept }, what };
    const lines = new LineSplitter(MAX_WATCH_LINE_BYTES);
    for await (const chunk of this.#transport.stream(call, signal)) {
      for (const line of lines.push(chunk)) {
        if (signal.aborted) throw cancelled(what);
        yield watchEventOf(line, type, what);
      }
    }
  }

  async create(
    type: ResourceType,
    ref: ObjectRef,
    object: Readonly<Record<string, unknown>>,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    const isBelow = options.subresource !== undefined;
    const path = isBelow ? objectPath(type, ref, options) : collectionPath(type, placeOf(type, ref));
    const full = `${path}${query(writeQuery(options))}`;
    return await this.#object("POST", full, JSON_BODY, object, describe("create", type, ref, options), signal);
  }

  async update(
    type: ResourceType,
    ref: ObjectRef,
    object: KubeObject,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    const path = `${objectPath(type, ref, options)}${query(writeQuery(options))}`;
    return await this.#object("PUT", path, JSON_BODY, object, describe("update", type, ref, options), signal);
  }

  async patch(
    type: ResourceType,
    ref: ObjectRef,
    kind: PatchKind,
    patch: unknown,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    const parameters = { ...writeQuery(options), ...(kind === "apply" ? { force: "true" } : {}) };
    const path = `${objectPath(type, ref, options)}${query(parameters)}`;
    const headers = { "content-type": PATCH_CONTENT_TYPES[kind] };
    return await this.#object("PATCH", path, headers, patch, describe("patch", type, ref, options), signal);
  }

  async delete(type: ResourceType, ref: ObjectRef, options: DeleteOptions, signal: AbortSignal): Promise<void> {
    const { uid, resourceVersion, gracePeriodSeconds, propagationPolicy } = options;
    const body = {
      apiVersion: "v1",
      kind: "DeleteOptions",
      gracePeriodSeconds,
      propagationPolicy,
      preconditions: uid === undefined && resourceVersion === undefined ? undefined : { uid, resourceVersion },
    };
    await this.#send("DELETE", objectPath(type, ref), JSON_BODY, body, describe("delete", type, ref), signal);
  }

  async #object(
    method: KubeCall["method"],
    path: string,
    headers: Headers,
    body: unknown,
    what: string,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    const answer = await this.#send(method, path, headers, body, what, signal);
    if (!isObject(answer))
      throw new PicoletError("corrupt", `cannot ${what}: the answer is no object`, { retryable: true });
    return answer;
  }

  #send(
    method: KubeCall["method"],
    path: string,
    headers: Headers,
    body: unknown,
    what: string,
    signal: AbortSignal,
  ): Promise<unknown> {
    const call = { method, path, headers: { accept: "application/json", ...headers, ...this.#identity }, what };
    return this.#transport.send(body === undefined ? call : { ...call, body: JSON.stringify(body) }, signal);
  }
}

const JSON_BODY: Headers = { "content-type": "application/json" };

const isObject = (value: unknown): value is KubeObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const segment = (text: string): string => encodeURIComponent(text);

const placeOf = (type: ResourceType, ref: ObjectRef): string | undefined =>
  type.namespaced ? ref.namespace : undefined;

function collectionPath({ group, version, plural }: ResourceType, namespace: string | undefined): string {
  const root = group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
  return namespace === undefined ? `${root}/${plural}` : `${root}/namespaces/${segment(namespace)}/${plural}`;
}

/** @throws `invalid` for a name that would be another path */
function objectPath(type: ResourceType, ref: ObjectRef, options: WriteOptions = {}): string {
  if (ref.name === "" || ref.name === "." || ref.name === ".." || (type.namespaced && ref.namespace === "")) {
    throw new PicoletError("invalid", `cannot address a ${type.kind} without its name and namespace`);
  }
  const below = options.subresource === undefined ? "" : `/${segment(options.subresource)}`;
  return `${collectionPath(type, placeOf(type, ref))}/${segment(ref.name)}${below}`;
}

function describe(verb: string, type: ResourceType, ref: ObjectRef, options: WriteOptions = {}): string {
  const below = options.subresource === undefined ? "" : ` (${options.subresource})`;
  const name = [ref.namespace, ref.name].filter((part) => part !== "").join("/");
  return `${verb} ${type.kind} ${name}${below}`;
}

type Parameters = Readonly<Record<string, string | number | undefined>>;

const listQuery = (options: ListOptions): Parameters => ({
  labelSelector: options.labelSelector,
  fieldSelector: options.fieldSelector,
  limit: options.limit,
  continue: options.continue,
  resourceVersion: options.resourceVersion,
});

const writeQuery = (options: WriteOptions): Parameters => ({
  dryRun: options.dryRun ? "All" : undefined,
  fieldManager: options.fieldManager,
});

function query(parameters: Parameters): string {
  const given = Object.entries(parameters).flatMap(([name, value]) =>
    value === undefined || value === "" ? [] : [`${name}=${encodeURIComponent(String(value))}`],
  );
  return given.length === 0 ? "" : `?${given.join("&")}`;
}

/**
 * Items of a list carry neither kind nor apiVersion; here they get them, so that objects are alike wherever they come
 * from.
 */
function listOf(answer: unknown, type: ResourceType, what: string): KubeList {
  const { items, metadata } = answer as {
    items?: unknown;
    metadata?: { resourceVersion?: unknown; continue?: unknown };
  };
  if (items !== null && items !== undefined && !Array.isArray(items)) {
    throw new PicoletError("corrupt", `cannot ${what}: the answer is no list`, { retryable: true });
  }
  if (typeof metadata?.resourceVersion !== "string") {
    throw new PicoletError("corrupt", `cannot ${what}: the list has no resourceVersion`, { retryable: true });
  }
  const next = typeof metadata.continue === "string" && metadata.continue !== "" ? metadata.continue : undefined;
  return {
    items: (items ?? []).filter(hasName).map((item) => typed(item, type)),
    resourceVersion: metadata.resourceVersion,
    continue: next,
  };
}

const hasName = (item: unknown): item is KubeObject =>
  isObject(item) && isObject(item.metadata) && typeof (item.metadata as { name?: unknown }).name === "string";

function typed(object: KubeObject, type: ResourceType): KubeObject {
  const apiVersion = type.group === "" ? type.version : `${type.group}/${type.version}`;
  if (object.kind === type.kind && object.apiVersion === apiVersion) return object;
  return { ...object, apiVersion, kind: type.kind };
}

/** @throws the server's own error, `corrupt` for what is no watch event */
function watchEventOf(line: string, type: ResourceType, what: string): WatchEvent {
  const event = parsed(line, what);
  if (!isObject(event) || !isObject(event.object)) throw notAnEvent(what);
  const { type: kind, object } = event as unknown as { type: unknown; object: KubeObject };
  if (kind === "ERROR") throw responseError(500, object, what);
  if (kind === "BOOKMARK") {
    const resourceVersion = (object.metadata as { resourceVersion?: unknown } | undefined)?.resourceVersion;
    if (typeof resourceVersion !== "string") throw notAnEvent(what);
    return { type: kind, resourceVersion };
  }
  if ((kind !== "ADDED" && kind !== "MODIFIED" && kind !== "DELETED") || !hasName(object)) throw notAnEvent(what);
  if (typeof object.metadata.resourceVersion !== "string") throw notAnEvent(what);
  return { type: kind, object: typed(object, type) };
}

function parsed(line: string, what: string): unknown {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw new PicoletError("corrupt", `cannot ${what}: a line is no JSON`, { retryable: true, cause: error });
  }
}

const notAnEvent = (what: string): PicoletError =>
  new PicoletError("corrupt", `cannot ${what}: a line is no watch event`, { retryable: true });
