/**
 * One resource of an API server in memory whose watches a test breaks, silences and lets run out. List and watch only.
 */

import type {
  KubeClient,
  KubeList,
  KubeObject,
  ListOptions,
  ResourceType,
  WatchEvent,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";

interface Recorded {
  readonly version: number;
  readonly event: WatchEvent;
}

interface OpenWatch {
  next: number;
  wake: () => void;
  broken: unknown;
}

const unused = (): Promise<never> => Promise.reject(new PicoletError("unimplemented", "cannot do that"));

export class ScriptedKubeClient implements KubeClient {
  lists = 0;
  watches = 0;
  /** Watches stay open and say nothing. */
  deaf = false;
  endWatchesAtOnce = false;
  #version = 0;
  #uid = 0;
  #compactedTo = 0;
  #history: Recorded[] = [];
  #pageFailure: unknown;
  #listFailure: unknown;
  readonly #objects = new Map<string, KubeObject>();
  readonly #open = new Set<OpenWatch>();

  objects(): KubeObject[] {
    return [...this.#objects.values()];
  }

  /** @param silent the history does not hold it */
  put(namespace: string, name: string, spec: object, { silent = false } = {}): void {
    const key = `${namespace}/${name}`;
    this.#version += 1;
    const before = this.#objects.get(key);
    if (before === undefined) this.#uid += 1;
    const uid = before?.metadata.uid ?? `u${this.#uid}`;
    const metadata = { namespace, name, uid, resourceVersion: String(this.#version) };
    const object: KubeObject = { apiVersion: "v1", kind: "Pod", metadata, spec };
    this.#objects.set(key, object);
    if (!silent) this.#record({ type: before === undefined ? "ADDED" : "MODIFIED", object });
  }

  remove(namespace: string, name: string, { silent = false } = {}): void {
    const object = this.#objects.get(`${namespace}/${name}`);
    if (object === undefined) return;
    this.#version += 1;
    this.#objects.delete(`${namespace}/${name}`);
    const last = { ...object, metadata: { ...object.metadata, resourceVersion: String(this.#version) } };
    if (!silent) this.#record({ type: "DELETED", object: last });
  }

  bookmark(): void {
    if (this.deaf) return;
    this.#record({ type: "BOOKMARK", resourceVersion: String(this.#version) });
  }

  /** No watch can begin before this moment any more. */
  compact(): void {
    this.#compactedTo = this.#version;
  }

  /** An empty store of an earlier version. */
  restore(): void {
    this.#objects.clear();
    this.#history = [];
    this.#version = 1;
    for (const watch of this.#open) watch.next = 0;
  }

  breakWatches(error: unknown): void {
    for (const watch of this.#open) {
      watch.broken = error;
      watch.wake();
    }
  }

  failNextPage(error: unknown): void {
    this.#pageFailure = error;
  }

  failNextList(error: unknown): void {
    this.#listFailure = error;
  }

  async list(_type: ResourceType, options: ListOptions): Promise<KubeList> {
    const failure = this.#listFailure;
    this.#listFailure = undefined;
    if (failure !== undefined) throw failure;
    this.lists += options.continue === undefined ? 1 : 0;
    if (options.continue !== undefined && this.#pageFailure !== undefined) {
      const error = this.#pageFailure;
      this.#pageFailure = undefined;
      throw error;
    }
    const sorted = [...this.#objects.entries()].sort(([a], [b]) => (a < b ? -1 : 1));
    // All pages show the state of the first, as in etcd; nothing changes between pages here.
    const start = Number(options.continue ?? 0);
    const end = start + (options.limit ?? sorted.length);
    return {
      items: sorted.slice(start, end).map(([, object]) => object),
      resourceVersion: String(this.#version),
      continue: end < sorted.length ? String(end) : undefined,
    };
  }

  async *watch(_type: ResourceType, options: ListOptions, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    this.watches += 1;
    const from = Number(options.resourceVersion);
    if (from < this.#compactedTo) throw new PicoletError("conflict", "cannot watch pods", { reason: "Expired" });
    if (this.endWatchesAtOnce) return;
    const first = this.#history.findIndex(({ version, event }) => version > from && event.type !== "BOOKMARK");
    const watch: OpenWatch = {
      next: first === -1 ? this.#history.length : first,
      wake: () => undefined,
      broken: undefined,
    };
    this.#open.add(watch);
    const wake = (): void => watch.wake();
    signal.addEventListener("abort", wake);
    try {
      for (;;) {
        if (signal.aborted) throw new PicoletError("cancelled", "the watch was cancelled");
        if (watch.broken !== undefined) throw watch.broken;
        const found = this.deaf ? undefined : this.#history[watch.next];
        if (found === undefined) {
          await new Promise<void>((resolve) => {
            watch.wake = resolve;
          });
        } else {
          watch.next += 1;
          yield found.event;
        }
      }
    } finally {
      signal.removeEventListener("abort", wake);
      this.#open.delete(watch);
    }
  }

  get = unused;
  create = unused;
  update = unused;
  patch = unused;
  delete = unused;

  as(): KubeClient {
    return this;
  }

  #record(event: WatchEvent): void {
    this.#history.push({ version: this.#version, event });
    for (const watch of this.#open) watch.wake();
  }
}
