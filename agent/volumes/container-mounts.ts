import {
  lstatSync,
  mkdirSync,
  readlinkSync,
  realpathSync,
  rmdirSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Container, VolumeMount } from "@picolet/protocol/pod/pod.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { DesiredPod, Device, Mount } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Mounter } from "./files/mounter.ts";
import type { PodPaths } from "./files/pod-paths.ts";
import { openSubPath, SubPathError, type SubPathHandle, subPathProblem } from "./files/sub-path.ts";
import type { PodVolumes } from "./types/pod-volumes.ts";
import { configError } from "./values/config-error.ts";
import { expandReferences, type Lookup } from "./values/expand.ts";

const PROPAGATIONS = { None: "private", HostToContainer: "hostToContainer", Bidirectional: "bidirectional" } as const;

export interface ContainerMountsComponents {
  readonly paths: PodPaths;
  readonly volumes: PodVolumes;
  readonly mounter: Mounter;
  readonly log: Log;
  readonly recursiveReadOnly: (pod: DesiredPod) => boolean;
}

/** A container's `volumeMounts` as mounts of paths of this node. */
export class ContainerMounts {
  readonly #components: ContainerMountsComponents;

  constructor(components: ContainerMountsComponents) {
    this.#components = components;
  }

  /**
   * @param lookup the container's environment, for `subPathExpr`
   * @throws PicoletError with the reason `CreateContainerConfigError`
   */
  ofVolumes(pod: DesiredPod, container: Container, lookup: Lookup): readonly Mount[] {
    return (container.volumeMounts ?? []).map((mount, index) => {
      const volume = this.#components.volumes.locate(pod, mount.name);
      if (volume === undefined)
        throw configError(
          `cannot find volume ${JSON.stringify(mount.name)} to mount into container ${JSON.stringify(container.name)}`,
        );
      const recursiveReadOnly = isRecursiveReadOnly(mount, () => this.#components.recursiveReadOnly(pod));
      const subPath = subPathOf(mount, lookup);
      const { image } = volume;
      const isPlain = subPath === "" || image !== undefined;
      const path = isPlain ? volume.path : this.#subPath(pod, container, mount, index, volume, subPath);
      return {
        containerPath: mount.mountPath.startsWith("/") ? mount.mountPath : `/${mount.mountPath}`,
        hostPath: image === undefined ? path : "",
        ...(image === undefined ? {} : { image: { id: image.id, subPath } }),
        readOnly: mount.readOnly === true || volume.readOnly,
        propagation: PROPAGATIONS[mount.mountPropagation ?? "None"],
        ...(recursiveReadOnly ? { recursiveReadOnly } : {}),
      };
    });
  }

  /** @throws PicoletError with the reason `CreateContainerConfigError` */
  devices(pod: DesiredPod, container: Container): readonly Device[] {
    return (container.volumeDevices ?? []).map(({ name, devicePath }) => {
      if (!devicePath.startsWith("/")) throw configError(`error DevicePath \`${devicePath}\` must be an absolute path`);
      const device = this.#components.volumes.device(pod, name);
      if (device === undefined)
        throw configError(
          `cannot find volume ${JSON.stringify(name)} to pass into container ${JSON.stringify(container.name)}`,
        );
      return { containerPath: devicePath, hostPath: device.path, readOnly: device.readOnly };
    });
  }

  #subPath(
    pod: DesiredPod,
    container: Container,
    mount: VolumeMount,
    index: number,
    volume: { readonly path: string; readonly readOnly: boolean },
    subPath: string,
  ): string {
    const { mounter, paths, log } = this.#components;
    const names = `for volumeMount ${JSON.stringify(mount.name)} of container ${JSON.stringify(container.name)}`;
    try {
      using handle = openSubPath(volume.path, subPath);
      // Without the right to mount it is the path that was found: the agent and the pod are one user then.
      if (!mounter.allowed) return readlinkSync(`/proc/self/fd/${handle.fd}`);
      const target = paths.subPath(pod.uid, mount.name, container.name, index);
      this.#bind(handle, target);
      return target;
    } catch (error) {
      // The cause may name files outside of the volume, which the pod must not learn. Only the log has it.
      log.warn("cannot prepare a subPath", {
        pod: pod.uid,
        container: container.name,
        volume: mount.name,
        error: describeError(error),
      });
      const doing = error instanceof SubPathError ? "create subPath directory" : "prepare subPath";
      throw new PicoletError("failed", `failed to ${doing} ${names}`, {
        reason: "CreateContainerConfigError",
        retryable: !isPicoletError(error, "invalid"),
      });
    }
  }

  #bind(handle: SubPathHandle, target: string): void {
    const there = statSync(target, { bigint: true, throwIfNoEntry: false });
    // An earlier run has bound it, and it is still the same.
    if (there !== undefined && there.dev === handle.device && there.ino === handle.inode) return;
    mkdirSync(dirname(target), { recursive: true, mode: 0o750 });
    const canonical = join(realpathSync(dirname(target)), basename(target));
    for (const mounted of this.#components.mounter.mountPointsWithin(canonical))
      this.#components.mounter.unmountNow(mounted);
    const plain = lstatSync(target, { throwIfNoEntry: false });
    if (plain?.isDirectory() === true && !handle.isDirectory) rmdirSync(target);
    if (plain?.isDirectory() === false && handle.isDirectory) unlinkSync(target);
    if (handle.isDirectory) mkdirSync(target, { recursive: true, mode: 0o750 });
    else writeFileSync(target, "", { mode: 0o640 });
    this.#components.mounter.bind(`/proc/${process.pid}/fd/${handle.fd}`, target);
  }
}

/** @throws the kubelet's words */
function isRecursiveReadOnly(mount: VolumeMount, supports: () => boolean): boolean {
  const { name, recursiveReadOnly: mode = "Disabled", readOnly, mountPropagation = "None" } = mount;
  if (mode === "Disabled") return false;
  const wish = `failed to resolve recursive read-only mode: volume ${JSON.stringify(name)} requested recursive read-only mode, but`;
  if (readOnly !== true) throw configError(`${wish} it is not read-only`);
  if (mountPropagation !== "None")
    throw configError(`${wish} it is not compatible with propagation ${JSON.stringify(mountPropagation)}`);
  const isSupported = supports();
  if (mode === "Enabled" && !isSupported) throw configError(`${wish} it is not supported by the runtime`);
  return isSupported;
}

function subPathOf(mount: VolumeMount, lookup: Lookup): string {
  const { subPath = "", subPathExpr = "" } = mount;
  if (subPath === "" && subPathExpr === "") return "";
  const missing: string[] = [];
  const expanded =
    subPathExpr === ""
      ? subPath
      : expandReferences(subPathExpr, (name) => {
          const value = lookup(name);
          if (value === undefined) missing.push(name);
          return value;
        });
  if (missing.length > 0) throw configError(`missing value for ${JSON.stringify(missing[0])}`);
  const problem = subPathProblem(expanded);
  if (problem !== undefined) throw configError(problem);
  return expanded;
}
