import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** NAME_MAX of Linux. */
const MAX_NAME_BYTES = 255;
/** The mode of a pod's and its containers' log folders. */
export const LOG_FOLDER_MODE = 0o755;

/** The folder in a pod's folder with the tokens that were issued last. */
export const TOKENS_FOLDER = "tokens";

/** The kubelet's paths of one pod; every part of a path is checked to be one name. */
export class PodPaths {
  readonly podsDir: string;
  readonly #podLogsDir: string;

  constructor(init: { readonly rootDir: string; readonly podLogsDir: string }) {
    this.podsDir = join(init.rootDir, "pods");
    this.#podLogsDir = init.podLogsDir;
  }

  get podLogsDir(): string {
    return this.#podLogsDir;
  }

  pod(uid: string): string {
    return join(this.podsDir, nameOf(uid, "uid"));
  }

  volumes(uid: string): string {
    return join(this.pod(uid), "volumes");
  }

  volume(uid: string, folder: string, volume: string): string {
    return join(this.volumes(uid), `kubernetes.io~${folder}`, nameOf(volume, "volume"));
  }

  /**
   * There when an emptyDir of that name has been made with all of its rights, which are the pod's business from then
   * on.
   */
  emptyDirReady(uid: string, volume: string): string {
    return join(this.pod(uid), "plugins", "kubernetes.io~empty-dir", nameOf(volume, "volume"), "ready");
  }

  /** All folders that hold nothing but volumes. */
  volumeFolders(uid: string): readonly string[] {
    const folder = this.pod(uid);
    return ["plugins", "volumes", "volume-subpaths", "volumeDevices", "persistent-volumes"].map((name) =>
      join(folder, name),
    );
  }

  /** The mount point of a local persistent volume for this pod. */
  localVolume(uid: string, persistentVolume: string): string {
    return join(this.localVolumes(uid), nameOf(persistentVolume, "volume"));
  }

  localVolumes(uid: string): string {
    return join(this.volumes(uid), "kubernetes.io~local-volume");
  }

  /** Links to the devices that this pod gets. */
  volumeDevice(uid: string, persistentVolume: string): string {
    return join(this.pod(uid), "volumeDevices", "kubernetes.io~local-volume", nameOf(persistentVolume, "volume"));
  }

  /** An empty file, as long as the pod may be using that persistent volume. */
  claim(uid: string, persistentVolume: string): string {
    return join(this.pod(uid), "persistent-volumes", nameOf(persistentVolume, "volume"));
  }

  /** Folder of the file systems of local volumes that are block devices, each mounted once for all pods. */
  get deviceMounts(): string {
    return join(this.podsDir, "..", "plugins", "kubernetes.io", "local-volume", "mounts");
  }

  /** The node's folder for volumes of CSI drivers. */
  get csiPlugins(): string {
    return join(this.podsDir, "..", "plugins", "kubernetes.io", "csi");
  }

  /** Volumes made of images, each mounted by the runtime. */
  images(uid: string): string {
    return join(this.volumes(uid), "kubernetes.io~image");
  }

  /** The mount point of a `subPath`, which a pod cannot exchange before the container has it. */
  subPath(uid: string, volume: string, container: string, index: number): string {
    const names = [nameOf(volume, "volume"), nameOf(container, "container"), String(index)];
    return join(this.pod(uid), "volume-subpaths", ...names);
  }

  etcHosts(uid: string): string {
    return join(this.pod(uid), "etc-hosts");
  }

  containers(uid: string): string {
    return join(this.pod(uid), "containers");
  }

  container(uid: string, container: string): string {
    return join(this.containers(uid), nameOf(container, "container"));
  }

  terminationLog(uid: string, container: string, attempt: number): string {
    return join(this.container(uid, container), terminationLogName(attempt));
  }

  /**
   * `<podLogsDir>/<namespace>_<name>_<uid>`. The longest names together are longer than a file's name can be; the
   * pod's is cut then.
   */
  logs(pod: DesiredPod): string {
    const { namespace, name } = pod.pod.metadata;
    const rest = Buffer.byteLength(`${namespace}__${pod.uid}`);
    const cut = Buffer.from(name)
      .subarray(0, Math.max(0, MAX_NAME_BYTES - rest))
      .toString();
    return join(this.#podLogsDir, nameOf(`${namespace}_${cut}_${pod.uid}`, "pod"));
  }
}

/** Each run has its own file, so that it never shows the message of the previous run. */
export const terminationLogName = (attempt: number): string => attempt.toString(16).padStart(8, "0");

/** @throws `invalid` for what is not one name in a folder */
export function nameOf(name: string, what: string): string {
  const isName = name !== "" && name !== "." && name !== ".." && !/[/\0]/.test(name);
  if (isName && Buffer.byteLength(name) <= MAX_NAME_BYTES) return name;
  throw new PicoletError(
    "invalid",
    `cannot use ${JSON.stringify(name.slice(0, MAX_NAME_BYTES))} as the name of a ${what}`,
  );
}
