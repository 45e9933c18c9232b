import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { containerHash } from "@picolet/protocol/pod/container-hash.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import type {
  ContainerLaunch,
  DesiredPod,
  Mount,
  ObservedPod,
  ResolvedImage,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../core/hub/cluster-objects.ts";
import type { PodClaims } from "../core/pods/pod-claims.ts";
import { containerEnv } from "./container-env.ts";
import type { ContainerMounts } from "./container-mounts.ts";
import { LOG_FOLDER_MODE, type PodPaths } from "./files/pod-paths.ts";
import { podHostname } from "./network/hostname.ts";
import { nodeHostsFile, podHostsFile } from "./network/hosts-file.ts";
import { makeTerminationLog, readLogTail, readTerminationLog } from "./termination-message.ts";
import { expandReferences } from "./values/expand.ts";

export interface ContainerFilesComponents {
  readonly paths: PodPaths;
  readonly mounts: ContainerMounts;
  readonly objects: ClusterObjects;
  /** Missing: no pod has claims. */
  readonly claims?: PodClaims | undefined;
  /** The node's addresses now, its main one first. */
  readonly hostIPs: () => readonly string[];
}

export interface ContainerFilesInit {
  readonly nodeName: string;
  /** The node's allocatable by resource name: the limit of a container that has none of its own. */
  readonly allocatable: Readonly<Record<string, string>>;
  readonly clusterDomain: string;
}

export interface ContainerRunId {
  readonly attempt: number;
  readonly backoff: Millis;
  readonly image: ResolvedImage;
}

const NODE_HOSTS_PATH = "/etc/hosts";

/** The files of one container beside its volumes: hosts file, log, termination message. */
export class ContainerFiles {
  readonly #components: ContainerFilesComponents;
  readonly #init: ContainerFilesInit;
  readonly #paths: PodPaths;
  readonly #mounts: ContainerMounts;

  constructor(components: ContainerFilesComponents, init: ContainerFilesInit) {
    this.#components = components;
    this.#init = init;
    this.#paths = components.paths;
    this.#mounts = components.mounts;
  }

  /** Makes the files. @returns how the container must be started. @throws `failed` with the kubelet's reason */
  launch(pod: DesiredPod, container: Container, run: ContainerRunId, observed: ObservedPod): ContainerLaunch {
    try {
      return this.#launch(pod, container, run, observed);
    } catch (error) {
      if (isPicoletError(error)) throw error;
      throw new PicoletError("failed", `cannot make the files of container ${container.name}`, {
        cause: error,
        reason: "CreateContainerConfigError",
        retryable: true,
      });
    }
  }

  /** @see PodEnvironmentOnDisk */
  readTerminationMessage(pod: DesiredPod, container: Container, attempt: number, exitCode: number): string {
    const { name, terminationMessagePolicy } = container;
    const message = readTerminationLog(this.#paths.container(pod.uid, name), attempt);
    const wantsLog = terminationMessagePolicy === "FallbackToLogsOnError" && exitCode !== 0;
    return message === "" && wantsLog ? readLogTail(join(this.#paths.logs(pod), logPathOf(name, attempt))) : message;
  }

  #launch(pod: DesiredPod, container: Container, run: ContainerRunId, observed: ObservedPod): ContainerLaunch {
    const { attempt, backoff, image } = run;
    const hostIPs = this.#components.hostIPs();
    const podIPs = pod.pod.spec.hostNetwork === true ? hostIPs : (observed.sandboxes[0]?.ips ?? []);
    const { nodeName, allocatable } = this.#init;
    const env = containerEnv(container, {
      pod,
      nodeName,
      hostIPs,
      podIPs,
      allocatable,
      objects: this.#components.objects,
    });
    const values = new Map(env.map(({ name, value }) => [name, value]));
    const lookup = (name: string): string | undefined => values.get(name);
    const expand = (text: string): string => expandReferences(text, lookup);
    mkdirSync(join(this.#paths.logs(pod), container.name), { recursive: true, mode: LOG_FOLDER_MODE });
    const devices = this.#mounts.devices(pod, container);
    const cdiDevices = this.#cdiDevices(pod, container);
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
      ...(cdiDevices.length === 0 ? {} : { cdiDevices }),
      logPath: logPathOf(container.name, attempt),
    };
  }

  /** The devices of the container's resource claims, each once. */
  #cdiDevices(pod: DesiredPod, container: Container): readonly string[] {
    const claims = this.#components.claims?.ofContainer(pod, container) ?? [];
    return [...new Set(claims.flatMap(({ devices }) => devices.flatMap(({ cdiDevices }) => cdiDevices)))];
  }

  /**
   * @returns undefined before the pod has an address, and where a volume is mounted at the path. On the host's network
   *   the file is a copy of the node's.
   */
  #hostsMount(pod: DesiredPod, container: Container, podIPs: readonly string[]): Mount | undefined {
    const { hostNetwork } = pod.pod.spec;
    const isMounted = container.volumeMounts?.some((mount) => mount.mountPath === NODE_HOSTS_PATH) === true;
    const isWanted = hostNetwork === true || podIPs.length > 0;
    if (isMounted || !isWanted) return undefined;
    const content =
      hostNetwork === true
        ? nodeHostsFile(pod.pod, readFileSync(NODE_HOSTS_PATH, "utf8"))
        : podHostsFile(pod.pod, podIPs, podHostname(pod.pod, this.#init.clusterDomain));
    const hostPath = this.#paths.etcHosts(pod.uid);
    // In place, because running containers have this very file mounted. An unchanged file is not written.
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
}

/** Relative to the pod's log folder. */
const logPathOf = (container: string, attempt: number): string => `${container}/${attempt}.log`;

/** Compares sizes first, because containers may have written any amount into the file. */
function holds(path: string, content: string): boolean {
  const size = statSync(path, { throwIfNoEntry: false })?.size;
  return size === Buffer.byteLength(content) && readFileSync(path, "utf8") === content;
}
