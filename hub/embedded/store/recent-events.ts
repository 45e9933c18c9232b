import type { ApiObject } from "../api/resource-definition.ts";

/**
 * Bounds events of one resource: a burst while a watcher is busy. A watcher that is further behind reads from SQLite.
 */
const MAX_EVENTS = 512;
/** 2 MiB of text of one resource, so that a few large ConfigMaps do not fill the memory. */
const MAX_CHARACTERS = 2 * 1024 * 1024;
/**
 * Events that stay parsed: live watches read them in the turn in which they are committed. All 512 would outlive V8's
 * young generation.
 */
const MAX_PARSED = 64;
/** Events given at once. */
const PAGE = 500;

export type ChangeType = "ADDED" | "MODIFIED" | "DELETED";

/** One change, as watches see it. Shared by all of them, never changed. */
export interface StoredEvent {
  readonly revision: number;
  readonly type: ChangeType;
  readonly namespace: string;
  /** The object after the change; for DELETED its last state with the revision of the deletion. */
  readonly body: string;
  /** The object before, where labels or selectable fields differ: a selector then may have matched another answer. */
  readonly previous: string | undefined;
  /** `body`, parsed once for all readers before `release`. */
  readonly object: ApiObject;
  /** Later readers parse `body` again. */
  release(): void;
}

interface Ring {
  readonly events: StoredEvent[];
  characters: number;
  /** Every event behind this revision is here. */
  floor: number;
}

/** The newest changes of each resource in memory, so that live watches do not read them back from SQLite. */
export class RecentEvents {
  readonly #rings = new Map<string, Ring>();

  add(resource: string, event: StoredEvent): void {
    const ring = this.#rings.get(resource) ?? { events: [], characters: 0, floor: event.revision - 1 };
    this.#rings.set(resource, ring);
    ring.events.push(event);
    ring.events.at(-1 - MAX_PARSED)?.release();
    ring.characters += event.body.length;
    if (ring.events.length <= MAX_EVENTS * 2 && ring.characters <= MAX_CHARACTERS * 2) return;
    // Half of it at once, so that an event costs no shift of the whole.
    let dropped = 0;
    while (ring.events.length - dropped > MAX_EVENTS || ring.characters > MAX_CHARACTERS) {
      const oldest = ring.events[dropped];
      if (oldest === undefined) break;
      ring.characters -= oldest.body.length;
      ring.floor = oldest.revision;
      dropped += 1;
    }
    ring.events.splice(0, dropped);
  }

  /** Undefined: they do not reach back so far. */
  after(resource: string, revision: number): readonly StoredEvent[] | undefined {
    const ring = this.#rings.get(resource);
    if (ring === undefined || revision < ring.floor) return undefined;
    let low = 0;
    let high = ring.events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((ring.events[middle]?.revision ?? 0) > revision) high = middle;
      else low = middle + 1;
    }
    return low === ring.events.length ? [] : ring.events.slice(low, low + PAGE);
  }
}
