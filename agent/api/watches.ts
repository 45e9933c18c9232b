/**
 * Lists and watches of pods and events as newline-delimited JSON. A slow reader skips to the latest, nothing queues.
 */
import { hash } from "node:crypto";
import type { EventObject, WatchLine } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { podObject, rfc3339 } from "../core/pods/pod-object.ts";
import type { EventRecord } from "../core/store/store-ports.ts";
import type { AgentView } from "./agent-view.ts";
import { sortPods } from "./pod-objects.ts";

/** Bounds the newest events in which a watch sees changes; a reader that is further behind misses those between. */
const WATCHED_EVENTS = 256;

/** The number of events without a limit in the request. */
export const DEFAULT_EVENT_LIMIT = 500;

export interface EventFilter {
  readonly namespace?: string;
  readonly name?: string;
}

export const watchLine = <T>(type: "ADDED" | "MODIFIED" | "DELETED", object: T): string =>
  `${JSON.stringify({ type, object } satisfies WatchLine<T>)}\n`;

export function podsOf(view: AgentView, namespace: string | undefined): Pod[] {
  return sortPods(view.pods())
    .filter((each) => namespace === undefined || each.desired.pod.metadata.namespace === namespace)
    .map(podObject);
}

/** A Kubernetes list in pieces of one object each, so that the whole of it is never one string. */
export function* listPieces(kind: string, resourceVersion: string, items: readonly unknown[]): Generator<string> {
  yield `{"kind":${JSON.stringify(kind)},"apiVersion":"v1","metadata":{"resourceVersion":"${resourceVersion}"},"items":[`;
  for (const [index, item] of items.entries()) yield `${index === 0 ? "" : ","}${JSON.stringify(item)}`;
  yield "]}\n";
}

export async function* watchPods(
  view: AgentView,
  namespace: string | undefined,
  signal: AbortSignal,
): AsyncGenerator<string> {
  let known = new Map<string, { readonly digest: string; readonly pod: Pod }>();
  for await (const _ of view.podsChanged.changes(signal)) {
    const next: typeof known = new Map();
    for (const pod of podsOf(view, namespace)) {
      const uid = pod.metadata.uid ?? "";
      const digest = hash("sha1", JSON.stringify(pod), "base64");
      const before = known.get(uid);
      next.set(uid, { digest, pod });
      if (before?.digest !== digest) yield watchLine(before === undefined ? "ADDED" : "MODIFIED", pod);
    }
    const gone = [...known].filter(([uid]) => !next.has(uid));
    known = next;
    for (const [, { pod }] of gone) yield watchLine("DELETED", pod);
  }
}

export function eventObject(event: EventRecord, node: string): EventObject {
  const { regarding } = event;
  return {
    apiVersion: "v1",
    kind: "Event",
    metadata: {
      name: `${regarding.name}.${event.sequence.toString(16)}`,
      namespace: regarding.namespace || "default",
      resourceVersion: String(event.sequence),
      creationTimestamp: rfc3339(event.firstAtMs),
    },
    involvedObject: { ...regarding },
    type: event.type,
    reason: event.reason,
    message: event.message,
    count: event.count,
    firstTimestamp: rfc3339(event.firstAtMs),
    lastTimestamp: rfc3339(event.lastAtMs),
    source: { component: "picolet", host: node },
  };
}

export async function* watchEvents(
  view: AgentView,
  filter: EventFilter,
  limit: number,
  signal: AbortSignal,
): AsyncGenerator<string> {
  const node = view.node().name;
  let known: ReadonlyMap<number, number> | undefined;
  let newest = 0;
  for await (const _ of view.events.latest.changes(signal)) {
    const events = view.events.list({ ...filter, limit: Math.max(WATCHED_EVENTS, known === undefined ? limit : 0) });
    const before = known;
    const after = newest;
    known = new Map(events.slice(-WATCHED_EVENTS).map((each) => [each.sequence, each.count]));
    newest = events.at(-1)?.sequence ?? newest;
    const first = before === undefined ? events.length - limit : 0;
    for (const [index, event] of events.entries()) {
      const count = before?.get(event.sequence);
      const isNews = count === undefined ? event.sequence > after : count !== event.count;
      if (index < first || !isNews) continue;
      yield watchLine(count !== undefined || event.count > 1 ? "MODIFIED" : "ADDED", eventObject(event, node));
    }
  }
}
