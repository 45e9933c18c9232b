import { hash } from "node:crypto";
import { deflateRawSync } from "node:zlib";
import { canonicalJson } from "@picolet/protocol/pod/container-hash.ts";
import {
  compactBase,
  MAX_COMPACT_BASE_CHARACTERS,
  type PodIdentity,
  packCompactDelta,
} from "@picolet/protocol/tunnel/compact-status.ts";
import { statusHash } from "@picolet/protocol/tunnel/digest.ts";
import { diffJson } from "@picolet/protocol/tunnel/encoding/json-delta.ts";
import type { CompactStatus, StatusBody } from "@picolet/protocol/tunnel/messages.ts";

export const sha256 = (bytes: Uint8Array): Uint8Array => hash("sha256", bytes, "buffer");

/** Enough for a usual status with its dictionary; zlib then takes 20 KiB, and 130 KiB with the largest window. */
const SMALL_WINDOW_BITS = 12;
const SMALL_BYTES = 3500;

function deflate(bytes: Uint8Array, dictionary: Uint8Array): Uint8Array {
  const isSmall = bytes.length + dictionary.length <= SMALL_BYTES;
  return deflateRawSync(bytes, {
    dictionary,
    windowBits: isSmall ? SMALL_WINDOW_BITS : 15,
    memLevel: 1,
    chunkSize: 1024,
  });
}

type Json = Readonly<Record<string, unknown>>;

/**
 * Bounds all statuses together, in characters. 110 pods of two containers take 300 KB. Above it the statuses that were
 * unchanged longest are dropped, and are sent whole when they change.
 */
const MAX_CHARACTERS = 512 * 1024;
/** A delta that saves less than this share of the whole is not worth that the hub has to know the base. */
const WORTHWHILE = 0.75;

interface Sent {
  /** Canonical JSON: a third of what the object takes in memory. */
  readonly text: string;
  /** The batch of this session it was sent with; 0: acknowledged. */
  readonly batch: number;
}

export type SentBody = StatusBody | ({ readonly kind: "compact" } & CompactStatus);

/**
 * Remembers each pod's status as the hub has it, so that only changes are sent. Only in memory: after the agent's start
 * each status is sent whole once.
 */
export class SentStatuses {
  /** The one sent longest ago first. */
  readonly #sent = new Map<string, Sent>();
  #characters = 0;

  /**
   * The form to send `status` in, given what was sent before; remembers it as sent with `batch`.
   * @param compactAs by what the hub knows the pod; undefined: it does not take the compact form
   */
  bodyOf(
    uid: string,
    status: Json,
    batch: number,
    compactAs?: PodIdentity,
  ): { readonly body: SentBody; readonly size: number } {
    const before = this.#sent.get(uid);
    const text = canonicalJson(status);
    this.forget(uid);
    this.#remember(uid, { text, batch });
    if (before !== undefined) {
      const base = JSON.parse(before.text) as Json;
      const isSmall = before.text.length <= MAX_COMPACT_BASE_CHARACTERS;
      const compact = compactAs === undefined || !isSmall ? undefined : compactOf(compactAs, base, status);
      if (compact !== undefined) return { body: compact, size: compact.delta.length };
      const delta = diffJson(base, status);
      const size = JSON.stringify(delta).length;
      if (size <= text.length * WORTHWHILE) {
        return { body: { kind: "delta", base: statusHash(sha256, base), delta }, size };
      }
    }
    return { body: { kind: "full", status }, size: text.length };
  }

  forget(uid: string): void {
    const before = this.#sent.get(uid);
    if (before === undefined) return;
    this.#characters -= before.text.length;
    this.#sent.delete(uid);
  }

  /**
   * The batch with which the status that is remembered of `uid` was sent; `undefined`: none is, or it was acknowledged.
   */
  batchOf(uid: string): number | undefined {
    return this.#sent.get(uid)?.batch || undefined;
  }

  /** The session is over: what was sent after batch `acknowledged` may have come, or not. */
  endSession(acknowledged: number): void {
    for (const [uid, { text, batch }] of this.#sent) {
      if (batch > acknowledged) this.forget(uid);
      else this.#sent.set(uid, { text, batch: 0 });
    }
  }

  #remember(uid: string, sent: Sent): void {
    this.#sent.set(uid, sent);
    this.#characters += sent.text.length;
    for (const oldest of this.#sent.keys()) {
      if (this.#characters <= MAX_CHARACTERS) return;
      this.forget(oldest);
    }
  }
}

function compactOf(pod: PodIdentity, base: Json, status: Json): (SentBody & { readonly kind: "compact" }) | undefined {
  const { key, dictionary } = compactBase(sha256, pod, base);
  const delta = packCompactDelta(deflate, { key, dictionary }, base, status);
  return delta === undefined ? undefined : { kind: "compact", key, delta };
}
