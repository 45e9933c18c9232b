import { type FSWatcher, mkdirSync, readdirSync, watch } from "node:fs";
import { join } from "node:path";
import { wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import type { PluginHandlers } from "../../plugins/plugin-handler.ts";

/** The kubelet's mode of both folders: plugins run as root. */
const FOLDER_MODE = 0o750;

export interface PluginsOnDemandComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly handlers: PluginHandlers;
}

/** The kubelet's folders for plugins. What registers plugins is loaded when something is in the registry. */
export class PluginsOnDemand implements Component {
  readonly name = "plugins";
  readonly #components: PluginsOnDemandComponents;
  readonly #rootDir: string;

  constructor(components: PluginsOnDemandComponents, init: { readonly rootDir: string }) {
    this.#components = components;
    this.#rootDir = init.rootDir;
  }

  async run(signal: AbortSignal): Promise<void> {
    const folder = join(this.#rootDir, "plugins_registry");
    mkdirSync(join(this.#rootDir, "plugins"), { recursive: true, mode: FOLDER_MODE });
    mkdirSync(folder, { recursive: true, mode: FOLDER_MODE });
    await this.#untilUsed(folder, signal);
    if (signal.aborted) return;
    const { PluginWatcher } = await import("../../plugins/plugin-watcher.ts");
    await new PluginWatcher(this.#components, { folder }).run(signal);
  }

  async #untilUsed(folder: string, signal: AbortSignal): Promise<void> {
    let watcher: FSWatcher | undefined;
    try {
      await wokenOrAborted(signal, (wake) => {
        try {
          watcher = watch(folder, wake);
          watcher.on("error", wake);
        } catch (error) {
          // Without inotify watches the watcher itself scans.
          this.#components.log.warn("cannot watch for plugins", { folder, error: describeError(error) });
          queueMicrotask(wake);
        }
        if (readdirSync(folder).length > 0) queueMicrotask(wake);
        return () => watcher?.close();
      });
    } finally {
      watcher?.close();
    }
  }
}
