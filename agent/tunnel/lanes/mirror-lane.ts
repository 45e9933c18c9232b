import type { Log } from "@picolet/protocol/ports.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { MAX_AGENT_MESSAGE_BYTES, MAX_MIRROR_ITEMS } from "@picolet/protocol/tunnel/message-codec.ts";
import type { AgentMessage, MirrorItem } from "@picolet/protocol/tunnel/messages.ts";
import type { MirrorSet } from "../../core/hub/tunnel-ports.ts";

/** Bounds a piece, in characters of JSON; a larger pod is a piece by itself. */
const MAX_PIECE_CHARACTERS = 64 * 1024;
/**
 * No message holds more; an API server takes no annotations beyond half of it. Without a mirror pod it runs all the
 * same.
 */
const MAX_POD_CHARACTERS = MAX_AGENT_MESSAGE_BYTES - 16_384;

interface MirrorLaneComponents {
  readonly mirrors: () => MirrorSet;
  readonly log: Log;
  readonly send: (message: AgentMessage) => void;
  /** Tells the statuses of these again. */
  readonly repeat: (uids: ReadonlySet<string>) => void;
  /** Resolves when what was sent is with the link. */
  readonly flushed: (signal: AbortSignal) => Promise<void>;
}

/** The way up for mirror pods, of one session: the whole set when the hub asks for it and when it has changed. */
export class MirrorLane {
  readonly #components: MirrorLaneComponents;
  /** Digest of the set that the hub has, as far as this session knows. */
  #sent: Uint8Array | undefined;
  readonly #helloDigest: Uint8Array;

  constructor(components: MirrorLaneComponents) {
    this.#components = components;
    this.#helloDigest = components.mirrors().digest;
  }

  get helloDigest(): Uint8Array {
    return this.#helloDigest;
  }

  onWelcome(wantsMirrors: boolean): void {
    this.#sent = wantsMirrors ? undefined : this.#helloDigest;
  }

  get isDue(): boolean {
    return this.#sent === undefined || !equalBytes(this.#sent, this.#components.mirrors().digest);
  }

  /**
   * One piece after the other, so that a large set never waits in memory as a whole. @returns whether there was
   * anything
   */
  async flush(signal: AbortSignal): Promise<boolean> {
    if (!this.isDue) return false;
    const { current, digest } = this.#components.mirrors();
    this.#sent = digest;
    const pieces = this.#cut(current);
    for (const [index, items] of pieces.entries()) {
      this.#components.send({ kind: "mirrors", items, last: index === pieces.length - 1 });
      await this.#components.flushed(signal);
    }
    // A hub without the mirror pods lacks their statuses too, even those it once acknowledged.
    this.#components.repeat(new Set(current.map(({ uid }) => uid)));
    return true;
  }

  /** @returns at least one piece: an empty set is sent too */
  #cut(items: readonly MirrorItem[]): readonly (readonly MirrorItem[])[] {
    const pieces: MirrorItem[][] = [[]];
    let characters = 0;
    for (const item of items) {
      const piece = pieces.at(-1) ?? [];
      const size = JSON.stringify(item.pod).length;
      if (size > MAX_POD_CHARACTERS) {
        this.#components.log.error("a static pod is too large for a mirror pod", { pod: item.name });
      } else if (piece.length > 0 && (piece.length === MAX_MIRROR_ITEMS || characters + size > MAX_PIECE_CHARACTERS)) {
        pieces.push([item]);
        characters = size;
      } else {
        piece.push(item);
        characters += size;
      }
    }
    return pieces;
  }
}
