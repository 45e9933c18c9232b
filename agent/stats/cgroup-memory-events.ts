import { existsSync, type FSWatcher, watch } from "node:fs";
import { ignore } from "@picolet/protocol/errors.ts";
import type { MemoryEvents } from "../core/node/memory-events.ts";

/**
 * Reports memory events of a cgroup of v2 and those below it, by inotify on its `memory.events`
 * (Documentation/admin-guide/cgroup-v2.rst). v1 reports only through an eventfd, which Node cannot make. The cgroup of
 * all pods is made with the first pod, long after the agent's start.
 */
export class CgroupMemoryEvents implements MemoryEvents {
  readonly #file: string;
  #watcher: FSWatcher | undefined;

  constructor(file: string) {
    this.#file = file;
  }

  listen(onEvent: () => void): void {
    if (this.#watcher !== undefined || !existsSync(this.#file)) return;
    try {
      const watcher = watch(this.#file, { persistent: false }, (what) => {
        // Removed: the next cgroup of its name has another file.
        if (what === "rename") this.#stop();
        onEvent();
      });
      watcher.on("error", () => this.#stop());
      this.#watcher = watcher;
    } catch {
      ignore("the cgroup is gone, or the user's inotify instances are used up: callers sample periodically too");
    }
  }

  [Symbol.dispose](): void {
    this.#stop();
  }

  #stop(): void {
    this.#watcher?.close();
    this.#watcher = undefined;
  }
}
