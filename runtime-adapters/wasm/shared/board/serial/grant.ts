/** Grant of picolet:board/serial: `serial:/dev/ttyS0` names a serial port. */

import { parsePath } from "../../grants/syntax/device-syntax.ts";
import { type InterfaceGrant, methods } from "../../grants/syntax/interface-grant.ts";

export const serialGrant: InterfaceGrant = {
  asksAgent: true,
  waiting: { "picolet:board/serial": ["open", ...methods("port", ["send-break"])] },
  device: {
    example: "serial:/dev/ttyS0",
    parse: (text) => {
      const path = parsePath(text);
      return "problem" in path ? path : { value: { kind: "serial", path: path.value } };
    },
  },
};
