/** Keys by the time at which they are due: a binary heap. An entry that no longer counts is left in until its time. */

interface Entry {
  readonly dueMs: number;
  readonly key: string;
}

export class DueQueue {
  readonly #heap: Entry[] = [];

  /** When the next is due; undefined when there is none. */
  get nextDueMs(): number | undefined {
    return this.#heap[0]?.dueMs;
  }

  push(key: string, dueMs: number): void {
    const heap = this.#heap;
    const entry = { dueMs, key };
    let at = heap.length;
    heap.push(entry);
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above];
      if (parent === undefined || parent.dueMs <= dueMs) break;
      heap[at] = parent;
      at = above;
    }
    heap[at] = entry;
  }

  /** Takes out what is due by now; undefined when nothing is. */
  pop(nowMs: number): Entry | undefined {
    const heap = this.#heap;
    const [first] = heap;
    if (first === undefined || first.dueMs > nowMs) return undefined;
    const last = heap.pop();
    if (last !== undefined && last !== first) this.#sink(last);
    return first;
  }

  /** Puts `entry` in the place of the first. */
  #sink(entry: Entry): void {
    const heap = this.#heap;
    let at = 0;
    for (;;) {
      const [left, right] = [heap[2 * at + 1], heap[2 * at + 2]];
      const child = right !== undefined && left !== undefined && right.dueMs < left.dueMs ? 2 * at + 2 : 2 * at + 1;
      const lower = heap[child];
      if (lower === undefined || lower.dueMs >= entry.dueMs) break;
      heap[at] = lower;
      at = child;
    }
    heap[at] = entry;
  }
}
