import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { mkdir, readdir, realpath } from "node:fs/promises";
import { join } from "node:path";
import { cancelled } from "../../protocol/async/abort.ts";
import type { Component } from "../../protocol/async/component.ts";
import type { Watch } from "../../protocol/async/watch.ts";
import { containerHash } from "../../protocol/container-hash.ts";
import { describeError, isCancelled, isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { Container, Pod } from "../../protocol/pod.ts";
import type { Clock, Log, Millis, PodUid } from "../../protocol/ports.ts";
import { parseQuantity, quantityValue } from "../../protocol/quantity.ts";
import type {
  ContainerLaunch,
  DesiredPod,
  DnsConfig,
  Mount,
  ObservedPod,
  ResolvedImage,
  RuntimeAdapter,
  SandboxLaunch,
} from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { ClusterObjects } from "../core/cluster-objects.ts";
import { errorCode } from "../core/error-code.ts";
import type { ImageManager, PodEnvironment } from "../core/pod-ports.ts";
import { type EventRecorder, nodeReference } from "../core/store.ts";
import { ClaimVolumes } from "./claim-volumes.ts";
import { containerEnv } from "./container-env.ts";
import { ContainerMounts } from "./container-mounts.ts";
import { EmptyDirs } from "./empty-dirs.ts";
import { expandReferences } from "./expand.ts";
import { type PodHostname, podHostname } from "./hostname.ts";
import { nodeHostsFile, podHostsFile } from "./hosts-file.ts";
import { ImageVolumes } from "./image-volumes.ts";
import type { Mounter } from "./mounter.ts";
import { type OrphanedLogsComponents, sweepOrphanedLogs } from "./orphaned-logs.ts";
import { PayloadVolumes } from "./payload-volumes.ts";
import { type ClusterDns, parseResolvConf, podDns } from "./pod-dns.ts";
import { PodPaths } from "./pod-paths.ts";
import { PodVolumes } from "./pod-volumes.ts";
import { warnOfPod } from "./pod-warning.ts";
import { removeTree } from "./remove-tree.ts";
import { knownHandler, runtimeHandler } from "./runtime-handler.ts";
import { makeTerminationLog, readLogTail, readTerminationLog } from "./termination-message.ts";
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
  readonly mounter: Mounter;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly log: Log;
  /** What the API server gives the pods, and what fires when it may have changed. */
  readonly objects: ClusterObjects;
  readonly objectsChanged: Watch<unknown>;
  /** The node's addresses now, its main one first. */
  readonly hostIPs: () => readonly string[];
  /** Of the node as the API server has them, for persistent volumes. Missing: none. */
  readonly nodeLabels?: () => Readonly<Record<string, string>>;
  /** Whether that handler of the pod's runtime can make what lies below a read-only mount read-only too. Missing: none. */
  readonly recursiveReadOnly?: (pod: DesiredPod, runtimeHandler: string) => boolean;
}

export interface PodEnvironmentInit {
  readonly rootDir: string;
  readonly podLogsDir: string;
  readonly nodeName: string;
  /** Path of the node's resolver configuration; "" for none. */
  readonly resolvConf: string;
  readonly clusterDNS: ClusterDns;
  /** By resource name; what a container without a limit can have. */
  readonly allocatable: Readonly<Record<string, string>>;
  readonly memoryBytes: number;
}

interface Run {
  readonly attempt: number;
  readonly backoff: Millis;
  readonly image: ResolvedImage;
}

const NODE_HOSTS_PATH = "/etc/hosts";
/** Folders of pods hold volumes that are nobody else's business. */
const POD_FOLDER_MODE = 0o750;
const LOG_FOLDER_MODE = 0o755;
/** Pod folders and log folders that one sweep looks at; a node has 110 pods. Others wait for the next start. */
const MAX_SWEPT = 10_000;

/**
 * What is on this node's disk for a pod, laid out as the kubelet does. `sandbox` and `container` answer at once:
 * they touch a handful of small files and, for a `subPath`, run mount(8).
 */
export class PodEnvironmentOnDisk implements PodEnvironment {
  /** Whether the runtime of that pod makes a mount read-only with all that is mounted below it. */
  readonly recursiveReadOnly: (pod: DesiredPod) => boolean;
  readonly #cgroups: PodCgroupPort;
  readonly #mounter: Mounter;
  readonly #events: EventRecorder;
  readonly #log: Log;
  readonly #hostIPs: () => readonly string[];
  readonly #init: PodEnvironmentInit;
  readonly #paths: PodPaths;
  readonly #objects: ClusterObjects;
  readonly #payloads: PayloadVolumes;
  readonly #claims: ClaimVolumes;
  readonly #volumes: PodVolumes;
  readonly #mounts: ContainerMounts;
  #images: ImageVolumes | undefined;
  /** What is being made or taken away of a pod now, or was told to stop and has not yet. */
  readonly #working = new Map<PodUid, Promise<void>>();

  constructor(components: PodEnvironmentComponents, init: PodEnvironmentInit) {
    const { mounter, log } = components;
    this.#cgroups = components.cgroups;
    this.#mounter = mounter;
    this.#events = components.events;
    this.#log = log;
    this.#hostIPs = components.hostIPs;
    this.#init = init;
    this.#paths = new PodPaths(init);
    this.#objects = components.objects;
    const emptyDirs = new EmptyDirs({ paths: this.#paths, mounter, log }, { memoryBytes: memoryForPods(init) });
    const { nodeLabels = () => ({}), recursiveReadOnly = () => false } = components;
    const shared = { ...components, paths: this.#paths, emptyDirs, nodeLabels };
    this.#payloads = new PayloadVolumes(shared, init);
    this.#claims = new ClaimVolumes(shared, init);
    this.#volumes = new PodVolumes({ ...shared, payloads: this.#payloads, claims: this.#claims });
    this.recursiveReadOnly = (pod) => {
      const handler = knownHandler(pod, this.#objects);
      return handler !== undefined && recursiveReadOnly(pod, handler);
    };
    const images = (uid: PodUid, volume: string) => this.#images?.byRuntime(uid, volume);
    this.#mounts = new ContainerMounts({
      ...shared,
      volumes: this.#volumes,
      images,
      recursiveReadOnly: this.recursiveReadOnly,
    });
  }

  /**
   * Once, before the first pod: volumes made of images come with the images of the containers that mount them.
   * @returns what the workers get all images from
   */
  withImages(images: ImageManager, runtimes: readonly RuntimeAdapter[]): ImageManager {
    this.#images = new ImageVolumes({ images, runtimes, paths: this.#paths, events: this.#events });
    return this.#images;
  }

  /** Keeps what the API server gives the pods up to date while they run. */
  get projected(): Component {
    return this.#payloads;
  }

  prepare(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    return this.#alone(pod.uid, () => this.#prepare(pod, signal));
  }

  async #prepare(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw cancelled(`prepare pod ${pod.uid}`);
    try {
      await mkdir(this.#paths.volumes(pod.uid), { recursive: true, mode: POD_FOLDER_MODE });
      await mkdir(this.#paths.logs(pod), { recursive: true, mode: LOG_FOLDER_MODE });
    } catch (error) {
      throw failedMount("cannot make the pod's folders", error);
    }
    await this.#cgroups.ensure(pod);
    await this.#volumes.setUp(pod, signal);
  }

  sandbox(pod: DesiredPod, attempt: number): SandboxLaunch {
    const userNamespace =
      pod.pod.spec.hostUsers === false ? { userNamespace: userNamespaceOf(pod.uid, this.#paths) } : {};
    return {
      attempt,
      logDirectory: this.#paths.logs(pod),
      cgroupParent: this.#cgroups.pathOf(pod),
      hostname: pod.pod.spec.hostNetwork === true ? "" : this.#hostname(pod.pod).kernelHostname,
      dns: this.#dns(pod),
      runtimeHandler: runtimeHandler(pod, this.#objects),
      ...userNamespace,
    };
  }

  container(pod: DesiredPod, container: Container, run: Run, observed: ObservedPod): ContainerLaunch {
    try {
      return this.#container(pod, container, run, observed);
    } catch (error) {
      if (isPicoletError(error)) throw error;
      throw new PicoletError("failed", `cannot make the files of container ${container.name}`, {
        cause: error,
        reason: "CreateContainerConfigError",
        retryable: true,
      });
    }
  }

  /**
   * `message` of a run that has ended: what it wrote to its termination message path, at most 4096 bytes; else, with
   * the policy FallbackToLogsOnError and after a failure, the end of its log, at most 2048 bytes.
   * @param exitCode not given: the log is not asked
   */
  readTerminationMessage(pod: DesiredPod, container: Container, attempt: number, exitCode = 0): string {
    const { name, terminationMessagePolicy } = container;
    const message = readTerminationLog(this.#paths.container(pod.uid, name), attempt);
    const wantsLog = terminationMessagePolicy === "FallbackToLogsOnError" && exitCode !== 0;
    return message === "" && wantsLog ? readLogTail(join(this.#paths.logs(pod), logPathOf(name, attempt))) : message;
  }

  /**
   * Takes cgroup and volumes of a pod away of which nothing runs or will run any more, as the kubelet does; its logs and last
   * words stay. One that is to run after all is prepared anew.
   */
  release(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    return this.#alone(pod.uid, () => this.#release(pod, signal));
  }

  async #release(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    const { uid } = pod;
    await this.#cgroups.remove(pod, signal);
    await this.#payloads.forget(uid);
    await this.#images?.forget(uid, signal);
    for (const folder of this.#paths.volumeFolders(uid)) await this.#remove(folder, [], signal);
    this.#volumes.forget(uid);
    await this.#claims.release(signal);
  }

  cleanup(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    return this.#alone(pod.uid, () => this.#cleanup(pod, signal));
  }

  /**
   * One after another: a worker whose pod is to go leaves what it was doing behind, and what that still made after the
   * cleanup would stay for ever.
   */
  async #alone(uid: PodUid, work: () => Promise<void>): Promise<void> {
    const before = this.#working.get(uid);
    const mine = before === undefined ? work() : before.then(work);
    const settled = mine.catch(() => undefined);
    this.#working.set(uid, settled);
    try {
      await mine;
    } finally {
      if (this.#working.get(uid) === settled) this.#working.delete(uid);
    }
  }

  async #cleanup(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    await this.#cgroups.remove(pod, signal);
    await this.#payloads.forget(pod.uid);
    await this.#images?.forget(pod.uid, signal);
    // The pod's own folder goes last: as long as it is there, the sweep of a later start finds what is left.
    await this.#remove(this.#paths.pod(pod.uid), [this.#paths.logs(pod)], signal);
    this.#volumes.forget(pod.uid);
    await this.#claims.release(signal);
  }

  /**
   * At start: removes folders of pods that nobody knows any more.
   * @param known every uid that a store or a runtime knows
   * @returns the uids of the pods removed
   */
  async sweep(known: Pick<ReadonlySet<string>, "has">, signal: AbortSignal): Promise<readonly string[]> {
    const orphans = (await foldersIn(this.#paths.podsDir)).filter((uid) => !known.has(uid));
    if (orphans.length === 0) {
      await this.#claims.release(signal);
      return [];
    }
    const logs = await foldersIn(this.#paths.podLogsDir);
    const removed: string[] = [];
    for (const uid of orphans) {
      const own = logs.filter((name) => name.endsWith(`_${uid}`)).map((name) => join(this.#paths.podLogsDir, name));
      try {
        await this.#images?.release(uid, signal);
        await this.#remove(this.#paths.pod(uid), own, signal);
        removed.push(uid);
      } catch (error) {
        if (isCancelled(error)) throw error;
        this.#log.warn("cannot remove the folder of an orphaned pod", { pod: uid, error: describeError(error) });
      }
    }
    await this.#claims.release(signal);
    return removed;
  }

  /** The logs of pods that nobody knows and that have nothing else here. @returns their uids */
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
      if (errorCode(error) === "ENOENT") return undefined;
      throw new PicoletError("failed", `cannot look at ${podFolder}`, { cause: error, retryable: true });
    });
    const mounted = canonical === undefined ? [] : mounts(canonical);
    if (mounted.length > 0) await this.#mounter.unmount(mounted, signal);
    for (const folder of logFolders) await removeTree(folder, mounts, signal);
    await removeTree(podFolder, mounts, signal);
  }

  #container(pod: DesiredPod, container: Container, run: Run, observed: ObservedPod): ContainerLaunch {
    const { attempt, backoff, image } = run;
    const hostIPs = this.#hostIPs();
    const podIPs = pod.pod.spec.hostNetwork === true ? hostIPs : (observed.sandboxes[0]?.ips ?? []);
    const { nodeName, allocatable } = this.#init;
    const env = containerEnv(container, { pod, nodeName, hostIPs, podIPs, allocatable, objects: this.#objects });
    const values = new Map(env.map(({ name, value }) => [name, value]));
    const lookup = (name: string): string | undefined => values.get(name);
    const expand = (text: string): string => expandReferences(text, lookup);
    mkdirSync(join(this.#paths.logs(pod), container.name), { recursive: true, mode: LOG_FOLDER_MODE });
    const devices = this.#mounts.devices(pod, container);
    const mounts: Mount[] = [...this.#mounts.ofVolumes(pod, container, lookup)];
    const hosts = this.#hostsMount(pod, container, podIPs);
    if (hosts !== undefined) mounts.push(hosts);
    mounts.push(this.#terminationMount(pod, container, attempt, observed));
    return {
      name: container.name,
      attempt,
      hash: containerHash(container),
      backoff,
      image,
      command: (container.command ?? []).map(expand),
      args: (container.args ?? []).map(expand),
      env,
      workingDir: container.workingDir ?? "",
      mounts,
      ...(devices.length === 0 ? {} : { devices }),
      logPath: logPathOf(container.name, attempt),
    };
  }

  /** Not before the pod has an address, nor where a volume is mounted there. With the host's network a copy of the node's. */
  #hostsMount(pod: DesiredPod, container: Container, podIPs: readonly string[]): Mount | undefined {
    const { hostNetwork } = pod.pod.spec;
    const isMounted = container.volumeMounts?.some((mount) => mount.mountPath === NODE_HOSTS_PATH) === true;
    const isWanted = hostNetwork === true || podIPs.length > 0;
    if (isMounted || !isWanted) return undefined;
    const content =
      hostNetwork === true
        ? nodeHostsFile(pod.pod, readFileSync(NODE_HOSTS_PATH, "utf8"))
        : podHostsFile(pod.pod, podIPs, this.#hostname(pod.pod));
    const hostPath = this.#paths.etcHosts(pod.uid);
    // In place, because running containers have this very file mounted; and not at all when it says so already.
    if (!holds(hostPath, content)) {
      writeFileSync(hostPath, content);
      chmodSync(hostPath, 0o644);
    }
    return { containerPath: NODE_HOSTS_PATH, hostPath, readOnly: false, propagation: "private" };
  }

  #terminationMount(pod: DesiredPod, container: Container, attempt: number, observed: ObservedPod): Mount {
    const folder = this.#paths.container(pod.uid, container.name);
    const begun = observed.containers.some((each) => each.name === container.name && each.attempt === attempt);
    const hostPath = makeTerminationLog(folder, attempt, begun);
    return { containerPath: container.terminationMessagePath, hostPath, readOnly: false, propagation: "private" };
  }

  #hostname(pod: Pod): PodHostname {
    return podHostname(pod, this.#init.clusterDNS.domain);
  }

  #dns(pod: DesiredPod): DnsConfig | undefined {
    const { resolvConf, clusterDNS, nodeName } = this.#init;
    let host: DnsConfig | undefined;
    try {
      host = resolvConf === "" ? undefined : parseResolvConf(readFileSync(resolvConf, "utf8"));
    } catch (error) {
      warnOfPod(this.#events, pod, "DNSConfigForming", `cannot read ${resolvConf}: ${describeError(error)}`);
      host = { servers: [], searches: [], options: [] };
    }
    const { dns, warnings, missingClusterDns } = podDns(pod.pod, host, clusterDNS, this.#hostIPs());
    for (const warning of warnings) warnOfPod(this.#events, pod, "DNSConfigForming", warning);
    // Of the node and not of each pod: ClusterFirst is what a pod gets that asks for nothing.
    if (missingClusterDns)
      this.#events.record({
        regarding: nodeReference(nodeName),
        type: "Warning",
        reason: "MissingClusterDNS",
        message: `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`,
      });
    const isEmpty = dns.servers.length === 0 && dns.searches.length === 0 && dns.options.length === 0;
    // With nothing to say the runtime's own way of making the file is the better one.
    return isEmpty && pod.pod.spec.dnsPolicy !== "None" ? undefined : dns;
  }
}

function memoryForPods({ memoryBytes, allocatable }: PodEnvironmentInit): number {
  const memory = parseQuantity(allocatable.memory ?? "");
  return memory.ok ? Math.min(memoryBytes, Number(quantityValue(memory.quantity))) : memoryBytes;
}

/** Relative to the pod's log folder. */
const logPathOf = (container: string, attempt: number): string => `${container}/${attempt}.log`;

function failedMount(message: string, cause: unknown): PicoletError {
  if (isPicoletError(cause)) return cause;
  const code = errorCode(cause) === "ENOSPC" ? "resource_exhausted" : "failed";
  return new PicoletError(code, message, { cause, reason: "FailedMount", retryable: true });
}

/** Names of the folders in `folder`, links not among them; none when it is not there. */
async function foldersIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error: unknown) => {
    if (errorCode(error) === "ENOENT") return [];
    throw new PicoletError("failed", `cannot list ${folder}`, { cause: error, retryable: true });
  });
  return entries
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .slice(0, MAX_SWEPT);
}

/** Containers may have written into it, as much as they like. */
function holds(path: string, content: string): boolean {
  const size = statSync(path, { throwIfNoEntry: false })?.size;
  return size === Buffer.byteLength(content) && readFileSync(path, "utf8") === content;
}
