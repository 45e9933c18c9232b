import { describeError } from "@picolet/protocol/errors.ts";
import { type Log, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { jsonSize } from "@picolet/protocol/tunnel/encoding/json-delta.ts";
import { MAX_INVENTORY_ITEMS, MAX_REVISION_BYTES } from "@picolet/protocol/tunnel/message-codec.ts";
import type {
  AgentMessage,
  Cursor,
  Desired,
  Inventory,
  RemoteObject,
  Welcome,
} from "@picolet/protocol/tunnel/messages.ts";
import type { RemoteObjects } from "../core/hub/tunnel-ports.ts";
import type { RemoteChange } from "../core/store/store-ports.ts";
import { Violation } from "./lanes/violation.ts";

/** How soon space may have been made on a disk that was full; a try costs the disk nothing. */
const APPLY_RETRY = seconds(30);
const AT_ONCE = millis(0);
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
  /** After the hello or a resync request: messages that are still on their way from before are ignored. */
  | { readonly kind: "awaitingWelcome" }
  | { readonly kind: "following"; readonly epoch: Uint8Array; readonly staged: Staged | undefined }
  /**
   * A change could not be stored or read, and is tried again. A hub waits for the ack before it sends more; if it does
   * not, `change` is dropped, and a resync brings the whole set.
   */
  | { readonly kind: "stalled"; readonly epoch: Uint8Array; readonly change: RemoteChange | undefined };

interface DesiredSyncComponents {
  readonly objects: RemoteObjects;
  readonly log: Log;
  readonly send: (message: AgentMessage) => void;
  /** Requests a call of `retry` after `delay`. */
  readonly retryIn: (delay: Millis) => void;
}

/**
 * Stores the desired state that the hub sends in one session. A revision is stored only when all of it has arrived and
 * has the announced digest, so that a session may end at any point.
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
    if (this.#state.kind !== "awaitingWelcome") throw new Violation("protocol", "a welcome that was not asked for");
    this.#state = { kind: "following", epoch, staged: undefined };
    const { objects } = this.#components;
    switch (desired) {
      case "current":
        this.#confirm({ epoch, revision, digest: objects.cursor.digest });
        return;
      case "delta":
        return;
      case "inventory":
        this.#sendInventory();
    }
  }

  onDesired(piece: Desired): void {
    switch (this.#state.kind) {
      case "awaitingWelcome":
        return;
      case "stalled":
        this.#state = { ...this.#state, change: undefined };
        return;
      case "following": {
        const { epoch } = this.#state;
        const staged = this.#stage(piece, this.#state.staged, epoch);
        this.#state = { kind: "following", epoch, staged };
        if (!piece.last) return;
        const { revision, upserts, deletes } = staged;
        this.#check(epoch, { cursor: { epoch, revision, digest: piece.digest }, upserts, deletes });
      }
    }
  }

  /** Called after the delay given to `retryIn`. */
  retry(): void {
    if (this.#state.kind !== "stalled") return;
    const { epoch, change } = this.#state;
    if (change === undefined) this.#resync();
    else this.#check(epoch, change);
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

  /** A store that cannot keep what came stops the way down for a while, not the session: the node goes on reporting. */
  #check(epoch: Uint8Array, change: RemoteChange): void {
    const { objects, log, retryIn } = this.#components;
    try {
      if (!equalBytes(objects.digestAfter(change), change.cursor.digest)) {
        this.#differs(change.cursor.revision);
        return;
      }
      const ready = objects.ready(change);
      if (ready !== undefined) {
        this.#state = { kind: "stalled", epoch, change };
        void this.#retryWhen(ready);
        return;
      }
      objects.apply(change);
    } catch (error) {
      if (error instanceof Violation) throw error;
      log.warn("cannot store what the hub wants here", { error: describeError(error) });
      this.#state = { kind: "stalled", epoch, change };
      retryIn(APPLY_RETRY);
      return;
    }
    this.#mismatches = 0;
    this.#state = { kind: "following", epoch, staged: undefined };
    objects.confirm(change.cursor);
    this.#components.send({ kind: "desiredAck", revision: change.cursor.revision });
  }

  async #retryWhen(ready: Promise<void>): Promise<void> {
    const { log, retryIn } = this.#components;
    try {
      await ready;
      retryIn(AT_ONCE);
    } catch (error) {
      log.warn("cannot read what the hub wants here", { error: describeError(error) });
      retryIn(APPLY_RETRY);
    }
  }

  /**
   * Only the cursor may be other than what is here; one that cannot be written costs a comparison next time, no more.
   */
  #confirm(cursor: Cursor): void {
    const { objects, log } = this.#components;
    const isSame = objects.cursor.revision === cursor.revision && equalBytes(objects.cursor.epoch, cursor.epoch);
    try {
      if (!isSame) objects.apply({ cursor, upserts: [], deletes: [] });
    } catch (error) {
      log.warn("cannot store the node's cursor", { error: describeError(error) });
    }
    objects.confirm(cursor);
  }

  #differs(revision: number): void {
    this.#mismatches += 1;
    if (this.#mismatches > MAX_MISMATCHES) throw new Violation("protocol", "a digest that its set does not come to");
    this.#components.log.warn("the digest differs from the hub's; all objects are compared again", { revision });
    this.#resync();
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
