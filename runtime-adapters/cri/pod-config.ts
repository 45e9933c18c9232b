/** What is sent to create sandboxes and containers, made of the pod and its launches. Pure. */
import type { CgroupSettings } from "../../protocol/cgroup-values.ts";
import { containerCgroupValues, oomScoreAdj } from "../../protocol/cgroup-values.ts";
import { PicoletError } from "../../protocol/errors.ts";
import type { Container, Pod } from "../../protocol/pod.ts";
import { isSidecar } from "../../protocol/pod-resources.ts";
import type { ContainerLaunch, DesiredPod, SandboxLaunch } from "../contract/runtime-adapter.ts";
import {
  type ContainerConfig,
  type LinuxContainerResources,
  MountPropagation,
  type PodSandboxConfig,
  PortProtocol,
  SIGNAL_NUMBERS,
} from "./cri-messages.ts";
import { ANNOTATION, LABEL, MAX_MANIFEST_BYTES } from "./labels.ts";
import { containerSecurity, type ImageUser, type SecuritySettings, sandboxSecurity } from "./security-context.ts";
import type { InputOf } from "./wire/protobuf.ts";

export interface PodConfigSettings extends SecuritySettings {
  readonly owner: string;
  readonly cgroups: CgroupSettings;
  readonly memoryCapacityBytes: number;
}

export type SandboxConfigInput = InputOf<typeof PodSandboxConfig>;
export type ContainerConfigInput = InputOf<typeof ContainerConfig>;

/** @param forList also what only `list` and `inspect` read; the containers of the sandbox are made without it. */
export function sandboxConfig(
  desired: DesiredPod,
  launch: SandboxLaunch,
  settings: PodConfigSettings,
  forList: boolean,
): SandboxConfigInput {
  const { pod, uid } = desired;
  const { metadata, spec } = pod;
  const onHostNetwork = spec.hostNetwork === true;
  const annotations = new Map(Object.entries(metadata.annotations ?? {}));
  annotations.set(ANNOTATION.configSource, desired.source);
  if (forList) {
    annotations.set(ANNOTATION.launch, JSON.stringify(launch));
    const manifest = JSON.stringify(desired);
    if (Buffer.byteLength(manifest) <= MAX_MANIFEST_BYTES) annotations.set(ANNOTATION.manifest, manifest);
  }
  const sysctls = (spec.securityContext?.sysctls ?? []).map(({ name, value }) => [name, value] as const);
  return {
    metadata: { name: metadata.name, uid, namespace: metadata.namespace, attempt: launch.attempt },
    hostname: onHostNetwork ? "" : launch.hostname,
    logDirectory: launch.logDirectory,
    dnsConfig: launch.dns,
    portMappings: onHostNetwork ? [] : portMappings(pod),
    labels: new Map([...Object.entries(metadata.labels ?? {}), ...podLabels(desired, settings.owner)]),
    annotations,
    linux: { cgroupParent: launch.cgroupParent, securityContext: sandboxSecurity(pod), sysctls: new Map(sysctls) },
  };
}

function podLabels({ pod, uid }: DesiredPod, owner: string): readonly (readonly [string, string])[] {
  return [
    [LABEL.podName, pod.metadata.name],
    [LABEL.podNamespace, pod.metadata.namespace],
    [LABEL.podUid, uid],
    [LABEL.owner, owner],
  ];
}

function portMappings({ spec }: Pod): NonNullable<SandboxConfigInput["portMappings"]> {
  const containers = [...spec.containers, ...(spec.initContainers ?? []).filter(isSidecar)];
  return containers
    .flatMap((container) => container.ports ?? [])
    .filter(({ hostPort }) => hostPort !== undefined && hostPort > 0)
    .map(({ protocol, containerPort, hostPort, hostIP }) => ({
      protocol: PortProtocol[protocol ?? "TCP"],
      containerPort,
      hostPort,
      hostIp: hostIP,
    }));
}

/**
 * @throws `internal` when the pod has no container of the launch's name; what `containerSecurity` throws.
 */
export function containerConfig(
  desired: DesiredPod,
  launch: ContainerLaunch,
  imageUser: ImageUser | undefined,
  settings: PodConfigSettings,
): ContainerConfigInput {
  const { pod } = desired;
  const container = containerNamed(pod, launch.name);
  return {
    metadata: { name: launch.name, attempt: launch.attempt },
    image: { image: launch.image.id, userSpecifiedImage: launch.image.requested },
    command: launch.command,
    args: launch.args,
    workingDir: launch.workingDir,
    envs: launch.env.map(({ name, value }) => ({ key: name, value: Buffer.from(value) })),
    mounts: launch.mounts.map(({ containerPath, hostPath, readOnly, propagation }) => ({
      containerPath,
      hostPath,
      readonly: readOnly,
      propagation: MountPropagation[propagation],
    })),
    labels: new Map([...podLabels(desired, settings.owner), [LABEL.containerName, launch.name]]),
    annotations: containerAnnotations(pod, container, launch),
    logPath: launch.logPath,
    stdin: container.stdin ?? false,
    stdinOnce: container.stdinOnce ?? false,
    tty: container.tty ?? false,
    linux: {
      resources: containerResources(pod, container, settings),
      securityContext: containerSecurity(pod, container, imageUser, settings),
    },
    stopSignal: SIGNAL_NUMBERS.get(container.lifecycle?.stopSignal ?? ""),
  };
}

/** Of any kind. @throws `internal` when there is none. */
export function containerNamed({ spec }: Pod, name: string): Container {
  const all: readonly Container[] = [
    ...spec.containers,
    ...(spec.initContainers ?? []),
    ...(spec.ephemeralContainers ?? []),
  ];
  const found = all.find((container) => container.name === name);
  if (found === undefined) throw new PicoletError("internal", `cannot find container ${name} in the pod's spec`);
  return found;
}

function containerAnnotations(pod: Pod, container: Container, launch: ContainerLaunch): ReadonlyMap<string, string> {
  const annotations = new Map<string, string>([
    [ANNOTATION.containerHash, launch.hash],
    [ANNOTATION.containerRestartCount, String(launch.attempt)],
    [ANNOTATION.containerTerminationMessagePath, container.terminationMessagePath ?? ""],
    [ANNOTATION.containerTerminationMessagePolicy, container.terminationMessagePolicy ?? ""],
    [ANNOTATION.podTerminationGracePeriod, String(pod.spec.terminationGracePeriodSeconds)],
    [ANNOTATION.backoffMs, String(launch.backoff)],
    [ANNOTATION.image, launch.image.requested],
  ]);
  if (container.ports !== undefined && container.ports.length > 0) {
    annotations.set(ANNOTATION.containerPorts, JSON.stringify(container.ports));
  }
  return annotations;
}

function containerResources(
  pod: Pod,
  container: Container,
  settings: PodConfigSettings,
): InputOf<typeof LinuxContainerResources> {
  const values = containerCgroupValues(container, settings.cgroups);
  return {
    cpuPeriod: values.cpuPeriodUs,
    cpuQuota: values.cpuQuotaUs,
    cpuShares: values.cpuShares,
    memoryLimitInBytes: values.memoryLimitBytes,
    oomScoreAdj: oomScoreAdj(pod, container, settings.memoryCapacityBytes),
  };
}
