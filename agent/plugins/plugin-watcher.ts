/**
 * Registration of plugins by their sockets in `<root>/plugins_registry`, as in a kubelet: each socket is asked what it
 * is, given to the handler of its type, and told the result. A plugin that hangs delays no other one.
 */
import { type FSWatcher, lstatSync, readdirSync, watch } from "node:fs";
import { isAbsolute, join } from "node:path";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type BackoffPolicy, backoffDelay, EQUAL_JITTER, jittered } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { GrpcClient, type GrpcMethod } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { bool, type InputOf, type MessageOf, message, string, strings } from "@picolet/runtime-cri/wire/protobuf.ts";
import type { Plugin, PluginHandler, PluginHandlers } from "./plugin-handler.ts";

/** Sockets that are followed; a board has a handful. More are logged and left alone. */
const MAX_SOCKETS = 64;
/** Folders that are watched, the registry and folders in it. */
const MAX_FOLDERS = 16;
/** Entries read of one folder. */
const MAX_ENTRIES = 1024;
/** One answer names the plugin and its versions. */
const MAX_MESSAGE_BYTES = 64 * KIBIBYTE;
const READ_BUFFER_BYTES = 4096;
/** Kubernetes' limit of a DNS subdomain; a resource has a prefix and a slash more. */
const MAX_NAME_LENGTH = 317;
const MAX_VERSIONS = 32;
/** Bounds GetInfo and the status; the kubelet gives them a second, on machines that are faster. */
const CALL_TIMEOUT_MS = 5_000;
/** Bounds the handler, which talks to the plugin's own API. */
const REGISTER_TIMEOUT = seconds(30);
const RETRY: BackoffPolicy = { first: seconds(1), max: seconds(120) };
/** The interval of scans where the kernel reports no changes. */
const SCAN_WITHOUT_EVENTS = seconds(10);

type SocketState =
  | { readonly kind: "asked" }
  | { readonly kind: "registered"; readonly plugin: Plugin; readonly handler: PluginHandler }
  | { readonly kind: "failed"; readonly retryAtMs: number };

interface PluginSocket {
  readonly path: string;
  /** Changes when another socket takes its place. */
  readonly identity: string;
  readonly life: AbortController;
  /** Its last task, so that calls for one socket follow each other. */
  task: Promise<void>;
  state: SocketState;
  failures: number;
}

export interface PluginWatcherComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly handlers: PluginHandlers;
}

export class PluginWatcher implements Component {
  readonly name = "plugin-watcher";
  readonly #components: PluginWatcherComponents;
  readonly #folder: string;
  readonly #alarm: Alarm;
  readonly #sockets = new Map<string, PluginSocket>();
  readonly #watchers = new Map<string, FSWatcher>();
  /** Tasks of sockets that are gone, by path: a new socket there waits for them. */
  readonly #ending = new Map<string, Promise<void>>();
  /** Shared, because bytes are processed at once. */
  readonly #readBuffer = Buffer.allocUnsafeSlow(READ_BUFFER_BYTES);
  #hasReportedExcess = false;

  /** @param init.folder absolute; it must exist */
  constructor(components: PluginWatcherComponents, init: { readonly folder: string }) {
    this.#components = components;
    this.#folder = init.folder;
    this.#alarm = new Alarm(components.clock);
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      for (;;) {
        this.#scan(signal);
        await this.#alarm.ring(signal);
      }
    } finally {
      for (const watcher of this.#watchers.values()) watcher.close();
      this.#watchers.clear();
      for (const socket of this.#sockets.values()) socket.life.abort();
      await Promise.all([...this.#ending.values(), ...[...this.#sockets.values()].map(({ task }) => task)]);
    }
  }

  #scan(signal: AbortSignal): void {
    const found = this.#find();
    for (const socket of [...this.#sockets.values()])
      if (found.get(socket.path) !== socket.identity) this.#remove(socket);
    for (const [path, identity] of found) if (!this.#sockets.has(path)) this.#add(path, identity, signal);
    const now = this.#components.clock.monotonic();
    for (const socket of this.#sockets.values()) {
      if (socket.state.kind !== "failed") continue;
      const left = socket.state.retryAtMs - now;
      if (left > 0) this.#alarm.set(millis(left));
      else this.#ask(socket, signal);
    }
  }

  /** Sockets by path, each with its identity. Folders are watched before they are read. */
  #find(): ReadonlyMap<string, string> {
    const found = new Map<string, string>();
    const folders = [this.#folder];
    for (const folder of folders) {
      this.#watch(folder);
      for (const name of namesIn(folder)) {
        if (name.startsWith(".")) continue;
        const path = join(folder, name);
        const status = lstatSync(path, { throwIfNoEntry: false });
        if (status?.isDirectory() && folders.length < MAX_FOLDERS) folders.push(path);
        if (!status?.isSocket()) continue;
        if (found.size < MAX_SOCKETS) found.set(path, `${status.dev}:${status.ino}:${status.ctimeMs}`);
        else this.#reportExcess(path);
      }
    }
    for (const [folder, watcher] of this.#watchers) {
      if (folders.includes(folder)) continue;
      watcher.close();
      this.#watchers.delete(folder);
    }
    return found;
  }

  #watch(folder: string): void {
    if (this.#watchers.has(folder)) return;
    try {
      const watcher = watch(folder, () => this.#alarm.set(seconds(0)));
      watcher.on("error", () => {
        watcher.close();
        this.#watchers.delete(folder);
        this.#alarm.set(SCAN_WITHOUT_EVENTS);
      });
      this.#watchers.set(folder, watcher);
    } catch {
      this.#alarm.set(SCAN_WITHOUT_EVENTS);
    }
  }

  #reportExcess(path: string): void {
    if (!this.#hasReportedExcess)
      this.#components.log.warn("too many plugin sockets: some are ignored", { path, limit: MAX_SOCKETS });
    this.#hasReportedExcess = true;
  }

  #add(path: string, identity: string, signal: AbortSignal): void {
    const task = this.#ending.get(path) ?? Promise.resolve();
    const life = new AbortController();
    const socket: PluginSocket = { path, identity, life, task, state: { kind: "asked" }, failures: 0 };
    this.#sockets.set(path, socket);
    this.#ask(socket, signal);
  }

  #ask(socket: PluginSocket, signal: AbortSignal): void {
    socket.state = { kind: "asked" };
    const register = async (): Promise<void> => {
      using joined = joinSignals(signal, socket.life.signal);
      if (!joined.signal.aborted) await this.#register(socket, joined.signal);
    };
    socket.task = socket.task.then(register);
  }

  #remove(socket: PluginSocket): void {
    this.#sockets.delete(socket.path);
    socket.life.abort();
    const end = async (): Promise<void> => {
      const { state } = socket;
      if (state.kind !== "registered") return;
      const { name, type } = state.plugin;
      try {
        await state.handler.remove(state.plugin);
        this.#components.log.info("plugin is gone", { type, name, path: socket.path });
      } catch (error) {
        this.#components.log.error("cannot remove a plugin", { type, name, error: describeError(error) });
      }
    };
    const ended = socket.task.then(end).finally(() => {
      if (this.#ending.get(socket.path) === ended) this.#ending.delete(socket.path);
    });
    this.#ending.set(socket.path, ended);
  }

  /** Never rejects. */
  async #register(socket: PluginSocket, signal: AbortSignal): Promise<void> {
    const { clock, random, log } = this.#components;
    const init = { path: socket.path, readBuffer: this.#readBuffer, maxMessageBytes: MAX_MESSAGE_BYTES };
    using client = new GrpcClient({ clock }, { ...init, connectTimeoutMs: CALL_TIMEOUT_MS });
    const notify = (pluginRegistered: boolean, error: string): Promise<unknown> =>
      client.unary(NOTIFY_REGISTRATION_STATUS, { pluginRegistered, error }, CALL_TIMEOUT_MS, signal);
    // A socket is seen before its plugin listens: one that cannot be asked is sent nothing.
    let isAsked = false;
    try {
      const info = await client.unary(GET_INFO, {}, CALL_TIMEOUT_MS, signal);
      isAsked = true;
      const { plugin, handler } = await this.#accept(socket, info, signal);
      socket.state = { kind: "registered", plugin, handler };
      socket.failures = 0;
      log.info("plugin is registered", { type: plugin.type, name: plugin.name, path: socket.path });
      await notify(true, "").catch((error: unknown) => {
        if (!isCancelled(error)) log.warn("plugin took no status", { path: socket.path, error: describeError(error) });
      });
    } catch (error) {
      if (isCancelled(error)) return;
      const reason = describeError(error);
      if (isAsked) await notify(false, reason).catch(ignore("the plugin is asked again"));
      const delay = jittered(backoffDelay(RETRY, socket.failures), EQUAL_JITTER, random.next());
      if (socket.failures === 0) log.warn("cannot register a plugin", { path: socket.path, error: reason });
      socket.failures += 1;
      socket.state = { kind: "failed", retryAtMs: clock.monotonic() + delay };
      this.#alarm.set(delay);
    }
  }

  async #accept(
    { path }: PluginSocket,
    info: PluginInfo,
    signal: AbortSignal,
  ): Promise<{ readonly plugin: Plugin; readonly handler: PluginHandler }> {
    const plugin = pluginOf(info, path);
    const { clock, handlers } = this.#components;
    const load = Object.hasOwn(handlers, plugin.type) ? handlers[plugin.type] : undefined;
    if (load === undefined) {
      const known = Object.keys(handlers).join(", ");
      throw new PicoletError("invalid", `cannot use plugin type ${JSON.stringify(plugin.type)}: known are ${known}`);
    }
    const handler = await load();
    const what = `register ${plugin.type} ${plugin.name}`;
    try {
      await withDeadline(clock, REGISTER_TIMEOUT, what, (limited) => handler.register(plugin, limited), signal);
    } catch (error) {
      await handler.remove(plugin);
      throw error;
    }
    return { plugin, handler };
  }
}

/** @throws `invalid` for what no plugin may say of itself */
function pluginOf(info: PluginInfo, socketPath: string): Plugin {
  const { type, name, supportedVersions } = info;
  const endpoint = info.endpoint === "" ? socketPath : info.endpoint.replace(/^unix:\/\//, "");
  const problem =
    name === "" || name.length > MAX_NAME_LENGTH || !/^[\w./-]+$/.test(name)
      ? `its name ${JSON.stringify(name.slice(0, MAX_NAME_LENGTH))} must have 1 to ${MAX_NAME_LENGTH} letters, digits, . / - _`
      : !isAbsolute(endpoint) || endpoint.includes("\0")
        ? `its endpoint ${JSON.stringify(endpoint.slice(0, 256))} must be an absolute path`
        : supportedVersions.length > MAX_VERSIONS
          ? `it names more than ${MAX_VERSIONS} versions`
          : undefined;
  if (problem !== undefined) throw new PicoletError("invalid", `cannot use the plugin at ${socketPath}: ${problem}`);
  return { type, name, endpoint, versions: supportedVersions, socketPath };
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder).slice(0, MAX_ENTRIES);
  } catch {
    return [];
  }
}

// The kubelet's protocol of plugin registration, `pluginregistration.v1`: k8s.io/kubelet/pkg/apis/pluginregistration.
const InfoRequest = message("InfoRequest", {});
const PluginInfo = message("PluginInfo", {
  type: string(1),
  name: string(2),
  endpoint: string(3),
  supportedVersions: strings(4),
});
const RegistrationStatus = message("RegistrationStatus", { pluginRegistered: bool(1), error: string(2) });
const RegistrationStatusResponse = message("RegistrationStatusResponse", {});

type PluginInfo = MessageOf<typeof PluginInfo>;

const GET_INFO: GrpcMethod<InputOf<typeof InfoRequest>, PluginInfo> = {
  path: "/pluginregistration.Registration/GetInfo",
  request: InfoRequest,
  response: PluginInfo,
};
const NOTIFY_REGISTRATION_STATUS: GrpcMethod<InputOf<typeof RegistrationStatus>, object> = {
  path: "/pluginregistration.Registration/NotifyRegistrationStatus",
  request: RegistrationStatus,
  response: RegistrationStatusResponse,
};
