import type { DesiredSet, NodeBackend } from "@picolet/hub-core/fleet.ts";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import type { TimerWheel } from "@picolet/hub-core/timer-wheel.ts";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import { desiredPieces } from "@picolet/protocol/tunnel/desired-pieces.ts";
import { digestOf } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { jsonSize } from "@picolet/protocol/tunnel/encoding/json-delta.ts";
import { MAX_REVISION_BYTES } from "@picolet/protocol/tunnel/message-codec.ts";
import type {
  HubMessage,
  Inventory,
  ObjectHash,
  ObjectKey,
  RemoteObject,
  Welcome,
} from "@picolet/protocol/tunnel/messages.ts";
import { PendingAnswer } from "@picolet/protocol/tunnel/pending.ts";
import { differenceOf, findKnownSet, type KnownSet, type NodeMemory } from "./desired-memory.ts";
import type { TunnelCounts } from "./tunnel-counts.ts";

export interface DownlinkComponents {
  readonly clock: Clock;
  readonly counts: TunnelCounts;
  readonly log: Log;
  readonly node: string;
  readonly backend: NodeBackend;
  readonly memory: NodeMemory;
  readonly send: (message: HubMessage) => void;
  /** Resolves when everything that was sent is with the link. */
  readonly flushed: (signal: AbortSignal) => Promise<void>;
  /** Sends a welcome that asks for an inventory. */
  readonly welcome: () => void;
  readonly wheel: TimerWheel;
  /** Reports a failure that is not the agent's violation. */
  readonly failed: (error: unknown) => void;
}

/** Bounds the inventory of one node; the kubelet's own limit of pods is 110, each with a few Secrets and ConfigMaps. */
const MAX_INVENTORY = 16_384;

/**
 * An agent whose disk is full, or whose digests never agree with ours, asks again and again. It is heard at once the
 * first time, then after ever longer.
 */
const RESYNC_DELAY: BackoffPolicy = { first: seconds(2), max: seconds(60) };

const NO_DIGEST = new Uint8Array();

const violation = (what: string): PicoletError => new PicoletError("invalid", `cannot accept ${what}`);

/** The welcome's answer about the desired set, and the set that it is about. */
export interface DownlinkStart {
  readonly digest: Uint8Array;
  readonly set: DesiredSet;
  readonly stand: Welcome["desired"];
}

/**
 * Keeps one agent's set equal to what its node is to have. At most one revision is on its way; what changes meanwhile
 * comes together in the next one, however slow the agent is.
 */
export class Downlink {
  readonly #components: DownlinkComponents;
  readonly #signal: AbortSignal;
  #offer: { readonly revision: number; readonly answer: PendingAnswer<"acknowledged" | "resync"> } | undefined;
  #inventory: { readonly gathered: Map<ObjectKey, ObjectHash>; readonly whole: PendingAnswer<void> } | undefined;
  /** The agent's set; undefined until the agent has reported it. */
  #known: KnownSet | undefined;
  /** It is to hear of the latest revision even if it has that already. */
  #isDue = false;
  /** Everything of it that there is was sent; what is missing shows in the next one. */
  #exhausted: DesiredSet | undefined;
  #wantsResync = false;
  #isAdvancing = false;
  /** Something has changed since the last step began. */
  #isBehind = false;
  #resyncs = 0;

  /** @param signal of the session */
  constructor(components: DownlinkComponents, signal: AbortSignal) {
    this.#components = components;
    this.#signal = signal;
  }

  /** The welcome's answer to an agent whose set has `digest`. */
  standOf(digest: Uint8Array, set: DesiredSet): Welcome["desired"] {
    if (equalBytes(digest, set.digest)) return "current";
    return findKnownSet(this.#components.memory, digest) === undefined ? "inventory" : "delta";
  }

  /** Follows what is desired until the session ends. To be called right after the welcome. */
  run({ digest, set, stand }: DownlinkStart): void {
    const { memory, backend } = this.#components;
    this.#known = stand === "current" ? set : findKnownSet(memory, digest);
    this.#isDue = stand !== "current";
    memory.acknowledged = this.#known;
    memory.offered = undefined;
    // Not during the change that is being made to the set.
    backend.desired.listen(() => queueMicrotask(() => this.#poke()), this.#signal);
    this.#poke();
  }

  #poke(): void {
    this.#advance().catch(this.#components.failed);
  }

  /** Until the agent has what is desired. One at a time: what changes meanwhile is seen to by the one that runs. */
  async #advance(): Promise<void> {
    this.#isBehind = true;
    if (this.#isAdvancing) return;
    this.#isAdvancing = true;
    try {
      while (this.#isBehind) {
        this.#isBehind = false;
        while (!this.#signal.aborted && (await this.#step()));
      }
    } finally {
      this.#isAdvancing = false;
    }
  }

  /** @returns whether there was anything to do */
  async #step(): Promise<boolean> {
    if (this.#wantsResync) await this.#answerResync();
    if (this.#known === undefined) this.#known = await this.#ask();
    const set = this.#components.backend.desired.current;
    const isReached = equalBytes(this.#known.digest, set.digest) || set === this.#exhausted;
    if (!set.synced || (!this.#isDue && isReached)) return false;
    const reached = await this.#transfer(this.#known, set);
    if (reached === undefined) this.#wantsResync = true;
    else {
      this.#resyncs = 0;
      this.#isDue = false;
      this.#known = reached;
    }
    return true;
  }

  async #ask(): Promise<KnownSet> {
    const gathered = new Map<ObjectKey, ObjectHash>();
    const whole = new PendingAnswer<void>("the inventory", this.#signal, () => {
      this.#inventory = undefined;
    });
    this.#inventory = { gathered, whole };
    await whole.promise;
    this.#isDue = true;
    return { digest: NO_DIGEST, hashes: gathered };
  }

  /** @returns what the agent has then; undefined when it asks for a resync */
  async #transfer(known: KnownSet, set: DesiredSet): Promise<KnownSet | undefined> {
    const { memory, send, flushed, clock, counts } = this.#components;
    const { upserts, deletes } = differenceOf(known.hashes, set.hashes);
    const objects = upserts.map((key) => this.#components.backend.object(key)).filter((each) => each !== undefined);
    const sent = beginningOf(objects);
    const gone = upserts.filter((key) => known.hashes.has(key) && this.#components.backend.object(key) === undefined);
    const removed = [...deletes, ...gone];
    const isCurrent = ({ key, hash }: RemoteObject): boolean => equalBytes(hash, set.hashes.get(key) ?? NO_DIGEST);
    const isAll = sent.length === upserts.length && sent.every(isCurrent);
    const offered = isAll ? { digest: set.digest, hashes: set.hashes } : setAfter(known, removed, sent);
    if (sent.length === objects.length) this.#exhausted = set;
    const { revision } = set;
    memory.offered = offered;
    const answer = new PendingAnswer<"acknowledged" | "resync">("the revision", this.#signal, () => {
      this.#offer = undefined;
    });
    answer.promise.catch(ignore("the session may end before a caller waits for it"));
    this.#offer = { revision, answer };
    const startedAt = clock.monotonic();
    for (const piece of desiredPieces({
      revision,
      upserts: sent,
      deletes: removed,
      digest: offered.digest,
    })) {
      send(piece);
      await flushed(this.#signal);
    }
    if ((await answer.promise) === "resync") return undefined;
    counts.desiredAcks.observeMs(clock.monotonic() - startedAt);
    memory.acknowledged = offered;
    memory.offered = undefined;
    return offered;
  }

  async #answerResync(): Promise<void> {
    const { log, node, wheel, welcome } = this.#components;
    log.warn("the agent's set differs from the expected one; comparing all of it", { node, resyncs: this.#resyncs });
    if (this.#resyncs > 0) await wheel.sleep(backoffDelay(RESYNC_DELAY, this.#resyncs), this.#signal);
    this.#resyncs += 1;
    this.#known = undefined;
    this.#wantsResync = false;
    welcome();
  }

  /** This and the following throw `invalid` for what the agent may not send now. */
  onInventory({ items, last }: Inventory): void {
    if (this.#inventory === undefined) throw violation("an inventory that was not asked for");
    const { gathered, whole } = this.#inventory;
    for (const { key, hash } of items) gathered.set(key, hash);
    if (gathered.size > MAX_INVENTORY) throw violation(`an inventory of more than ${MAX_INVENTORY} objects`);
    if (last) whole.resolve(undefined);
  }

  onAck(revision: number): void {
    if (this.#offer?.revision !== revision) throw violation(`an ack of revision ${revision}, which was not sent`);
    this.#offer.answer.resolve("acknowledged");
  }

  onResync(): void {
    if (this.#inventory !== undefined || this.#wantsResync) throw violation("a resync in the middle of another");
    if (this.#offer !== undefined) {
      this.#offer.answer.resolve("resync");
      return;
    }
    this.#wantsResync = true;
    this.#poke();
  }
}

/**
 * As much as an agent takes at once; the rest follows as the next revision. What it has in between is no harm: nothing
 * that it is to keep is removed by it.
 */
function beginningOf(objects: readonly RemoteObject[]): readonly RemoteObject[] {
  let bytes = 0;
  const end = objects.findIndex(({ key, object }, index) => {
    bytes += key.length + jsonSize(object);
    return index > 0 && bytes > MAX_REVISION_BYTES / 2;
  });
  return end < 0 ? objects : objects.slice(0, end);
}

/**
 * The agent's set after these changes when that is not the wanted set: some objects have changed or gone since it was
 * made, or not all fitted. The rest is sent next.
 */
function setAfter(known: KnownSet, removed: readonly ObjectKey[], sent: readonly RemoteObject[]): KnownSet {
  const hashes = new Map(known.hashes);
  for (const key of removed) hashes.delete(key);
  for (const { key, hash } of sent) hashes.set(key, hash);
  const entries = [...hashes].map(([key, hash]) => ({ key, hash }));
  return { digest: digestOf(sha256, entries), hashes };
}
