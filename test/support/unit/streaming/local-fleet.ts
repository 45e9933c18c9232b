/** A fleet whose agents are in this process: each stream is a pair of ends in memory. */
import type { StreamHandlers } from "@picolet/agent/core/hub/tunnel-ports.ts";
import type { Fleet } from "@picolet/hub-core/fleet.ts";
import { StreamPair } from "@picolet/kubelet-api/pipes/stream-pair.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Lane, OpenedStream, StreamKind } from "@picolet/protocol/tunnel/stream.ts";
import { cut } from "./stream-answers.ts";

export class LocalFleet implements Fleet {
  readonly nodes = new WatchSource<ReadonlySet<string>>(new Set());
  readonly #handlers = new Map<string, StreamHandlers>();
  /** Every stream that was opened. */
  readonly pairs: StreamPair[] = [];

  has(node: string): boolean {
    return this.#handlers.has(node);
  }

  connect(node: string, handlers: StreamHandlers): void {
    this.#handlers.set(node, handlers);
    this.nodes.set(new Set(this.#handlers.keys()));
  }

  /** As when a tunnel breaks: with all of its streams. */
  disconnect(node: string): void {
    this.#handlers.delete(node);
    this.nodes.set(new Set(this.#handlers.keys()));
    for (const pair of this.pairs) cut(pair);
  }

  /** Those of them through which something may still come. */
  get underWay(): number {
    return this.pairs.filter((pair) => !pair.over).length;
  }

  async open(node: string, kind: StreamKind, params: unknown, _lane: Lane, signal: AbortSignal): Promise<OpenedStream> {
    signal.throwIfAborted();
    const handler = this.#handlers.get(node)?.[kind];
    if (handler === undefined) throw new PicoletError("unavailable", `node ${node} is not connected here`);
    const pair = new StreamPair();
    this.pairs.push(pair);
    return await pair.open(handler, kind, params);
  }
}
