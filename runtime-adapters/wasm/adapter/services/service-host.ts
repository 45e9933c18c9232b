/** Opens the socket of the services for components with the first container that may call them, and loads it then. */
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { BoardServices, DeviceKind, ServicePeer } from "@picolet/runtime-contract/board-services.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import { INTERFACE_GRANTS } from "../../shared/grants/board-grants.ts";
import { SERVICE_SOCKET } from "../../shared/messages/service-messages.ts";
import type { ContainerRun } from "../containers/container-run.ts";
import type { StateFolder } from "../state/state-folder.ts";
import type { DeviceService } from "./device-service.ts";
import type { ServicePort } from "./service-port.ts";

export interface ServiceHostComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly cgroups: CgroupPort | undefined;
  readonly state: StateFolder;
  readonly services: BoardServices;
  /** The containers that exist now. */
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

  /** Everything is loaded when a component opens its first device. */
  #devices(): BoardServices {
    const { nodePath, devicesPath, runnerPath } = this.#init;
    const { servicesDirectory, path } = this.#components.state;
    const lockDirectory = `${path}/device-locks`;
    let made: Promise<DeviceService> | undefined;
    const load = async (): Promise<DeviceService> => {
      const { DeviceService } = await import("./device-service.ts");
      const { deviceAddon } = await import("../../shared/devices/runner-packages.ts");
      const addonPath = deviceAddon(runnerPath);
      return new DeviceService(this.#components, {
        nodePath,
        devicesPath,
        addonPath,
        servicesDirectory,
        lockDirectory,
      });
    };
    const service = (kind: DeviceKind) => async () => {
      made ??= load();
      return (await made).of(kind);
    };
    const names = Object.entries(INTERFACE_GRANTS).filter(([, { device }]) => device !== undefined);
    return Object.fromEntries(names.map(([name]) => [name, service(name as DeviceKind)]));
  }

  #peerOf(token: string): ServicePeer | undefined {
    const asks = ({ file, hasEnded }: ContainerRun): boolean => file.services?.token === token && !hasEnded;
    return this.#components.runs().find(asks)?.file.services?.peer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#port)?.[Symbol.asyncDispose]();
  }
}
