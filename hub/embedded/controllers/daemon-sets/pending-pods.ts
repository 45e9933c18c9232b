/** Pods that a controller is making and has not seen yet. */

interface Pending {
  readonly name: string;
  /** UID of the pod with the name; undefined while it is not known whether there is one. */
  uid: string | undefined;
}

/**
 * The name of a place's next pod, kept until the cache has shown that very pod: a controller that has not seen what it
 * made, or got no answer, asks for the same name again and is refused a second pod. One entry for a set and a node at
 * most.
 */
export class PendingPods {
  readonly #pending = new Map<string, Pending>();
  readonly #places = new Map<string, string>();

  /** @param place set and node @param draw makes a name that is free */
  nameFor(place: string, draw: () => string): string {
    const before = this.#pending.get(place);
    if (before !== undefined) {
      // The pod of the attempt before may have gone: only what becomes of this one counts.
      if (before.uid !== undefined) this.#places.delete(before.uid);
      before.uid = undefined;
      return before.name;
    }
    const name = draw();
    this.#pending.set(place, { name, uid: undefined });
    return name;
  }

  /** The API server says that the pod of this place is there. */
  made(place: string, uid: string): void {
    const pending = this.#pending.get(place);
    if (pending === undefined) return;
    if (pending.uid !== undefined) this.#places.delete(pending.uid);
    pending.uid = uid;
    this.#places.set(uid, place);
  }

  /** The cache shows the pod. */
  seen(uid: string): void {
    const place = this.#places.get(uid);
    if (place !== undefined) this.forget(place);
  }

  forget(place: string): void {
    const uid = this.#pending.get(place)?.uid;
    if (uid !== undefined) this.#places.delete(uid);
    this.#pending.delete(place);
  }

  /** All places of a set. */
  forgetSet(set: string): void {
    for (const place of this.#pending.keys()) if (place.startsWith(`${set}/`)) this.forget(place);
  }
}
