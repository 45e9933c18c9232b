/** Follows the devices of the configuration's rules as they are plugged in and out. */
import type { FSWatcher } from "node:fs";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { type CdiDevice, CdiSpecs, uuidsOfNamed } from "./cdi.ts";
import { foldersOf, SCAN, SETTLE, watchFolders } from "./device-folders.ts";
import type { DeviceManager } from "./device-manager.ts";
import { type DeviceRule, matchingDevices, RuleProvider } from "./device-rules.ts";

export class RuleWatcher {
  readonly #components: { readonly clock: Clock; readonly log: Log; readonly manager: DeviceManager };
  readonly #rules: ReadonlyMap<DeviceRule, RuleProvider>;
  readonly #init: {
    readonly rules: readonly DeviceRule[];
    readonly root: string;
    readonly cdiFolders: readonly string[];
  };
  readonly #cdi: CdiSpecs;
  readonly #alarm: Alarm;
  readonly #shown = new Map<DeviceRule, string>();

  constructor(
    components: { readonly clock: Clock; readonly log: Log; readonly manager: DeviceManager },
    init: { readonly rules: readonly DeviceRule[]; readonly root: string; readonly cdiFolders: readonly string[] },
  ) {
    this.#components = components;
    this.#init = init;
    this.#rules = new Map(init.rules.map((rule) => [rule, new RuleProvider()]));
    const problem = (path: string, error: string): void =>
      components.log.warn("cannot use a CDI specification", { path, error });
    this.#cdi = new CdiSpecs({ folders: init.cdiFolders, problem });
    this.#alarm = new Alarm(components.clock);
  }

  /** Reports what is there now. */
  async scan(): Promise<void> {
    const cdi = await this.cdi();
    const aliases = uuidsOfNamed(cdi);
    const isAlias = (name: string): boolean => aliases.has(name);
    const machine = { root: this.#init.root, cdiNames: () => cdi.keys(), isAlias };
    for (const [rule, provider] of this.#rules) {
      const devices = matchingDevices(rule, machine);
      const text = JSON.stringify(devices);
      if (this.#shown.get(rule) === text) continue;
      this.#shown.set(rule, text);
      this.#components.manager.offer(rule.name, provider, devices);
      this.#components.log.info("devices of a rule", { resource: rule.name, devices: devices.map(({ id }) => id) });
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    const watchers = this.#watch();
    try {
      for (;;) {
        await this.scan();
        this.#alarm.set(SCAN);
        await this.#alarm.ring(signal);
      }
    } finally {
      for (const watcher of watchers) watcher.close();
    }
  }

  /** All CDI devices of the machine now. */
  cdi(): Promise<ReadonlyMap<string, CdiDevice>> {
    return this.#cdi.devices();
  }

  #watch(): readonly FSWatcher[] {
    const { root, rules, cdiFolders } = this.#init;
    const patterns = rules.flatMap(({ match }) => match);
    return watchFolders([...foldersOf(patterns, root), ...cdiFolders], () => this.#alarm.set(SETTLE));
  }
}
