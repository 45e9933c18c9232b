/** Grant of picolet:board/config: `wasm.picolet.io/config: settings` names a volume of the pod. */
import type { InterfaceGrant, Parsed } from "../../grants/syntax/interface-grant.ts";

const VOLUME_NAME = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

export const configGrant: InterfaceGrant = {
  asksAgent: false,
  proposals: { "wasi:config/store": /^0\.2\.0-(draft|rc\.1)$/, "wasi:config/runtime": /^0\.2\.0-draft$/ },
  annotations: { config: (value) => parseConfigVolume(value).problems },
};

/** Checks the name alone. The start of a container checks that the volume exists and is mounted. */
export function parseConfigVolume(text: string): Parsed<string> {
  const value = text.trim();
  return { value, problems: VOLUME_NAME.test(value) ? [] : [`${JSON.stringify(text)} is no name of a volume`] };
}
