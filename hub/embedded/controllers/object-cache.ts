import type { KubeClient, KubeObject, ListOptions, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { keyOf, Reflector } from "@picolet/hub-core/kube-client/reflector.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";

export interface ObjectChange {
  /** `namespace/name`, or the name alone. */
  readonly key: string;
  /** Undefined: added. */
  readonly before: KubeObject | undefined;
  /** Undefined: deleted. */
  readonly after: KubeObject | undefined;
}

interface CachedObject {
  readonly resourceVersion: string;
  readonly object: KubeObject;
}

/** Keys of an object in an index besides its name. */
export type CacheIndex = (object: KubeObject) => readonly string[];

export const byNamespace: CacheIndex = ({ metadata }) => [metadata.namespace ?? ""];
export interface ObjectCacheInit {
  readonly type: ResourceType;
  readonly selection?: Pick<ListOptions, "namespace" | "labelSelector" | "fieldSelector" | "metadataOnly">;
  readonly indexes?: Readonly<Record<string, CacheIndex>>;
}

/** One kind of object as all controllers see it. Objects are shared and never changed. */
export class ObjectCache implements Component {
  readonly name: string;
  readonly type: ResourceType;
  readonly #reflector: Reflector<CachedObject>;
  readonly #listeners: ((change: ObjectChange) => void)[] = [];

  constructor(
    components: { readonly client: KubeClient; readonly clock: Clock; readonly random: Random; readonly log: Log },
    { type, selection, indexes = {} }: ObjectCacheInit,
  ) {
    this.name = `cache of ${type.plural}`;
    this.type = type;
    this.#reflector = new Reflector(components, {
      type,
      ...(selection === undefined ? {} : { selection }),
      trim: (object) => ({
        resourceVersion: object.metadata.resourceVersion ?? "",
        object: withoutManagedFields(object),
      }),
      indexes: Object.fromEntries(
        Object.entries(indexes).map(([name, index]) => [name, ({ object }: CachedObject) => index(object)]),
      ),
      onChange: ({ key, before, after }) => {
        const change = { key, before: before?.object, after: after?.object };
        const errors = this.#listeners.flatMap((listener) => {
          try {
            listener(change);
            return [];
          } catch (error) {
            return [error];
          }
        });
        if (errors.length > 0) throw errors[0];
      },
    });
  }

  get synced(): Watch<boolean> {
    return this.#reflector.synced;
  }

  /**
   * Must be called before `run`. The listener gets each change, in order, when the cache already shows it. What it
   * throws is logged, and keeps no change from other listeners.
   */
  onChange(listener: (change: ObjectChange) => void): void {
    this.#listeners.push(listener);
  }

  get(key: string): KubeObject | undefined {
    return this.#reflector.store.get(key)?.object;
  }

  find(namespace: string, name: string): KubeObject | undefined {
    return this.get(keyOf(namespace, name));
  }

  keys(): Iterable<string> {
    return this.#reflector.store.keys();
  }

  /** All of them, or those that `index` has under `value`. */
  list(index?: string, value?: string): readonly KubeObject[] {
    const keys = index === undefined ? this.#reflector.store.keys() : this.#reflector.store.keysBy(index, value ?? "");
    return [...keys].flatMap((key) => this.get(key) ?? []);
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#reflector.run(signal);
  }
}

/** Drops managedFields: they are as large as the object itself, and no controller reads them. */
function withoutManagedFields(object: KubeObject): KubeObject {
  if (!Object.hasOwn(object.metadata, "managedFields")) return object;
  const { managedFields: _, ...metadata } = object.metadata as KubeObject["metadata"] & { managedFields?: unknown };
  return { ...object, metadata };
}
