/** The agent's service of picolet:board/i2c. */
import { ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import {
  type DeviceCalls,
  expectMethod,
  grantsOf,
  numberOf,
  record,
  textOf,
} from "../../devices/service/device-calls.ts";
import type { I2cTarget } from "./uapi.ts";

export const i2cCalls: DeviceCalls = {
  tags: { missing: "no-such-bus", busy: "busy", unsupported: "other", failed: "other" },
  async call(peer, method, value, open) {
    expectMethod(method, "open");
    const { bus, address } = record(value);
    const requested = numberOf(address);
    const grant = grantsOf(peer, "i2c").find(
      ({ path, addresses }) => path === textOf(bus) && addresses.includes(requested),
    );
    if (grant === undefined) throw new ServiceRefusal("not-granted");
    const target: I2cTarget = { path: grant.path, address: requested };
    return open(target);
  },
};
