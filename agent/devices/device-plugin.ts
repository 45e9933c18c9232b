import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { GrpcClient } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { type NodeCounts, timed } from "../core/node/node-counts.ts";
import {
  DEVICE_PLUGIN,
  type DeviceAnswer,
  type DevicePluginOptions,
  type ListedDevice,
} from "./device-plugin-messages.ts";
import type { DeviceProvider, OfferedDevice } from "./device-provider.ts";

/** 1,000 devices with long names take some 100 KB. */
const MAX_MESSAGE_BYTES = MEBIBYTE;
const READ_BUFFER_BYTES = 4096;
/** Devices of one resource. Shared ones (`/dev/kvm`, a camera's replicas) are often offered a hundred times. */
const MAX_DEVICES = 4096;
const MAX_ID_LENGTH = 256;
/** All IDs of one resource, as the checkpoint has them: 4,096 short ones, or 1,500 UUIDs. */
const MAX_IDS_BYTES = 64 * KIBIBYTE;
/** NUMA nodes of one device; no board has more. */
const MAX_NODES = 8;
/** Numbers of NUMA nodes; a plugin reports -1 for a device that has none. */
const MAX_NODE = 63;
/** Bounds options and preference: the plugin answers from memory. */
const QUERY_TIMEOUT_MS = 10_000;
/** Allocation may load a driver or program a board; the kubelet gives PreStartContainer 30 s. */
const ALLOCATE_TIMEOUT_MS = 30_000;
/** A container's mounts, devices, variables and annotations together. */
const MAX_ANSWER_ENTRIES = 1024;
const HEALTHY = "Healthy";

interface DevicePluginComponents {
  readonly clock: Clock;
  readonly counts?: NodeCounts | undefined;
}

/** A connection to one device plugin. Ends with its `ListAndWatch`: a plugin that is back registers again. */
export class DevicePlugin implements DeviceProvider, Disposable {
  readonly #components: DevicePluginComponents;
  readonly #client: GrpcClient;
  readonly #resource: string;
  readonly #socketPath: string;
  #options: DevicePluginOptions | undefined;

  constructor(components: DevicePluginComponents, init: { readonly resource: string; readonly socketPath: string }) {
    this.#components = components;
    const readBuffer = Buffer.allocUnsafeSlow(READ_BUFFER_BYTES);
    const limits = { readBuffer, maxMessageBytes: MAX_MESSAGE_BYTES };
    this.#client = new GrpcClient(components, { path: init.socketPath, ...limits });
    this.#resource = init.resource;
    this.#socketPath = init.socketPath;
  }

  get needsPreStart(): boolean {
    return this.#options?.preStartRequired === true;
  }

  get hasPreference(): boolean {
    return this.#options?.getPreferredAllocationAvailable === true;
  }

  /** Reads the options of the plugin, which a kubelet asks for too: those of a registration do not count. */
  async connect(signal: AbortSignal): Promise<void> {
    this.#options = await this.#client.unary(DEVICE_PLUGIN.options, {}, QUERY_TIMEOUT_MS, signal);
  }

  /** Reports each list of devices. @throws why the stream ended, in any case */
  async follow(report: (devices: readonly OfferedDevice[]) => void, signal: AbortSignal): Promise<never> {
    for await (const { devices } of this.#client.serverStream(DEVICE_PLUGIN.list, {}, undefined, signal))
      report(offered(devices));
    throw new PicoletError("unavailable", `the plugin at ${this.#socketPath} ended its list of devices`);
  }

  async preferred(
    available: readonly string[],
    mustInclude: readonly string[],
    size: number,
    signal: AbortSignal,
  ): Promise<readonly string[]> {
    const request = { containers: [{ available, mustInclude, size }] };
    const answer = await this.#client.unary(DEVICE_PLUGIN.preferred, request, QUERY_TIMEOUT_MS, signal);
    return answer.containers[0]?.deviceIds ?? [];
  }

  async allocate(ids: readonly string[], signal: AbortSignal): Promise<DeviceAnswer> {
    const request = { containers: [{ devicesIds: ids }] };
    const call = () => this.#client.unary(DEVICE_PLUGIN.allocate, request, ALLOCATE_TIMEOUT_MS, signal);
    const labelsOf = () => [this.#resource];
    const allocated = timed(this.#components, "kubelet_device_plugin_alloc_duration_seconds", labelsOf, call);
    const [answer] = (await allocated).containers;
    if (answer === undefined) throw new PicoletError("corrupt", "the plugin answered for no container");
    const { envs, mounts, devices, annotations, cdiDevices } = answer;
    const entries = envs.size + mounts.length + devices.length + annotations.size + cdiDevices.length;
    if (entries > MAX_ANSWER_ENTRIES) {
      const message = `the plugin answered with ${entries} entries, more than ${MAX_ANSWER_ENTRIES}`;
      throw new PicoletError("resource_exhausted", message);
    }
    return answer;
  }

  async preStart(devicesIds: readonly string[], signal: AbortSignal): Promise<void> {
    await this.#client.unary(DEVICE_PLUGIN.preStart, { devicesIds }, ALLOCATE_TIMEOUT_MS, signal);
  }

  [Symbol.dispose](): void {
    this.#client[Symbol.dispose]();
  }
}

function offered(devices: readonly ListedDevice[]): readonly OfferedDevice[] {
  if (devices.length > MAX_DEVICES)
    throw new PicoletError("resource_exhausted", `cannot follow ${devices.length} devices, more than ${MAX_DEVICES}`);
  const tooLong = devices.find(({ id }) => id.length > MAX_ID_LENGTH || id === "");
  if (tooLong !== undefined)
    throw new PicoletError("invalid", `cannot use a device whose ID has not 1 to ${MAX_ID_LENGTH} characters`);
  const bytes = Buffer.byteLength(JSON.stringify(devices.map(({ id }) => id)));
  if (bytes > MAX_IDS_BYTES) {
    const sizes = `${bytes} bytes, more than ${MAX_IDS_BYTES}`;
    throw new PicoletError("resource_exhausted", `cannot follow devices whose IDs take ${sizes}`);
  }
  return devices.map(({ id, health, topology }) => ({
    id,
    isHealthy: health === HEALTHY,
    nodes: (topology?.nodes ?? [])
      .map((node) => node.id)
      .filter((node) => node >= 0 && node <= MAX_NODE)
      .slice(0, MAX_NODES),
  }));
}
