/** HTTP around ResourceService: parameters, bodies, forms of answers. */
import type { IncomingMessage } from "node:http";
import type { Clock } from "@picolet/protocol/ports.ts";
import {
  ALL_VERBS,
  type ApiObject,
  apiVersionOf,
  type ResourceDefinition,
  type UserInfo,
} from "../api/resource-definition.ts";
import { badRequest, methodNotAllowed, StatusError } from "../api/status-error.ts";
import { SLICE_BYTES } from "../api/turns.ts";
import type { PatchType } from "../patch/apply-patch.ts";
import { type IncludeObject, toPartial, toTable } from "../printing/table.ts";
import { BODY_MODELS } from "../schema/body-models.ts";
import type { ModelSource } from "../schema/models.ts";
import { PROTOBUF_TYPE, ProtobufReader } from "../schema/protobuf.ts";
import { deleteParams, listParams, watchParams, writeParams } from "../service/params.ts";
import type { ListResult } from "../service/resource-reader.ts";
import type { ResourceRequest, UserMemory, WriteParams } from "../service/resource-request.ts";
import type { ResourceService } from "../service/resource-service.ts";
import type { WatchItem } from "../service/resource-watch.ts";
import { type BodyReaders, mediaType, type ParsedBody, parseBody, parseObjectBody, requireMediaType } from "./body.ts";
import { type Negotiated, NOT_ACCEPTABLE, negotiate } from "./negotiation.ts";
import { encoderOf, formattingWork, type Reply } from "./reply.ts";
import type { RequestVerb, ResourcePath } from "./request-info.ts";
import { YamlReader } from "./yaml-reader.ts";

export interface ResourceCall {
  readonly message: IncomingMessage;
  /** Empty where there is none. */
  readonly body: Buffer;
  readonly query: URLSearchParams;
  readonly path: ResourcePath;
  readonly verb: RequestVerb;
  readonly definition: ResourceDefinition;
  readonly user: UserInfo;
  readonly warnings: string[];
  readonly authorizeCreate: () => void;
  readonly memory: UserMemory | undefined;
  /** Aborts when the client goes away or the server stops. */
  readonly signal: AbortSignal;
}

interface Answer {
  readonly call: ResourceCall;
  readonly negotiated: Negotiated;
}

const BODY_TYPES = ["application/json", "application/yaml", PROTOBUF_TYPE, ""];

const PATCH_TYPES: Readonly<Record<string, PatchType | "apply">> = {
  "application/json-patch+json": "json",
  "application/merge-patch+json": "merge",
  "application/strategic-merge-patch+json": "strategic",
  "application/apply-patch+yaml": "apply",
};

export interface ResourceEndpointComponents {
  readonly service: ResourceService;
  readonly clock: Clock;
  readonly models: ModelSource;
}

export class ResourceEndpoint {
  readonly #service: ResourceService;
  readonly #clock: Clock;
  readonly #readers: BodyReaders;

  constructor({ service, clock, models }: ResourceEndpointComponents) {
    this.#service = service;
    this.#clock = clock;
    this.#readers = { protobuf: new ProtobufReader(models), yaml: new YamlReader(clock) };
  }

  /** @throws StatusError */
  async handle(call: ResourceCall): Promise<Reply> {
    this.#requireVerb(call);
    const negotiated = negotiate(call.message.headers.accept);
    if (negotiated === undefined) throw new StatusError("NotAcceptable", NOT_ACCEPTABLE);
    const answer: Answer = { call, negotiated };
    switch (call.verb) {
      case "get":
        return this.#one(answer, 200, await this.#service.get(requestOf(call)));
      case "list":
        return await this.#list(answer, await this.#service.list(requestOf(call), listParams(call.query)));
      case "watch":
        return this.#watch(answer);
      case "create":
      case "update":
        return this.#write(answer);
      case "patch":
        return this.#patch(answer);
      case "delete":
        return this.#delete(answer);
      case "deletecollection":
        return this.#deleteCollection(answer);
    }
  }

  #requireVerb({ definition, path, verb, message }: ResourceCall): void {
    if (message.method === "HEAD") throw methodNotAllowed();
    if (path.subresource === "") {
      const isCollectionVerb = ["list", "create", "deletecollection"].includes(verb);
      // A POST with a name and the like is no verb of an object.
      if (verb === "create" && path.name !== "") throw methodNotAllowed();
      if (!isCollectionVerb && path.name === "" && verb !== "watch") throw methodNotAllowed();
      const isWide = definition.namespaced && path.namespace === "" && !["list", "watch"].includes(verb);
      if (isWide || !(definition.verbs ?? ALL_VERBS).includes(verb)) throw methodNotAllowed();
      return;
    }
    const subresource = definition.subresources?.find(({ name }) => name === path.subresource);
    if (subresource === undefined || path.rest !== "")
      throw new StatusError("NotFound", "the server could not find the requested resource", {});
    if (!subresource.verbs.some((each) => each === verb)) throw methodNotAllowed();
  }

  async #write(answer: Answer): Promise<Reply> {
    const { call } = answer;
    const isCreate = call.verb === "create";
    const type = mediaType(call.message.headers["content-type"]);
    requireMediaType(type, BODY_TYPES);
    const params = writeParams(isCreate ? "CreateOptions" : "UpdateOptions", call.query, userAgentOf(call), false);
    const kind = call.definition.subresources?.find(({ name }) => name === call.path.subresource)?.kind?.kind ?? "";
    const model = BODY_MODELS[kind] ?? call.definition.model;
    const raw = { bytes: call.body, type, user: call.user.name };
    await this.#pause(call, raw.bytes.length);
    const body = await parseObjectBody(this.#readers, raw, model);
    await this.#pause(call, raw.bytes.length);
    const fields = objectOf(body, call);
    reportDuplicates(call, body, params);
    const request = requestOf(call);
    const result = isCreate
      ? await this.#service.create(request, fields, params)
      : await this.#service.update(request, fields, params);
    return this.#one(answer, result.isCreated ? 201 : 200, JSON.stringify(result.object));
  }

  async #patch(answer: Answer): Promise<Reply> {
    const { call } = answer;
    const contentType = mediaType(call.message.headers["content-type"]);
    const type = PATCH_TYPES[contentType];
    if (type === undefined) {
      requireMediaType(contentType, Object.keys(PATCH_TYPES));
      throw methodNotAllowed();
    }
    const params = writeParams("PatchOptions", call.query, userAgentOf(call), type === "apply");
    if (params.isForced && type !== "apply") {
      throw new StatusError(
        "Invalid",
        'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch',
        {},
      );
    }
    const raw = { bytes: call.body, type: contentType, user: call.user.name };
    await this.#pause(call, raw.bytes.length);
    const body = await parseBody(this.#readers, raw);
    await this.#pause(call, raw.bytes.length);
    reportDuplicates(call, body, params);
    const result = await this.#service.patch(requestOf(call), type, body.value, params);
    return this.#one(answer, result.isCreated ? 201 : 200, JSON.stringify(result.object));
  }

  async #delete(answer: Answer): Promise<Reply> {
    const { call } = answer;
    const params = deleteParams(call.query, await this.#readOptions(call));
    const { object, isGone } = await this.#service.delete(requestOf(call), params);
    if (!isGone) return this.#one(answer, 200, JSON.stringify(object));
    const { plural, group } = call.definition;
    const { name, uid } = object.metadata;
    const status = {
      kind: "Status",
      apiVersion: "v1",
      metadata: {},
      status: "Success",
      details: { name, ...(group === "" ? {} : { group }), kind: plural, uid },
    };
    return this.#plain(answer, 200, JSON.stringify(status));
  }

  async #deleteCollection(answer: Answer): Promise<Reply> {
    const { call } = answer;
    const params = deleteParams(call.query, await this.#readOptions(call));
    return await this.#list(
      answer,
      await this.#service.deleteCollection(requestOf(call), listParams(call.query), params),
    );
  }

  /** Between two parts of a request's work that take as long as `length` characters do. */
  async #pause({ user }: ResourceCall, length: number): Promise<void> {
    if (length >= SLICE_BYTES) await this.#service.turns.next(user.name);
  }

  async #readOptions({
    message,
    user,
    body: bytes,
  }: ResourceCall): Promise<Readonly<Record<string, unknown>> | undefined> {
    if (bytes.length === 0) return undefined;
    const type = mediaType(message.headers["content-type"]);
    requireMediaType(type, BODY_TYPES);
    const raw = { bytes, type, user: user.name };
    const { value } = await parseObjectBody(this.#readers, raw, BODY_MODELS.DeleteOptions ?? "");
    if (typeof value !== "object" || value === null || Array.isArray(value))
      throw badRequest("cannot decode DeleteOptions");
    return value as Readonly<Record<string, unknown>>;
  }

  async #plain({ call, negotiated: { encoding } }: Answer, status: number, json: string): Promise<Reply> {
    await this.#pause(call, formattingWork(encoding, isPretty(call), json.length));
    const encode = encoderOf(encoding, isPretty(call));
    return { kind: "body", status, ...encode(json), headers: warningHeaders(call) };
  }

  async #one(answer: Answer, status: number, json: string): Promise<Reply> {
    const { form } = answer.negotiated;
    if (form.kind === "object") return this.#plain(answer, status, json);
    await this.#pause(answer.call, json.length);
    const object = JSON.parse(json) as ApiObject;
    if (form.kind === "partial") return this.#plain(answer, status, JSON.stringify(toPartial(object, form.version)));
    const { resourceVersion } = object.metadata;
    return this.#plain(
      answer,
      status,
      JSON.stringify(this.#table(answer.call, [object], form.version, { resourceVersion }, true)),
    );
  }

  async #list(answer: Answer, { items, revision, continueToken, remaining }: ListResult): Promise<Reply> {
    const { call, negotiated } = answer;
    const { definition } = call;
    const metadata = {
      resourceVersion: String(revision),
      ...(continueToken === "" ? {} : { continue: continueToken }),
      ...(remaining === undefined ? {} : { remainingItemCount: remaining }),
    };
    const { form } = negotiated;
    if (form.kind === "object") {
      const kind = definition.listKind ?? `${definition.kind}List`;
      const head = JSON.stringify({ kind, apiVersion: apiVersionOf(definition), metadata }).slice(0, -1);
      return this.#plain(answer, 200, `${head},"items":[${items.join(",")}]}`);
    }
    const shown = await this.#shownIn(answer, items);
    if (form.kind === "table") {
      // The rows come last.
      const { rows: _none, ...head } = this.#table(call, [], form.version, metadata, true);
      return this.#plain(answer, 200, `${JSON.stringify(head).slice(0, -1)},"rows":[${shown.join(",")}]}`);
    }
    const head = { kind: "PartialObjectMetadataList", apiVersion: `meta.k8s.io/${form.version}`, metadata };
    return this.#plain(answer, 200, `${JSON.stringify(head).slice(0, -1)},"items":[${shown.join(",")}]}`);
  }

  /** JSON texts of the rows or partial objects of `items`. */
  async #shownIn({ call, negotiated: { form } }: Answer, items: readonly string[]): Promise<readonly string[]> {
    const shown: string[] = [];
    const slices = this.#service.turns.slices(call.user.name);
    for (const item of items) {
      await slices.add(item.length);
      const object = JSON.parse(item) as ApiObject;
      if (form.kind === "partial") shown.push(JSON.stringify(toPartial(object, form.version)));
      else if (form.kind === "table") {
        const { rows } = this.#table(call, [object], form.version, {}, false);
        shown.push(JSON.stringify(rows).slice(1, -1));
      }
    }
    return shown;
  }

  #watch(answer: Answer): Reply {
    const { call, negotiated } = answer;
    if (negotiated.encoding !== "json") throw new StatusError("NotAcceptable", NOT_ACCEPTABLE);
    const items = this.#service.watch(requestOf(call), watchParams(call.query), call.signal);
    return { kind: "stream", contentType: "application/json", chunks: this.#lines(answer, items) };
  }

  async *#lines({ call, negotiated: { form } }: Answer, items: AsyncIterable<WatchItem>): AsyncIterable<string> {
    let hasColumns = true;
    for await (const item of items) {
      if (item.type === "ERROR") {
        yield `{"type":"ERROR","object":${JSON.stringify(item.error.toStatus())}}\n`;
        return;
      }
      if (form.kind === "object") {
        const body = item.type === "BOOKMARK" ? JSON.stringify(bookmarkOf(call.definition, item)) : item.body;
        yield `{"type":"${item.type}","object":${body}}\n`;
        continue;
      }
      const object = item.type === "BOOKMARK" ? bookmarkOf(call.definition, item) : item.object;
      if (form.kind === "partial") {
        yield `${JSON.stringify({ type: item.type, object: toPartial(object, form.version) })}\n`;
        continue;
      }
      const { resourceVersion } = object.metadata;
      const rows = item.type === "BOOKMARK" ? [] : [object];
      const table = this.#table(call, rows, form.version, { resourceVersion }, hasColumns);
      // A bookmark's row has the object alone.
      if (item.type === "BOOKMARK") table.rows = [{ cells: [], object: toPartial(object, form.version) }];
      else hasColumns = false;
      yield `${JSON.stringify({ type: item.type, object: table })}\n`;
    }
  }

  #table(
    { definition, query }: ResourceCall,
    objects: readonly ApiObject[],
    version: "v1" | "v1beta1",
    metadata: Readonly<Record<string, unknown>>,
    hasColumns: boolean,
  ): Record<string, unknown> {
    const asked = query.get("includeObject");
    const include: IncludeObject = asked === "None" || asked === "Object" ? asked : "Metadata";
    return toTable(definition, objects, { version, include, now: this.#clock.wall(), hasColumns, metadata });
  }
}

const requestOf = ({ user, definition, path, warnings, authorizeCreate, memory }: ResourceCall): ResourceRequest => ({
  user,
  definition,
  subresource: path.subresource,
  namespace: path.namespace,
  name: path.name,
  warnings,
  authorizeCreate,
  memory,
});

const userAgentOf = ({ message }: ResourceCall): string => message.headers["user-agent"] ?? "";

const isPretty = ({ query }: ResourceCall): boolean => ["true", "1"].includes(query.get("pretty") ?? "");

/**
 * Bounds all warnings of one answer. When they are longer, each is cut, and those beyond it are left out. As
 * Kubernetes.
 */
const MAX_WARNINGS_LENGTH = 4096;
const MAX_CUT_WARNING_LENGTH = 256;

function warningHeaders({ warnings }: ResourceCall): Record<string, string> {
  const texts = [...new Set(warnings)].map((each) => each.replace(/[^\x20-\x7e]/g, "?"));
  if (texts.length === 0) return {};
  const isLong = texts.reduce((sum, text) => sum + text.length, 0) > MAX_WARNINGS_LENGTH;
  let length = 0;
  const kept: string[] = [];
  for (const text of texts) {
    if (length >= MAX_WARNINGS_LENGTH) break;
    const shown = isLong ? text.slice(0, MAX_CUT_WARNING_LENGTH) : text;
    length += shown.length;
    kept.push(`299 - ${JSON.stringify(shown)}`);
  }
  return { Warning: kept.join(", ") };
}

function objectOf({ value }: ParsedBody, { definition: { kind, version } }: ResourceCall): Record<string, unknown> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw badRequest(`couldn't get version/kind; json parse error: cannot unmarshal into ${kind} of ${version}`);
}

function reportDuplicates(
  { warnings, definition: { kind, version } }: ResourceCall,
  { duplicates }: ParsedBody,
  { fieldValidation }: WriteParams,
): void {
  if (duplicates.length === 0) return;
  if (fieldValidation === "Warn") warnings.push(...duplicates);
  if (fieldValidation !== "Strict") return;
  throw badRequest(
    `${kind} in version "${version}" cannot be handled as a ${kind}: strict decoding error: ${duplicates.join(", ")}`,
  );
}

function bookmarkOf(
  definition: ResourceDefinition,
  { revision, endsInitialEvents }: WatchItem & { type: "BOOKMARK" },
): ApiObject {
  const annotations = endsInitialEvents ? { annotations: { "k8s.io/initial-events-end": "true" } } : {};
  return {
    kind: definition.kind,
    apiVersion: apiVersionOf(definition),
    // The object is no stored one and has no name.
    metadata: {
      resourceVersion: String(revision),
      creationTimestamp: null,
      ...annotations,
    } as unknown as ApiObject["metadata"],
  };
}
