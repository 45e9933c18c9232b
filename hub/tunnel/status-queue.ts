import { inflateRawSync } from "node:zlib";
import type { NodeBackend, NodePodStatus } from "@picolet/hub-core/fleet.ts";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, MonotonicMs } from "@picolet/protocol/ports.ts";
import {
  COMPACT_TAG_BYTES,
  type CompactBase,
  compactBase,
  compactTag,
  MAX_COMPACT_BASE_CHARACTERS,
  type PodIdentity,
  unpackCompactDelta,
} from "@picolet/protocol/tunnel/compact-status.ts";
import { statusHash } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes, toHex } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { applyDelta, jsonSize } from "@picolet/protocol/tunnel/encoding/json-delta.ts";
import { MAX_AGENT_MESSAGE_BYTES, MAX_IN_FLIGHT_COMPACT_MESSAGES } from "@picolet/protocol/tunnel/message-codec.ts";
import type { CompactStatus, Statuses, StatusesAck, StatusItem } from "@picolet/protocol/tunnel/messages.ts";
import type { TunnelCounts } from "./tunnel-counts.ts";
import type { Acknowledge, UpstreamQueue } from "./upstream-writer.ts";

type Status = Readonly<Record<string, unknown>>;

export interface StatusQueueComponents {
  readonly backend: NodeBackend;
  readonly clock: Clock;
  readonly counts: TunnelCounts;
}

interface Batch {
  readonly arrivedAt: MonotonicMs;
  readonly sequence: number;
  readonly wantFull: readonly string[];
  readonly ackMayWait: boolean;
  readonly statuses: readonly NodePodStatus[];
}

/**
 * Statuses of this session that a delta may start from and the API server may not show yet: of as many pods as a node
 * has, and of a few more that came and went. One that is not here costs a round trip: it is asked for whole.
 */
const MAX_RECENT = 128;

/** More than a usual delta takes. */
const INFLATE_CHUNK_BYTES = 1024;

const violation = (what: string): PicoletError => new PicoletError("invalid", `cannot accept statuses: ${what}`);

/** Statuses on their way to the API server, in the order they came; of each pod the last is written. */
export class StatusQueue implements UpstreamQueue<readonly Batch[]> {
  readonly #components: StatusQueueComponents;
  readonly #ack: Acknowledge<StatusesAck>;
  readonly #batches: Batch[] = [];
  /** By UID. */
  #recent: Map<string, NodePodStatus> | undefined;
  #lastSequence = 0;

  constructor(components: StatusQueueComponents, ack: Acknowledge<StatusesAck>) {
    this.#components = components;
    this.#ack = ack;
  }

  /** @throws `invalid` for what the agent may not send */
  push({ sequence, items, compact = [], ackMayWait = false }: Statuses): void {
    if (sequence <= this.#lastSequence) throw violation(`sequence ${sequence} after ${this.#lastSequence}`);
    if (this.#batches.length >= MAX_IN_FLIGHT_COMPACT_MESSAGES) {
      throw violation(`more than ${MAX_IN_FLIGHT_COMPACT_MESSAGES} messages without an ack`);
    }
    this.#lastSequence = sequence;
    const wantFull: string[] = [];
    const statuses: NodePodStatus[] = [];
    for (const item of items) {
      const status = this.#statusOf(item);
      const { namespace, name, uid } = item;
      const gone = item.body.kind === "gone";
      const of = status === undefined ? undefined : { namespace, name, uid, status, gone };
      if (of === undefined) wantFull.push(uid);
      else statuses.push(of);
      this.#remember(uid, gone ? undefined : of);
    }
    const bases = compact.length === 0 ? undefined : this.#basesByTag();
    for (const item of compact) {
      const of = compactStatusOf(item, bases?.get(tagOf(item.key)) ?? []);
      if (of === undefined) wantFull.push(toHex(item.key));
      else {
        statuses.push(of);
        this.#remember(of.uid, of);
      }
    }
    const arrivedAt = this.#components.clock.monotonic();
    this.#batches.push({ arrivedAt, sequence, wantFull, ackMayWait, statuses });
  }

  /** Drops the bases of deltas: the API server shows them by now. @returns whether everything was written */
  forget(): boolean {
    if (this.#batches.length > 0) return false;
    this.#recent = undefined;
    return true;
  }

  #statusOf({ namespace, name, uid, body }: StatusItem): Status | undefined {
    if (body.kind !== "delta") return body.status;
    const isBase = (status: Status | undefined): status is Status =>
      status !== undefined && equalBytes(statusHash(sha256, status), body.base);
    const recent = this.#recent?.get(uid)?.status;
    const base = isBase(recent) ? recent : this.#components.backend.statusOf(namespace, name, uid);
    if (base !== recent && !isBase(base)) return undefined;
    return base === undefined ? undefined : applied(base, () => body.delta);
  }

  /**
   * Bases of compact statuses. Made once for each message, so that each base is read once, however often the message
   * names it.
   */
  #basesByTag(): ReadonlyMap<string, readonly Base[]> {
    const bases = new Map<string, Base[]>();
    const add = (pod: PodIdentity, statusOf: () => Status | undefined): void => {
      const tag = toHex(compactTag(sha256, pod.uid));
      const base = new Base(pod, statusOf);
      const others = bases.get(tag);
      if (others === undefined) bases.set(tag, [base]);
      else others.push(base);
    };
    for (const recent of this.#recent?.values() ?? []) add(recent, () => recent.status);
    for (const pod of this.#components.backend.pods()) {
      add(pod, () => this.#components.backend.statusOf(pod.namespace, pod.name, pod.uid));
    }
    return bases;
  }

  #remember(uid: string, status: NodePodStatus | undefined): void {
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
    if (latest.size > 0) await this.#components.backend.putStatuses([...latest.values()], signal);
  }

  written(batches: readonly Batch[]): void {
    this.#batches.splice(0, batches.length);
    const { clock, counts } = this.#components;
    for (const { arrivedAt } of batches) counts.statusWrites.observe(clock.monotonic() - arrivedAt);
    const sequence = batches.at(-1)?.sequence ?? 0;
    const wantFull = batches.flatMap((batch) => batch.wantFull);
    const mayWait = wantFull.length === 0 && batches.every(({ ackMayWait }) => ackMayWait);
    this.#ack({ kind: "statusesAck", sequence, wantFull }, mayWait);
  }
}

/** A status that a compact one may start from; it is decoded when a compact one names its pod. */
class Base {
  readonly pod: PodIdentity;
  readonly #statusOf: () => Status | undefined;
  #known: (CompactBase & { readonly status: Status }) | "none" | undefined;

  constructor({ namespace, name, uid }: PodIdentity, statusOf: () => Status | undefined) {
    this.pod = { namespace, name, uid };
    this.#statusOf = statusOf;
  }

  /** Undefined: there is none, or it is too large for the compact form. */
  get known(): (CompactBase & { readonly status: Status }) | undefined {
    if (this.#known === undefined) {
      const status = this.#statusOf();
      const isFit = status !== undefined && jsonSize(status) <= 2 * MAX_COMPACT_BASE_CHARACTERS;
      this.#known = isFit ? { ...compactBase(sha256, this.pod, status), status } : "none";
    }
    return this.#known === "none" ? undefined : this.#known;
  }
}

const tagOf = (key: Uint8Array): string => toHex(key.subarray(0, COMPACT_TAG_BYTES));

function compactStatusOf({ key, delta }: CompactStatus, bases: readonly Base[]): NodePodStatus | undefined {
  for (const { pod, known } of bases) {
    if (known === undefined || !equalBytes(known.key, key)) continue;
    const status = applied(known.status, () => unpackCompactDelta(inflate, known, delta));
    return status === undefined ? undefined : { ...pod, status, gone: false };
  }
  return undefined;
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
function applied(base: Status, delta: () => unknown): Status | undefined {
  try {
    const status = applyDelta(base, delta());
    const isStatus = typeof status === "object" && status !== null && !Array.isArray(status);
    // Small deltas in a row could make something that no message could carry.
    return isStatus && jsonSize(status) <= MAX_AGENT_MESSAGE_BYTES ? (status as Status) : undefined;
  } catch (error) {
    if (error instanceof PicoletError) return undefined;
    throw error;
  }
}

function inflate(bytes: Uint8Array, dictionary: Uint8Array, maxBytes: number): Uint8Array {
  try {
    return inflateRawSync(bytes, { dictionary, maxOutputLength: maxBytes, chunkSize: INFLATE_CHUNK_BYTES });
  } catch (error) {
    throw new PicoletError("invalid", "cannot inflate a compact status", { cause: error });
  }
}
