import { existsSync } from "node:fs";
import { chmod, chown, lstat, mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { type CgroupSettings, podCgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Pod, Volume } from "@picolet/protocol/pod/pod.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Mounter } from "../files/mounter.ts";
import type { PodPaths } from "../files/pod-paths.ts";
import type { VolumeServices, VolumeType } from "./volume-type.ts";

/** Every user can write to it, because containers of the pod may run as any. */
const EMPTY_DIR_MODE = 0o777;
const STICKY_MODE = 0o1000;
/** Files made in it belong to the pod's `fsGroup` too. */
const SET_GROUP_MODE = 0o2000;
const IS_ROOT = process.geteuid?.() === 0;
const HUGE_PAGES = "HugePages";
const FOLDER = "empty-dir";
/** Only its memory limit is asked for. */
const NO_SETTINGS: CgroupSettings = { cpuCFSQuota: false, cpuPeriodUs: 100_000, podPidsLimit: -1 };

/** Folders that live as long as their pod: on disk, in memory, in huge pages. */
export class EmptyDirs {
  readonly #paths: PodPaths;
  readonly #mounter: Mounter;
  readonly #log: Log;
  readonly #memoryBytes: number;
  #hasWarned = false;

  /** @param init `memoryBytes`: what one in memory may take when neither it nor its pod has a limit */
  constructor(
    components: { readonly paths: PodPaths; readonly mounter: Mounter; readonly log: Log },
    init: { readonly memoryBytes: number },
  ) {
    this.#paths = components.paths;
    this.#mounter = components.mounter;
    this.#log = components.log;
    this.#memoryBytes = init.memoryBytes;
  }

  /** Sets mode and owner once; the pod may change them afterwards. */
  async setUp({ uid, pod }: DesiredPod, volume: Volume, signal: AbortSignal): Promise<void> {
    const medium = volume.emptyDir?.medium ?? "";
    const pageSize = isHugePages(medium) ? hugePageSize(pod, medium) : undefined;
    if (pageSize === undefined && medium !== "" && medium !== "Memory")
      throw new PicoletError("invalid", `unknown storage medium ${JSON.stringify(medium)}`);
    const path = this.#paths.volume(uid, FOLDER, volume.name);
    const ready = this.#paths.emptyDirReady(uid, volume.name);
    const isNew = (await mkdir(path, { recursive: true, mode: 0o750 })) !== undefined || !existsSync(ready);
    // Volumes in memory are lost with the power.
    const wasMounted = medium === "" || (await isMounted(path));
    if (pageSize !== undefined) await this.#mountHugePages(path, pageSize, signal);
    else if (medium === "Memory") await this.#mountMemory(pod, volume, path, signal);
    if (!isNew && wasMounted) return;
    await open(path, pod.spec.securityContext.fsGroup);
    await mkdir(dirname(ready), { recursive: true, mode: 0o750 });
    await writeFile(ready, "");
  }

  /** Mounts a tmpfs for secret files, unless one is mounted. Logs a warning when this process may not mount. */
  async keepOffDisk(pod: Pod, path: string, signal: AbortSignal): Promise<void> {
    await this.#mountTmpfs(path, memorySize(pod, undefined, this.#memoryBytes), "secrets of pods", signal);
  }

  async #mountMemory(pod: Pod, volume: Volume, path: string, signal: AbortSignal): Promise<void> {
    const size = memorySize(pod, volume.emptyDir?.sizeLimit, this.#memoryBytes);
    await this.#mountTmpfs(path, size, "emptyDir volumes of medium Memory", signal);
  }

  async #mountTmpfs(path: string, size: number, what: string, signal: AbortSignal): Promise<void> {
    if (await isMounted(path)) return;
    if (this.#mounter.allowed) {
      await this.#mounter.mountTmpfs(path, size, signal);
      return;
    }
    if (!this.#hasWarned) this.#log.warn("this process may not mount: what belongs in memory is on disk", { what });
    this.#hasWarned = true;
  }

  async #mountHugePages(path: string, pageSize: string, signal: AbortSignal): Promise<void> {
    if (await isMounted(path)) return;
    const known = await readFile("/proc/filesystems", "utf8");
    if (!/^(nodev)?\thugetlbfs$/m.test(known))
      throw new PicoletError("unavailable", "this node's kernel has no huge pages (hugetlbfs)", { retryable: true });
    if (!this.#mounter.allowed) throw new PicoletError("permission_denied", "this process may not mount huge pages");
    await this.#mounter.mountHugePages(path, pageSize, signal);
  }
}

export const makeEmptyDirs = (services: VolumeServices): EmptyDirs => new EmptyDirs(services, services);

export const emptyDir: VolumeType = {
  folder: FOLDER,
  diskUse: ({ emptyDir: source }) => ((source?.medium ?? "") === "" ? { sizeLimit: source?.sizeLimit } : undefined),
  makeHandler: (services) => {
    const emptyDirs = services.once(makeEmptyDirs);
    return {
      plan: (pod, volume) => (signal) => emptyDirs.setUp(pod, volume, signal),
      locate: ({ uid }, { name }) => ({ path: services.paths.volume(uid, FOLDER, name), readOnly: false }),
    };
  },
};

/** A file system of its own was mounted before, by this process or the one before. */
async function isMounted(path: string): Promise<boolean> {
  const [own, parent] = [await stat(path), await stat(dirname(path))];
  return own.dev !== parent.dev;
}

async function open(path: string, fsGroup: number | undefined): Promise<void> {
  const stats = await lstat(path);
  if (!stats.isDirectory()) throw new PicoletError("conflict", `${path} is not a directory`);
  if (fsGroup !== undefined && IS_ROOT && stats.gid !== fsGroup) await chown(path, stats.uid, fsGroup);
  const mode = fsGroup !== undefined && IS_ROOT ? EMPTY_DIR_MODE | SET_GROUP_MODE : EMPTY_DIR_MODE;
  // A tmpfs has the sticky bit and keeps it, as with the kubelet.
  if ((stats.mode & mode) !== mode) await chmod(path, (stats.mode & STICKY_MODE) | mode);
}

/** The least of the volume's limit, the pod's, and what the node gives to pods, as the kubelet sizes it. */
function memorySize(pod: Pod, sizeLimit: string | undefined, nodeBytes: number): number {
  const limit = parseQuantity(sizeLimit ?? "0");
  const own = limit.ok ? Number(quantityValue(limit.quantity)) : 0;
  const ofPod = podCgroupValues(pod, NO_SETTINGS).memoryLimitBytes ?? 0;
  return Math.min(...[own, ofPod, nodeBytes].filter((bytes) => bytes > 0));
}

const isHugePages = (medium: string): boolean => medium === HUGE_PAGES || medium.startsWith(`${HUGE_PAGES}-`);

/**
 * `pagesize` of hugetlbfs: what the medium says, else what the pod asks for. @throws `invalid` with the kubelet's words
 */
function hugePageSize({ spec }: Pod, medium: string): string {
  const wanted = medium === HUGE_PAGES ? undefined : medium.slice(HUGE_PAGES.length + 1);
  const parts = [spec.resources, ...[...spec.containers, ...(spec.initContainers ?? [])].map((each) => each.resources)];
  const sizes = new Set<string>();
  for (const part of parts) {
    for (const name of Object.keys({ ...part?.limits, ...part?.requests })) {
      if (name.startsWith("hugepages-")) sizes.add(name.slice("hugepages-".length));
    }
  }
  const fitting = wanted === undefined ? [...sizes] : [...sizes].filter((size) => isSameSize(size, wanted));
  if (fitting.length > 1)
    throw new PicoletError("invalid", `medium: ${medium} can't be used if container requests multiple huge page sizes`);
  const [size] = fitting;
  if (size === undefined)
    throw new PicoletError(
      "invalid",
      `medium ${medium}: hugePages storage requested, but there is no resource request for huge pages`,
    );
  // The kernel writes 2M where Kubernetes writes 2Mi.
  return size.replace(/i$/, "");
}

function isSameSize(left: string, right: string): boolean {
  const [a, b] = [parseQuantity(left), parseQuantity(right)];
  return a.ok && b.ok && a.quantity.nano === b.quantity.nano;
}
