/** Grant of picolet:board/node-info. */
import type { InterfaceGrant } from "../../grants/syntax/interface-grant.ts";

export const nodeInfoGrant: InterfaceGrant = {
  asksAgent: true,
  waiting: { "picolet:board/node-info": ["this-node"] },
};
