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
import { apiVersionOf, type UserInfo } from "./api/resource-definition.ts";
import { pathNotFound } from "./api/status-error.ts";
import { requireAccess } from "./auth/access.ts";
import { AUTHENTICATED, resourceAttributes } from "./auth/attributes.ts";
import { asBody } from "./http/body.ts";
import type { ApiServerCore } from "./server/server-core.ts";
import type { ListParams, ResourceRequest, WriteParams } from "./service/resource-request.ts";

type Fields = Record<string, unknown>;

/** Named in managedFields where a call names none. */
const FIELD_MANAGER = "picolet-hub";

/** The API without HTTP, for what runs beside it in this process. Errors are StatusErrors. */
export class LocalKubeClient implements KubeClient {
  readonly #core: ApiServerCore;
  readonly #user: UserInfo;

  constructor(core: ApiServerCore, user: UserInfo) {
    this.#core = core;
    this.#user = user;
  }

  /** @throws StatusError 403 unless this user may impersonate that one and each group, as over HTTP */
  as(user: string, groups: readonly string[]): LocalKubeClient {
    const check = (plural: string, name: string): void =>
      requireAccess(this.#core.authorizer, {
        ...{ kind: "resource", user: this.#user, verb: "impersonate", group: "", version: "v1" },
        ...{ plural, subresource: "", namespace: "", name },
      });
    check("users", user);
    for (const group of groups) check("groups", group);
    return new LocalKubeClient(this.#core, {
      name: user,
      uid: "",
      groups: [...new Set([...groups, AUTHENTICATED])],
      extra: {},
    });
  }

  async get(type: ResourceType, ref: ObjectRef, signal: AbortSignal): Promise<KubeObject> {
    notCancelled(signal);
    return JSON.parse(await this.#core.service.get(this.#request("get", type, ref))) as KubeObject;
  }

  async list(type: ResourceType, options: ListOptions, signal: AbortSignal): Promise<KubeList> {
    notCancelled(signal);
    const request = this.#collection("list", type, options);
    const { items, revision, continueToken } = await this.#core.service.list(request, listParamsOf(options));
    return {
      items: items.map((item) => shaped(JSON.parse(item) as KubeObject, options)),
      resourceVersion: String(revision),
      continue: continueToken === "" ? undefined : continueToken,
    };
  }

  async *watch(type: ResourceType, options: ListOptions, signal: AbortSignal): AsyncIterable<WatchEvent> {
    const request = this.#collection("watch", type, options);
    const params = {
      ...listParamsOf(options),
      wantsBookmarks: true,
      timeoutSeconds: undefined,
      sendInitialEvents: undefined,
    };
    for await (const item of this.#core.service.watch(request, params, signal)) {
      if (item.type === "ERROR") throw item.error;
      if (item.type === "BOOKMARK") yield { type: "BOOKMARK", resourceVersion: String(item.revision) };
      else yield { type: item.type, object: shaped(item.object, options) };
    }
  }

  async create(
    type: ResourceType,
    ref: ObjectRef,
    object: Readonly<Record<string, unknown>>,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    notCancelled(signal);
    const name = options.subresource === undefined ? "" : ref.name;
    const request = this.#request("create", type, { ...ref, name }, options.subresource);
    const input = asBody(object) as Fields;
    if (options.subresource === undefined && ref.name !== "") {
      const metadata = (input.metadata ?? {}) as Fields;
      input.metadata = { ...metadata, name: metadata.name ?? ref.name };
    }
    return (await this.#core.service.create(request, input, writeParamsOf(options))).object;
  }

  async update(
    type: ResourceType,
    ref: ObjectRef,
    object: KubeObject,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    notCancelled(signal);
    const request = this.#request("update", type, ref, options.subresource);
    const input = asBody(object) as Fields;
    return (await this.#core.service.update(request, input, writeParamsOf(options))).object;
  }

  async patch(
    type: ResourceType,
    ref: ObjectRef,
    kind: PatchKind,
    patch: unknown,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    notCancelled(signal);
    const request = this.#request("patch", type, ref, options.subresource);
    const params = writeParamsOf(options);
    return (await this.#core.service.patch(request, kind, asBody(patch), params)).object;
  }

  async delete(type: ResourceType, ref: ObjectRef, options: DeleteOptions, signal: AbortSignal): Promise<void> {
    notCancelled(signal);
    const { gracePeriodSeconds, propagationPolicy, uid, resourceVersion } = options;
    const params = { isDryRun: false, gracePeriodSeconds, propagationPolicy, uid, resourceVersion };
    await this.#core.service.delete(this.#request("delete", type, ref), params);
  }

  #collection(verb: string, type: ResourceType, { namespace = "", fieldSelector }: ListOptions): ResourceRequest {
    return this.#request(verb, type, { namespace, name: "" }, "", fieldSelector);
  }

  /** @throws StatusError 403, 404 */
  #request(
    verb: string,
    type: ResourceType,
    { namespace, name }: ObjectRef,
    subresource = "",
    fieldSelector = "",
  ): ResourceRequest {
    const { group, version, plural } = type;
    const asked = { user: this.#user, group, version, plural, subresource, namespace, name, fieldSelector };
    const authorize = (wanted: string): void =>
      requireAccess(this.#core.authorizer, resourceAttributes({ ...asked, verb: wanted }));
    authorize(verb);
    const definition = this.#core.table.find(apiVersionOf(type), plural);
    if (definition === undefined) throw pathNotFound();
    if (definition.namespaced && namespace === "" && verb !== "list" && verb !== "watch") {
      throw new PicoletError("invalid", `cannot ${verb} ${plural} without a namespace`);
    }
    const user = this.#user;
    return { user, definition, subresource, namespace, name, warnings: [], authorizeCreate: () => authorize("create") };
  }
}

/** @throws `cancelled`, with any reason of the signal */
function notCancelled(signal: AbortSignal): void {
  if (signal.aborted) throw cancelled("the request");
}

const shaped = (object: KubeObject, { metadataOnly = false }: ListOptions): KubeObject => {
  const { apiVersion, kind, metadata } = object;
  return metadataOnly ? { apiVersion, kind, metadata } : object;
};

const listParamsOf = (options: ListOptions): ListParams => ({
  labelSelector: options.labelSelector ?? "",
  fieldSelector: options.fieldSelector ?? "",
  limit: options.limit ?? 0,
  continueToken: options.continue ?? "",
  resourceVersion: options.resourceVersion ?? "",
  resourceVersionMatch: "",
});

const writeParamsOf = ({ dryRun = false, fieldManager = FIELD_MANAGER }: WriteOptions): WriteParams => ({
  isDryRun: dryRun,
  fieldManager,
  fieldValidation: "Ignore",
  isForced: false,
});
