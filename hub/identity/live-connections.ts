import type { Duplex } from "node:stream";
import { isRevoked, type Revocations } from "@picolet/hub-core/node-credentials.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import type { AuthenticatedNode } from "./authenticate-node.ts";

export interface LiveConnectionsComponents {
  readonly revoked: Watch<Revocations>;
  readonly clock: Clock;
  readonly log: Log;
}

/** One round for the whole fleet; which is short beside a certificate's year. */
const EXPIRY_CHECK = seconds(600);

type Identity = Pick<AuthenticatedNode, "name" | "spkiHash" | "notAfterMs">;

/**
 * Authentication goes on for as long as a connection does: one that is revoked is cut at once, and one whose
 * certificate has ended soon after. Its board renews, where it may, and comes again.
 */
export class LiveConnections implements Component {
  readonly name = "live connections";
  readonly #components: LiveConnectionsComponents;
  /** As many as agents are connected: 150 bytes each. */
  readonly #connections = new Map<Duplex, Identity>();

  constructor(components: LiveConnectionsComponents) {
    this.#components = components;
  }

  get size(): number {
    return this.#connections.size;
  }

  /** Must be called with every accepted connection. */
  add(socket: Duplex, { name, spkiHash, notAfterMs }: AuthenticatedNode): void {
    if (socket.destroyed) return;
    this.#connections.set(socket, { name, spkiHash, notAfterMs });
    socket.once("close", () => this.#connections.delete(socket));
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#followRevoked(signal), this.#checkExpiry(signal)]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#connections.clear();
    return Promise.resolve();
  }

  async #followRevoked(signal: AbortSignal): Promise<void> {
    for await (const revocations of this.#components.revoked.changes(signal)) {
      this.#cut("its certificate was revoked", ({ name, ...facts }) =>
        isRevoked(revocations, { node: name, ...facts }),
      );
    }
  }

  async #checkExpiry(signal: AbortSignal): Promise<void> {
    const { clock } = this.#components;
    for (;;) {
      await clock.sleep(EXPIRY_CHECK, signal);
      const now = clock.wall().getTime();
      this.#cut("its certificate has ended", ({ notAfterMs }) => now > notAfterMs);
    }
  }

  #cut(why: string, isOver: (identity: Identity) => boolean): void {
    for (const [socket, identity] of this.#connections) {
      if (!isOver(identity)) continue;
      this.#components.log.warn("cut a node's connection", { node: identity.name, reason: why });
      socket.destroy();
    }
  }
}
