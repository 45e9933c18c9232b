/** One kind of object of an API server, kept in step with it: a list, then a watch, for ever. */
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { Backoff, type BackoffPolicy, FULL_JITTER } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, ignore, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import { IndexedStore } from "./indexed-store.ts";
import type { KubeClient, KubeObject, ListOptions, ResourceType, WatchEvent } from "./kube-client.ts";

/** client-go's page: lists of any length are read in pieces that are trimmed one by one. */
const DEFAULT_PAGE_SIZE = 500;
/**
 * An API server sends a bookmark a minute; after two that did not come the watch is taken for dead and opened again.
 */
const DEFAULT_SILENCE = seconds(150);
const RETRY: BackoffPolicy = { first: millis(500), max: seconds(30), jitter: FULL_JITTER, least: millis(250) };
/** A server gets a resource by an upgrade, a client a right by an administrator: both take longer. */
const ABSENT_RETRY = seconds(60);
/**
 * A watch that the server ends sooner than this counts as failed, or an unwilling server would be asked without pause.
 */
const SHORTEST_WATCH = seconds(1);

/** The cached part of an object. */
export interface CachedObject {
  readonly resourceVersion: string;
}

export interface Change<T> {
  /** `namespace/name`, or the name alone. */
  readonly key: string;
  /** Undefined: added. */
  readonly before: T | undefined;
  /** Undefined: deleted, or not to be kept any more. */
  readonly after: T | undefined;
}

export interface ReflectorComponents {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

export interface ReflectorInit<T extends CachedObject> {
  readonly type: ResourceType;
  readonly selection?: Pick<ListOptions, "namespace" | "labelSelector" | "fieldSelector" | "metadataOnly">;
  /** The part of an object to cache; undefined: none, as if it did not exist. Called once per version. */
  readonly trim: (object: KubeObject) => T | undefined;
  readonly indexes?: Readonly<Record<string, (value: T) => Iterable<string>>>;
  /**
   * Called once for each change, in order, when the store already shows it. A list after a gap is reported as
   * differences: an object that was deleted and created again in the gap is one change with two UIDs. What it throws is
   * logged, and other objects are followed.
   */
  readonly onChange?: (change: Change<T>) => void;
  /**
   * True for a resource that the server may lack, or may not show: then there is none of it, and `synced` is true all
   * the same. It is asked for again every minute.
   */
  readonly isOptional?: boolean;
  readonly pageSize?: number;
  readonly silence?: Millis;
}

/** Why watching had to end. `resume`: go on from the last version; `relist`: the server no longer knows it. */
type WatchEnd =
  | { readonly kind: "resume"; readonly error: unknown }
  | { readonly kind: "relist"; readonly why: string };

export const keyOf = (namespace: string | undefined, name: string): string =>
  namespace === undefined || namespace === "" ? name : `${namespace}/${name}`;

export class Reflector<T extends CachedObject> implements Component {
  readonly name: string;
  readonly store: IndexedStore<T>;
  readonly #client: KubeClient;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #init: ReflectorInit<T>;
  readonly #backoff: Backoff;
  readonly #synced = new WatchSource(false);
  readonly #problem = new WatchSource("");
  /** Keys of objects that could not be used, each of which is logged once. */
  readonly #unusable = new Set<string>();
  #resourceVersion: string | undefined;
  #reopen: (() => void) | undefined;
  /** Watches in a row in which nothing came. */
  #silences = 0;

  constructor(components: ReflectorComponents, init: ReflectorInit<T>) {
    this.name = `reflector of ${init.type.plural}`;
    this.store = new IndexedStore(init.indexes);
    this.#client = components.client;
    this.#clock = components.clock;
    this.#log = components.log;
    this.#init = init;
    this.#backoff = new Backoff(components.random, RETRY);
  }

  /** True from the end of the first list on, for good. */
  get synced(): Watch<boolean> {
    return this.#synced;
  }

  /** Why the store may be behind; "" while it is not known to be. */
  get problem(): Watch<string> {
    return this.#problem;
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await this.#round(signal);
      } catch (error) {
        if (signal.aborted || isCancelled(error)) return;
        const isAbsent = this.#isAbsent(error);
        if (!isAbsent) this.#failed(error);
        await this.#clock
          .sleep(isAbsent ? ABSENT_RETRY : this.#backoff.next(), signal)
          .catch(ignore("the loop ends when the wait is cancelled"));
      }
    }
  }

  /** Ends the watch that is open, which may be deaf, and goes on from the last version. */
  reopen(): void {
    this.#reopen?.();
  }

  /** Takes an object that was read by other means, of the version in the store or a newer one, and trims it again. */
  adopt(key: string, object: KubeObject): void {
    this.#store(key, object);
  }

  /** Only of the list that a client begins with: what was there once is followed until the server is back. */
  #isAbsent(error: unknown): boolean {
    const { type, isOptional = false } = this.#init;
    if (!isOptional || this.#resourceVersion !== undefined || this.store.size > 0) return false;
    if (!isPicoletError(error, "not_found") && !isPicoletError(error, "permission_denied")) return false;
    if (!this.#synced.current) {
      this.#log.info("the API server has no such resource for this client", {
        resource: type.plural,
        error: describeError(error),
      });
      this.#synced.set(true);
    }
    this.#healthy();
    return true;
  }

  /** A list if one is needed, then one watch. @throws what has to be waited for before the next */
  async #round(signal: AbortSignal): Promise<void> {
    this.#resourceVersion ??= await this.#list(signal);
    const end = await this.#watch(this.#resourceVersion, signal);
    if (end.kind === "relist") {
      this.#log.info("listing again", { resource: this.#init.type.plural, why: end.why });
      this.#resourceVersion = undefined;
    } else if (end.error !== undefined) throw end.error;
  }

  /** @returns the resourceVersion to watch from */
  async #list(signal: AbortSignal): Promise<string> {
    const { type, selection, pageSize = DEFAULT_PAGE_SIZE } = this.#init;
    const seen = new Set<string>();
    let token: string | undefined;
    for (;;) {
      const options = { ...selection, limit: pageSize, ...(token === undefined ? {} : { continue: token }) };
      const page = await this.#client.list(type, options, signal);
      for (const object of page.items) {
        const key = keyOf(object.metadata.namespace, object.metadata.name);
        seen.add(key);
        this.#upsert(key, object);
      }
      token = page.continue;
      if (token !== undefined) continue;
      for (const key of [...this.store.keys()]) if (!seen.has(key)) this.#drop(key);
      this.#healthy();
      if (!this.#synced.current) this.#synced.set(true);
      return page.resourceVersion;
    }
  }

  async #watch(resourceVersion: string, signal: AbortSignal): Promise<WatchEnd> {
    const { type, selection } = this.#init;
    const startedAt = this.#clock.monotonic();
    using life = joinSignals(signal);
    let isReopened = false;
    this.#reopen = () => {
      isReopened = true;
      life.abort();
    };
    const watchdog = new Watchdog(this.#clock, this.#init.silence ?? DEFAULT_SILENCE, life.signal, () => life.abort());
    try {
      const events = this.#client.watch(type, { ...selection, resourceVersion }, life.signal);
      for await (const event of events) {
        watchdog.alive();
        this.#silences = 0;
        const why = this.#apply(event);
        if (why !== undefined) return { kind: "relist", why };
        this.#healthy();
      }
    } catch (error) {
      if (signal.aborted) throw error;
      if (isPicoletError(error) && error.reason === "Expired") return { kind: "relist", why: "Expired" };
      if (isReopened) return { kind: "resume", error: undefined };
      if (!watchdog.hasBarked) return { kind: "resume", error };
      return this.#fellSilent();
    } finally {
      this.#reopen = undefined;
      life.abort();
    }
    const lived = this.#clock.monotonic() - startedAt;
    return { kind: "resume", error: lived < SHORTEST_WATCH ? new Error("the watch was ended at once") : undefined };
  }

  /** Once may be the network. Twice in a row may be a server that has forgotten the version which is waited for. */
  #fellSilent(): WatchEnd {
    this.#log.warn("a watch fell silent", { resource: this.#init.type.plural });
    this.#silences += 1;
    return this.#silences > 1 ? { kind: "relist", why: "silence" } : { kind: "resume", error: undefined };
  }

  /** @returns why the server is another one than before, if it is */
  #apply(event: WatchEvent): string | undefined {
    if (event.type === "BOOKMARK") {
      if (isOlder(event.resourceVersion, this.#resourceVersion)) return "the server's version went back";
      this.#resourceVersion = event.resourceVersion;
      return undefined;
    }
    const { metadata } = event.object;
    const key = keyOf(metadata.namespace, metadata.name);
    if (event.type === "DELETED") this.#drop(key);
    else this.#upsert(key, event.object);
    this.#resourceVersion = metadata.resourceVersion ?? this.#resourceVersion;
    return undefined;
  }

  #upsert(key: string, object: KubeObject): void {
    const before = this.store.get(key);
    if (before !== undefined && before.resourceVersion === object.metadata.resourceVersion) return;
    this.#guard(key, () => this.#store(key, object));
  }

  /** Keeps an object that cannot be used, as its owner may write it, from holding up others; the store keeps the last. */
  #guard(key: string, change: () => void): void {
    try {
      change();
      this.#unusable.delete(key);
    } catch (error) {
      const resource = this.#init.type.plural;
      if (!this.#unusable.has(key))
        this.#log.error("cannot use an object", { resource, key, error: describeError(error) });
      this.#unusable.add(key);
    }
  }

  #store(key: string, object: KubeObject): void {
    const before = this.store.get(key);
    const after = this.#init.trim(object);
    if (after === undefined) this.#remove(key);
    else {
      this.store.put(key, after);
      this.#init.onChange?.({ key, before, after });
    }
  }

  #drop(key: string): void {
    this.#guard(key, () => this.#remove(key));
    this.#unusable.delete(key);
  }

  #remove(key: string): void {
    const before = this.store.remove(key);
    if (before !== undefined) this.#init.onChange?.({ key, before, after: undefined });
  }

  #healthy(): void {
    this.#backoff.reset();
    if (this.#problem.current !== "") this.#problem.set("");
  }

  #failed(error: unknown): void {
    // A continue token that ran out: the list starts from its beginning.
    const text = describeError(error);
    if (this.#problem.current === "")
      this.#log.warn("cannot follow", { resource: this.#init.type.plural, error: text });
    if (this.#problem.current !== text) this.#problem.set(text);
  }
}

/**
 * Versions are opaque by the letter, and counters in every server there is (etcd's revision; KEP-5504 makes it
 * official). A server restored from a backup counts from an earlier one, and would silently leave out what we "know"
 * already.
 */
export function isOlder(version: string, than: string | undefined): boolean {
  if (than === undefined || !/^\d+$/.test(version) || !/^\d+$/.test(than)) return false;
  return version.length === than.length ? version < than : version.length < than.length;
}

/** One sleeper however many events come. */
class Watchdog {
  readonly #clock: Clock;
  #aliveAt: number;
  #barked = false;

  constructor(clock: Clock, silence: Millis, signal: AbortSignal, bark: () => void) {
    this.#clock = clock;
    this.#aliveAt = clock.monotonic();
    this.#guard(silence, signal).then(() => {
      this.#barked = true;
      bark();
    }, ignore("the watch has ended"));
  }

  get hasBarked(): boolean {
    return this.#barked;
  }

  alive(): void {
    this.#aliveAt = this.#clock.monotonic();
  }

  async #guard(silence: Millis, signal: AbortSignal): Promise<void> {
    for (let left: number = silence; left > 0; left = this.#aliveAt + silence - this.#clock.monotonic()) {
      await this.#clock.sleep(millis(left), signal);
    }
  }
}
