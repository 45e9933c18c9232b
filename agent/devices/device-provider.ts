import type { DeviceAnswer } from "./device-plugin-messages.ts";

export interface OfferedDevice {
  readonly id: string;
  readonly isHealthy: boolean;
  /** NUMA nodes near it; empty: it has no place. */
  readonly nodes: readonly number[];
}

/** Offers the devices of one resource: a plugin, or a rule of the configuration. */
export interface DeviceProvider {
  readonly needsPreStart: boolean;
  readonly hasPreference: boolean;
  /** @returns its choice of `size` from `available`, which has all of `mustInclude` */
  preferred(
    available: readonly string[],
    mustInclude: readonly string[],
    size: number,
    signal: AbortSignal,
  ): Promise<readonly string[]>;
  /** Once for each container and resource. */
  allocate(ids: readonly string[], signal: AbortSignal): Promise<DeviceAnswer>;
  /** Before each start of the container, where `needsPreStart`. */
  preStart(ids: readonly string[], signal: AbortSignal): Promise<void>;
}
