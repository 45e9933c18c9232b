/** Secrets as an API server keeps them: resourceVersions, preconditions, watches. Nothing else of a KubeClient. */
import {
  type KubeClient,
  type KubeList,
  type KubeObject,
  type ListOptions,
  type ObjectRef,
  type ResourceType,
  SECRETS,
  type WatchEvent,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";

export class MemorySecrets implements KubeClient {
  readonly #objects = new Map<string, KubeObject>();
  readonly #log: { readonly version: number; readonly event: WatchEvent }[] = [];
  readonly #version = new WatchSource(1);
  /** Thrown by the next call. */
  failure: PicoletError | undefined;

  /** Changes so far. */
  get writes(): number {
    return this.#log.length;
  }

  get all(): readonly KubeObject[] {
    return [...this.#objects.values()];
  }

  async get(type: ResourceType, ref: ObjectRef): Promise<KubeObject> {
    this.#check(type);
    const object = this.#objects.get(keyOf(ref));
    if (object === undefined) throw new PicoletError("not_found", `there is no secret ${ref.name}`);
    return object;
  }

  async list(type: ResourceType, { namespace, fieldSelector }: ListOptions): Promise<KubeList> {
    this.#check(type);
    const items = this.all.filter(
      (object) => object.metadata.namespace === namespace && matches(object, fieldSelector),
    );
    return { items, resourceVersion: String(this.#version.current), continue: undefined };
  }

  async *watch(type: ResourceType, options: ListOptions, signal: AbortSignal): AsyncIterable<WatchEvent> {
    this.#check(type);
    let seen = Number(options.resourceVersion ?? "0");
    for await (const version of this.#version.changes(signal)) {
      for (const each of this.#log.filter((entry) => entry.version > seen)) {
        const { event } = each;
        if (event.type !== "BOOKMARK" && matches(event.object, options.fieldSelector)) yield event;
      }
      seen = version;
    }
  }

  async create(type: ResourceType, ref: ObjectRef, object: Readonly<Record<string, unknown>>): Promise<KubeObject> {
    this.#check(type);
    if (this.#objects.has(keyOf(ref))) throw new PicoletError("already_exists", `secret ${ref.name} is there`);
    return this.#put("ADDED", ref, object as KubeObject);
  }

  async update(type: ResourceType, ref: ObjectRef, object: KubeObject): Promise<KubeObject> {
    await this.get(type, ref);
    // Another update may have come since.
    const old = this.#objects.get(keyOf(ref));
    const { resourceVersion } = object.metadata;
    if (resourceVersion !== undefined && resourceVersion !== old?.metadata.resourceVersion) {
      throw new PicoletError("conflict", `secret ${ref.name} was changed`);
    }
    return this.#put("MODIFIED", ref, object);
  }

  patch(): Promise<KubeObject> {
    throw new PicoletError("unimplemented", "no patches here");
  }

  async delete(type: ResourceType, ref: ObjectRef): Promise<void> {
    const object = await this.get(type, ref);
    this.#objects.delete(keyOf(ref));
    this.#tell({ type: "DELETED", object });
  }

  as(): KubeClient {
    return this;
  }

  #put(type: "ADDED" | "MODIFIED", { namespace, name }: ObjectRef, object: KubeObject): KubeObject {
    const resourceVersion = String(this.#version.current + 1);
    const stored = { ...object, metadata: { ...object.metadata, namespace, name, resourceVersion } };
    this.#objects.set(keyOf({ namespace, name }), stored);
    this.#tell({ type, object: stored });
    return stored;
  }

  #tell(event: WatchEvent): void {
    const version = this.#version.current + 1;
    this.#log.push({ version, event });
    this.#version.set(version);
  }

  #check(type: ResourceType): void {
    const { failure } = this;
    this.failure = undefined;
    if (failure !== undefined) throw failure;
    if (type !== SECRETS) throw new PicoletError("not_found", "only secrets here");
  }
}

const keyOf = ({ namespace, name }: ObjectRef): string => `${namespace}/${name}`;

function matches(object: KubeObject, selector: string | undefined): boolean {
  if (selector === undefined) return true;
  const [field, value] = selector.split("=");
  return field === "metadata.name" ? object.metadata.name === value : object[field ?? ""] === value;
}
