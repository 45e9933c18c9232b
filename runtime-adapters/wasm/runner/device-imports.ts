/** The table of host parts that open devices. It is loaded only for a component that imports one of them. */
import type { BoardInterface, DeviceKind } from "@picolet/runtime-contract/board-services.ts";
import { gpioImports } from "../shared/board/gpio/device-imports.ts";
import { i2cImports } from "../shared/board/i2c/device-imports.ts";
import { serialImports } from "../shared/board/serial/device-imports.ts";
import type { DeviceContext } from "../shared/devices/host/device-host.ts";
import type { Imports } from "../shared/host/host.ts";

export { DeviceHost } from "../shared/devices/host/device-host.ts";

type DevicePart = (context: DeviceContext) => Imports;

const DEVICE_PARTS: Readonly<Record<DeviceKind, DevicePart>> = {
  serial: serialImports,
  gpio: gpioImports,
  i2c: i2cImports,
};

/** @returns the interfaces that the pod names */
export function deviceImports(
  context: DeviceContext,
  interfaces: readonly BoardInterface[],
  parts: Readonly<Partial<Record<BoardInterface, DevicePart>>> = DEVICE_PARTS,
): Imports {
  return Object.assign({}, ...interfaces.map((name) => parts[name]?.(context)));
}
