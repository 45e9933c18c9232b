/** Follows the devices of the configuration's rules as they are plugged in and out. */
import { type FSWatcher, watch } from "node:fs";
import { dirname } from "node:path";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { ignore } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, seconds } from "@picolet/protocol/ports.ts";
import { type CdiDevice, readCdiDevices } from "./cdi.ts";
import type { DeviceManager } from "./device-manager.ts";
import { type DeviceRule, matchingDevices, RuleProvider } from "./device-rules.ts";

/** udev makes a node, its links and its rights within this time. */
const SETTLE = millis(300);
/** The interval of scans where the kernel reports no changes, such as of a link's folder that is not there yet. */
const SCAN = seconds(30);

export class RuleWatcher {
  readonly #components: { readonly clock: Clock; readonly log: Log; readonly manager: DeviceManager };
  readonly #rules: ReadonlyMap<DeviceRule, RuleProvider>;
  readonly #init: {
    readonly rules: readonly DeviceRule[];
    readonly root: string;
    readonly cdiFolders: readonly string[];
  };
  readonly #alarm: Alarm;
  readonly #shown = new Map<DeviceRule, string>();

  constructor(
    components: { readonly clock: Clock; readonly log: Log; readonly manager: DeviceManager },
    init: { readonly rules: readonly DeviceRule[]; readonly root: string; readonly cdiFolders: readonly string[] },
  ) {
    this.#components = components;
    this.#init = init;
    this.#rules = new Map(init.rules.map((rule) => [rule, new RuleProvider()]));
    this.#alarm = new Alarm(components.clock);
  }

  /** Reports what is there now. */
  async scan(): Promise<void> {
    const cdi = await this.cdi();
    const machine = { root: this.#init.root, cdiNames: () => cdi.keys() };
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
    const problem = (path: string, error: string): void =>
      this.#components.log.warn("cannot use a CDI specification", { path, error });
    return readCdiDevices(this.#init.cdiFolders, problem);
  }

  #watch(): readonly FSWatcher[] {
    const patterns = this.#init.rules.flatMap(({ match }) => match);
    const paths = patterns.filter((each) => each.startsWith("/")).map((each) => this.#init.root + dirname(each));
    const folders = new Set([`${this.#init.root}/dev`, ...paths, ...this.#init.cdiFolders]);
    return [...folders].flatMap((folder) => {
      try {
        const watcher = watch(folder, () => this.#alarm.set(SETTLE));
        watcher.on("error", ignore("scans by time go on"));
        return [watcher];
      } catch {
        return [];
      }
    });
  }
}
