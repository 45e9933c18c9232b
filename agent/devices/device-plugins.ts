/** The plugins of the node's devices: registration on `kubelet.sock` and through the plugin watcher. */
import { isAbsolute, join, normalize } from "node:path";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { describeError, ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { served } from "@picolet/runtime-cri/wire/grpc-server.ts";
import type { ServedMethod } from "@picolet/runtime-cri/wire/grpc-server-connection.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import { isDeviceResource } from "../plan/admission/admission-resources.ts";
import type { Plugin, PluginHandler } from "../plugins/plugin-handler.ts";
import type { DeviceManager } from "./device-manager.ts";
import { DevicePlugin } from "./device-plugin.ts";
import { DEVICE_PLUGIN_VERSION, REGISTER } from "./device-plugin-messages.ts";
import type { OfferedDevice } from "./device-provider.ts";

/** Each takes a connection; a board has a handful. */
const MAX_RESOURCES = 32;
/** The kubelet's: a plugin that is updated may be away for so long before its resource leaves the node. */
const GRACE_PERIOD = seconds(300);
/**
 * The shortest time between two lists that are passed on: each makes a report of the node, and a round of each pod. Of
 * those between, the last one counts.
 */
const LIST_INTERVAL = seconds(1);
/**
 * Lists that differ are passed on at that pace ten times, and then once a minute, also when the plugin has registered
 * again: one whose list changes all the time would write the checkpoint to the flash memory each second.
 */
const LIST_BURST = 10;
const SLOW_LIST_INTERVAL = seconds(60);
/** Bounds the reports and rounds that a plugin makes which registers again and again. */
const MAX_REGISTRATIONS = 10;
const REGISTRATION_PERIOD = seconds(10);

/** The lists of one resource that may be passed on now, at a time. */
interface ListCredit {
  lists: number;
  atMs: number;
}

interface Followed {
  readonly life: AbortController;
  /** Ends the wait for another plugin of the resource. */
  readonly replaced: AbortController;
  readonly registrations: { readonly sinceMs: number; readonly count: number };
  readonly listed: ListCredit;
  readonly socketPath: string;
  readonly task: Promise<void>;
}

export interface DevicePluginsComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
  readonly manager: DeviceManager;
}

export class DevicePlugins implements PluginHandler, AsyncDisposable {
  readonly #components: DevicePluginsComponents;
  readonly #folder: string;
  readonly #life = new AbortController();
  readonly #plugins = new Map<string, Followed>();

  /** @param init.folder `device-plugins`, in which endpoints are */
  constructor(components: DevicePluginsComponents, init: { readonly folder: string }) {
    this.#components = components;
    this.#folder = init.folder;
    const forgetMissing = (): void => {
      for (const resource of components.manager.awaited)
        if (!this.#plugins.has(resource)) components.manager.forget(resource);
    };
    components.clock.sleep(GRACE_PERIOD, this.#life.signal).then(forgetMissing, ignore("the agent stops"));
  }

  /** The service of `kubelet.sock`. */
  get registration(): ServedMethod {
    return served(REGISTER, async ({ version, endpoint, resourceName }, signal) => {
      if (version !== DEVICE_PLUGIN_VERSION) throw unsupported(version);
      if (isAbsolute(endpoint) || normalize(endpoint).startsWith("..")) {
        const message = `cannot use the endpoint ${JSON.stringify(endpoint.slice(0, 256))}: it must be a name in ${this.#folder}`;
        throw new PicoletError("invalid", message);
      }
      await this.#follow(resourceName, join(this.#folder, endpoint), signal);
      return {};
    });
  }

  /** Plugins of the plugin watcher. */
  async register({ name, endpoint, versions }: Plugin, signal: AbortSignal): Promise<void> {
    if (!versions.includes(DEVICE_PLUGIN_VERSION)) throw unsupported(versions.join(", "));
    await this.#follow(name, endpoint, signal);
  }

  async remove({ name, endpoint }: Plugin): Promise<void> {
    const plugin = this.#plugins.get(name);
    if (plugin?.socketPath !== endpoint) return;
    plugin.life.abort();
    await plugin.task;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await Promise.all([...this.#plugins.values()].map(({ task }) => task));
  }

  /** @throws `invalid`, `resource_exhausted` for what is refused, and why the plugin cannot be asked */
  async #follow(resource: string, socketPath: string, signal: AbortSignal): Promise<void> {
    const { log, counts } = this.#components;
    if (!isDeviceResource(resource)) {
      const name = JSON.stringify(resource.slice(0, 256));
      throw new PicoletError("invalid", `the ResourceName ${name} is invalid: it must be like example.com/camera`);
    }
    const plugin = new DevicePlugin(this.#components, { resource, socketPath });
    try {
      using joined = joinSignals(signal, this.#life.signal);
      await plugin.connect(joined.signal);
      const before = this.#plugins.get(resource);
      if (before === undefined && this.#plugins.size >= MAX_RESOURCES)
        throw new PicoletError("resource_exhausted", `cannot follow more than ${MAX_RESOURCES} device plugins`);
      const registrations = this.#registrationsOf(resource, before);
      log.info("device plugin has registered", { resource, endpoint: socketPath });
      counts?.add("kubelet_device_plugin_registration_total", resource);
      before?.life.abort();
      before?.replaced.abort();
      const [life, replaced] = [new AbortController(), new AbortController()];
      const listed = before?.listed ?? { lists: LIST_BURST, atMs: this.#components.clock.monotonic() };
      const task = this.#run(resource, plugin, listed, { own: life.signal, replaced: replaced.signal });
      this.#plugins.set(resource, { life, replaced, registrations, listed, socketPath, task });
    } catch (error) {
      plugin[Symbol.dispose]();
      throw error;
    }
  }

  /** @throws `resource_exhausted` for one too many */
  #registrationsOf(resource: string, before: Followed | undefined): Followed["registrations"] {
    const now = this.#components.clock.monotonic();
    const known = before?.registrations;
    if (known === undefined || now - known.sinceMs >= REGISTRATION_PERIOD) return { sinceMs: now, count: 1 };
    if (known.count < MAX_REGISTRATIONS) return { ...known, count: known.count + 1 };
    const limit = `more than ${MAX_REGISTRATIONS} times in ${REGISTRATION_PERIOD / 1000} s`;
    throw new PicoletError("resource_exhausted", `cannot register ${resource} ${limit}`);
  }

  /** Never rejects. */
  async #run(
    resource: string,
    plugin: DevicePlugin,
    listed: ListCredit,
    { own, replaced }: { readonly own: AbortSignal; readonly replaced: AbortSignal },
  ): Promise<void> {
    const { log, manager } = this.#components;
    using joined = joinSignals(own, this.#life.signal);
    using _connection = plugin;
    const { signal } = joined;
    try {
      await plugin.follow(this.#offers(resource, plugin, listed, signal), signal);
    } catch (error) {
      if (!signal.aborted)
        log.warn("device plugin is away: its devices are unhealthy", { resource, error: describeError(error) });
    }
    // A stopped agent leaves all as it is; a new plugin of the resource has taken over already.
    if (this.#life.signal.aborted) return;
    manager.withdraw(resource, plugin);
    this.#forgetLater(resource, replaced).catch(ignore("another plugin has registered, or the agent stops"));
  }

  #offers(
    resource: string,
    plugin: DevicePlugin,
    listed: ListCredit,
    signal: AbortSignal,
  ): (devices: readonly OfferedDevice[]) => void {
    const { clock, manager } = this.#components;
    let [isPaused, isFirst] = [false, true];
    let next: readonly OfferedDevice[] | undefined;
    /** Passes the list on unless it has to wait. @returns the time until `next` is considered again */
    const pass = (devices: readonly OfferedDevice[]): Millis => {
      const change = manager.compare(resource, plugin, devices);
      // A plugin that has registered again mostly has the devices that are known already.
      const isFree = change === "nothing" || (change === "states" && isFirst);
      const now = clock.monotonic();
      const lists = Math.min(LIST_BURST, listed.lists + (now - listed.atMs) / SLOW_LIST_INTERVAL);
      if (!isFree && lists < 1) return millis(Math.ceil((1 - lists) * SLOW_LIST_INTERVAL));
      if (!isFree) Object.assign(listed, { lists: lists - 1, atMs: now });
      manager.offer(resource, plugin, devices);
      isFirst = false;
      next = undefined;
      return isFree || listed.lists >= 1 ? LIST_INTERVAL : SLOW_LIST_INTERVAL;
    };
    const offer = (): void => {
      if (isPaused || next === undefined || signal.aborted) return;
      const pause = pass(next);
      isPaused = true;
      const resume = (): void => {
        isPaused = false;
        offer();
      };
      clock.sleep(pause, signal).then(resume, ignore("the plugin is away"));
    };
    return (devices) => {
      next = devices;
      offer();
    };
  }

  async #forgetLater(resource: string, replaced: AbortSignal): Promise<void> {
    const { clock, manager } = this.#components;
    using joined = joinSignals(replaced, this.#life.signal);
    await clock.sleep(GRACE_PERIOD, joined.signal);
    this.#plugins.delete(resource);
    manager.forget(resource);
  }
}

const unsupported = (version: string): PicoletError =>
  new PicoletError(
    "unimplemented",
    `requested API version ${JSON.stringify(version.slice(0, 64))} is not supported by kubelet. Supported version is ${JSON.stringify(DEVICE_PLUGIN_VERSION)}`,
  );
