/**
 * Contents of Secrets and ConfigMaps that pods of connected nodes name. All of a cluster's are followed by their metadata
 * alone (a few hundred bytes each, where Helm's Secrets take a megabyte); what is needed is read one by one, as a node
 * that needs it, so that the API server's Node authorizer has its say.
 */
import { describeError, isCancelled, isPicoletError } from "../../protocol/errors.ts";
import { type Clock, type Log, millis, type Random, seconds } from "../../protocol/ports.ts";
import type { ObjectKey } from "../../protocol/tunnel/messages.ts";
import {
  CONFIG_MAPS,
  type KubeClient,
  type KubeObject,
  type ObjectRef,
  type ResourceType,
  SECRETS,
} from "../core/kube-client.ts";
import { type Change, type Kept, Reflector } from "../kubernetes/reflector.ts";
import { RetryDelay } from "../kubernetes/retry-delay.ts";
import { remoteData } from "./remote-object.ts";
import { PackedObject } from "./stored-objects.ts";

/** The Node authorizer hears of a new pod a moment after we do, and refuses its Secrets until then. */
const FIRST_RETRY = millis(50);
const MOST_RETRY = seconds(30);
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
  /** Whether a pod of any of our nodes names it. */
  readonly isNamed: (key: ObjectKey) => boolean;
  /** `key` can be had, is another, or is gone. */
  readonly onChange: (key: ObjectKey) => void;
}

interface Components {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

export class DataCache {
  readonly secrets: Reflector<Kept>;
  readonly configMaps: Reflector<Kept>;
  readonly #components: Components;
  readonly #init: DataCacheInit;
  readonly #entries = new Map<ObjectKey, Entry>();
  readonly #life = new AbortController();

  constructor(components: Components, init: DataCacheInit) {
    this.#components = components;
    this.#init = init;
    this.secrets = this.#reflector(SECRETS);
    this.configMaps = this.#reflector(CONFIG_MAPS);
  }

  /** `loading`: it exists, and its content is not here yet and may come at any moment. */
  state(key: ObjectKey): PackedObject | "loading" | "absent" {
    const entry = this.#entries.get(key);
    if (entry?.packed !== undefined) return entry.packed;
    return entry?.kind === "loading" && entry.refusals < MAX_REFUSALS ? "loading" : "absent";
  }

  /** Somebody connected names it: reads it unless it is here. */
  want(key: ObjectKey): void {
    if (this.#entries.has(key) || this.#version(key) === undefined) return;
    this.#entries.set(key, { kind: "loading", packed: undefined, refusals: 0, isOutdated: false });
    this.#load(key);
  }

  /** A pod that named it is gone. */
  release(key: ObjectKey): void {
    if (!this.#init.isNamed(key)) this.#entries.delete(key);
  }

  /** Contents here, for the measurement of memory. */
  get size(): number {
    return this.#entries.size;
  }

  [Symbol.dispose](): void {
    this.#life.abort();
  }

  #reflector(type: ResourceType): Reflector<Kept> {
    return new Reflector<Kept>(this.#components, {
      type,
      selection: { metadataOnly: true },
      trim: ({ metadata }) => ({ resourceVersion: metadata.resourceVersion ?? "" }),
      onChange: (change) => this.#changed(type, change),
    });
  }

  #changed(type: ResourceType, { key: path, after }: Change<Kept>): void {
    const key: ObjectKey = `${type.kind}/${path}`;
    const entry = this.#entries.get(key);
    if (after === undefined) {
      if (this.#entries.delete(key)) this.#init.onChange(key);
    } else if (entry === undefined) {
      if (this.#init.readerOf(key) !== undefined) this.want(key);
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
    const delay = new RetryDelay(random, { first: FIRST_RETRY, most: MOST_RETRY });
    const { type, ref } = partsOf(key);
    const { signal } = this.#life;
    for (let entry = this.#loading(key); entry !== undefined; entry = this.#loading(key)) {
      const reader = this.#init.readerOf(key);
      if (reader === undefined) break;
      try {
        this.#took(key, await reader.get(type, ref, signal));
        return;
      } catch (error) {
        if (isCancelled(error)) throw error;
        if (isPicoletError(error, "not_found")) break;
        if (delay.failures === LOUD_AFTER)
          log.warn("cannot read what pods name", { object: key, error: describeError(error) });
        if (isPicoletError(error, "permission_denied")) {
          entry.refusals += 1;
          if (entry.refusals === MAX_REFUSALS) this.#init.onChange(key);
        }
        await clock.sleep(delay.next(), signal);
      }
    }
    // Gone, or nobody there who needs it: the next that names it begins anew.
    if (this.#loading(key) !== undefined && this.#entries.delete(key)) this.#init.onChange(key);
  }

  #took(key: ObjectKey, object: KubeObject): void {
    const entry = this.#loading(key);
    if (entry === undefined) return;
    const { kind } = partsOf(key).type;
    const packed = new PackedObject(key, remoteData({ ...object, kind }));
    const resourceVersion = object.metadata.resourceVersion ?? "";
    this.#entries.set(key, { kind: "loaded", packed, resourceVersion });
    this.#init.onChange(key);
    if (entry.isOutdated && this.#version(key) !== resourceVersion) this.#reload(key, packed);
  }

  /** What is here goes on being sent until the new content has come. */
  #reload(key: ObjectKey, packed: PackedObject): void {
    this.#entries.set(key, { kind: "loading", packed, refusals: 0, isOutdated: false });
    this.#load(key);
  }

  #loading(key: ObjectKey): (Entry & { kind: "loading" }) | undefined {
    const entry = this.#entries.get(key);
    return entry?.kind === "loading" ? entry : undefined;
  }

  #version(key: ObjectKey): string | undefined {
    const { type, path } = partsOf(key);
    const reflector = type === SECRETS ? this.secrets : this.configMaps;
    return reflector.store.get(path)?.resourceVersion;
  }
}

function partsOf(key: ObjectKey): { readonly type: ResourceType; readonly ref: ObjectRef; readonly path: string } {
  const [kind = "", namespace = "", name = ""] = key.split("/");
  return { type: kind === "Secret" ? SECRETS : CONFIG_MAPS, ref: { namespace, name }, path: `${namespace}/${name}` };
}

export const isDataKey = (key: ObjectKey): boolean => key.startsWith("Secret/") || key.startsWith("ConfigMap/");
