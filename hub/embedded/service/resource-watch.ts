import { describeError, ignore } from "@picolet/protocol/errors.ts";
import { type Clock, type Random, seconds } from "@picolet/protocol/ports.ts";
import { type ApiObject, resourceName } from "../api/resource-definition.ts";
import { parseFieldSelector } from "../api/selectors.ts";
import { badRequest, expired, type StatusError } from "../api/status-error.ts";
import type { Turns } from "../api/turns.ts";
import type { ObjectStore } from "../store/object-store.ts";
import type { StoredEvent } from "../store/recent-events.ts";
import { type ObjectFilter, objectFilter, parseObject, parseRevision } from "./resource-reader.ts";
import type { ResourceRequest, WatchParams } from "./resource-request.ts";

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

interface Start {
  readonly initial: readonly string[];
  readonly revision: number;
  readonly endsInitialEvents: boolean;
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
  { definition, namespace }: ResourceRequest,
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
    const initial = [...store.list(resource, namespace)].map(({ body }) => body);
    const endsInitialEvents = sendInitialEvents === true && wantsBookmarks;
    return { initial, revision: store.headRevision, endsInitialEvents };
  }
  if (revision > store.headRevision) throw fromTheFuture(revision, store.headRevision);
  if (revision < store.floor(resource)) {
    throw expired(`too old resource version: ${revision} (${store.floor(resource)})`);
  }
  return { initial: [], revision, endsInitialEvents: false };
}

/** A revision that this store never gave out is another store's: the client must list again. */
const fromTheFuture = (revision: number, head: number): StatusError =>
  expired(`resource version ${revision} is not known here (${head}); list again`);

async function* watchFrom(
  { store, clock, random, turns }: Components,
  { definition, namespace, user }: ResourceRequest,
  { wantsBookmarks, timeoutSeconds }: WatchParams,
  { start, filter }: { readonly start: Start; readonly filter: ObjectFilter | undefined },
  signal: AbortSignal,
): AsyncGenerator<WatchItem> {
  const resource = resourceName(definition);
  const limitSeconds = Math.min(timeoutSeconds ?? MIN_TIMEOUT_SECONDS * (1 + random.next()), MAX_TIMEOUT_SECONDS);
  using waiter = new Waiter(clock, signal);
  waiter.startTimers(limitSeconds * 1000, wantsBookmarks);
  await store.settled();
  // Thousands of watches may wake up for the same large object.
  const slices = turns.slices(user.name);
  for (const body of start.initial) {
    await slices.add(body.length);
    if (signal.aborted) return;
    const object = parseObject({ body });
    if (filter === undefined || filter(object)) yield { type: "ADDED", body, object };
  }
  if (start.endsInitialEvents) yield { type: "BOOKMARK", revision: start.revision, endsInitialEvents: true };
  let cursor = start.revision;
  while (!signal.aborted) {
    let events: readonly StoredEvent[];
    const seen = store.revision;
    try {
      events = store.eventsAfter(resource, cursor);
    } catch (error) {
      yield { type: "ERROR", error: expired(describeError(error)) };
      return;
    }
    for (const event of events) {
      await slices.add(event.body.length);
      if (signal.aborted) return;
      const item = namespace === "" || event.namespace === namespace ? itemOf(event, filter) : undefined;
      if (item !== undefined) yield item;
      cursor = event.revision;
    }
    if (events.length > 0) continue;
    // Nothing behind the cursor: it may go on to what was safe before it was looked up.
    cursor = Math.max(cursor, seen);
    if (waiter.isOver) {
      if (wantsBookmarks) yield { type: "BOOKMARK", revision: cursor, endsInitialEvents: false };
      return;
    }
    if (waiter.takeBookmarkDue()) yield { type: "BOOKMARK", revision: cursor, endsInitialEvents: false };
    else await waiter.wait((wake) => store.onChange(resource, wake));
  }
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
