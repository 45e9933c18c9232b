/**
 * Texts of a node report about devices: `draDrivers` has the drivers whose ResourceSlices stay, `devices` is what an
 * annotation of the Node shows.
 */

/** Bounds the report's text: as many plugins as a board follows (64), of the longest name. */
export const MAX_DRA_DRIVERS_LENGTH = 24 * 1024;
const MAX_DRIVERS = 64;
/** Kubernetes' limit of a driver's name. */
const MAX_NAME_LENGTH = 63;
/** All annotations of a Node may take 256 KiB together; the last report takes up to a half. */
export const MAX_DEVICES_LENGTH = 4 * 1024;

/** @returns undefined for what is no report: a board may send anything */
export function parseDraDrivers(text: string): ReadonlySet<string> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.length <= MAX_DRIVERS && value.every(isName) ? new Set(value) : undefined;
  } catch {
    return undefined;
  }
}

const isName = (value: unknown): value is string =>
  typeof value === "string" && value !== "" && value.length <= MAX_NAME_LENGTH;

/** A device of the node, for the annotation. */
export interface ShownDevice {
  readonly resource: string;
  readonly device: string;
  readonly isHealthy: boolean;
}

/**
 * A line for each device, `RESOURCE DEVICE`, sorted, with `!` behind one that is unhealthy. The last line says how many
 * more there are than MAX_DEVICES_LENGTH holds.
 */
export function shownDevices(devices: readonly ShownDevice[]): string {
  const lines = devices
    .map(({ resource, device, isHealthy }) => `${resource} ${device}${isHealthy ? "" : " !"}`)
    .sort();
  let length = 0;
  // Room for the line that says what was left out.
  const most = MAX_DEVICES_LENGTH - 32;
  const fits = lines.findIndex((line) => {
    length += line.length + 1;
    return length > most;
  });
  if (fits < 0) return lines.join("\n");
  return [...lines.slice(0, fits), `and ${lines.length - fits} more`].join("\n");
}
