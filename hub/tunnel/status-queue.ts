import { PicoletError } from "../../protocol/errors.ts";
import { statusHash } from "../../protocol/tunnel/digest.ts";
import { equalBytes } from "../../protocol/tunnel/hex.ts";
import { applyDelta, jsonSize } from "../../protocol/tunnel/json-delta.ts";
import { MAX_AGENT_MESSAGE_BYTES, MAX_IN_FLIGHT_MESSAGES } from "../../protocol/tunnel/message-codec.ts";
import type { Statuses, StatusesAck, StatusItem } from "../../protocol/tunnel/messages.ts";
import type { NodeBackend, NodePodStatus } from "../core/fleet.ts";
import { sha256 } from "./sha256.ts";
import type { UpstreamQueue } from "./upstream-writer.ts";

type Status = Readonly<Record<string, unknown>>;

interface Batch {
  readonly sequence: number;
  readonly wantFull: readonly string[];
  readonly statuses: readonly NodePodStatus[];
}

/**
 * Statuses of this session that a delta may start from and the API server may not show yet: of as many pods as a node
 * has, and of a few more that came and went. One that is not here costs a round trip: it is asked for whole.
 */
const MAX_RECENT = 128;

const violation = (what: string): PicoletError => new PicoletError("invalid", `cannot accept statuses: ${what}`);

/** Statuses on their way to the API server, in the order they came; of each pod the last is written. */
export class StatusQueue implements UpstreamQueue<readonly Batch[]> {
  readonly #backend: NodeBackend;
  readonly #ack: (ack: StatusesAck) => void;
  readonly #batches: Batch[] = [];
  #recent: Map<string, Status> | undefined;
  #lastSequence = 0;

  constructor(backend: NodeBackend, ack: (ack: StatusesAck) => void) {
    this.#backend = backend;
    this.#ack = ack;
  }

  /** @throws `invalid` for what the agent may not send */
  push({ sequence, items }: Statuses): void {
    if (sequence <= this.#lastSequence) throw violation(`sequence ${sequence} after ${this.#lastSequence}`);
    if (this.#batches.length >= MAX_IN_FLIGHT_MESSAGES) {
      throw violation(`more than ${MAX_IN_FLIGHT_MESSAGES} messages without an ack`);
    }
    this.#lastSequence = sequence;
    const wantFull: string[] = [];
    const statuses: NodePodStatus[] = [];
    for (const item of items) {
      const status = this.#statusOf(item);
      const { namespace, name, uid } = item;
      const gone = item.body.kind === "gone";
      if (status === undefined) wantFull.push(uid);
      else statuses.push({ namespace, name, uid, status, gone });
      this.#remember(uid, gone ? undefined : status);
    }
    this.#batches.push({ sequence, wantFull, statuses });
  }

  /** What was kept for deltas may go: the API server shows it by now. @returns whether everything was written */
  forget(): boolean {
    if (this.#batches.length > 0) return false;
    this.#recent = undefined;
    return true;
  }

  #statusOf({ namespace, name, uid, body }: StatusItem): Status | undefined {
    if (body.kind !== "delta") return body.status;
    const isBase = (status: Status | undefined): status is Status =>
      status !== undefined && equalBytes(statusHash(sha256, status), body.base);
    const recent = this.#recent?.get(uid);
    const base = isBase(recent) ? recent : this.#backend.statusOf(namespace, name, uid);
    if (base !== recent && !isBase(base)) return undefined;
    return base === undefined ? undefined : applied(base, body.delta);
  }

  #remember(uid: string, status: Status | undefined): void {
    this.#recent ??= new Map();
    this.#recent.delete(uid);
    if (status === undefined) return;
    this.#recent.set(uid, status);
    if (this.#recent.size <= MAX_RECENT) return;
    const [oldest] = this.#recent.keys();
    if (oldest !== undefined) this.#recent.delete(oldest);
  }

  peek(): readonly Batch[] | undefined {
    return this.#batches.length === 0 ? undefined : [...this.#batches];
  }

  costOf(batches: readonly Batch[]): number {
    return latestOf(batches).size;
  }

  async write(batches: readonly Batch[], signal: AbortSignal): Promise<void> {
    const latest = latestOf(batches);
    if (latest.size > 0) await this.#backend.putStatuses([...latest.values()], signal);
  }

  written(batches: readonly Batch[]): void {
    this.#batches.splice(0, batches.length);
    const sequence = batches.at(-1)?.sequence ?? 0;
    this.#ack({ kind: "statusesAck", sequence, wantFull: batches.flatMap(({ wantFull }) => wantFull) });
  }
}

/** The last status of each pod, in the order in which they came. */
function latestOf(batches: readonly Batch[]): ReadonlyMap<string, NodePodStatus> {
  const latest = new Map<string, NodePodStatus>();
  for (const { statuses } of batches) {
    for (const status of statuses) {
      latest.delete(status.uid);
      latest.set(status.uid, status);
    }
  }
  return latest;
}

/** A delta that does not fit its base is as good as none: the status is asked for whole. */
function applied(base: Status, delta: unknown): Status | undefined {
  try {
    const status = applyDelta(base, delta);
    const isStatus = typeof status === "object" && status !== null && !Array.isArray(status);
    // Small deltas in a row could make something that no message could carry.
    return isStatus && jsonSize(status) <= MAX_AGENT_MESSAGE_BYTES ? (status as Status) : undefined;
  } catch (error) {
    if (error instanceof PicoletError) return undefined;
    throw error;
  }
}
