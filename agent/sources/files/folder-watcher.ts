import { type FSWatcher, watch } from "node:fs";
import type { Log } from "@picolet/protocol/ports.ts";
import { folderIdentity } from "./manifest-files.ts";

export interface FolderWatcherComponents {
  readonly log: Log;
  /** Something may have happened to `name` in `folder`; `isWritten` when it was not only made, moved or removed. */
  readonly onEvent: (folder: string, name: string, isWritten: boolean) => void;
}

/** inotify on one folder at a time. Where there is none to be had, everything else goes on with the recheck alone. */
export class FolderWatcher implements Disposable {
  readonly #log: Log;
  readonly #onEvent: FolderWatcherComponents["onEvent"];
  #watched: { readonly folder: string; readonly identity: string; readonly watcher: FSWatcher } | undefined;
  #accepts: (name: string) => boolean = () => false;
  #isRefused = false;

  constructor(components: FolderWatcherComponents) {
    this.#log = components.log;
    this.#onEvent = components.onEvent;
  }

  /** Does nothing where the same folder is watched already. @returns whether it does now and did not before. */
  watch(folder: string, accepts: (name: string) => boolean): boolean {
    this.#accepts = accepts;
    const identity = folderIdentity(folder);
    if (this.#watched?.folder === folder && this.#watched.identity === identity) return false;
    this[Symbol.dispose]();
    if (identity === undefined) return false;
    try {
      const watcher = watch(folder, (kind, name) => {
        if (name !== null && this.#accepts(name)) this.#onEvent(folder, name, kind === "change");
      });
      watcher.on("error", (error) => this.#refused(error));
      this.#watched = { folder, identity, watcher };
      this.#isRefused = false;
      return true;
    } catch (error) {
      this.#refused(error);
      return false;
    }
  }

  [Symbol.dispose](): void {
    this.#watched?.watcher.close();
    this.#watched = undefined;
  }

  #refused(error: unknown): void {
    this[Symbol.dispose]();
    if (!this.#isRefused) this.#log.warn("no inotify: changes are seen by the recheck only", { error: String(error) });
    this.#isRefused = true;
  }
}
