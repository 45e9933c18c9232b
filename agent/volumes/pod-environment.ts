import { mkdir, realpath } from "node:fs/promises";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, ignore, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type Log, type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type {
  ContainerLaunch,
  DesiredPod,
  ObservedPod,
  RuntimeAdapter,
  SandboxLaunch,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../core/hub/cluster-objects.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import type { PodClaims } from "../core/pods/pod-claims.ts";
import type { ImageManager, PodEnvironment } from "../core/pods/pod-ports.ts";
import type { Sealer } from "../core/store/sealer.ts";
import type { EventRecorder } from "../core/store/store-ports.ts";
import { ContainerFiles, type ContainerRunId } from "./container-files.ts";
import { ContainerMounts } from "./container-mounts.ts";
import type { Mounter } from "./files/mounter.ts";
import { LOG_FOLDER_MODE, PodPaths } from "./files/pod-paths.ts";
import { removeTree } from "./files/remove-tree.ts";
import { podHostname } from "./network/hostname.ts";
import { type NodeDns, sandboxDns } from "./network/sandbox-dns.ts";
import { sweepOrphanedFolders } from "./orphaned-folders.ts";
import { type OrphanedLogsComponents, sweepOrphanedLogs } from "./orphaned-logs.ts";
import { findRuntimeHandler, runtimeHandler } from "./runtime-handler.ts";
import type { CsiOnDemand } from "./types/csi-on-demand.ts";
import { ImageVolumes } from "./types/image-volumes.ts";
import { PodVolumes } from "./types/pod-volumes.ts";
import { hasRefreshedVolumes } from "./types/volume-types.ts";
import { userNamespaceOf } from "./user-namespaces.ts";

/** The cgroups of pods, as `agent/resources` has them. */
export interface PodCgroupPort {
  /** "" when there are none here; known for sure after `ensure`. */
  pathOf(pod: DesiredPod): string;
  ensure(pod: DesiredPod): Promise<void>;
  remove(pod: DesiredPod, signal: AbortSignal): Promise<void>;
}

export interface PodEnvironmentComponents {
  readonly cgroups: PodCgroupPort;
  /** Devices by resource claims. Missing: `resourceClaims` of a pod mean nothing, as in tests. */
  readonly claims?: PodClaims;
  readonly mounter: Mounter;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
  /** Objects of the API server for the pods; `objectsChanged` fires when one may have changed. */
  readonly objects: ClusterObjects;
  readonly objectsChanged: Watch<unknown>;
  /** Encrypts tokens that are kept on disk; undefined: they are plain. */
  readonly sealer?: Sealer | undefined;
  /** The node's addresses now, its main one first. */
  readonly hostIPs: () => readonly string[];
  /** Labels of the node in the API server, for the affinity of persistent volumes. Missing: none. */
  readonly nodeLabels?: () => Readonly<Record<string, string>>;
  /**
   * @returns whether that handler of the pod's runtime makes mounts below a read-only mount read-only too. Missing: no
   */
  readonly recursiveReadOnly?: (pod: DesiredPod, runtimeHandler: string) => boolean;
}

export interface PodEnvironmentInit extends NodeDns {
  readonly rootDir: string;
  readonly podLogsDir: string;
  /** The node's allocatable by resource name: the limit of a container that has none of its own. */
  readonly allocatable: Readonly<Record<string, string>>;
  readonly memoryBytes: number;
}

/** Only root and its group can enter a pod's folder, which holds its volumes. */
const POD_FOLDER_MODE = 0o750;
/**
 * The files of pods on this node's disk, laid out as the kubelet does. `sandbox` and `container` answer at once:
 * they touch a handful of small files and, for a `subPath`, run mount(8).
 */
export class PodEnvironmentOnDisk implements PodEnvironment {
  /** @returns whether the pod's runtime makes mounts below a read-only mount read-only too */
  readonly recursiveReadOnly: (pod: DesiredPod) => boolean;
  readonly #cgroups: PodCgroupPort;
  readonly #claims: PodClaims | undefined;
  readonly #mounter: Mounter;
  readonly #events: EventRecorder;
  readonly #log: Log;
  readonly #hostIPs: () => readonly string[];
  readonly #init: PodEnvironmentInit;
  readonly #paths: PodPaths;
  readonly #objects: ClusterObjects;
  readonly #volumes: PodVolumes;
  readonly #files: ContainerFiles;
  #images: ImageVolumes | undefined;
  /** Orphaned pods whose folders could not be removed, with their folders of logs. */
  readonly #unswept = new Map<string, readonly string[]>();
  /** The work under way for each pod, cancelled work that has not ended yet included. */
  readonly #working = new Map<PodUid, Promise<void>>();

  constructor(components: PodEnvironmentComponents, init: PodEnvironmentInit) {
    const { mounter, log } = components;
    this.#cgroups = components.cgroups;
    this.#claims = components.claims;
    this.#mounter = mounter;
    this.#events = components.events;
    this.#log = log;
    this.#hostIPs = components.hostIPs;
    this.#init = init;
    this.#paths = new PodPaths(init);
    this.#objects = components.objects;
    const { nodeLabels = () => ({}), recursiveReadOnly = () => false } = components;
    const { nodeName, allocatable, clusterDNS } = init;
    const shared = { ...components, paths: this.#paths, nodeLabels, imageVolumes: () => this.#images };
    const sweepAgain = (signal: AbortSignal, onSwept: () => void): Promise<void> => this.#sweepAgain(signal, onSwept);
    this.#volumes = new PodVolumes(
      { ...shared, sweepAgain },
      { nodeName, allocatable, memoryBytes: memoryForPods(init) },
    );
    this.recursiveReadOnly = (pod) => {
      const handler = findRuntimeHandler(pod, this.#objects);
      return handler !== undefined && recursiveReadOnly(pod, handler);
    };
    const own = { volumes: this.#volumes, recursiveReadOnly: this.recursiveReadOnly };
    const mounts = new ContainerMounts({ ...shared, ...own });
    this.#files = new ContainerFiles(
      { ...shared, mounts },
      { nodeName, allocatable, clusterDomain: clusterDNS.domain },
    );
  }

  /**
   * Once, before the first pod: volumes made of images come with the images of the containers that mount them.
   * @returns what the workers get all images from
   */
  withImages(images: ImageManager, runtimes: readonly RuntimeAdapter[]): ImageManager {
    this.#images = new ImageVolumes({ images, runtimes, paths: this.#paths, events: this.#events });
    return this.#images;
  }

  /** Tasks of the volume types, such as the one that refreshes files made of objects of the API server. */
  get volumeTasks(): readonly Component[] {
    return this.#volumes.tasks;
  }

  /** Volumes of CSI drivers. */
  get csi(): CsiOnDemand {
    return this.#volumes.csi;
  }

  hasRefreshedVolumes({ pod }: DesiredPod): boolean {
    return hasRefreshedVolumes(pod);
  }

  prepare(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    return this.#alone(pod.uid, () => this.#prepare(pod, signal));
  }

  async #prepare(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw cancelled(`prepare pod ${pod.uid}`);
    this.#unswept.delete(pod.uid);
    try {
      await mkdir(this.#paths.volumes(pod.uid), { recursive: true, mode: POD_FOLDER_MODE });
      await mkdir(this.#paths.logs(pod), { recursive: true, mode: LOG_FOLDER_MODE });
    } catch (error) {
      throw failedMount("cannot make the pod's folders", error);
    }
    await this.#cgroups.ensure(pod);
    await this.#volumes.setUp(pod, signal);
    await this.#claims?.prepare(pod, signal);
  }

  sandbox(pod: DesiredPod, attempt: number): SandboxLaunch {
    const userNamespace =
      pod.pod.spec.hostUsers === false ? { userNamespace: userNamespaceOf(pod.uid, this.#paths) } : {};
    return {
      attempt,
      logDirectory: this.#paths.logs(pod),
      cgroupParent: this.#cgroups.pathOf(pod),
      hostname:
        pod.pod.spec.hostNetwork === true ? "" : podHostname(pod.pod, this.#init.clusterDNS.domain).kernelHostname,
      dns: sandboxDns(pod, this.#init, this.#hostIPs(), this.#events),
      runtimeHandler: runtimeHandler(pod, this.#objects),
      ...userNamespace,
      ...this.#extraGroups(pod),
    };
  }

  container(pod: DesiredPod, container: Container, run: ContainerRunId, observed: ObservedPod): ContainerLaunch {
    return { ...this.#files.launch(pod, container, run, observed), ...this.#extraGroups(pod) };
  }

  #extraGroups(pod: DesiredPod): { readonly extraGroups?: readonly number[] } {
    const extraGroups = this.#volumes.extraGroups(pod);
    return extraGroups.length === 0 ? {} : { extraGroups };
  }

  /**
   * `message` of a run that has ended: what it wrote to its termination message path, at most 4096 bytes; else, with
   * the policy FallbackToLogsOnError and after a failure, the end of its log, at most 2048 bytes.
   * @param exitCode not given: the log is not asked
   */
  readTerminationMessage(pod: DesiredPod, container: Container, attempt: number, exitCode = 0): string {
    return this.#files.readTerminationMessage(pod, container, attempt, exitCode);
  }

  /**
   * Removes cgroup and volumes of an ended pod, as the kubelet does; its logs and termination messages stay. A pod that
   * runs after all is prepared again.
   */
  release(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    return this.#alone(pod.uid, () => this.#release(pod, signal));
  }

  async #release(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    const { uid } = pod;
    await this.#cgroups.remove(pod, signal);
    await this.#volumes.forget(uid, signal);
    for (const folder of this.#paths.volumeFolders(uid)) await this.#remove(folder, [], signal);
    await this.#volumes.collect(signal);
  }

  holdsClaims({ uid, pod }: DesiredPod): boolean {
    return pod.spec.resourceClaims !== undefined && this.#claims?.holds(uid) === true;
  }

  releaseClaims({ uid }: DesiredPod, signal: AbortSignal): Promise<void> {
    return this.#alone(uid, async () => this.#claims?.release(uid, signal));
  }

  cleanup(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    return this.#alone(pod.uid, () => this.#cleanup(pod, signal));
  }

  /**
   * Serializes the work for a pod. A worker whose pod is removed does not wait for its own earlier work, and files that
   * this work made after the cleanup would stay for ever.
   */
  async #alone(uid: PodUid, work: () => Promise<void>): Promise<void> {
    const before = this.#working.get(uid);
    const mine = before === undefined ? work() : before.then(work);
    const settled = mine.catch(ignore("its caller gets the error; later work only waits for the end"));
    this.#working.set(uid, settled);
    try {
      await mine;
    } finally {
      if (this.#working.get(uid) === settled) this.#working.delete(uid);
    }
  }

  async #cleanup(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    await this.#claims?.release(pod.uid, signal);
    await this.#cgroups.remove(pod, signal);
    await this.#volumes.forget(pod.uid, signal);
    // The pod's own folder is removed last: while it exists, the sweep of a later start finds the rest.
    await this.#remove(this.#paths.pod(pod.uid), [this.#paths.logs(pod)], signal);
    await this.#volumes.collect(signal);
  }

  /**
   * Removes the folders of unknown pods; called at the start.
   * @param known every uid that a store or a runtime knows
   * @returns the uids of the pods removed
   */
  async sweep(known: Pick<ReadonlySet<string>, "has">, signal: AbortSignal): Promise<readonly string[]> {
    const remove = async (uid: string, logs: readonly string[], stop: AbortSignal): Promise<void> => {
      this.#unswept.set(uid, logs);
      await this.#volumes.forget(podUid(uid), stop);
      await this.#remove(this.#paths.pod(uid), logs, stop);
      this.#unswept.delete(uid);
    };
    const removed = await sweepOrphanedFolders({ paths: this.#paths, log: this.#log, remove }, known, signal);
    await this.#volumes.collect(signal);
    await this.#claims?.sweep(known, signal);
    return removed;
  }

  /** A driver that the sweep missed may be there now. */
  async #sweepAgain(signal: AbortSignal, onSwept: () => void): Promise<void> {
    const sweepPod = async (uid: string, logs: readonly string[]): Promise<void> => {
      const remove = async (): Promise<void> => {
        // The pod may have come back meanwhile.
        if (!this.#unswept.has(uid)) return;
        await this.#volumes.forget(podUid(uid), signal);
        await this.#remove(this.#paths.pod(uid), logs, signal);
        this.#unswept.delete(uid);
        onSwept();
      };
      try {
        await this.#alone(podUid(uid), remove);
      } catch (error) {
        if (isCancelled(error)) throw error;
        this.#log.warn("cannot remove the folder of an orphaned pod", { pod: uid, error: describeError(error) });
      }
    };
    // A driver that hangs delays no other pod.
    await Promise.all([...this.#unswept].map(([uid, logs]) => sweepPod(uid, logs)));
  }

  /** Removes logs of unknown pods that have nothing else here. @returns their uids */
  async sweepLogs(
    others: Pick<OrphanedLogsComponents, "adapters" | "clock">,
    known: Pick<ReadonlySet<string>, "has">,
    signal: AbortSignal,
  ): Promise<readonly string[]> {
    const components = { ...others, mounter: this.#mounter, log: this.#log };
    return await sweepOrphanedLogs(components, this.#paths.podLogsDir, known, signal);
  }

  async #remove(podFolder: string, logFolders: readonly string[], signal: AbortSignal): Promise<void> {
    const mounts = (folder: string): readonly string[] => this.#mounter.mountPointsWithin(folder);
    const canonical = await realpath(podFolder).catch((error: unknown) => {
      if (errnoOf(error) === "ENOENT") return undefined;
      throw new PicoletError("failed", `cannot read ${podFolder}`, { cause: error, retryable: true });
    });
    const mounted = canonical === undefined ? [] : mounts(canonical);
    if (mounted.length > 0) await this.#mounter.unmount(mounted, signal);
    for (const folder of logFolders) await removeTree(folder, mounts, signal);
    await removeTree(podFolder, mounts, signal);
  }
}

function memoryForPods({ memoryBytes, allocatable }: PodEnvironmentInit): number {
  const memory = parseQuantity(allocatable.memory ?? "");
  return memory.ok ? Math.min(memoryBytes, Number(quantityValue(memory.quantity))) : memoryBytes;
}

function failedMount(message: string, cause: unknown): PicoletError {
  if (isPicoletError(cause)) return cause;
  const code = errnoOf(cause) === "ENOSPC" ? "resource_exhausted" : "failed";
  return new PicoletError(code, message, { cause, reason: "FailedMount", retryable: true });
}
