import { existsSync, realpathSync } from "node:fs";
import { mkdir, readdir, realpath, rm, rmdir, stat, symlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { GrpcStatusError } from "@picolet/runtime-cri/wire/grpc-status.ts";
import type { ClusterObjects, IssuedToken } from "../../core/hub/cluster-objects.ts";
import { type NodeCounts, timed } from "../../core/node/node-counts.ts";
import type { Mounter } from "../files/mounter.ts";
import type { PodPaths } from "../files/pod-paths.ts";
import { changeOwnership } from "../files/volume-ownership.ts";
import { type CsiDriver, type CsiDrivers, NOT_MIGRATED } from "./csi-drivers.ts";
import { csiNode, NodeCapability } from "./csi-messages.ts";
import { CsiPaths } from "./csi-paths.ts";
import {
  appliesFsGroup,
  attachmentName,
  attachmentOf,
  type CsiVolume,
  capabilityOf,
  checkLifecycle,
  type DriverSpec,
  driverSpec,
  secretData,
  sha256,
  uniqueName,
  waiting,
} from "./csi-source.ts";
import { type CsiFigures, CsiStats } from "./csi-stats.ts";
import { readVolumeData, type VolumeData, writeVolumeData } from "./volume-data.ts";

export interface CsiVolumesComponents {
  readonly drivers: CsiDrivers;
  readonly paths: PodPaths;
  readonly mounter: Pick<Mounter, "mountPointsWithin" | "unmount">;
  readonly objects: Pick<ClusterObjects, "object">;
  /** The token of the pod's service account for an audience. */
  readonly tokenOf: (
    pod: DesiredPod,
    volume: string,
    index: number,
    request: { readonly audience: string; readonly expirationSeconds: number },
    signal: AbortSignal,
  ) => Promise<IssuedToken>;
  readonly clock: Clock;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
}

export interface CsiLocation {
  readonly path: string;
  readonly readOnly: boolean;
  readonly isDevice: boolean;
}

/** The kubelet's mode of folders above a mount. */
const FOLDER_MODE = 0o750;
/** gRPC codes after which the driver may still be at work, or have done its work: Canceled, DeadlineExceeded, … */
const UNCERTAIN: ReadonlySet<number> = new Set([1, 4, 8, 10, 14]);
const NOT_REGISTERED = "not found in the list of registered CSI drivers";

/**
 * Volumes of CSI drivers: staged once for the node, published for each pod, and taken back in reverse.
 *
 * `vol_data.json` is on disk before a driver is called, and goes after the driver has confirmed the end. So a later
 * agent, after a kill at any point, knows of each volume that a driver may have mounted. All calls of a driver are
 * idempotent by its contract, so what is uncertain is done again.
 */
export class CsiVolumes {
  readonly #components: CsiVolumesComponents;
  readonly #nodeName: string;
  readonly #paths: CsiPaths;
  readonly #stats: CsiStats;
  /** Work under way by volume, one after another: a volume is never staged while it is unstaged. */
  readonly #working = new Map<string, Promise<unknown>>();
  /** Staged by this agent: a predecessor's may have been lost with the power. */
  readonly #staged = new Set<string>();
  /** Targets that this agent has published, with the fields that a change of the volume would change. */
  readonly #published = new Map<string, string>();
  /** Pods that want an attached volume, by its name. It is reported as in use before it is mounted. */
  readonly #wanted = new Map<string, Set<string>>();
  readonly #inUse = new WatchSource<readonly string[] | undefined>(undefined);

  constructor(components: CsiVolumesComponents, init: { readonly nodeName: string }) {
    this.#components = components;
    this.#nodeName = init.nodeName;
    this.#paths = new CsiPaths(components.paths);
    this.#stats = new CsiStats(components);
  }

  /**
   * For `volumesInUse` of the Node: attached volumes that must not be detached, sorted. Undefined until the disk was
   * read.
   */
  get inUse(): Watch<readonly string[] | undefined> {
    return this.#inUse;
  }

  /**
   * Stages the volume unless it is, and publishes it for the pod.
   * @throws PicoletError of reason `FailedMount`, its message the kubelet's event as a whole
   */
  async publish(pod: DesiredPod, volume: CsiVolume, signal: AbortSignal): Promise<CsiLocation> {
    return this.#serially(keyOf(volume), () => this.#stageAndPublish(pod, volume, signal));
  }

  /**
   * Publishes again what is published, where the CSIDriver has `requiresRepublish`, with a current token. A
   * failure leaves what is mounted.
   * @throws as `publish`
   */
  async republish(pod: DesiredPod, volume: CsiVolume, signal: AbortSignal): Promise<void> {
    if (!driverSpec(this.#components.objects, volume.driver).requiresRepublish) return;
    await this.#serially(keyOf(volume), async () => {
      // The pod may have ended while this waited for its turn.
      if (this.#published.has(this.#placeOf(pod.uid, volume).target))
        await this.#stageAndPublish(pod, volume, signal, true);
    });
  }

  /**
   * Expands the file system of a published volume to the volume's size, while pods use it.
   * @returns false where the volume is no longer published, or its driver has nothing to do on a node
   * @throws `unavailable`, its message the kubelet's event as a whole
   */
  async expand(pod: DesiredPod, volume: CsiVolume, bytes: number, signal: AbortSignal): Promise<boolean> {
    return await this.#serially(keyOf(volume), async () => {
      const { target } = this.#placeOf(pod.uid, volume);
      const driver = this.#components.drivers.get(volume.driver);
      if (!this.#published.has(target) || driver?.capabilities.has(NodeCapability.expandVolume) !== true) return false;
      const stagingTargetPath = this.#stagingOf(volume, driver)?.stagingPath ?? "";
      const call = async (): Promise<void> => {
        const request = {
          volumeId: volume.handle,
          volumePath: stagingTargetPath === "" || volume.mode === "Block" ? target : stagingTargetPath,
          capacityRange: { requiredBytes: bytes, limitBytes: 0 },
          stagingTargetPath,
          volumeCapability: capabilityOf(volume, driver, pod.pod.spec.securityContext.fsGroup),
          secrets: secretData(this.#components.objects, "NodeExpandSecretRef", volume.expandSecret),
        };
        await this.#components.drivers.call(driver, csiNode.expand, request, signal);
      };
      try {
        await this.#timed("volume_fs_resize", volume.driver, call);
      } catch (error) {
        if (isCancelled(error)) throw error;
        throw failed("NodeExpandVolume.NodeExpandVolume", volume, printed(error));
      }
      return true;
    });
  }

  async #stageAndPublish(
    pod: DesiredPod,
    volume: CsiVolume,
    signal: AbortSignal,
    isAgain = false,
  ): Promise<CsiLocation> {
    const { target } = this.#placeOf(pod.uid, volume);
    const work = (): Promise<CsiLocation> => this.#stagedAndPublished(pod, volume, signal, isAgain);
    if (!isAgain && this.#isPublished(target, volume)) return await work();
    return await this.#timed(volume.mode === "Block" ? "map_volume" : "volume_mount", volume.driver, work);
  }

  async #stagedAndPublished(
    pod: DesiredPod,
    volume: CsiVolume,
    signal: AbortSignal,
    isAgain: boolean,
  ): Promise<CsiLocation> {
    const driver = this.#components.drivers.get(volume.driver);
    const spec = driverSpec(this.#components.objects, volume.driver);
    if (driver === undefined) throw driverMissing(volume);
    const use = { driver, spec, context: await this.#attached(pod, volume, spec) };
    const stagingPath = await this.#stage(pod, volume, use, signal);
    return await this.#publish(pod, volume, { ...use, stagingPath, isAgain }, signal);
  }

  /** @returns undefined where the volume is not staged */
  #stagingOf(
    { lifecycle, mode, specName, driver: name, handle }: CsiVolume,
    driver: CsiDriver,
  ): { readonly folder: string; readonly stagingPath: string } | undefined {
    if (lifecycle === "Ephemeral" || !driver.capabilities.has(NodeCapability.stageUnstageVolume)) return undefined;
    if (mode === "Block")
      return { folder: this.#paths.blockData(specName), stagingPath: this.#paths.blockStaging(specName) };
    const folder = this.#paths.staged(name, handle);
    return { folder, stagingPath: join(folder, "globalmount") };
  }

  #placeOf(uid: string, { mode, specName }: CsiVolume): { readonly folder: string; readonly target: string } {
    if (mode === "Block")
      return { folder: this.#paths.blockData(specName), target: join(this.#paths.blockPublish(specName), uid) };
    const folder = this.#paths.volume(uid, specName);
    return { folder, target: join(folder, "mount") };
  }

  /**
   * Takes all volumes of the pod back, known or not. @throws `unavailable` until their drivers have confirmed it
   */
  async unpublish(uid: string, signal: AbortSignal): Promise<void> {
    await this.#uncover(uid, signal);
    const ends = (await this.#usesOf(uid)).map((use) =>
      this.#serially(keyOf({ driver: use.data.driverName, handle: use.data.volumeHandle }), () =>
        this.#timed(use.isBlock ? "unmap_volume" : "volume_unmount", use.data.driverName, () =>
          this.#unpublish(use, signal),
        ),
      ),
    );
    // All are waited for, so that nothing of this call goes on after it.
    const failures = (await Promise.allSettled(ends)).flatMap((each) =>
      each.status === "rejected" ? [each.reason as unknown] : [],
    );
    if (failures.length > 0) throw failures.find(isCancelled) ?? failures[0];
    for (const [name, uids] of this.#wanted) if (uids.delete(uid) && uids.size === 0) this.#wanted.delete(name);
    await rm(this.#paths.podDevices(uid), { recursive: true, force: true });
  }

  /**
   * Unstages volumes that no pod uses, all at once: a driver that hangs delays no other volume.
   * @returns false when some could not be unstaged
   */
  async collect(signal: AbortSignal): Promise<boolean> {
    const used = await this.#usedKeys();
    const ends: Promise<boolean>[] = [];
    for (const staged of await this.#stagedVolumes()) {
      const key = keyOf({ driver: staged.data.driverName, handle: staged.data.volumeHandle });
      if (used.has(key) || this.#working.has(key) || (await this.#isClaimed(staged.data))) continue;
      ends.push(this.#collectOne(key, staged, signal));
    }
    const results = await Promise.all(ends);
    await this.#report();
    signal.throwIfAborted();
    return results.every((isDone) => isDone);
  }

  /** Never rejects. */
  async #collectOne(key: string, staged: StagedVolume, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#serially(key, () => this.#unstage(key, staged, signal));
      await this.#report();
      return true;
    } catch (error) {
      if (isCancelled(error)) return false;
      const fields = { driver: staged.data.driverName, volume: staged.data.volumeHandle, error: printed(error) };
      this.#components.log.warn("cannot unstage a CSI volume", fields);
      return false;
    }
  }

  /** @returns true where the volume's driver reports the health of volumes */
  reportsHealth({ driver }: CsiVolume): boolean {
    const capabilities = this.#components.drivers.get(driver)?.capabilities;
    return [NodeCapability.getVolumeStats, NodeCapability.volumeCondition].every((each) => capabilities?.has(each));
  }

  /** @returns undefined where the pod has no such volume, or its driver no figures */
  async stats(uid: string, specName: string, signal: AbortSignal): Promise<CsiFigures | undefined> {
    const use = (await this.#usesOf(uid)).find(({ data, isBlock }) => data.specVolID === specName && !isBlock);
    if (use === undefined) return undefined;
    const { driverName: driver, volumeHandle: handle } = use.data;
    const stagingPath = join(this.#paths.staged(driver, handle), "globalmount");
    const isStaged = existsSync(dirname(stagingPath));
    const place = { driver, handle, path: use.target, stagingPath: isStaged ? stagingPath : "" };
    return await this.#stats.of(place, signal);
  }

  async #attached({ uid }: DesiredPod, volume: CsiVolume, spec: DriverSpec): Promise<Readonly<Record<string, string>>> {
    if (volume.lifecycle === "Ephemeral" || !spec.attachRequired) return {};
    const name = uniqueName(volume);
    this.#wanted.set(name, (this.#wanted.get(name) ?? new Set()).add(uid));
    await this.#report();
    try {
      return attachmentOf(this.#components.objects, volume, this.#nodeName);
    } catch (error) {
      throw failed("MountVolume.WaitForAttach", volume, describeError(error));
    }
  }

  async #stage(pod: DesiredPod, volume: CsiVolume, use: Use, signal: AbortSignal): Promise<string> {
    const { driver } = use;
    const key = keyOf(volume);
    const staging = this.#stagingOf(volume, driver);
    if (staging === undefined) return "";
    const { folder, stagingPath } = staging;
    const isBlock = volume.mode === "Block";
    if (this.#staged.has(key)) return stagingPath;
    let isNew = false;
    try {
      const secrets = secretData(this.#components.objects, "NodeStageSecretRef", volume.stageSecret);
      isNew = (await readVolumeData(folder)) === undefined;
      await mkdir(folder, { recursive: true, mode: FOLDER_MODE });
      await mkdir(stagingPath, { recursive: true, mode: FOLDER_MODE });
      await writeVolumeData(folder, this.#dataOf(volume));
      const request = {
        volumeId: volume.handle,
        publishContext: entries(use.context),
        stagingTargetPath: stagingPath,
        volumeCapability: capabilityOf(volume, driver, pod.pod.spec.securityContext.fsGroup),
        secrets,
        volumeContext: entries(volume.attributes),
      };
      await this.#components.drivers.call(driver, csiNode.stage, request, signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      if (isNew && isFinal(error)) await this.#forgetStaged(folder, stagingPath);
      throw failed(isBlock ? "MapVolume.SetUpDevice" : "MountVolume.MountDevice", volume, printed(error));
    }
    this.#staged.add(key);
    return stagingPath;
  }

  async #publish(
    pod: DesiredPod,
    volume: CsiVolume,
    use: Use & { readonly stagingPath: string; readonly isAgain: boolean },
    signal: AbortSignal,
  ): Promise<CsiLocation> {
    const { driver, spec, context, stagingPath, isAgain } = use;
    const isBlock = volume.mode === "Block";
    const { folder, target } = this.#placeOf(pod.uid, volume);
    const location = { path: target, readOnly: volume.readOnly, isDevice: isBlock };
    if (!isAgain && this.#isPublished(target, volume)) return location;
    let isNew = false;
    try {
      checkLifecycle(volume, spec);
      const secrets = secretData(this.#components.objects, "NodePublishSecretRef", volume.publishSecret);
      const attributes = { ...volume.attributes, ...(await this.#podInfo(pod, volume, spec, signal)) };
      isNew = !isBlock && (await readVolumeData(folder)) === undefined;
      await mkdir(folder, { recursive: true, mode: FOLDER_MODE });
      await mkdir(dirname(target), { recursive: true, mode: FOLDER_MODE });
      await writeVolumeData(folder, this.#dataOf(volume));
      const request = {
        volumeId: volume.handle,
        publishContext: entries(context),
        stagingTargetPath: stagingPath,
        targetPath: target,
        volumeCapability: capabilityOf(volume, driver, pod.pod.spec.securityContext.fsGroup),
        readonly: volume.readOnly,
        secrets,
        volumeContext: entries(attributes),
      };
      await this.#components.drivers.call(driver, csiNode.publish, request, signal);
      if (isBlock) await this.#linkDevice(pod.uid, volume.specName, target);
      else await this.#own(pod, volume, { driver, spec, target }, signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      if (isNew && isFinal(error) && !this.#isMounted(target)) await this.#forgetPublished(folder, target);
      if (!isBlock) throw setUpFailed(volume, `mounter.SetUpAt failed: ${printed(error)}`);
      const why = `kubernetes.io/csi: blockMapper.publishVolumeForBlock failed: ${printed(error)}`;
      throw failed("MapVolume.MapPodDevice", volume, why);
    }
    this.#published.set(target, JSON.stringify(volume));
    await this.#report();
    return location;
  }

  #isPublished(target: string, volume: CsiVolume): boolean {
    if (this.#published.get(target) !== JSON.stringify(volume)) return false;
    return volume.mode === "Block" ? existsSync(target) : this.#isMounted(target);
  }

  /** `csi.storage.k8s.io/…` of the pod, for a driver that asks for them. */
  async #podInfo(
    pod: DesiredPod,
    volume: CsiVolume,
    { podInfoOnMount, tokenRequests }: DriverSpec,
    signal: AbortSignal,
  ): Promise<Readonly<Record<string, string>>> {
    const { metadata, spec } = pod.pod;
    const info: Record<string, string> = {};
    if (podInfoOnMount) {
      info["csi.storage.k8s.io/pod.name"] = metadata.name;
      info["csi.storage.k8s.io/pod.namespace"] = metadata.namespace;
      info["csi.storage.k8s.io/pod.uid"] = metadata.uid ?? pod.uid;
      info["csi.storage.k8s.io/serviceAccount.name"] = spec.serviceAccountName ?? "";
      info["csi.storage.k8s.io/ephemeral"] = String(volume.lifecycle === "Ephemeral");
    }
    if (tokenRequests.length === 0) return info;
    const tokens: Record<string, IssuedToken> = {};
    for (const [index, request] of tokenRequests.entries()) {
      // A name that no volume of a pod has, as long as any.
      const name = `csi.${sha256(volume.specName)}`;
      const { token, expirationTimestamp } = await this.#components.tokenOf(pod, name, index, request, signal);
      tokens[request.audience] = { token, expirationTimestamp };
    }
    info["csi.storage.k8s.io/serviceAccount.tokens"] = JSON.stringify(tokens);
    return info;
  }

  async #own(
    pod: DesiredPod,
    volume: CsiVolume,
    { driver, spec, target }: { readonly driver: CsiDriver; readonly spec: DriverSpec; readonly target: string },
    signal: AbortSignal,
  ): Promise<void> {
    const { fsGroup, fsGroupChangePolicy } = pod.pod.spec.securityContext;
    if (fsGroup === undefined || !appliesFsGroup(volume, spec, driver)) return;
    const onlyOnRootMismatch = fsGroupChangePolicy === "OnRootMismatch";
    await changeOwnership(target, { fsGroup, readOnly: false, onlyOnRootMismatch }, signal);
  }

  async #linkDevice(uid: string, specName: string, target: string): Promise<void> {
    if (!(await stat(target)).isBlockDevice()) throw waiting(`${target} is not a block device`);
    const link = join(this.#paths.podDevices(uid), specName);
    await mkdir(dirname(link), { recursive: true, mode: FOLDER_MODE });
    await rm(link, { force: true });
    await symlink(target, link);
  }

  async #unpublish({ data, folder, target, isBlock }: PublishedUse, signal: AbortSignal): Promise<void> {
    const driver = this.#components.drivers.get(data.driverName);
    const volume = { specName: data.specVolID ?? data.volumeHandle };
    if (driver === undefined)
      throw tearDownFailed(volume, `Unmounter.TearDownAt failed to get CSI client: ${noDriver(data.driverName)}`);
    this.#published.delete(target);
    try {
      const request = { volumeId: data.volumeHandle, targetPath: target };
      await this.#components.drivers.call(driver, csiNode.unpublish, request, signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      throw tearDownFailed(volume, `Unmounter.TearDownAt failed: ${printed(error)}`);
    }
    if (this.#isMounted(target))
      throw tearDownFailed(
        volume,
        `the driver ${data.driverName} left ${target} mounted, although it confirmed the end`,
      );
    if (isBlock) await rm(target, { recursive: true, force: true });
    else await this.#forgetPublished(folder, target);
  }

  /** Removes the bind mounts of subPaths, which would keep the volume busy. */
  async #uncover(uid: string, signal: AbortSignal): Promise<void> {
    const { mounter, paths } = this.#components;
    const subPaths = join(paths.pod(uid), "volume-subpaths");
    if (!existsSync(subPaths)) return;
    const mounted = mounter.mountPointsWithin(await realpath(subPaths));
    if (mounted.length > 0) await mounter.unmount(mounted, signal);
  }

  async #unstage(key: string, staged: StagedVolume, signal: AbortSignal): Promise<void> {
    const { data, isBlock } = staged;
    // A pod may have come while this waited for its turn.
    if ((await this.#usedKeys()).has(key) || (await this.#isClaimed(data))) return;
    const work = (): Promise<void> => this.#unstageNow(key, staged, signal);
    await this.#timed(isBlock ? "unmap_device" : "unmount_device", data.driverName, work);
  }

  async #unstageNow(key: string, { data, folder, stagingPath }: StagedVolume, signal: AbortSignal): Promise<void> {
    const driver = this.#components.drivers.get(data.driverName);
    if (driver === undefined) throw waiting(noDriver(data.driverName));
    this.#staged.delete(key);
    if (driver.capabilities.has(NodeCapability.stageUnstageVolume)) {
      const request = { volumeId: data.volumeHandle, stagingTargetPath: stagingPath };
      await this.#components.drivers.call(driver, csiNode.unstage, request, signal);
    }
    if (this.#isMounted(stagingPath))
      throw waiting(`the driver ${data.driverName} left ${stagingPath} mounted, although it confirmed the end`);
    await this.#forgetStaged(folder, stagingPath);
  }

  /** Never removes what is mounted: the files would be the volume's. */
  async #forgetPublished(folder: string, target: string): Promise<void> {
    await removeEmpty(target);
    await rm(join(folder, "vol_data.json"), { force: true });
    await rm(join(folder, "vol_data.json.new"), { force: true });
    await removeEmpty(folder);
  }

  async #forgetStaged(folder: string, stagingPath: string): Promise<void> {
    if (this.#isMounted(stagingPath)) return;
    await this.#forgetPublished(folder, stagingPath);
    // The driver's folder goes with its last volume; of a block volume it is the one above `data`.
    await removeEmpty(dirname(folder));
  }

  /** Reads nothing of the mount itself, which may hang. */
  #isMounted(path: string): boolean {
    const parent = dirname(path);
    if (!existsSync(parent)) return false;
    return this.#components.mounter.mountPointsWithin(join(realpathSync(parent), basename(path))).length > 0;
  }

  /** The kubelet names an attachment also where there is none. */
  #dataOf({ specName, driver, handle, lifecycle }: CsiVolume): VolumeData {
    return {
      specVolID: specName,
      volumeHandle: handle,
      driverName: driver,
      nodeName: this.#nodeName,
      attachmentID: attachmentName(driver, handle, this.#nodeName),
      volumeLifecycleMode: lifecycle,
    };
  }

  /** All that the pod may have published, from the disk alone. */
  async #usesOf(uid: string): Promise<readonly PublishedUse[]> {
    const uses: PublishedUse[] = [];
    for (const name of await namesIn(this.#paths.volumes(uid))) {
      const folder = this.#paths.volume(uid, name);
      const data = await readVolumeData(folder);
      if (data !== undefined) uses.push({ data, folder, target: join(folder, "mount"), isBlock: false });
    }
    for (const name of await namesIn(join(this.#paths.blockVolumes, "publish"))) {
      const target = join(this.#paths.blockPublish(name), uid);
      const folder = this.#paths.blockData(name);
      const data = existsSync(target) ? await readVolumeData(folder) : undefined;
      if (data !== undefined) uses.push({ data, folder, target, isBlock: true });
    }
    return uses;
  }

  async #stagedVolumes(): Promise<readonly StagedVolume[]> {
    const found: StagedVolume[] = [];
    for (const driver of await namesIn(this.#paths.stagedVolumes)) {
      const isBlock = driver === "volumeDevices";
      const parent = join(this.#paths.stagedVolumes, driver);
      for (const name of await namesIn(parent)) {
        const folder = isBlock ? join(parent, name, "data") : join(parent, name);
        const data = await readVolumeData(folder).catch((error: unknown) => {
          this.#components.log.warn("cannot take back a CSI volume", { folder, error: describeError(error) });
          return undefined;
        });
        const stagingPath = isBlock ? this.#paths.blockStaging(name) : join(folder, "globalmount");
        if (data !== undefined) found.push({ data, folder, stagingPath, isBlock });
      }
    }
    return found;
  }

  async #usedKeys(): Promise<ReadonlySet<string>> {
    const used = new Set<string>();
    for (const uid of await namesIn(this.#components.paths.podsDir)) {
      for (const { data } of await this.#usesOf(uid))
        used.add(keyOf({ driver: data.driverName, handle: data.volumeHandle }));
    }
    return used;
  }

  /** True while a pod has the mark of the volume, which is made before it is staged and outlives a kill. */
  async #isClaimed({ specVolID }: VolumeData): Promise<boolean> {
    const { paths } = this.#components;
    if (specVolID === undefined) return false;
    return (await namesIn(paths.podsDir)).some((uid) => existsSync(paths.claim(uid, specVolID)));
  }

  async #report(): Promise<void> {
    const names = new Set(this.#wanted.keys());
    const uses = (
      await Promise.all((await namesIn(this.#components.paths.podsDir)).map((uid) => this.#usesOf(uid)))
    ).flat();
    for (const { data } of [...(await this.#stagedVolumes()), ...uses]) {
      const name = uniqueName({ driver: data.driverName, handle: data.volumeHandle });
      if ((data.attachmentID ?? "") !== "") names.add(name);
    }
    const sorted = [...names].sort();
    if (sorted.join("\n") !== this.#inUse.current?.join("\n")) this.#inUse.set(sorted);
  }

  /** @param operation a kubelet's name of it */
  #timed<T>(operation: string, driver: string, work: () => Promise<T>): Promise<T> {
    const labelsOf = (error: unknown) => [
      ...[NOT_MIGRATED, operation, error === undefined ? "success" : "fail-unknown"],
      `kubernetes.io/csi:${driver}`,
    ];
    return timed(this.#components, "storage_operation_duration_seconds", labelsOf, work);
  }

  async #serially<T>(key: string, work: () => Promise<T>): Promise<T> {
    const mine = (this.#working.get(key) ?? Promise.resolve()).then(work);
    const settled = mine.catch(ignore("its caller gets the error; the next work does not depend on it"));
    this.#working.set(key, settled);
    try {
      return await mine;
    } finally {
      if (this.#working.get(key) === settled) this.#working.delete(key);
    }
  }
}

interface Use {
  readonly driver: CsiDriver;
  readonly spec: DriverSpec;
  /** The attachment's metadata. */
  readonly context: Readonly<Record<string, string>>;
}

interface PublishedUse {
  readonly data: VolumeData;
  readonly folder: string;
  readonly target: string;
  readonly isBlock: boolean;
}

interface StagedVolume {
  readonly data: VolumeData;
  readonly folder: string;
  readonly stagingPath: string;
  readonly isBlock: boolean;
}

const keyOf = ({ driver, handle }: { readonly driver: string; readonly handle: string }): string =>
  `${driver}^${handle}`;

const noDriver = (name: string): string => `driver name ${name} ${NOT_REGISTERED}`;

/** @returns whether the driver has answered that it did nothing, and does nothing more */
const isFinal = (error: unknown): boolean => error instanceof GrpcStatusError && !UNCERTAIN.has(error.status);

const printed = (error: unknown): string => (error instanceof GrpcStatusError ? error.printed : describeError(error));

const failed = (what: string, { specName }: { readonly specName: string }, why: string): PicoletError =>
  new PicoletError("unavailable", `${what} failed for volume ${JSON.stringify(specName)} : ${why}`, {
    reason: "FailedMount",
    retryable: true,
  });

const setUpFailed = (volume: CsiVolume, why: string): PicoletError =>
  failed("MountVolume.SetUp", volume, `kubernetes.io/csi: ${why}`);

/** Retryable, because a driver may be installed. */
function driverMissing(volume: CsiVolume): PicoletError {
  const why = noDriver(volume.driver);
  if (volume.lifecycle === "Ephemeral") return setUpFailed(volume, `mounter.SetUpAt failed to get CSI client: ${why}`);
  if (volume.mode === "Block")
    return failed(
      "MapVolume.SetUpDevice",
      volume,
      `kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: ${why}`,
    );
  const doing = "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient";
  return failed("MountVolume.MountDevice", volume, `${doing}: ${why}`);
}

const tearDownFailed = (volume: { readonly specName: string }, why: string): PicoletError =>
  failed("UnmountVolume.TearDown", volume, `kubernetes.io/csi: ${why}`);

const entries = (map: Readonly<Record<string, string>>): ReadonlyMap<string, string> => new Map(Object.entries(map));

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR") return [];
    throw error;
  }
}

/** Leaves a folder that has files: they may be a volume's. */
async function removeEmpty(path: string): Promise<void> {
  try {
    await rmdir(path);
  } catch (error) {
    if (errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTEMPTY" || errnoOf(error) === "ENOTDIR") return;
    throw error;
  }
}
