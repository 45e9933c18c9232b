/** picolet:board's devices. Loaded only where a component imports one of them. */
import type { BoardInterface } from "../../../../contract/board-services.ts";
import type { Imports } from "../../host.ts";
import type { StreamContext } from "../../streams.ts";
import type { AgentCalls } from "../agent-calls.ts";
import type { DeviceHost } from "./device-host.ts";
import { gpioImports } from "./gpio.ts";
import { i2cImports } from "./i2c.ts";
import { serialImports } from "./serial.ts";

export { DeviceHost } from "./device-host.ts";

export interface DeviceContext extends StreamContext {
  readonly agent: AgentCalls;
  readonly host: DeviceHost;
}

/** Nothing that the pod does not name. */
export function deviceImports(context: DeviceContext, interfaces: readonly BoardInterface[]): Imports {
  return {
    ...(interfaces.includes("gpio") ? gpioImports(context) : {}),
    ...(interfaces.includes("i2c") ? i2cImports(context) : {}),
    ...(interfaces.includes("serial") ? serialImports(context) : {}),
  };
}
