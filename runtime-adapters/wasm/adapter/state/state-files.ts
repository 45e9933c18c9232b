/** The content of the files of the state folder. */
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import type { ServicePeer } from "@picolet/runtime-contract/board-services.ts";
import type { ContainerState, DesiredPod, SandboxLaunch } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Identity } from "../../shared/messages/launch.ts";

export interface SandboxFile extends SandboxLaunch {
  /** 64 hexadecimal digits. */
  readonly id: string;
  readonly createdAtMs: number;
  readonly desired: DesiredPod;
}

export interface ContainerFile {
  /** 64 hexadecimal digits. */
  readonly id: string;
  readonly uid: string;
  readonly name: string;
  readonly attempt: number;
  readonly sandboxId: string;
  readonly createdAtMs: number;
  readonly hash: string;
  readonly backoff: Millis;
  readonly image: string;
  readonly imageId: string;
  /** Absolute. */
  readonly logPath: string;
  /** Whose the log file is; undefined: the agent's. */
  readonly identity: Identity | undefined;
  /** cgroupfs path of its own; undefined: it has none. */
  readonly cgroupPath: string | undefined;
  /** That it was started with or updated to; missing in files of an older version. */
  readonly resources?: ResourceRequirements | undefined;
  /**
   * The process that it shares with others, and what it would have in a cgroup of its own; missing: it has its own
   * process.
   */
  readonly dense?: { readonly host: string; readonly values: CgroupValues } | undefined;
  /** How its runner makes itself known to the agent, and as whom; missing when it does not. */
  readonly services?: { readonly token: string; readonly peer: ServicePeer } | undefined;
  /** The node's port on which it is served; missing when it is not. */
  readonly port?: number | undefined;
}

/** The last word about a container. */
export type ExitedState = Extract<ContainerState, { kind: "exited" }>;
