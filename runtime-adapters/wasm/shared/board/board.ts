/** The host parts of `wit/board` that need no device: the runner answers them, alone or by asking the agent. */
import { closeSync, constants, openSync } from "node:fs";
import type { Socket } from "node:net";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { BoardInterface, DeviceKind } from "@picolet/runtime-contract/board-services.ts";
import type { Imports } from "../host/host.ts";
import type { LogWriter } from "../host/log-writer.ts";
import type { Preopen } from "../host/mounts.ts";
import { entryPath, O_PATH } from "../host/paths.ts";
import type { BoardLaunch } from "../messages/launch.ts";
import { SERVICE_SOCKET } from "../messages/service-messages.ts";
import type { Handles } from "../resources/handles.ts";
import type { Poller } from "../resources/polling.ts";
import { AgentCalls } from "../services/agent-calls.ts";
import { ServiceClient } from "../services/service-client.ts";
import { configImports } from "./config/imports.ts";
import { keyvalueImports } from "./keyvalue/imports.ts";
import { loggingImports } from "./logging/imports.ts";
import { nnImports } from "./nn/imports.ts";
import type { InferenceLibrary } from "./nn/inference.ts";
import { nodeInfoImports } from "./node-info/imports.ts";
import { telemetryImports } from "./telemetry/imports.ts";

/** Parts of the process from which host parts are made. */
export interface HostPartContext {
  readonly log: Pick<LogWriter, "write">;
  readonly preopens: readonly Preopen[];
  readonly poller: Poller;
  /** Undefined when no import of the component needs the agent. */
  readonly client: ServiceClient | undefined;
  /** Calls through `client`. */
  readonly calls: AgentCalls | undefined;
  readonly launch: BoardLaunch;
  /** Computes models; undefined: no import of the component needs it. */
  readonly inference?: InferenceLibrary | undefined;
  readonly handles?: Pick<Handles, "live"> | undefined;
}

/** @returns the imports of one interface; undefined when it needs the agent and there is no client */
export type HostPart = (context: HostPartContext) => Imports | undefined;

/** The table of host parts. Those that open devices are in `runner/device-imports.ts`. */
const HOST_PARTS: Readonly<Record<Exclude<BoardInterface, DeviceKind>, HostPart>> = {
  config: ({ preopens, launch }) => configImports(volumeRoot(preopens, launch.configPath, "the configuration")),
  keyvalue: ({ calls }) => calls && keyvalueImports(calls),
  logging: ({ log, launch }) => loggingImports(log, launch.logLevel),
  telemetry: ({ client, poller }) => client && telemetryImports(client, poller),
  nn: ({ inference, preopens, launch, handles }) =>
    nnImports({
      library: inference,
      models: volumeRoot(preopens, launch.modelPath, "the models"),
      live: handles?.live,
    }),
  "node-info": ({ calls, launch }) => calls && nodeInfoImports(launch.pod, calls),
};

export interface BoardComponents extends Omit<HostPartContext, "calls" | "launch"> {
  /** For a component that imports devices. */
  readonly devices?: ((agent: AgentCalls) => Imports) | undefined;
}

/** @returns the interfaces that the pod names. A component can reach no others. */
export function boardImports(
  { devices, ...components }: BoardComponents,
  launch: BoardLaunch,
  parts: Readonly<Record<string, HostPart>> = HOST_PARTS,
): Imports {
  const { poller, client } = components;
  const calls = client && new AgentCalls(poller, client);
  const made = launch.interfaces.map((name) => parts[name]?.({ ...components, calls, launch }));
  return Object.assign({}, ...made, calls && devices?.(calls));
}

function volumeRoot(preopens: readonly Preopen[], path: string | undefined, what: string): number | undefined {
  if (path === undefined) return undefined;
  const wanted = path.replace(/\/+$/, "");
  const found = preopens.find(({ guestPath }) => guestPath === wanted);
  if (found === undefined) throw new PicoletError("invalid", `cannot read ${what}: nothing is at ${path}`);
  return found.directory.fd;
}

/**
 * Opens the connection to the agent while the runner still may. Undefined for a component that never asks the agent.
 * @param after returns a function that cancels the timer
 */
export function agentConnection(
  { token, serviceDirectory }: BoardLaunch & { readonly serviceDirectory: string },
  after: (milliseconds: number, act: () => void) => () => void,
): ServiceClient | undefined {
  if (token === undefined) return undefined;
  const folder = openSync(serviceDirectory, O_PATH | constants.O_DIRECTORY);
  const connect = async (): Promise<Socket> => {
    const net = await import("node:net");
    const socket = net.connect(entryPath(folder, SERVICE_SOCKET));
    await new Promise<void>((resolve, reject) => {
      socket.once("error", reject);
      socket.once("connect", resolve);
    });
    socket.on("error", () => socket.destroy());
    return socket;
  };
  return new ServiceClient({ connect, after, random: Math.random, onClose: () => closeSync(folder) }, token);
}
