/** The settings of the component adapter, with their defaults. */
import { accessSync, constants } from "node:fs";
import type { CgroupSettings } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { type Clock, type Log, type Millis, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { BoardServices } from "@picolet/runtime-contract/board-services.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { LogLimitLaunch } from "../shared/messages/launch.ts";
import type { PullLimits } from "../shared/messages/pull-request.ts";
import type { ProxySettings } from "../shared/oci/proxies.ts";
import type { RegistryConfiguration } from "../shared/oci/registries.ts";
import type { RegistryPullsInit } from "./images/registry-pulls.ts";

export interface WasmAdapterComponents {
  readonly clock: Clock;
  readonly log: Log;
  /** Undefined: there are none; the limit on linear memory still holds. */
  readonly cgroups: CgroupPort | undefined;
  /** The node's addresses, which are its component pods' too: they have no network of their own. */
  readonly hostIps: () => readonly string[];
  /** Emits an event of a pod for its user. */
  readonly warn: (pod: DesiredPod, reason: string, message: string) => void;
  /** The agent's services that components can call. */
  readonly services: BoardServices;
}

export interface WasmAdapterInit {
  /** Images and what is transpiled from them; kept. `<root-dir>/wasm`. */
  readonly rootDirectory: string;
  /** What is known of pods; in memory where possible. */
  readonly stateDirectory: string;
  readonly nodePath: string;
  /** The bundled runner, or `runner-main.ts`. */
  readonly runnerPath: string;
  /** The bundled process of several components, or `dense/dense-main.ts`. */
  readonly densePath: string;
  /** The bundled transpile child, or `transpile-main.ts`. */
  readonly transpilePath: string;
  /** The bundled pull child, or `pull-main.ts`. */
  readonly pullPath: string;
  /** The bundled child that opens devices, or `devices-main.ts`. */
  readonly devicesPath: string;
  readonly cgroupSettings: CgroupSettings;
  /** cgroupfs path for transpilations; undefined: their memory is watched, not limited. */
  readonly transpileCgroup?: string | undefined;
  /** cgroupfs path for pulls, to which a number is added; undefined: their memory is watched, not limited. */
  readonly pullCgroup?: string | undefined;
  /** The settings of connections to registries. */
  readonly registries?: readonly RegistryConfiguration[] | undefined;
  /** Through which they are reached; undefined: directly. */
  readonly proxies?: ProxySettings | undefined;
  readonly pullLimits?: Partial<PullLimits> | undefined;
  /** cgroupfs path for runners that wait for a container; undefined: the agent's own. */
  readonly spareCgroup?: string | undefined;
  /** cgroupfs path above those of processes with several components; undefined: they have none. */
  readonly denseCgroup?: string | undefined;
  readonly limits?: WasmLimits | undefined;
  /**
   * PEM file of authorities that components' https requests trust beside the built-in ones. Absolute; undefined: only
   * the built-in ones.
   */
  readonly caFile?: string | undefined;
  /** True when components of WASI 0.3 may run. */
  readonly p3?: boolean | undefined;
  /** The limit of each container's log; undefined: it grows without end. */
  readonly logLimit?: LogLimitLaunch | undefined;
}

export interface WasmLimits {
  /** Default 64 MiB. */
  readonly maxComponentBytes?: number | undefined;
  /** Resident memory of one transpilation. Default 512 MiB: a component of 12 MiB takes 174. */
  readonly transpileMemoryLimitBytes?: number | undefined;
  /** Default 300 s: a component of 12 MiB takes 2 s on a PC, and boards are up to twenty times slower. */
  readonly transpileTimeout?: Millis | undefined;
  /** Bounds the start of the runner and all that a component does before it runs. Default 60 s. */
  readonly startTimeout?: Millis | undefined;
  /**
   * Runners that are kept ready for restarts, some 10 MiB each; none before the first start of a container. Default 1.
   */
  readonly spareRunners?: number | undefined;
  /** CPU time that a component which shares its process may take without ever coming back to its host. Default 10 s. */
  readonly denseTurnTimeout?: Millis | undefined;
}

const DEFAULT_TRANSPILE_MEMORY_BYTES = 512 * MEBIBYTE;
const DEFAULT_TRANSPILE_TIMEOUT = seconds(300);
const DEFAULT_START_TIMEOUT = seconds(60);
const DEFAULT_SPARE_RUNNERS = 1;
/** Far longer than any answer that a client waits for. */
const DEFAULT_DENSE_TURN_TIMEOUT = seconds(10);

/** All limits but the size of components, which the image store has. */
export const limitsOf = ({ limits = {} }: WasmAdapterInit) => ({
  transpileMemoryLimitBytes: limits.transpileMemoryLimitBytes ?? DEFAULT_TRANSPILE_MEMORY_BYTES,
  transpileTimeout: limits.transpileTimeout ?? DEFAULT_TRANSPILE_TIMEOUT,
  startTimeout: limits.startTimeout ?? DEFAULT_START_TIMEOUT,
  spareRunners: limits.spareRunners ?? DEFAULT_SPARE_RUNNERS,
  denseTurnTimeout: limits.denseTurnTimeout ?? DEFAULT_DENSE_TURN_TIMEOUT,
});

export const pullsOf = ({
  nodePath,
  pullPath,
  pullCgroup,
  registries,
  proxies,
  pullLimits,
}: WasmAdapterInit): RegistryPullsInit => ({
  ...{ nodePath, pullPath, registries, proxies },
  cgroupPath: pullCgroup,
  limits: pullLimits,
});

/** The reason why no component can run at all. */
export function missingProgram({ nodePath, runnerPath, transpilePath }: WasmAdapterInit): string | undefined {
  try {
    accessSync(nodePath, constants.X_OK);
    for (const path of [runnerPath, transpilePath]) accessSync(path, constants.R_OK);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
