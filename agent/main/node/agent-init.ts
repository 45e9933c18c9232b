import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import type { Configuration, ConfigurationOrigins } from "../../config/configuration.ts";
import type { KubeletFlagValues } from "../../config/kubelet-flag-values.ts";
import type { NodeShutdownControl } from "../../core/node/node-shutdown-control.ts";

export interface AgentArguments {
  readonly command: "run" | "help" | "help-kubelet" | "version" | "check-config";
  /** `undefined`: the default path, which may be absent. */
  readonly configPath: string | undefined;
  readonly rootDir: string;
  readonly socketPath: string;
  /** The settings of the kubelet's flags. Missing: none was given. */
  readonly kubelet?: KubeletFlagValues;
}

export interface AgentPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** The agent's arguments and configuration. */
export interface AgentInit {
  readonly args: AgentArguments;
  readonly configuration: Configuration;
  /** `file`: null when there was none. */
  readonly origins: ConfigurationOrigins & { readonly file: string | null };
  /** Gets what ends the pods when the machine goes down, and requests for a new agent when this one has grown too large. */
  readonly stops?: { through(shutdown: NodeShutdownControl): void; restart(): void; readonly isRestarting: boolean };
}
