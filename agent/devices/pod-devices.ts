/**
 * Devices that a pod names itself, in the annotation `picolet.io/devices`: `/dev/ttyUSB0; /dev/video0:rw;
 * usb:0403:6001`. Each container gets the nodes of those that the node's configuration allows.
 */
import { statSync } from "node:fs";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Device } from "@picolet/runtime-contract/runtime-adapter.ts";
import { matchingDevices, type RuleMachine } from "./device-rules.ts";

const POD_DEVICES = "picolet.io/devices";
/** A board has a handful of ports; each entry is looked for at every start of a container. */
const MAX_ENTRIES = 16;
const MAX_LENGTH = 2048;
/** No pattern: a tenant would have the board walk through /dev. */
const ENTRY = /^(?:(?:serial|gpio|i2c):)?(\/dev\/[-\w.+@:/]+?|usb:[0-9a-fA-F]{4}:[0-9a-fA-F]{4})(?::(r|w|rw))?$/;

export interface PodDevice {
  /** A path below /dev, or `usb:VENDOR:PRODUCT`. */
  readonly match: string;
  /** Letters of `rw`. */
  readonly permissions: string;
}

/** @throws `invalid` for an annotation that cannot be read */
export function podDevices(annotations: Readonly<Record<string, string>> | undefined): readonly PodDevice[] {
  const text = annotations?.[POD_DEVICES] ?? "";
  if (text.length > MAX_LENGTH) throw refused(`it has more than ${MAX_LENGTH} characters`);
  const entries = text
    .split(/[;\n]/)
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
  if (entries.length > MAX_ENTRIES) throw refused(`it has more than ${MAX_ENTRIES} entries`);
  return entries.map((entry) => {
    const [, match = "", permissions = "rw"] = ENTRY.exec(entry) ?? [];
    if (match === "" || match.includes(".."))
      throw refused(
        `${JSON.stringify(entry)} must be a path below /dev or usb:VENDOR:PRODUCT, with :r or :rw at its end where wanted`,
      );
    if (/^(gpio|i2c):.*:[\dxa-f,]+$/i.test(entry))
      throw refused(
        `${JSON.stringify(entry)}: a container gets the whole node; only components get lines and addresses`,
      );
    return { match, permissions };
  });
}

const refused = (why: string): PicoletError =>
  new PicoletError("invalid", `cannot use the annotation ${POD_DEVICES}: ${why}`, {
    reason: "CreateContainerConfigError",
  });

/**
 * @param allowed `allowedDevices` of the configuration
 * @throws `not_found` for a device that is not plugged in, `permission_denied` for one that is not allowed; both pass
 *   when that changes
 */
export function nodesOf(wanted: readonly PodDevice[], allowed: readonly string[], machine: RuleMachine): Device[] {
  const identityOf = (path: string): number => statSync(join(machine.root, path)).rdev;
  const found = (match: readonly string[]): readonly string[] =>
    matchingDevices({ name: "", match }, machine)
      .map(({ id }) => id)
      .filter((id) => id.startsWith("/"));
  const granted = new Set(found(allowed).map(identityOf));
  return wanted.flatMap(({ match, permissions }) => {
    const paths = found([match]);
    if (paths.length === 0) {
      const message = `there is no device ${match} here; the container starts when it is plugged in`;
      throw new PicoletError("not_found", message, { reason: "CreateContainerConfigError", retryable: true });
    }
    // A link of any name leads to one of the allowed nodes, or to none.
    const denied = paths.find((path) => !granted.has(identityOf(path)));
    if (denied !== undefined) {
      const message = `this node gives no pod ${denied}: name it in allowedDevices of the node's configuration`;
      throw new PicoletError("permission_denied", message, { reason: "CreateContainerConfigError", retryable: true });
    }
    return paths.map((path) => ({ containerPath: path, hostPath: path, readOnly: permissions === "r", permissions }));
  });
}
