/** Finds out which parts of this board can be updated. */
import { existsSync, readFileSync } from "node:fs";
import type { UpdateKind } from "@picolet/protocol/updates/node-updates.ts";

export interface BoardSoftware {
  /** The image that runs; undefined on a vendor's system. */
  readonly image: { readonly version: string; readonly compatible: string; readonly slot: string } | undefined;
  /** Why not; "" for what can be. */
  readonly obstacles: Readonly<Record<UpdateKind, string>>;
}

export interface BoardPlaces {
  /** "" or the root of another tree, for tests. */
  readonly root: string;
  readonly rootDir: string;
}

/** The boot check, which is no part of the agent, has fixed paths. */
const STATE = "/var/lib/picolet";
export const BOOT_CHECK = "/usr/lib/picolet/updates/boot-check";

export function readSoftware({ root, rootDir }: BoardPlaces): BoardSoftware {
  const release = fieldsOf(textAt(`${root}/etc/picolet-release`));
  const slot = /(?:^|\s)rauc\.slot=(\S+)/.exec(textAt(`${root}/proc/cmdline`))?.[1];
  const [version, compatible] = [release.get("VERSION"), release.get("COMPATIBLE")];
  const image =
    version === undefined || compatible === undefined || slot === undefined ? undefined : { version, compatible, slot };
  const common = commonObstacle(root, rootDir);
  const isPackage = existsSync(`${root}/var/lib/dpkg/info/picolet.list`);
  return {
    image,
    obstacles: {
      os:
        image === undefined
          ? "this board has its vendor's system: update that by the vendor's means, the agent by picolet.io/agent-package"
          : common,
      agent:
        image !== undefined
          ? "the agent is a part of this board's system: picolet.io/os-image updates both"
          : isPackage
            ? common
            : "the agent was not installed as a Debian package",
      configuration: common,
    },
  };
}

function commonObstacle(root: string, rootDir: string): string {
  if (!existsSync(`${root}/run/systemd/system`)) return "updates need systemd";
  if (rootDir !== STATE) return `updates need --root-dir ${STATE}`;
  return existsSync(`${root}${BOOT_CHECK}`) ? "" : `${BOOT_CHECK} is missing: the Debian package picolet has it`;
}

function fieldsOf(text: string): ReadonlyMap<string, string> {
  const matches = text.matchAll(/^([A-Z_]+)=(?:"([^"\n]*)"|(\S*))$/gm);
  return new Map([...matches].map(([, name = "", quoted, plain]) => [name, quoted ?? plain ?? ""]));
}

function textAt(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
