import type { DesiredSet } from "@picolet/hub-core/fleet.ts";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import { type ListenableWatch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { addToDigest, EMPTY_DIGEST, removeFromDigest } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { ObjectHash, ObjectKey } from "@picolet/protocol/tunnel/messages.ts";

/** The desired set of one connected node, as keys and hashes. */
export class DesiredNode {
  readonly #nextRevision: () => number;
  readonly #set: WatchSource<DesiredSet>;

  /**
   * @param nextRevision above all that were given out in this life of the hub: a node's sessions come and go within it
   */
  constructor(nextRevision: () => number) {
    this.#nextRevision = nextRevision;
    const revision = nextRevision();
    this.#set = new WatchSource<DesiredSet>({ synced: false, revision, digest: EMPTY_DIGEST, hashes: new Map() });
  }

  get watch(): ListenableWatch<DesiredSet> {
    return this.#set;
  }

  /** Works on differences alone. Without any, no watcher is notified. */
  update(hashes: ReadonlyMap<ObjectKey, ObjectHash>, synced: boolean): void {
    const before = this.#set.current;
    let { digest } = before;
    for (const [key, hash] of before.hashes) {
      const now = hashes.get(key);
      if (now === undefined || !equalBytes(now, hash)) digest = removeFromDigest(sha256, digest, { key, hash });
    }
    for (const [key, hash] of hashes) {
      const old = before.hashes.get(key);
      if (old === undefined || !equalBytes(old, hash)) digest = addToDigest(sha256, digest, { key, hash });
    }
    if (synced === before.synced && digest === before.digest) return;
    this.#set.set({ synced, revision: this.#nextRevision(), digest, hashes });
  }
}
