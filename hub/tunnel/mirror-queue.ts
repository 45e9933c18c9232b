import type { NodeBackend } from "@picolet/hub-core/fleet.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { MirrorItem, Mirrors } from "@picolet/protocol/tunnel/messages.ts";
import type { UpstreamQueue } from "./upstream-writer.ts";

/** Static pods of one node; the kubelet's own limit of pods is 110. More end the session. */
const MAX_MIRRORS = 1024;

/** The mirror set on its way to the API server: the latest alone. */
export class MirrorQueue implements UpstreamQueue<readonly MirrorItem[]> {
  readonly #backend: NodeBackend;
  #gathered: MirrorItem[] = [];
  #pending: readonly MirrorItem[] | undefined;

  constructor(backend: NodeBackend) {
    this.#backend = backend;
  }

  /** @throws `invalid` for what the agent may not send */
  push({ items, last }: Mirrors): void {
    if (this.#gathered.length + items.length > MAX_MIRRORS) {
      throw new PicoletError("invalid", `cannot accept mirrors: there are more than ${MAX_MIRRORS}`);
    }
    this.#gathered.push(...items);
    if (!last) return;
    this.#pending = this.#gathered;
    this.#gathered = [];
  }

  peek(): readonly MirrorItem[] | undefined {
    return this.#pending;
  }

  costOf(items: readonly MirrorItem[]): number {
    return items.length;
  }

  write(items: readonly MirrorItem[], signal: AbortSignal): Promise<void> {
    return this.#backend.putMirrors(items, signal);
  }

  written(items: readonly MirrorItem[]): void {
    if (this.#pending === items) this.#pending = undefined;
  }
}
