import { describeError } from "../../protocol/errors.ts";
import { type Log, type Millis, seconds } from "../../protocol/ports.ts";
import { equalBytes } from "../../protocol/tunnel/hex.ts";
import { MAX_INVENTORY_ITEMS, MAX_REVISION_BYTES } from "../../protocol/tunnel/message-codec.ts";
import type { AgentMessage, Desired, Inventory, RemoteObject, Welcome } from "../../protocol/tunnel/messages.ts";
import type { RemoteObjects } from "../core/tunnel-ports.ts";
import { Violation } from "./violation.ts";

/** A disk that was full for a minute is full for the next seconds too; each try costs an inventory on the wire. */
const APPLY_RETRY = seconds(60);
/**
 * A set that differs from what its hub says of it after it was compared entry by entry is not mended by doing so again:
 * then the session ends, and its back-off holds the next try up.
 */
const MAX_MISMATCHES = 3;
/** Each entry of a revision costs memory besides its content: as many as fit MAX_REVISION_BYTES at 64 bytes each. */
const MAX_STAGED_ITEMS = MAX_REVISION_BYTES / 64;

interface Staged {
  readonly revision: number;
  readonly upserts: RemoteObject[];
  readonly deletes: string[];
  bytes: number;
}

type DesiredState =
  /** Of the greeting, or of a resync: what is still under way from before is not looked at. */
  | { readonly kind: "awaitingWelcome" }
  | { readonly kind: "following"; readonly epoch: Uint8Array; readonly staged: Staged | undefined }
  /** What came could not be stored; a resync later brings it again. */
  | { readonly kind: "stalled" };

interface DesiredSyncComponents {
  readonly objects: RemoteObjects;
  readonly log: Log;
  readonly send: (message: AgentMessage) => void;
  /** Asks for `retry` to be called after `delay`. */
  readonly retryIn: (delay: Millis) => void;
}

/**
 * The way down, of one session: desired state as the hub tells it, into the node's store. Nothing of a revision is kept
 * before all of it is here and comes to the digest that was told, so that a session may end at any point.
 */
export class DesiredSync {
  readonly #components: DesiredSyncComponents;
  #state: DesiredState = { kind: "awaitingWelcome" };
  /** Since a revision was applied. */
  #mismatches = 0;

  constructor(components: DesiredSyncComponents) {
    this.#components = components;
  }

  onWelcome({ epoch, revision, desired }: Welcome): void {
    if (this.#state.kind !== "awaitingWelcome") throw new Violation("protocol", "a welcome that nobody asked for");
    this.#state = { kind: "following", epoch, staged: undefined };
    const { objects } = this.#components;
    switch (desired) {
      case "current": {
        const cursor = { epoch, revision, digest: objects.cursor.digest };
        const isSame = objects.cursor.revision === revision && equalBytes(objects.cursor.epoch, epoch);
        this.#store(() => {
          if (!isSame) objects.apply({ cursor, upserts: [], deletes: [] });
          objects.confirm(cursor);
        });
        return;
      }
      case "delta":
        return;
      case "inventory":
        this.#sendInventory();
    }
  }

  onDesired(piece: Desired): void {
    if (this.#state.kind !== "following") return;
    const { epoch } = this.#state;
    const staged = this.#stage(piece, this.#state.staged, epoch);
    this.#state = { kind: "following", epoch, staged: piece.last ? undefined : staged };
    if (piece.last) this.#apply(epoch, staged, piece.digest);
  }

  /** What `retryIn` was asked for. */
  retry(): void {
    if (this.#state.kind === "stalled") this.#resync();
  }

  #stage(piece: Desired, before: Staged | undefined, epoch: Uint8Array): Staged {
    const { revision, upserts, deletes } = piece;
    const { cursor } = this.#components.objects;
    if (before !== undefined && before.revision !== revision) {
      throw new Violation("protocol", `a piece of revision ${revision} among those of ${before.revision}`);
    }
    if (equalBytes(cursor.epoch, epoch) && revision < cursor.revision) {
      throw new Violation("protocol", `revision ${revision} after ${cursor.revision}`);
    }
    const staged = before ?? { revision, upserts: [], deletes: [], bytes: 0 };
    // One piece is as large as a message may be at most; only what is gathered has to be counted.
    if (!piece.last || before !== undefined) {
      for (const { key, object } of upserts) staged.bytes += key.length + jsonSize(object);
      for (const key of deletes) staged.bytes += key.length;
    }
    const items = staged.upserts.length + staged.deletes.length + upserts.length + deletes.length;
    if (staged.bytes > MAX_REVISION_BYTES || items > MAX_STAGED_ITEMS) {
      throw new Violation("limit", `revision ${revision} is larger than ${MAX_REVISION_BYTES} bytes`);
    }
    for (const each of upserts) staged.upserts.push(each);
    for (const each of deletes) staged.deletes.push(each);
    return staged;
  }

  #apply(epoch: Uint8Array, { revision, upserts, deletes }: Staged, digest: Uint8Array): void {
    const { objects, log, send } = this.#components;
    const cursor = { epoch, revision, digest };
    this.#store(() => {
      if (!equalBytes(objects.digestAfter({ upserts, deletes }), digest)) {
        this.#mismatches += 1;
        if (this.#mismatches > MAX_MISMATCHES)
          throw new Violation("protocol", "a digest that its set does not come to");
        log.warn("what the hub sent does not make what it told of; all is compared anew", { revision });
        this.#resync();
        return;
      }
      this.#mismatches = 0;
      objects.apply({ cursor, upserts, deletes });
      objects.confirm(cursor);
      send({ kind: "desiredAck", revision });
    });
  }

  /** A store that cannot keep what came stops the way down for a while, not the session: what the node is in is reported. */
  #store(write: () => void): void {
    try {
      write();
    } catch (error) {
      if (error instanceof Violation) throw error;
      this.#components.log.warn("cannot store what the hub wants here", { error: describeError(error) });
      this.#state = { kind: "stalled" };
      this.#components.retryIn(APPLY_RETRY);
    }
  }

  #resync(): void {
    this.#state = { kind: "awaitingWelcome" };
    this.#components.send({ kind: "resync" });
  }

  #sendInventory(): void {
    const { objects, send } = this.#components;
    let items: Inventory["items"][number][] = [];
    for (const { key, hash } of objects.inventory()) {
      if (items.length === MAX_INVENTORY_ITEMS) {
        send({ kind: "inventory", items, last: false });
        items = [];
      }
      items.push({ key, hash });
    }
    send({ kind: "inventory", items, last: true });
  }
}

/** About as many bytes as it takes as JSON; no text is made for it. */
function jsonSize(value: unknown): number {
  if (typeof value === "string") return value.length + 2;
  if (typeof value !== "object" || value === null) return 4;
  let size = 2;
  for (const [key, each] of Object.entries(value)) size += key.length + 3 + jsonSize(each);
  return size;
}
