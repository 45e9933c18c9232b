import { nodePodStatus } from "@picolet/protocol/pod/node-pod-status.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { toHex } from "@picolet/protocol/tunnel/encoding/hex.ts";
import {
  MAX_AGENT_MESSAGE_BYTES,
  MAX_IN_FLIGHT_COMPACT_MESSAGES,
  MAX_IN_FLIGHT_MESSAGES,
  MAX_STATUS_ITEMS,
} from "@picolet/protocol/tunnel/message-codec.ts";
import type { AgentMessage, CompactStatus, StatusesAck, StatusItem } from "@picolet/protocol/tunnel/messages.ts";
import type { OutgoingStatus, OutgoingStatuses } from "../../core/hub/tunnel-ports.ts";
import type { SentBody, SentStatuses } from "./sent-statuses.ts";
import { Violation } from "./violation.ts";

/**
 * Sent and not yet acknowledged: four full messages are enough to use the line while the hub writes the first ones.
 * With more under way, or as many messages as the hub allows, the next wait, and only the latest of each pod is sent
 * then.
 */
const MAX_UNDER_WAY_ITEMS = 4 * MAX_STATUS_ITEMS;
const MAX_UNDER_WAY_CHARACTERS = 256 * 1024;
/**
 * With fewer messages than this that may be sent yet, the acknowledgement is asked for at once; else it may wait for
 * the next pong.
 */
const SPARE_BATCHES = 2;
/** A message is held in memory whole at both ends. A status that is larger goes alone. */
const MAX_BATCH_CHARACTERS = 64 * 1024;
/**
 * With room for what is around it. Ten times what 110 containers make; the API server would refuse such an object as
 * well soon. It is dropped with an error in the log, since it would hold up all that comes after it.
 */
const MAX_STATUS_CHARACTERS = MAX_AGENT_MESSAGE_BYTES - 16_384;

interface Batch {
  readonly number: number;
  /** The outbox is acknowledged up to this with it. */
  readonly upTo: number;
  readonly items: number;
  readonly characters: number;
  /** UIDs of compact items by key in hex. */
  readonly uids: ReadonlyMap<string, string>;
  /** Sent again: their rows are older than those of the batches before. */
  readonly again: ReadonlySet<string>;
}

interface StatusLaneComponents {
  readonly statuses: OutgoingStatuses;
  readonly sent: SentStatuses;
  readonly log: Log;
  readonly send: (message: AgentMessage) => void;
}

/**
 * The way up for pod statuses, of one session: batches, numbered from 1 and acknowledged cumulatively, several under
 * way at once. The outbox keeps what is not acknowledged; a new session begins with all of that.
 */
export class StatusLane {
  readonly #components: StatusLaneComponents;
  readonly #underWay: Batch[] = [];
  #number = 0;
  #acknowledged = 0;
  #hubTakesCompact = false;
  /** Position in the outbox up to which everything was sent in this session. */
  #sentUpTo = 0;
  /** Asked for whole, and not sent since. */
  readonly #wanted = new Set<string>();

  constructor(components: StatusLaneComponents) {
    this.#components = components;
  }

  onWelcome(hub: { readonly takesCompactStatuses?: boolean | undefined }): void {
    this.#hubTakesCompact = hub.takesCompactStatuses === true;
  }

  /** Sends what there is and may be sent. @returns whether there was anything */
  flush(): boolean {
    let count = 0;
    while (this.#hasRoom && this.#sendOne()) count += 1;
    return count > 0;
  }

  get #maxBatches(): number {
    return this.#hubTakesCompact ? MAX_IN_FLIGHT_COMPACT_MESSAGES : MAX_IN_FLIGHT_MESSAGES;
  }

  get #hasRoom(): boolean {
    const items = this.#underWay.reduce((sum, each) => sum + each.items, 0);
    const characters = this.#underWay.reduce((sum, each) => sum + each.characters, 0);
    const isFull = items >= MAX_UNDER_WAY_ITEMS || characters >= MAX_UNDER_WAY_CHARACTERS;
    return this.#underWay.length < this.#maxBatches && !isFull;
  }

  onAck({ sequence, wantFull }: StatusesAck): void {
    if (sequence > this.#number)
      throw new Violation("protocol", `statuses ${sequence} acknowledged, ${this.#number} sent`);
    const wanted = wantFull.map((name) => this.#uidOf(name));
    let last: Batch | undefined;
    while (this.#underWay[0] !== undefined && this.#underWay[0].number <= sequence) last = this.#underWay.shift();
    this.#acknowledged = Math.max(this.#acknowledged, sequence);
    for (const uid of wanted) this.#want(uid);
    if (last === undefined) return;
    const except = new Set(this.#wanted);
    for (const { again } of this.#underWay) for (const uid of again) except.add(uid);
    this.#components.statuses.ack(last.upTo, except);
  }

  /** The session is over. */
  end(): void {
    this.#components.sent.endSession(this.#acknowledged);
  }

  /** @param name a UID, or the key of a compact item in hex */
  #uidOf(name: string): string {
    for (const { uids } of this.#underWay) {
      const uid = uids.get(name);
      if (uid !== undefined) return uid;
    }
    return name;
  }

  #want(uid: string): void {
    const { sent } = this.#components;
    // A newer one of it is under way; the answer to that decides.
    if ((sent.batchOf(uid) ?? 0) > this.#acknowledged) return;
    sent.forget(uid);
    this.#wanted.add(uid);
  }

  /** @returns whether there was anything */
  #sendOne(): boolean {
    const { statuses, send } = this.#components;
    const underWay = this.#underWay.reduce((sum, { items }) => sum + items, 0);
    const number = this.#number + 1;
    const items: StatusItem[] = [];
    const compact: CompactStatus[] = [];
    const uids = new Map<string, string>();
    const again = new Set<string>();
    let characters = 0;
    for (const { sequence, value } of statuses.pending(underWay + this.#wanted.size + MAX_STATUS_ITEMS)) {
      const isAgain = sequence <= this.#sentUpTo;
      if (isAgain && !this.#wanted.has(value.uid)) continue;
      if (items.length + compact.length === MAX_STATUS_ITEMS || characters >= MAX_BATCH_CHARACTERS) break;
      const { body, size } = this.#bodyOf(value, number);
      this.#wanted.delete(value.uid);
      if (isAgain) again.add(value.uid);
      else this.#sentUpTo = sequence;
      if (size > MAX_STATUS_CHARACTERS) {
        this.#drop(value);
        continue;
      }
      characters += size;
      const { namespace, name, uid } = value;
      if (body.kind === "compact") {
        compact.push({ key: body.key, delta: body.delta });
        uids.set(toHex(body.key), uid);
      } else items.push({ namespace, name, uid, body });
    }
    const count = items.length + compact.length;
    // A requested status that is no longer pending was superseded.
    if (count === 0) {
      this.#wanted.clear();
      return false;
    }
    this.#number = number;
    this.#underWay.push({ number, upTo: this.#sentUpTo, items: count, characters, uids, again });
    const ackMayWait = this.#maxBatches - this.#underWay.length >= SPARE_BATCHES;
    send({ kind: "statuses", sequence: number, items, compact, ackMayWait });
    return true;
  }

  #bodyOf(outgoing: OutgoingStatus, batch: number): { readonly body: SentBody; readonly size: number } {
    const { uid, gone } = outgoing;
    const status = nodePodStatus(outgoing.status);
    if (!gone) return this.#components.sent.bodyOf(uid, status, batch, this.#hubTakesCompact ? outgoing : undefined);
    this.#components.sent.forget(uid);
    return { body: { kind: "gone", status }, size: JSON.stringify(status).length };
  }

  #drop({ namespace, name, uid }: OutgoingStatus): void {
    this.#components.sent.forget(uid);
    this.#components.log.error("a pod's status is too large to be sent", { namespace, pod: name });
  }
}
