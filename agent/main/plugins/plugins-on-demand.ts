/** Registration of kubelet plugins: loaded with the first socket in `plugins_registry`. */
import { mkdirSync, readdirSync, watch } from "node:fs";
import { join } from "node:path";
import { wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import type { PluginHandlers } from "../../plugins/plugin-handler.ts";

/** The kubelet's name, in its root directory. */
const FOLDER = "plugins_registry";

export interface PluginsComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly handlers: PluginHandlers;
}

export class PluginsOnDemand implements Component {
  readonly name = "plugins";
  readonly #components: PluginsComponents;
  readonly #folder: string;

  constructor(components: PluginsComponents, init: { readonly rootDir: string }) {
    this.#components = components;
    this.#folder = join(init.rootDir, FOLDER);
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#untilUsed(signal);
    if (signal.aborted) return;
    const { PluginWatcher } = await import("../../plugins/plugin-watcher.ts");
    await new PluginWatcher(this.#components, { folder: this.#folder }).run(signal);
  }

  /** Where the kernel reports no changes, the watcher is loaded at once: it scans by time. */
  async #untilUsed(signal: AbortSignal): Promise<void> {
    try {
      mkdirSync(this.#folder, { recursive: true, mode: 0o750 });
      await wokenOrAborted(signal, (wake) => {
        const watcher = watch(this.#folder, wake);
        watcher.on("error", wake);
        if (readdirSync(this.#folder).length > 0) wake();
        return () => watcher.close();
      });
    } catch (error) {
      this.#components.log.warn("cannot watch the folder of plugins", { error: describeError(error) });
    }
  }
}
