/** A PodEnvironment that remembers what it made instead of making it. */
import type { PodEnvironment } from "@picolet/agent/core/pods/pod-ports.ts";
import { hasRefreshedVolumes } from "@picolet/agent/volumes/types/volume-types.ts";
import { containerHash } from "@picolet/protocol/pod/container-hash.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";
import type {
  ContainerLaunch,
  DesiredPod,
  ResolvedImage,
  SandboxLaunch,
} from "@picolet/runtime-contract/runtime-adapter.ts";

export class FakePodEnvironment implements PodEnvironment {
  /** Pods whose folders are there. */
  readonly prepared = new Set<PodUid>();
  /** Awaited before anything is made or taken away; throws to fail it. */
  before: (what: "prepare" | "cleanup", pod: DesiredPod, signal: AbortSignal) => Promise<void> = async () => undefined;

  async prepare(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    await this.before("prepare", pod, signal);
    this.prepared.add(pod.uid);
  }

  hasRefreshedVolumes({ pod }: DesiredPod): boolean {
    return hasRefreshedVolumes(pod);
  }

  holdsClaims(): boolean {
    return false;
  }

  async releaseClaims(): Promise<void> {
    // It prepares none.
  }

  sandbox(pod: DesiredPod, attempt: number): SandboxLaunch {
    const { namespace, name } = pod.pod.metadata;
    const logDirectory = `/var/log/pods/${namespace}_${name}_${pod.uid}`;
    return { attempt, logDirectory, cgroupParent: "", hostname: name, dns: undefined };
  }

  container(
    _pod: DesiredPod,
    container: Container,
    run: { readonly attempt: number; readonly backoff: Millis; readonly image: ResolvedImage },
  ): ContainerLaunch {
    return {
      name: container.name,
      attempt: run.attempt,
      hash: containerHash(container),
      backoff: run.backoff,
      image: run.image,
      command: container.command ?? [],
      args: container.args ?? [],
      env: [],
      workingDir: "",
      mounts: [],
      logPath: `${container.name}/${run.attempt}.log`,
    };
  }

  async cleanup(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    await this.before("cleanup", pod, signal);
    this.prepared.delete(pod.uid);
  }
}
