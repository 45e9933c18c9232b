/** picolet:board's devices. Loaded only where a component imports one of them. */
import type { BoardInterface } from "@picolet/runtime-contract/board-services.ts";
import type { AgentCalls } from "../shared/board/agent-calls.ts";
import type { Imports } from "../shared/host/host.ts";
import type { StreamContext } from "../shared/resources/streams.ts";
import type { DeviceHost } from "./device-host.ts";
import { gpioImports } from "./gpio-imports.ts";
import { i2cImports } from "./i2c-imports.ts";
import { serialImports } from "./serial-imports.ts";

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
