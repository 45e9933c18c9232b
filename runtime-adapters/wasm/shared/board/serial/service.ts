/** The agent's service of picolet:board/serial. */
import { ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import { type DeviceCalls, expectMethod, grantsOf, record, textOf } from "../../devices/service/device-calls.ts";

export const serialCalls: DeviceCalls = {
  tags: { missing: "no-such-port", busy: "busy", unsupported: "unsupported", failed: "io" },
  async call(peer, method, value, open) {
    expectMethod(method, "open");
    const { port } = record(value);
    const grant = grantsOf(peer, "serial").find(({ path }) => path === textOf(port));
    if (grant === undefined) throw new ServiceRefusal("not-granted");
    return open({ path: grant.path });
  },
};
