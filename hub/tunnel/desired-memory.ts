import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { ObjectHash, ObjectKey } from "@picolet/protocol/tunnel/messages.ts";

/** The set that an agent has, or is about to have: enough to find the differences to another set. */
export interface KnownSet {
  readonly digest: Uint8Array;
  readonly hashes: ReadonlyMap<ObjectKey, ObjectHash>;
}

export interface SetDifference {
  readonly upserts: readonly ObjectKey[];
  readonly deletes: readonly ObjectKey[];
}

export function differenceOf(
  from: ReadonlyMap<ObjectKey, ObjectHash>,
  to: ReadonlyMap<ObjectKey, ObjectHash>,
): SetDifference {
  const upserts: ObjectKey[] = [];
  for (const [key, hash] of to) {
    const old = from.get(key);
    if (old === undefined || !equalBytes(old, hash)) upserts.push(key);
  }
  return { upserts, deletes: [...from.keys()].filter((key) => !to.has(key)) };
}

/**
 * The sets that an agent may have come away with: the last that it acknowledged, and the one that was on its way to it.
 * It has one or the other, since at most one is ever on its way; so two sets reach back as far as any journal would,
 * after any number of changes in between.
 */
export interface NodeMemory {
  acknowledged: KnownSet | undefined;
  offered: KnownSet | undefined;
}

/** The set with this digest, if it is remembered. */
export function findKnownSet({ acknowledged, offered }: NodeMemory, digest: Uint8Array): KnownSet | undefined {
  if (acknowledged !== undefined && equalBytes(acknowledged.digest, digest)) return acknowledged;
  return offered !== undefined && equalBytes(offered.digest, digest) ? offered : undefined;
}

/** The memories of nodes that are away. The one that left first is dropped first. */
export class NodeMemories {
  readonly #limit: number;
  readonly #memories = new Map<string, NodeMemory>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  take(node: string): NodeMemory {
    const memory = this.#memories.get(node) ?? { acknowledged: undefined, offered: undefined };
    this.#memories.delete(node);
    return memory;
  }

  keep(node: string, memory: NodeMemory): void {
    this.#memories.delete(node);
    this.#memories.set(node, memory);
    if (this.#memories.size <= this.#limit) return;
    const [oldest] = this.#memories.keys();
    if (oldest !== undefined) this.#memories.delete(oldest);
  }
}
