/** Grant of picolet:board/config: `wasm.picolet.io/config: settings` names a volume of the pod. */
import type { InterfaceGrant } from "../../grants/syntax/interface-grant.ts";
import { parseVolumeName } from "../../grants/syntax/volume-name.ts";

export const configGrant: InterfaceGrant = {
  asksAgent: false,
  proposals: { "wasi:config/store": /^0\.2\.0-(draft|rc\.1)$/, "wasi:config/runtime": /^0\.2\.0-draft$/ },
  annotations: { config: (value) => parseVolumeName(value).problems },
};
