/**
 * Serves the components' calls to the agent: opened with the first container that may call it; without one nothing is
 * loaded.
 */
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { BoardServices, ServicePeer } from "@picolet/runtime-contract/board-services.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import { SERVICE_SOCKET } from "../../shared/messages/service-messages.ts";
import type { ContainerRun } from "../containers/container-run.ts";
import type { StateFolder } from "../state/state-folder.ts";
import { deviceServices } from "./device-services.ts";
import type { ServicePort } from "./service-port.ts";

export interface ServiceHostComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly cgroups: CgroupPort | undefined;
  readonly state: StateFolder;
  readonly services: BoardServices;
  /** The containers that are there now. */
  readonly runs: () => readonly ContainerRun[];
}

export interface ServiceHostInit {
  readonly nodePath: string;
  readonly runnerPath: string;
  readonly devicesPath: string;
}

export class ServiceHost implements AsyncDisposable {
  readonly #components: ServiceHostComponents;
  readonly #init: ServiceHostInit;
  #port: Promise<ServicePort> | undefined;

  constructor(components: ServiceHostComponents, init: ServiceHostInit) {
    this.#components = components;
    this.#init = init;
  }

  serve({ file, hasEnded }: ContainerRun): void {
    if (file.services === undefined || hasEnded) return;
    this.#port ??= this.#open();
    this.#port.catch((error: unknown) => {
      this.#port = undefined;
      this.#components.log.error("components cannot ask the agent for anything", { error });
    });
  }

  async #open(): Promise<ServicePort> {
    const { clock, log, state } = this.#components;
    const { ServicePort } = await import("./service-port.ts");
    const services = { ...this.#components.services, ...this.#devices() };
    const peerOf = (token: string): ServicePeer | undefined => this.#peerOf(token);
    return ServicePort.open({ clock, log, services, peerOf }, `${state.servicesDirectory}/${SERVICE_SOCKET}`);
  }

  #devices(): BoardServices {
    const { nodePath, devicesPath, runnerPath } = this.#init;
    const { servicesDirectory, path } = this.#components.state;
    const lockDirectory = `${path}/device-locks`;
    return deviceServices(this.#components, { nodePath, devicesPath, runnerPath, servicesDirectory, lockDirectory });
  }

  #peerOf(token: string): ServicePeer | undefined {
    const asks = ({ file, hasEnded }: ContainerRun): boolean => file.services?.token === token && !hasEnded;
    return this.#components.runs().find(asks)?.file.services?.peer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#port)?.[Symbol.asyncDispose]();
  }
}
