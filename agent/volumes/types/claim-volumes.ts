import { lstat, mkdir, readdir, readlink, realpath, rm, rmdir, stat, symlink, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { describeError, ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Volume } from "@picolet/protocol/pod/pod.ts";
import type { Clock, Log, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import type { MountEntry } from "../../core/node/mount-info.ts";
import { warnOfPod } from "../../core/pods/pod-warning.ts";
import type { EventRecorder } from "../../core/store/store-ports.ts";
import { matchesNodeSelector } from "../../plan/admission/admission-node.ts";
import { isStatic } from "../../plan/admission/critical-pods.ts";
import type { Mounter } from "../files/mounter.ts";
import { nameOf, type PodPaths } from "../files/pod-paths.ts";
import { changeOwnership } from "../files/volume-ownership.ts";
import { type ClaimedVolume, claimedVolume } from "./claimed-volume.ts";
import { type CsiOnDemand, makeCsi } from "./csi-on-demand.ts";
import { checkHostPath, statOf } from "./host-path.ts";
import { mountNfs } from "./nfs.ts";
import type {
  VolumeHandler,
  VolumeLocation,
  VolumeServices,
  VolumeSetUp,
  VolumeType,
  VolumeUse,
} from "./volume-type.ts";

export interface ClaimVolumesComponents {
  readonly paths: PodPaths;
  readonly mounter: Mounter;
  readonly objects: Pick<ClusterObjects, "object">;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly log: Log;
  /** Labels of the node, for the volumes' node affinity. */
  readonly nodeLabels: () => Readonly<Record<string, string>>;
  readonly csi: Pick<CsiOnDemand, "publish">;
}

/** The kubelet's times of events about a slow change of ownership: the first one, and the distance of further ones. */
const SLOW_OWNERSHIP_MS = 30_000;
const OWNERSHIP_REPORT_MS = 60_000;
const FOLDER_MODE = 0o750;

/** Persistent volumes: those that lie on this node, `local` and `hostPath`, and those of CSI drivers. */
export class ClaimVolumes implements VolumeHandler {
  readonly #components: ClaimVolumesComponents;
  readonly #nodeName: string;
  /**
   * Set-ups under way by the volume's name. They run one after another, so that exactly one pod is the first.
   */
  readonly #working = new Map<string, Promise<unknown>>();
  /** The places of claims that this agent has set up, by the name of the pod's volume. */
  readonly #locations = new Map<PodUid, Map<string, VolumeLocation>>();

  constructor(components: ClaimVolumesComponents, init: { readonly nodeName: string }) {
    this.#components = components;
    this.#nodeName = init.nodeName;
  }

  /** The set-up throws a PicoletError of reason `FailedMount`, its message the kubelet's event as a whole. */
  plan(pod: DesiredPod, volume: Volume, use: VolumeUse): VolumeSetUp {
    if (isStatic(pod)) throw new PicoletError("invalid", "static pods may not reference persistentvolumeclaims");
    const claimed = claimedVolume(pod.pod, volume, use, this.#components.objects);
    return async (signal) => {
      const { group } = claimed;
      const location = { ...(await this.#serially(pod, claimed, signal)), ...(group === undefined ? {} : { group }) };
      const locations = this.#locations.get(pod.uid) ?? new Map<string, VolumeLocation>();
      this.#locations.set(pod.uid, locations.set(volume.name, location));
    };
  }

  locate({ uid }: DesiredPod, { name }: Volume): VolumeLocation | undefined {
    return this.#locations.get(uid)?.get(name);
  }

  forget(uid: PodUid): void {
    this.#locations.delete(uid);
  }

  async #serially(pod: DesiredPod, claimed: ClaimedVolume, signal: AbortSignal): Promise<VolumeLocation> {
    const before = this.#working.get(claimed.name) ?? Promise.resolve();
    const mine = before.then(() => this.#setUp(pod, claimed, signal));
    const settled = mine.catch(ignore("its caller gets the error; the next set-up does not depend on it"));
    this.#working.set(claimed.name, settled);
    try {
      return await mine;
    } finally {
      if (this.#working.get(claimed.name) === settled) this.#working.delete(claimed.name);
    }
  }

  /** Unmounts the file systems of block devices that no pod uses any more. The pod's own mounts are gone by then. */
  async collect(signal: AbortSignal): Promise<void> {
    const { mounter, log } = this.#components;
    const folder = await canonical(this.#components.paths.deviceMounts);
    if (folder === undefined) return;
    const all = mounter.mounts();
    for (const entry of all.filter(({ mountPoint }) => dirname(mountPoint) === folder)) {
      const name = basename(entry.mountPoint);
      if (this.#working.has(name) || all.some((other) => other !== entry && isSame(other, entry))) continue;
      try {
        await mounter.unmount([entry.mountPoint], signal);
        await rmdir(entry.mountPoint);
      } catch (error) {
        if (isCancelled(error)) throw error;
        log.warn("cannot unmount a local volume's device", { volume: name, error: describeError(error) });
      }
    }
  }

  async #setUp(pod: DesiredPod, claimed: ClaimedVolume, signal: AbortSignal): Promise<VolumeLocation> {
    const operation = claimed.mode === "Block" ? "MapVolume" : "MountVolume";
    const { nodeSelectorTerms, name, forOnePod } = claimed;
    const node = { name: this.#nodeName, labels: this.#components.nodeLabels() };
    if (nodeSelectorTerms !== undefined && !matchesNodeSelector(nodeSelectorTerms, node))
      throw failed(`${operation}.NodeAffinity check`, name, "no matching NodeSelectorTerms");
    await this.#checkSource(claimed, operation);
    if (forOnePod && (await this.#isUsedByOthers(pod.uid, name)))
      throw failed(
        `${operation}.SetUp`,
        name,
        "volume uses the ReadWriteOncePod access mode and is already in use by another pod",
      );
    await this.#noteUse(pod.uid, name);
    const { source } = claimed;
    if (source.kind === "csi")
      return this.#components.csi.publish(
        pod,
        name,
        ({ persistentVolume }) => persistentVolume(name, source.spec, claimed.readOnly),
        signal,
      );
    if (claimed.mode === "Block") return this.#map(pod, claimed);
    try {
      return await this.#mount(pod, claimed, signal);
    } catch (error) {
      if (isCancelled(error) || (error instanceof PicoletError && error.reason === "FailedMount")) throw error;
      throw failed("MountVolume.SetUp", name, describeError(error));
    }
  }

  async #checkSource({ name, source, mode, mountOptions }: ClaimedVolume, operation: string): Promise<void> {
    if (source.kind === "csi") return;
    if (source.kind === "nfs") {
      if (mode === "Block") throw failed("MapVolume.SetUpDevice", name, "nfs volumes are no devices");
      return;
    }
    if (source.kind === "other") throw unsupported(name, source.type);
    if (source.kind === "hostPath") {
      if (mountOptions.length > 0)
        throw failed(
          "MountVolume.MountOptionSupport check",
          name,
          "mount options are not supported for this volume type",
        );
      return;
    }
    const stats = await statOf(source.path);
    const initializing = mode === "Block" ? "NewBlockVolumeMapper" : "NewMounter";
    if (stats === undefined)
      throw failed(`${operation}.${initializing} initialization`, name, `path ${quoted(source.path)} does not exist`);
    if (!stats.isDirectory() && !stats.isBlockDevice())
      throw failed(
        `${operation}.${initializing} initialization`,
        name,
        "only directory and block device are supported",
      );
    if (mode === "Block" && !stats.isBlockDevice())
      throw failed("MapVolume.MapBlockVolume", name, `${source.path} is not a block device`);
  }

  /** Reads the marks of other pods on disk, which survive restarts of the agent. */
  async #isUsedByOthers(uid: PodUid, name: string): Promise<boolean> {
    const { paths } = this.#components;
    for (const other of await readdir(paths.podsDir).catch(noneIfMissing)) {
      if (other !== uid && (await isThere(paths.claim(other, name)))) return true;
    }
    return false;
  }

  async #noteUse(uid: PodUid, name: string): Promise<void> {
    const path = this.#components.paths.claim(uid, name);
    await mkdir(dirname(path), { recursive: true, mode: FOLDER_MODE });
    await writeFile(path, "");
  }

  /** A link to the device where the kubelet has one; the container gets the device itself. */
  async #map(pod: DesiredPod, { name, source, readOnly }: ClaimedVolume): Promise<VolumeLocation> {
    if (source.kind !== "local") throw failed("MapVolume.SetUpDevice", name, `${source.kind} volumes are no devices`);
    const link = this.#components.paths.volumeDevice(pod.uid, name);
    await mkdir(dirname(link), { recursive: true, mode: FOLDER_MODE });
    if ((await readlink(link).catch(ignore("there is no link yet"))) !== source.path) {
      await rm(link, { force: true });
      await symlink(source.path, link);
    }
    return { path: await realpath(source.path), readOnly, isDevice: true };
  }

  async #mount(pod: DesiredPod, claimed: ClaimedVolume, signal: AbortSignal): Promise<VolumeLocation> {
    const { source, readOnly, name, mountOptions } = claimed;
    if (source.kind === "hostPath") {
      await checkHostPath(source.path, source.type);
      return { path: source.path, readOnly, isDevice: false };
    }
    if (source.kind === "nfs") {
      const isReadOnly = readOnly || source.readOnly;
      const volume = { ...source, name, mountOptions, readOnly: isReadOnly };
      return { path: await mountNfs(this.#components, pod, volume, signal), readOnly: isReadOnly, isDevice: false };
    }
    if (source.kind !== "local") throw unsupported(name, source.kind);
    const { paths, mounter } = this.#components;
    if (!mounter.allowed)
      throw failed("MountVolume.SetUp", name, "this process may not mount, which a local volume takes");
    const target = paths.localVolume(pod.uid, name);
    await mkdir(target, { recursive: true, mode: FOLDER_MODE });
    const location = { path: target, readOnly, isDevice: false };
    const own = await realpath(target);
    if (mounter.mountPointsWithin(own).includes(own)) return location;
    const folder = await this.#sourceFolder(claimed, source, signal);
    await mounter.bindVolume(folder, target, [...(readOnly ? ["ro"] : []), ...mountOptions], signal);
    try {
      if (!readOnly) await this.#own(pod, name, own, signal);
    } catch (error) {
      // The next try finds nothing mounted, and gives the volume to its group again.
      await mounter.unmount([own], AbortSignal.timeout(SLOW_OWNERSHIP_MS));
      throw error;
    }
    return location;
  }

  /** The volume's folder; of a block device, where its file system is mounted for all pods. */
  async #sourceFolder(
    { name, mountOptions, readOnly }: ClaimedVolume,
    { path, fsType }: { readonly path: string; readonly fsType: string },
    signal: AbortSignal,
  ): Promise<string> {
    if (!(await stat(path)).isBlockDevice()) return realpath(path);
    const { paths, mounter } = this.#components;
    const target = join(paths.deviceMounts, nameOf(name, "volume"));
    await mkdir(target, { recursive: true, mode: FOLDER_MODE });
    const own = await realpath(target);
    if (mounter.mountPointsWithin(own).includes(own)) return own;
    try {
      await mounter.mountDevice(path, own, fsType, [...(readOnly ? ["ro"] : []), ...mountOptions], signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      await rmdir(own).catch(ignore("the failed mount is reported; the next one uses the folder"));
      const text = `local: failed to mount device ${path} at ${target} (fstype: ${fsType}), error ${describeError(error)}`;
      throw failed("MountVolume.MountDevice", name, text);
    }
    return own;
  }

  /** Only the first pod that mounts a volume changes its owner; a pod of another group gets an event. */
  async #own(pod: DesiredPod, name: string, target: string, signal: AbortSignal): Promise<void> {
    const { fsGroup, fsGroupChangePolicy } = pod.pod.spec.securityContext;
    if (fsGroup === undefined) return;
    const { mounter, paths } = this.#components;
    const all = mounter.mounts();
    const own = all.findLast(({ mountPoint }) => mountPoint === target);
    const podsDir = `${await realpath(paths.podsDir)}/`;
    const others = all.filter(
      (entry) => own !== undefined && entry !== own && isSame(entry, own) && entry.mountPoint.startsWith(podsDir),
    );
    if (others.length > 0) {
      const { gid } = await stat(target);
      if (gid !== fsGroup)
        warnOfPod(
          this.#components.events,
          pod,
          "AlreadyMountedVolume",
          `The requested fsGroup is ${fsGroup}, but the volume ${name} has GID ${gid}. The volume may not be shareable.`,
        );
      return;
    }
    const onlyOnRootMismatch = fsGroupChangePolicy === "OnRootMismatch";
    const progress = this.#ownershipProgress(pod, target);
    await changeOwnership(target, { fsGroup, readOnly: false, onlyOnRootMismatch, progress }, signal);
  }

  #ownershipProgress(pod: DesiredPod, target: string): (files: number) => void {
    const { clock, events } = this.#components;
    const shown = target.slice(Math.max(0, target.indexOf(pod.uid)));
    let reportAt = clock.monotonic() + SLOW_OWNERSHIP_MS;
    let reports = 0;
    return (files) => {
      if (clock.monotonic() < reportAt) return;
      reportAt = clock.monotonic() + OWNERSHIP_REPORT_MS;
      const first = `Setting volume ownership for ${shown} is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods`;
      const later = `Setting volume ownership for ${shown}, processed ${files} files.`;
      warnOfPod(events, pod, "VolumePermissionChangeInProgress", reports === 0 ? first : later);
      reports += 1;
    };
  }
}

/** A driver may ask for a claim's volume to be published again while its pod runs. */
export const claimVolume: VolumeType = {
  isRefreshed: true,
  makeHandler: (services) => services.once(makeClaimVolumes),
};

const makeClaimVolumes = (services: VolumeServices): ClaimVolumes =>
  new ClaimVolumes({ ...services, csi: services.once(makeCsi) }, services);

/** The same folder of the same file system. */
const isSame = (left: MountEntry, right: MountEntry): boolean =>
  left.device === right.device && left.root === right.root;

const failed = (what: string, volume: string, why: string): PicoletError =>
  new PicoletError("unavailable", `${what} failed for volume ${quoted(volume)} : ${why}`, {
    reason: "FailedMount",
    retryable: true,
  });

const unsupported = (name: string, type: string): PicoletError =>
  failed("MountVolume.SetUp", name, `no volume plugin matched: this node has none for volumes of type ${type}`);

/** As Go's %q does for paths and names. */
const quoted = (text: string): string => JSON.stringify(text);

async function isThere(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    if (errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR") return false;
    throw error;
  }
}

async function canonical(path: string): Promise<string | undefined> {
  return (await isThere(path)) ? realpath(path) : undefined;
}

function noneIfMissing(error: unknown): string[] {
  if (errnoOf(error) === "ENOENT") return [];
  throw error;
}
