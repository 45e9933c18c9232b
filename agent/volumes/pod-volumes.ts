import type { Stats } from "node:fs";
import { chmod, chown, type FileHandle, lstat, mkdir, open, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { type CgroupSettings, podCgroupValues } from "../../protocol/cgroup-values.ts";
import { describeError, isCancelled, PicoletError } from "../../protocol/errors.ts";
import type { HostPathType, Pod, Volume } from "../../protocol/pod.ts";
import type { Log } from "../../protocol/ports.ts";
import { parseQuantity, quantityValue } from "../../protocol/quantity.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { errorCode } from "../core/error-code.ts";
import type { Mounter } from "./mounter.ts";
import type { PayloadVolumes } from "./payload-volumes.ts";
import type { PodPaths } from "./pod-paths.ts";
import { isPayloadVolume } from "./volume-payload.ts";

/** Every user of the pod may write to it, whoever the container runs as. */
const EMPTY_DIR_MODE = 0o777;
/** Files made in it belong to the pod's `fsGroup` too. */
const SET_GROUP_MODE = 0o2000;
const IS_ROOT = process.geteuid?.() === 0;

/** Volumes as folders of this node. */
export class PodVolumes {
  readonly #paths: PodPaths;
  readonly #mounter: Mounter;
  readonly #payloads: PayloadVolumes;
  readonly #log: Log;
  readonly #memoryBytes: number;
  #saidNoTmpfs = false;

  /** @param init `memoryBytes`: what a volume in memory may take when neither it nor its pod has a limit */
  constructor(
    components: {
      readonly paths: PodPaths;
      readonly mounter: Mounter;
      readonly payloads: PayloadVolumes;
      readonly log: Log;
    },
    init: { readonly memoryBytes: number },
  ) {
    this.#paths = components.paths;
    this.#mounter = components.mounter;
    this.#payloads = components.payloads;
    this.#log = components.log;
    this.#memoryBytes = init.memoryBytes;
  }

  /**
   * Makes every volume that a container mounts; others are left alone, as the kubelet does.
   * @throws PicoletError with the reason `FailedMount` that names all that failed
   */
  async setUp(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    const failures: PicoletError[] = [];
    for (const volume of mountedVolumes(pod.pod)) {
      try {
        await this.#setUpOne(pod, volume, signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        const retryable = !(error instanceof PicoletError) || error.retryable;
        const text = `MountVolume.SetUp failed for volume ${JSON.stringify(volume.name)} : ${describeError(error)}`;
        failures.push(new PicoletError(retryable ? "unavailable" : "invalid", text, { retryable }));
      }
    }
    const [first] = failures;
    if (first === undefined) return;
    const message = failures.map((failure) => failure.message).join("; ");
    const retryable = failures.every((failure) => failure.retryable);
    throw new PicoletError(first.code, message, { reason: "FailedMount", retryable });
  }

  /** Where a volume that was set up is. `undefined` when the pod has none of that name. */
  locate(pod: DesiredPod, name: string): { readonly path: string; readonly readOnly: boolean } | undefined {
    const volume = pod.pod.spec.volumes?.find((each) => each.name === name);
    if (volume === undefined) return undefined;
    if (volume.hostPath !== undefined) return { path: volume.hostPath.path, readOnly: false };
    if (isPayloadVolume(volume)) return { path: this.#payloads.locate(pod, volume), readOnly: true };
    return { path: this.#paths.volume(pod.uid, "empty-dir", name), readOnly: false };
  }

  async #setUpOne(pod: DesiredPod, volume: Volume, signal: AbortSignal): Promise<void> {
    if (isPayloadVolume(volume)) return this.#payloads.setUp(pod, volume, signal);
    const kind = kindOf(volume);
    switch (kind) {
      case "emptyDir":
        return this.#setUpEmptyDir(pod, volume, signal);
      case "hostPath":
        return checkHostPath(volume.hostPath?.path ?? "", volume.hostPath?.type ?? "");
      default:
        throw new PicoletError("invalid", `volumes of type ${kind} are not supported by this version of picolet`);
    }
  }

  async #setUpEmptyDir(pod: DesiredPod, volume: Volume, signal: AbortSignal): Promise<void> {
    const medium = volume.emptyDir?.medium ?? "";
    if (medium !== "" && medium !== "Memory")
      throw new PicoletError(
        "invalid",
        `emptyDir volumes of medium ${medium} are not supported by this version of picolet`,
      );
    const path = this.#paths.volume(pod.uid, "empty-dir", volume.name);
    await mkdir(path, { recursive: true, mode: 0o750 });
    if (medium === "Memory") await this.#mountMemory(pod.pod, volume, path, signal);
    const { fsGroup } = pod.pod.spec.securityContext;
    const stats = await lstat(path);
    if (!stats.isDirectory()) throw new PicoletError("conflict", `${path} is not a directory`);
    if (fsGroup !== undefined && IS_ROOT && stats.gid !== fsGroup) await chown(path, stats.uid, fsGroup);
    const mode = fsGroup !== undefined && IS_ROOT ? EMPTY_DIR_MODE | SET_GROUP_MODE : EMPTY_DIR_MODE;
    if ((stats.mode & mode) !== mode) await chmod(path, mode);
  }

  async #mountMemory(pod: Pod, volume: Volume, path: string, signal: AbortSignal): Promise<void> {
    // A tmpfs is a file system of its own: mounted before, by this process or the one before.
    const [own, parent] = [await stat(path), await stat(dirname(path))];
    if (own.dev !== parent.dev) return;
    if (!this.#mounter.allowed) {
      if (!this.#saidNoTmpfs)
        this.#log.warn("this process may not mount: emptyDir volumes of medium Memory are folders on disk");
      this.#saidNoTmpfs = true;
      return;
    }
    await this.#mounter.mountTmpfs(path, this.#memorySize(pod, volume), signal);
  }

  /** The least of the volume's limit, the pod's and the node's memory, as the kubelet sizes it. */
  #memorySize(pod: Pod, volume: Volume): number {
    const limit = parseQuantity(volume.emptyDir?.sizeLimit ?? "0");
    const own = limit.ok ? Number(quantityValue(limit.quantity)) : 0;
    const ofPod = podCgroupValues(pod, NO_SETTINGS).memoryLimitBytes ?? 0;
    return Math.min(...[own, ofPod, this.#memoryBytes].filter((bytes) => bytes > 0));
  }
}

/** Only its memory limit is asked for. */
const NO_SETTINGS: CgroupSettings = { cpuCFSQuota: false, cpuPeriodUs: 100_000, podPidsLimit: -1 };

function mountedVolumes(pod: Pod): readonly Volume[] {
  const { containers, initContainers = [], ephemeralContainers = [], volumes = [] } = pod.spec;
  const used = new Set<string>();
  for (const container of [...initContainers, ...containers, ...ephemeralContainers]) {
    for (const { name } of container.volumeMounts ?? []) used.add(name);
    for (const { name } of container.volumeDevices ?? []) used.add(name);
  }
  return volumes.filter((volume) => used.has(volume.name));
}

const KINDS = ["emptyDir", "hostPath"] as const;

/** The field that is set beside the name; a volume with no source is an emptyDir. */
function kindOf(volume: Volume): string {
  const known = KINDS.find((kind) => volume[kind] !== undefined);
  if (known !== undefined) return known;
  const source = Object.entries(volume).find(([field, value]) => field !== "name" && value !== undefined);
  return source?.[0] ?? "emptyDir";
}

const HOST_PATH_CHECKS: Readonly<Record<string, { readonly what: string; readonly is: (stats: Stats) => boolean }>> = {
  Directory: { what: "a directory", is: (stats) => stats.isDirectory() },
  DirectoryOrCreate: { what: "a directory", is: (stats) => stats.isDirectory() },
  File: { what: "a file", is: (stats) => stats.isFile() },
  FileOrCreate: { what: "a file", is: (stats) => stats.isFile() },
  Socket: { what: "a socket file", is: (stats) => stats.isSocket() },
  CharDevice: { what: "a character device", is: (stats) => stats.isCharacterDevice() },
  BlockDevice: { what: "a block device", is: (stats) => stats.isBlockDevice() },
};

/** With the kubelet's words. Links are followed: the path is the administrator's. */
async function checkHostPath(path: string, type: HostPathType): Promise<void> {
  const check = HOST_PATH_CHECKS[type];
  if (check === undefined) return;
  let stats = await stat(path).catch(unlessMissing);
  if (stats === undefined && type.endsWith("OrCreate")) {
    await createHostPath(path, type);
    stats = await stat(path);
  }
  // It may come into being, so it is tried again.
  if (stats === undefined || !check.is(stats))
    throw new PicoletError("unavailable", `hostPath type check failed: ${path} is not ${check.what}`, {
      retryable: true,
    });
}

async function createHostPath(path: string, type: HostPathType): Promise<void> {
  if (type === "DirectoryOrCreate") {
    await mkdir(path, { recursive: true, mode: 0o755 });
    return;
  }
  const handle: FileHandle = await open(path, "a", 0o644);
  await handle.close();
}

function unlessMissing(error: unknown): undefined {
  if (errorCode(error) === "ENOENT" || errorCode(error) === "ENOTDIR") return undefined;
  throw error;
}
