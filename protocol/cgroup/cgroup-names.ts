/** Where the cgroups of pods are, as the kubelet places them with either driver. Pure. */
import { PicoletError } from "../errors.ts";
import type { QosClass } from "../pod/pod-status.ts";

/** How the cgroups of pods are made: by the agent itself, or by systemd, to which every cgroup is a unit. */
export type CgroupDriver = "cgroupfs" | "systemd";

const KUBEPODS = "kubepods";
const POD_PREFIX = "pod";
export const SLICE = ".slice";
/** systemd's limit for the name of a unit. */
const MAX_UNIT_NAME = 255;

/** Absolute cgroupfs paths below the mount points, the same for both drivers. */
export interface CgroupNames {
  /** `/kubepods`, `/kubepods/burstable` … or `/kubepods.slice`, `/kubepods.slice/kubepods-burstable.slice` … */
  tier(qos: QosClass): string;
  /** @throws PicoletError `invalid` for a uid that is no name of a folder, or of a unit */
  pod(qos: QosClass, uid: string): string;
  /** @returns the pod UID in the name of a cgroup of a tier; undefined for a cgroup that is not a pod's */
  uidIn(name: string): string | undefined;
  /** A cgroup that is there already, by what the configuration calls it. */
  existing(name: string): string;
}

/** @param cgroupRoot "/" or "" for the top */
export function cgroupNames(driver: CgroupDriver, cgroupRoot: string): CgroupNames {
  return driver === "systemd" ? systemdNames(partsOf(cgroupRoot)) : cgroupfsNames(partsOf(cgroupRoot));
}

function cgroupfsNames(root: readonly string[]): CgroupNames {
  const tier = (qos: QosClass): string => pathOf([...root, ...tierParts(qos)]);
  return {
    tier,
    pod: (qos, uid) => `${tier(qos)}/${POD_PREFIX}${checkedUid(uid, /^[^/\0]+$/)}`,
    uidIn: (name) => (name.startsWith(POD_PREFIX) ? name.slice(POD_PREFIX.length) || undefined : undefined),
    existing: (name) => pathOf(partsOf(name)),
  };
}

function systemdNames(root: readonly string[]): CgroupNames {
  const tierName = (qos: QosClass): string => [...root, ...tierParts(qos)].map(escaped).join("-");
  return {
    tier: (qos) => slicePath(tierName(qos)),
    pod: (qos, uid) => {
      const name = `${tierName(qos)}-${POD_PREFIX}${escaped(checkedUid(uid, /^[A-Za-z0-9.:-]+$/))}`;
      if (name.length + SLICE.length > MAX_UNIT_NAME) throw unusable(uid);
      return slicePath(name);
    },
    uidIn: (name) => {
      if (!name.endsWith(SLICE)) return undefined;
      const last = name.slice(name.lastIndexOf("-") + 1, -SLICE.length);
      return last.startsWith(POD_PREFIX) ? last.slice(POD_PREFIX.length).replaceAll("_", "-") || undefined : undefined;
    },
    existing: (name) => {
      const parts = partsOf(name);
      const last = parts.at(-1) ?? "";
      return last.endsWith(SLICE) ? slicePath(last.slice(0, -SLICE.length)) : slicePath(parts.map(escaped).join("-"));
    },
  };
}

/** @returns the parent of a pod's cgroups as a container runtime expects it: the name of the slice with systemd */
export function cgroupParent(driver: CgroupDriver, path: string): string {
  return driver === "systemd" ? path.slice(path.lastIndexOf("/") + 1) : path;
}

const partsOf = (path: string): string[] => path.split("/").filter((part) => part !== "");
const pathOf = (parts: readonly string[]): string => `/${parts.join("/")}`;
const tierParts = (qos: QosClass): string[] => (qos === "Guaranteed" ? [KUBEPODS] : [KUBEPODS, qos.toLowerCase()]);

/** A dash leads from a slice to one below it (systemd.slice(5)). */
const escaped = (part: string): string => part.replaceAll("-", "_");

/** `a-b` is in `/a.slice/a-b.slice`. */
function slicePath(name: string): string {
  const parts = name.split("-");
  return parts.map((_, index) => `/${parts.slice(0, index + 1).join("-")}${SLICE}`).join("");
}

/** A uid becomes one name in a file system. */
function checkedUid(uid: string, allowed: RegExp): string {
  if (uid === "." || uid === ".." || !allowed.test(uid)) throw unusable(uid);
  return uid;
}

const unusable = (uid: string): PicoletError =>
  new PicoletError("invalid", `cannot name a cgroup after uid ${JSON.stringify(uid)}`);
