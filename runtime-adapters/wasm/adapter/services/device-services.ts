/** The agent's services for components with devices: all of it is loaded when a component opens its first one. */
import type { BoardServices } from "@picolet/runtime-contract/board-services.ts";
import type { DeviceKind } from "../../shared/grants/device-grants.ts";
import type { DeviceService, DeviceServiceComponents, DeviceServiceInit } from "./device-service.ts";

export interface DeviceServicesInit extends Omit<DeviceServiceInit, "addonPath"> {
  /** Beside which packages are found. */
  readonly runnerPath: string;
}

export function deviceServices(components: DeviceServiceComponents, init: DeviceServicesInit): BoardServices {
  let made: Promise<DeviceService> | undefined;
  const load = async (): Promise<DeviceService> => {
    const { DeviceService } = await import("./device-service.ts");
    const { deviceAddon } = await import("../../shared/devices/device-addon.ts");
    return new DeviceService(components, { ...init, addonPath: deviceAddon(init.runnerPath) });
  };
  const service = (kind: DeviceKind) => async () => {
    made ??= load();
    return (await made).of(kind);
  };
  return { serial: service("serial"), gpio: service("gpio"), i2c: service("i2c") };
}
