/**
 * Contents of what pods of connected nodes name. All of a cluster's are followed by their metadata
 * alone (a few hundred bytes each, where Helm's Secrets take a megabyte); what is needed is read one by one, as a node
 * that needs it, so that the API server's Node authorizer has its say.
 */

import type { KubeClient, KubeObject, ObjectRef } from "@picolet/hub-core/kube-client/kube-client.ts";
import {
  type CachedObject,
  type Change,
  keyOf,
  Reflector,
  type ReflectorComponents,
} from "@picolet/hub-core/kube-client/reflector.ts";
import { Backoff, type BackoffPolicy, FULL_JITTER } from "@picolet/protocol/async/backoff.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { type ObjectKey, objectKey } from "@picolet/protocol/tunnel/messages.ts";
import { DATA_TYPES, type DataType } from "./remote-data.ts";
import { PackedObject } from "./stored-objects.ts";

/** The Node authorizer hears of a new pod a moment after we do, and refuses its Secrets until then. */
const RETRY: BackoffPolicy = { first: millis(50), max: seconds(30), jitter: FULL_JITTER, least: millis(25) };
/** After so many refusals (some ten seconds) the pods that name it go without; it is asked for all the same. */
const MAX_REFUSALS = 10;
const LOUD_AFTER = 4;

type Entry =
  /** `isOutdated`: it changed while it was read. */
  | { readonly kind: "loading"; readonly packed: PackedObject | undefined; refusals: number; isOutdated: boolean }
  | { readonly kind: "loaded"; readonly packed: PackedObject; readonly resourceVersion: string };

export interface DataCacheInit {
  /** A client of a node that may read `key`; undefined when no pod of a connected node names it. */
  readonly readerOf: (key: ObjectKey) => KubeClient | undefined;
  /** True when a pod of any of our nodes references the object. */
  readonly isNamed: (key: ObjectKey) => boolean;
  /** `key` can be had, is another, or is gone. */
  readonly onChange: (key: ObjectKey) => void;
}

interface Followed extends DataType {
  readonly reflector: Reflector<CachedObject>;
}

export type DataState = PackedObject | "loading" | "absent";

export class DataCache {
  readonly reflectors: readonly Reflector<CachedObject>[];
  readonly #components: ReflectorComponents;
  readonly #init: DataCacheInit;
  readonly #followed: ReadonlyMap<string, Followed>;
  readonly #entries = new Map<ObjectKey, Entry>();
  /** References of contents: a claim's volume, the volume's driver and Secrets; and in the other direction. */
  readonly #names = new Map<ObjectKey, readonly ObjectKey[]>();
  readonly #namers = new Map<ObjectKey, Set<ObjectKey>>();
  readonly #life = new AbortController();

  constructor(components: ReflectorComponents, init: DataCacheInit) {
    this.#components = components;
    this.#init = init;
    const followed = DATA_TYPES.map((each) => ({ ...each, reflector: this.#reflector(each) }));
    this.#followed = new Map(followed.map((each) => [each.type.kind, each]));
    this.reflectors = followed.map(({ reflector }) => reflector);
  }

  /** True when objects of this kind are cached here. */
  has(key: ObjectKey): boolean {
    return this.#followed.has(kindOf(key));
  }

  /**
   * The states of `key` and of all objects that it leads to. `loading`: it exists, and its content may arrive at any
   * moment.
   */
  states(key: ObjectKey): readonly DataState[] {
    return [this.state(key), ...(this.#names.get(key) ?? []).flatMap((each) => this.states(each))];
  }

  state(key: ObjectKey): DataState {
    const entry = this.#entries.get(key);
    if (entry?.packed !== undefined) return entry.packed;
    return entry?.kind === "loading" && entry.refusals < MAX_REFUSALS ? "loading" : "absent";
  }

  /** Reads the object unless it is here. Called when a connected node references it. */
  want(key: ObjectKey): void {
    for (const each of this.#names.get(key) ?? []) this.want(each);
    if (this.#entries.has(key) || this.#version(key) === undefined) return;
    this.#entries.set(key, { kind: "loading", packed: undefined, refusals: 0, isOutdated: false });
    this.#load(key);
  }

  /** A pod that named it is gone. */
  release(key: ObjectKey): void {
    if (!this.#init.isNamed(key) && !this.#namers.has(key)) this.#forget(key);
  }

  /** Contents here, for the measurement of memory. */
  get size(): number {
    return this.#entries.size;
  }

  [Symbol.dispose](): void {
    this.#life.abort();
  }

  #reflector({ type, isOptional }: DataType): Reflector<CachedObject> {
    return new Reflector<CachedObject>(this.#components, {
      type,
      selection: { metadataOnly: true },
      isOptional: isOptional === true,
      trim: ({ metadata }) => ({ resourceVersion: metadata.resourceVersion ?? "" }),
      onChange: (change) => this.#changed(type.kind, change),
    });
  }

  #changed(kind: string, { key: path, after }: Change<CachedObject>): void {
    const key: ObjectKey = path.includes("/") ? `${kind}/${path}` : objectKey(kind, "", path);
    const entry = this.#entries.get(key);
    if (after === undefined) {
      if (this.#forget(key)) this.#notify(key);
    } else if (entry === undefined) {
      if (this.#readerOf(key) !== undefined) this.want(key);
    } else if (entry.kind === "loading") {
      entry.isOutdated = true;
    } else if (entry.resourceVersion !== after.resourceVersion) {
      this.#reload(key, entry.packed);
    }
  }

  #load(key: ObjectKey): void {
    this.#loadUntilDone(key).catch((error: unknown) => {
      if (!isCancelled(error)) this.#components.log.error("cannot read", { object: key, error: describeError(error) });
    });
  }

  async #loadUntilDone(key: ObjectKey): Promise<void> {
    const { clock, random, log } = this.#components;
    const backoff = new Backoff(random, RETRY);
    const type = this.#followed.get(kindOf(key))?.type;
    const { signal } = this.#life;
    if (type === undefined) return;
    for (let entry = this.#loading(key); entry !== undefined; entry = this.#loading(key)) {
      const reader = this.#readerOf(key);
      if (reader === undefined) break;
      try {
        this.#took(key, await reader.get(type, refOf(key), signal));
        return;
      } catch (error) {
        if (isCancelled(error)) throw error;
        if (isPicoletError(error, "not_found")) break;
        if (backoff.failures === LOUD_AFTER)
          log.warn("cannot read what pods name", { object: key, error: describeError(error) });
        if (isPicoletError(error, "permission_denied")) {
          entry.refusals += 1;
          if (entry.refusals === MAX_REFUSALS) this.#notify(key);
        }
        await clock.sleep(backoff.next(), signal);
      }
    }
    // The object is gone, or no connected node needs it. The next reference starts a new read.
    if (this.#loading(key) !== undefined && this.#forget(key)) this.#notify(key);
  }

  #took(key: ObjectKey, object: KubeObject): void {
    const entry = this.#loading(key);
    const followed = this.#followed.get(kindOf(key));
    if (entry === undefined || followed === undefined) return;
    const whole = { ...object, kind: followed.type.kind };
    const packed = new PackedObject(key, followed.remote(whole));
    const resourceVersion = object.metadata.resourceVersion ?? "";
    this.#entries.set(key, { kind: "loaded", packed, resourceVersion });
    this.#link(key, followed.names(whole));
    this.#notify(key);
    if (entry.isOutdated && this.#version(key) !== resourceVersion) this.#reload(key, packed);
  }

  /** The present content is sent until the new one has come. */
  #reload(key: ObjectKey, packed: PackedObject): void {
    this.#entries.set(key, { kind: "loading", packed, refusals: 0, isOutdated: false });
    this.#load(key);
  }

  #loading(key: ObjectKey): (Entry & { kind: "loading" }) | undefined {
    const entry = this.#entries.get(key);
    return entry?.kind === "loading" ? entry : undefined;
  }

  #version(key: ObjectKey): string | undefined {
    const { namespace, name } = refOf(key);
    return this.#followed.get(kindOf(key))?.reflector.store.get(keyOf(namespace, name))?.resourceVersion;
  }

  #readerOf(key: ObjectKey): KubeClient | undefined {
    const own = this.#init.readerOf(key);
    if (own !== undefined) return own;
    for (const namer of this.#namers.get(key) ?? []) {
      const reader = this.#readerOf(namer);
      if (reader !== undefined) return reader;
    }
    return undefined;
  }

  #notify(key: ObjectKey): void {
    this.#init.onChange(key);
    for (const namer of this.#namers.get(key) ?? []) this.#notify(namer);
  }

  /** @returns whether it was here */
  #forget(key: ObjectKey): boolean {
    this.#link(key, []);
    return this.#entries.delete(key);
  }

  /** References have no circles: a claim leads to its volume, and this to its driver and Secrets. */
  #link(key: ObjectKey, names: readonly ObjectKey[]): void {
    const before = this.#names.get(key) ?? [];
    if (before.join() === names.join()) return;
    if (names.length === 0) this.#names.delete(key);
    else this.#names.set(key, names);
    for (const each of before.filter((old) => !names.includes(old))) {
      const namers = this.#namers.get(each);
      namers?.delete(key);
      if (namers?.size !== 0) continue;
      this.#namers.delete(each);
      if (!this.#init.isNamed(each)) this.#forget(each);
    }
    for (const each of names.filter((name) => !before.includes(name))) {
      const namers = this.#namers.get(each);
      if (namers === undefined) this.#namers.set(each, new Set([key]));
      else namers.add(key);
      this.want(each);
    }
  }
}

const kindOf = (key: ObjectKey): string => key.slice(0, key.indexOf("/"));

function refOf(key: ObjectKey): ObjectRef {
  const [, namespace = "", name = ""] = key.split("/");
  return { namespace, name };
}
