import { describeError, ignore, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Random, seconds } from "@picolet/protocol/ports.ts";
import { type ApiObject, resourceName } from "../api/resource-definition.ts";
import { parseFieldSelector } from "../api/selectors.ts";
import { badRequest, expired, type StatusError } from "../api/status-error.ts";
import type { Turns } from "../api/turns.ts";
import { type ListPosition, type ObjectStore, PAGE_CHARACTERS } from "../store/object-store.ts";
import type { StoredEvent } from "../store/recent-events.ts";
import { type ObjectFilter, objectFilter, parseObject, parseRevision } from "./resource-reader.ts";
import type { KeptBytes, ResourceRequest, UserMemory, WatchParams } from "./resource-request.ts";

export type WatchItem =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly body: string; readonly object: ApiObject }
  | { readonly type: "BOOKMARK"; readonly revision: number; readonly endsInitialEvents: boolean }
  | { readonly type: "ERROR"; readonly error: StatusError };

/** As often as Kubernetes' watch cache: a watcher that sees no event keeps a revision that is not too old. */
export const BOOKMARK_INTERVAL = seconds(60);
/**
 * Without `timeoutSeconds` a watch lasts this long up to twice as long, so that clients do not all come back at once.
 */
export const MIN_TIMEOUT_SECONDS = 1800;
/** Longer ones are cut to a day. */
export const MAX_TIMEOUT_SECONDS = 86_400;

/** An object that was read is copied for its client's socket. */
const KEPT_COPIES = 2;

interface Start {
  /** True: the watch begins with what is there. */
  readonly hasInitial: boolean;
  readonly revision: number;
  readonly endsInitialEvents: boolean;
}

interface Initial {
  readonly start: Start;
  readonly filter: ObjectFilter | undefined;
  readonly slices: ReturnType<Turns["slices"]>;
  /** Revisions of objects that were sent as they were after the watch began. */
  readonly ahead: Map<string, number>;
}

interface Components {
  readonly store: ObjectStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly turns: Turns;
}

/**
 * A watch is a cursor in the history of its resource: nothing is queued for a slow reader, which gets 410 Expired once
 * it has fallen behind what is kept. The checks are made at once, the events come as they are asked for.
 * @throws StatusError 400, 410
 */
export function watchResource(
  components: Components,
  request: ResourceRequest,
  params: WatchParams,
  signal: AbortSignal,
): AsyncGenerator<WatchItem> {
  const filter = objectFilter(request.definition, params);
  if (request.name !== "" && params.fieldSelector !== "") requireName(params.fieldSelector, request.name);
  const fieldFilter = request.name === "" ? filter : joinFilters(filter, request.name);
  const start = startOf(components.store, request, params);
  return watchFrom(components, request, params, { start, filter: fieldFilter }, signal);
}

/** A watch of one object by the paths of old. */
function requireName(fieldSelector: string, name: string): void {
  const selected = parseFieldSelector(fieldSelector).find(({ field, isEqual }) => field === "metadata.name" && isEqual);
  if (selected?.value !== name) throw badRequest("fieldSelector metadata.name doesn't match requested name");
}

const joinFilters =
  (filter: ObjectFilter | undefined, name: string): ObjectFilter =>
  (object) =>
    object.metadata.name === name && (filter === undefined || filter(object));

function startOf(
  store: ObjectStore,
  { definition }: ResourceRequest,
  { resourceVersion, resourceVersionMatch, sendInitialEvents, wantsBookmarks }: WatchParams,
): Start {
  if (sendInitialEvents !== undefined && resourceVersionMatch !== "NotOlderThan") {
    throw badRequest(
      'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan',
    );
  }
  if (sendInitialEvents === undefined && resourceVersionMatch !== "") {
    throw badRequest(
      'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided',
    );
  }
  const resource = resourceName(definition);
  const isUnset = resourceVersion === "" || resourceVersion === "0";
  const revision = isUnset ? store.headRevision : parseRevision(resourceVersion);
  if (sendInitialEvents ?? isUnset) {
    if (revision > store.headRevision) throw fromTheFuture(revision, store.headRevision);
    const endsInitialEvents = sendInitialEvents === true && wantsBookmarks;
    return { hasInitial: true, revision: store.headRevision, endsInitialEvents };
  }
  if (revision > store.headRevision) throw fromTheFuture(revision, store.headRevision);
  if (revision < store.floor(resource)) {
    throw expired(`too old resource version: ${revision} (${store.floor(resource)})`);
  }
  return { hasInitial: false, revision, endsInitialEvents: false };
}

/** A revision that this store never gave out is another store's: the client must list again. */
const fromTheFuture = (revision: number, head: number): StatusError =>
  expired(`resource version ${revision} is not known here (${head}); list again`);

async function* watchFrom(
  components: Components,
  request: ResourceRequest,
  { wantsBookmarks, timeoutSeconds }: WatchParams,
  { start, filter }: { readonly start: Start; readonly filter: ObjectFilter | undefined },
  signal: AbortSignal,
): AsyncGenerator<WatchItem> {
  const { store, clock, random, turns } = components;
  const { definition, namespace, user, memory } = request;
  const resource = resourceName(definition);
  const limitSeconds = Math.min(timeoutSeconds ?? MIN_TIMEOUT_SECONDS * (1 + random.next()), MAX_TIMEOUT_SECONDS);
  using waiter = new Waiter(clock, signal);
  waiter.startTimers(limitSeconds * 1000, wantsBookmarks);
  await store.settled();
  // Thousands of watches may wake up for the same large object.
  const slices = turns.slices(user.name);
  const ahead = new Map<string, number>();
  if (start.hasInitial) yield* initialItems(components, request, { start, filter, slices, ahead }, signal);
  if (signal.aborted) return;
  if (start.endsInitialEvents) yield { type: "BOOKMARK", revision: start.revision, endsInitialEvents: true };
  let cursor = start.revision;
  while (!signal.aborted) {
    using kept = await keepPage(memory, signal);
    if (signal.aborted) return;
    let events: readonly StoredEvent[];
    const seen = store.revision;
    try {
      events = store.eventsAfter(resource, cursor);
    } catch (error) {
      yield { type: "ERROR", error: expired(describeError(error)) };
      return;
    }
    kept?.resize(KEPT_COPIES * events.reduce((most, { body }) => Math.max(most, body.length), 0));
    for (const event of events) {
      await slices.add(event.body.length);
      if (signal.aborted) return;
      const isWatched = (namespace === "" || event.namespace === namespace) && !isSent(ahead, event);
      const item = isWatched ? itemOf(event, filter) : undefined;
      if (item !== undefined) yield item;
      cursor = event.revision;
    }
    if (events.length > 0) continue;
    // Nothing behind the cursor: it may go on to what was safe before it was looked up.
    cursor = Math.max(cursor, seen);
    ahead.clear();
    if (waiter.isOver) {
      if (wantsBookmarks) yield { type: "BOOKMARK", revision: cursor, endsInitialEvents: false };
      return;
    }
    kept?.[Symbol.dispose]();
    if (waiter.takeBookmarkDue()) yield { type: "BOOKMARK", revision: cursor, endsInitialEvents: false };
    else await waiter.wait((wake) => store.onChange(resource, wake));
  }
}

/** Undefined: without a bound, or `signal` aborts. */
async function keepPage(memory: UserMemory | undefined, signal: AbortSignal): Promise<KeptBytes | undefined> {
  try {
    return await memory?.take(KEPT_COPIES * PAGE_CHARACTERS, signal);
  } catch (error) {
    if (!isCancelled(error)) throw error;
    return undefined;
  }
}

const keyOf = (namespace: string, name: string): string => `${namespace}/${name}`;

/** True when the object was sent as it was after the event, or later. */
function isSent(ahead: ReadonlyMap<string, number>, { namespace, revision, object }: StoredEvent): boolean {
  return ahead.size > 0 && revision <= (ahead.get(keyOf(namespace, object.metadata.name)) ?? 0);
}

/**
 * Sends what is there, read in parts as the client takes it. An object that was written since the watch began is sent
 * as it is, and noted in `ahead`.
 */
async function* initialItems(
  { store }: Components,
  { definition, namespace, memory }: ResourceRequest,
  { start, filter, slices, ahead }: Initial,
  signal: AbortSignal,
): AsyncGenerator<WatchItem> {
  let from: ListPosition | undefined;
  do {
    using kept = await keepPage(memory, signal);
    if (signal.aborted) return;
    const { objects, next } = store.page(resourceName(definition), namespace, from);
    kept?.resize(KEPT_COPIES * objects.reduce((sum, { body }) => sum + body.length, 0));
    // The objects that were read may be part of a write that fails.
    await store.settled();
    for (const { body, revision } of objects) {
      await slices.add(body.length);
      if (signal.aborted) return;
      const object = parseObject({ body });
      if (revision > start.revision) ahead.set(keyOf(object.metadata.namespace ?? "", object.metadata.name), revision);
      if (filter === undefined || filter(object)) yield { type: "ADDED", body, object };
    }
    from = next;
  } while (from !== undefined);
}

/** A change as seen through a selector: an object that stops matching is deleted. */
function itemOf(event: StoredEvent, filter: ObjectFilter | undefined): WatchItem | undefined {
  const { type, body, object, previous } = event;
  if (filter === undefined) return { type, body, object };
  const matches = filter(object);
  if (type === "ADDED") return matches ? { type, body, object } : undefined;
  if (type === "DELETED") {
    const did = previous === undefined ? matches : filter(parseObject({ body: previous }));
    return did ? { type, body, object } : undefined;
  }
  if (previous === undefined) return matches ? { type, body, object } : undefined;
  const old = parseObject({ body: previous });
  const did = filter(old);
  if (matches) return { type: did ? "MODIFIED" : "ADDED", body, object };
  if (!did) return undefined;
  old.metadata.resourceVersion = String(event.revision);
  return { type: "DELETED", body: JSON.stringify(old), object: old };
}

/** The waits of one watch: for a change, the next bookmark, the end. Two timers at most. */
class Waiter implements Disposable {
  readonly #clock: Clock;
  readonly #signal: AbortSignal;
  readonly #stop = new AbortController();
  readonly #onAbort = (): void => this.#wake?.();
  #wake: (() => void) | undefined;
  #isBookmarkDue = false;
  #isOver = false;

  constructor(clock: Clock, signal: AbortSignal) {
    this.#clock = clock;
    this.#signal = signal;
    signal.addEventListener("abort", this.#onAbort);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  takeBookmarkDue(): boolean {
    const isDue = this.#isBookmarkDue;
    this.#isBookmarkDue = false;
    return isDue;
  }

  startTimers(durationMs: number, wantsBookmarks: boolean): void {
    this.#sleep(durationMs, () => {
      this.#isOver = true;
    });
    if (wantsBookmarks) this.#nextBookmark();
  }

  async wait(subscribe: (wake: () => void) => () => void): Promise<void> {
    if (this.#signal.aborted || this.#isOver || this.#isBookmarkDue) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    const unsubscribe = subscribe(resolve);
    await promise;
    unsubscribe();
    this.#wake = undefined;
  }

  [Symbol.dispose](): void {
    this.#signal.removeEventListener("abort", this.#onAbort);
    this.#stop.abort();
  }

  #nextBookmark(): void {
    this.#sleep(BOOKMARK_INTERVAL, () => {
      this.#isBookmarkDue = true;
      this.#nextBookmark();
    });
  }

  #sleep(durationMs: number, then: () => void): void {
    const wake = (): void => {
      then();
      this.#wake?.();
    };
    this.#clock.sleep(seconds(durationMs / 1000), this.#stop.signal).then(wake, ignore("the watch has ended"));
  }
}
