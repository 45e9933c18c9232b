/** The plugins of the node's devices: registration on `kubelet.sock` and through the plugin watcher. */
import { isAbsolute, join, normalize } from "node:path";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { describeError, ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import { served } from "@picolet/runtime-cri/wire/grpc-server.ts";
import type { ServedMethod } from "@picolet/runtime-cri/wire/grpc-server-connection.ts";
import type { Plugin, PluginHandler } from "../plugins/plugin-handler.ts";
import type { DeviceManager } from "./device-manager.ts";
import { DevicePlugin } from "./device-plugin.ts";
import { DEVICE_PLUGIN_VERSION, type DevicePluginOptions, REGISTER } from "./device-plugin-messages.ts";

/** Each takes a connection; a board has a handful. */
const MAX_RESOURCES = 32;
/** The kubelet's: a plugin that is updated may be away for so long before its resource leaves the node. */
const GRACE_PERIOD = seconds(300);
const RESOURCE_NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;

interface Followed {
  readonly life: AbortController;
  readonly socketPath: string;
  readonly task: Promise<void>;
}

export interface DevicePluginsComponents {
  readonly clock: Clock;
  readonly log: Log;
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
  }

  /** The service of `kubelet.sock`. */
  get registration(): ServedMethod {
    return served(REGISTER, ({ version, endpoint, resourceName, options }) => {
      if (version !== DEVICE_PLUGIN_VERSION) throw unsupported(version);
      if (isAbsolute(endpoint) || normalize(endpoint).startsWith("..")) {
        const message = `cannot use the endpoint ${JSON.stringify(endpoint.slice(0, 256))}: it must be a name in ${this.#folder}`;
        throw new PicoletError("invalid", message);
      }
      this.#follow(resourceName, join(this.#folder, endpoint), options);
      return {};
    });
  }

  /** Plugins of the plugin watcher. */
  async register({ name, endpoint, versions }: Plugin): Promise<void> {
    if (!versions.includes(DEVICE_PLUGIN_VERSION)) throw unsupported(versions.join(", "));
    this.#follow(name, endpoint, undefined);
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

  /** @throws `invalid`, `resource_exhausted` for what is refused */
  #follow(resource: string, socketPath: string, options: DevicePluginOptions | undefined): void {
    if (!RESOURCE_NAME.test(resource) || /(^|\.)kubernetes\.io\//.test(resource)) {
      const name = JSON.stringify(resource.slice(0, 256));
      throw new PicoletError("invalid", `the ResourceName ${name} is invalid: it must be like example.com/camera`);
    }
    const before = this.#plugins.get(resource);
    if (before === undefined && this.#plugins.size >= MAX_RESOURCES)
      throw new PicoletError("resource_exhausted", `cannot follow more than ${MAX_RESOURCES} device plugins`);
    before?.life.abort();
    const life = new AbortController();
    const task = this.#run(resource, { socketPath, options }, life.signal);
    this.#plugins.set(resource, { life, socketPath, task });
  }

  /** Never rejects. */
  async #run(
    resource: string,
    init: { readonly socketPath: string; readonly options: DevicePluginOptions | undefined },
    own: AbortSignal,
  ): Promise<void> {
    const { clock, log, manager } = this.#components;
    using joined = joinSignals(own, this.#life.signal);
    const { signal } = joined;
    using plugin = new DevicePlugin({ clock }, init);
    try {
      log.info("device plugin has registered", { resource, endpoint: init.socketPath });
      await plugin.follow((devices) => manager.offer(resource, plugin, devices), signal);
    } catch (error) {
      if (!signal.aborted)
        log.warn("device plugin is away: its devices are unhealthy", { resource, error: describeError(error) });
    }
    // A stopped agent leaves all as it is; a new plugin of the resource has taken over already.
    if (this.#life.signal.aborted) return;
    manager.withdraw(resource, plugin);
    this.#forgetLater(resource, own);
  }

  #forgetLater(resource: string, own: AbortSignal): void {
    const { clock, manager } = this.#components;
    const forget = (): void => {
      if (this.#plugins.get(resource)?.life.signal === own) {
        this.#plugins.delete(resource);
        manager.forget(resource);
      }
    };
    clock.sleep(GRACE_PERIOD, this.#life.signal).then(forget, ignore("the agent stops"));
  }
}

const unsupported = (version: string): PicoletError =>
  new PicoletError(
    "unimplemented",
    `requested API version ${JSON.stringify(version.slice(0, 64))} is not supported by kubelet. Supported version is ${JSON.stringify(DEVICE_PLUGIN_VERSION)}`,
  );
