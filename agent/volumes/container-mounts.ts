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
import { describeError, isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { Container, VolumeMount } from "../../protocol/pod.ts";
import type { Log } from "../../protocol/ports.ts";
import type { DesiredPod, Mount } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { configError } from "./config-error.ts";
import { expandReferences, type Lookup } from "./expand.ts";
import type { Mounter } from "./mounter.ts";
import type { PodPaths } from "./pod-paths.ts";
import type { PodVolumes } from "./pod-volumes.ts";
import { openSubPath, type SubPathHandle, subPathProblem } from "./sub-path.ts";

const PROPAGATIONS = { None: "private", HostToContainer: "hostToContainer", Bidirectional: "bidirectional" } as const;

/** A container's `volumeMounts` as mounts of paths of this node. */
export class ContainerMounts {
  readonly #paths: PodPaths;
  readonly #volumes: PodVolumes;
  readonly #mounter: Mounter;
  readonly #log: Log;

  constructor(components: {
    readonly paths: PodPaths;
    readonly volumes: PodVolumes;
    readonly mounter: Mounter;
    readonly log: Log;
  }) {
    this.#paths = components.paths;
    this.#volumes = components.volumes;
    this.#mounter = components.mounter;
    this.#log = components.log;
  }

  /**
   * @param lookup the container's environment, for `subPathExpr`
   * @throws PicoletError with the reason `CreateContainerConfigError`
   */
  ofVolumes(pod: DesiredPod, container: Container, lookup: Lookup): readonly Mount[] {
    return (container.volumeMounts ?? []).map((mount, index) => {
      const volume = this.#volumes.locate(pod, mount.name);
      if (volume === undefined)
        throw configError(
          `cannot find volume ${JSON.stringify(mount.name)} to mount into container ${JSON.stringify(container.name)}`,
        );
      // The contract has no recursive read-only mounts, so what insists on them is not run with less.
      if (mount.recursiveReadOnly === "Enabled")
        throw configError("failed to resolve recursive read-only mode: this runtime does not support it");
      const subPath = subPathOf(mount, lookup);
      const hostPath = subPath === "" ? volume.path : this.#subPath(pod, container, mount, index, volume.path, subPath);
      return {
        containerPath: mount.mountPath.startsWith("/") ? mount.mountPath : `/${mount.mountPath}`,
        hostPath,
        readOnly: mount.readOnly === true || volume.readOnly,
        propagation: PROPAGATIONS[mount.mountPropagation ?? "None"],
      };
    });
  }

  #subPath(
    pod: DesiredPod,
    container: Container,
    mount: VolumeMount,
    index: number,
    volume: string,
    subPath: string,
  ): string {
    try {
      using handle = openSubPath(volume, subPath);
      // Without the right to mount it is the path that was found: the agent and the pod are one user then.
      if (!this.#mounter.allowed) return readlinkSync(`/proc/self/fd/${handle.fd}`);
      const target = this.#paths.subPath(pod.uid, mount.name, container.name, index);
      this.#bind(handle, target);
      return target;
    } catch (error) {
      // The cause may tell of files outside of the volume, which are none of the pod's business: it is in the log.
      this.#log.warn("cannot prepare a subPath", {
        pod: pod.uid,
        container: container.name,
        volume: mount.name,
        error: describeError(error),
      });
      throw new PicoletError(
        "failed",
        `failed to prepare subPath for volumeMount ${JSON.stringify(mount.name)} of container ${JSON.stringify(container.name)}`,
        { reason: "CreateContainerConfigError", retryable: !isPicoletError(error, "invalid") },
      );
    }
  }

  #bind(handle: SubPathHandle, target: string): void {
    const there = statSync(target, { bigint: true, throwIfNoEntry: false });
    // Bound for an earlier run, and still the same.
    if (there !== undefined && there.dev === handle.device && there.ino === handle.inode) return;
    mkdirSync(dirname(target), { recursive: true, mode: 0o750 });
    const canonical = join(realpathSync(dirname(target)), basename(target));
    for (const mounted of this.#mounter.mountPointsWithin(canonical)) this.#mounter.unmountNow(mounted);
    const plain = lstatSync(target, { throwIfNoEntry: false });
    if (plain?.isDirectory() === true && !handle.isDirectory) rmdirSync(target);
    if (plain?.isDirectory() === false && handle.isDirectory) unlinkSync(target);
    if (handle.isDirectory) mkdirSync(target, { recursive: true, mode: 0o750 });
    else writeFileSync(target, "", { mode: 0o640 });
    this.#mounter.bind(`/proc/${process.pid}/fd/${handle.fd}`, target);
  }
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
