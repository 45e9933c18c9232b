/** Grant of picolet:board/telemetry. */
import type { InterfaceGrant } from "../../grants/syntax/interface-grant.ts";

export const telemetryGrant: InterfaceGrant = {
  asksAgent: true,
  waiting: { "picolet:board/telemetry": ["write", "emit"] },
};
