/**
 * The interfaces of `wit/board` that a component is given, those of them that a runner answers or asks the agent for.
 */
import { closeSync, constants, openSync } from "node:fs";
import type { Socket } from "node:net";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Imports } from "../host/host.ts";
import type { LogWriter } from "../host/log-writer.ts";
import type { Preopen } from "../host/mounts.ts";
import { entryPath, O_PATH } from "../host/paths.ts";
import type { BoardLaunch } from "../messages/launch.ts";
import { SERVICE_SOCKET } from "../messages/service-messages.ts";
import type { Poller } from "../resources/polling.ts";
import { AgentCalls } from "./agent-calls.ts";
import { configImports } from "./config-imports.ts";
import { keyvalueImports } from "./keyvalue-imports.ts";
import { loggingImports } from "./logging-imports.ts";
import { nodeInfoImports } from "./node-info-imports.ts";
import { ServiceClient } from "./service-client.ts";
import { telemetryImports } from "./telemetry-imports.ts";

export interface BoardComponents {
  readonly log: Pick<LogWriter, "write">;
  readonly preopens: readonly Preopen[];
  readonly poller: Poller;
  /** Undefined when nothing that the component imports needs the agent. */
  readonly client: ServiceClient | undefined;
  /** For a component that imports devices. */
  readonly devices?: ((agent: AgentCalls) => Imports) | undefined;
}

/** Nothing that the pod does not name: what is missing here cannot be reached, whatever the component imports. */
export function boardImports(
  { log, preopens, poller, client, devices }: BoardComponents,
  launch: BoardLaunch,
): Imports {
  const { interfaces, pod, configPath, logLevel } = launch;
  const calls = client === undefined ? undefined : new AgentCalls(poller, client);
  return {
    ...(interfaces.includes("config") ? configImports(configRoot(preopens, configPath)) : {}),
    ...(interfaces.includes("logging") ? loggingImports(log, logLevel) : {}),
    ...(calls !== undefined && interfaces.includes("keyvalue") ? keyvalueImports(calls) : {}),
    ...(client !== undefined && interfaces.includes("telemetry") ? telemetryImports(client, poller) : {}),
    ...(calls !== undefined && interfaces.includes("node-info") ? nodeInfoImports(pod, calls) : {}),
    ...(calls === undefined ? {} : devices?.(calls)),
  };
}

function configRoot(preopens: readonly Preopen[], path: string | undefined): number | undefined {
  if (path === undefined) return undefined;
  const wanted = path.replace(/\/+$/, "");
  const found = preopens.find(({ guestPath }) => guestPath === wanted);
  if (found === undefined) throw new PicoletError("invalid", `cannot read the configuration: nothing is at ${path}`);
  return found.directory.fd;
}

/**
 * The way to the agent, opened while the runner still may; undefined for a component that never asks it.
 * @param after @returns what takes it back
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
