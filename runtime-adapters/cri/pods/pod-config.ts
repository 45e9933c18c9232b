/** What is sent to create sandboxes and containers, made of the pod and its launches. Pure. */
import { type CgroupDriver, cgroupParent } from "@picolet/protocol/cgroup/cgroup-names.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import { isSidecar } from "@picolet/protocol/pod/pod-resources.ts";
import type { ContainerLaunch, DesiredPod, SandboxLaunch } from "@picolet/runtime-contract/runtime-adapter.ts";
import {
  type ContainerConfig,
  MountPropagation,
  type PodSandboxConfig,
  PortProtocol,
  SIGNAL_NUMBERS,
} from "../wire/cri-messages.ts";
import type { InputOf } from "../wire/protobuf.ts";
import { resourcesAnnotation } from "./container-update.ts";
import { ANNOTATION, LABEL, MAX_MANIFEST_BYTES } from "./labels.ts";
import { containerResources, overheadResources, type ResourceSettings, sandboxResources } from "./linux-resources.ts";
import {
  containerSecurity,
  type ImageUser,
  idMappings,
  type SecuritySettings,
  sandboxSecurity,
} from "./security-context.ts";

export interface PodConfigSettings extends SecuritySettings, ResourceSettings {
  readonly owner: string;
  /** Default cgroupfs. */
  readonly cgroupDriver?: CgroupDriver | undefined;
}

export type SandboxConfigInput = InputOf<typeof PodSandboxConfig>;
export type ContainerConfigInput = InputOf<typeof ContainerConfig>;

const OWN_ANNOTATIONS: ReadonlySet<string> = new Set(Object.values(ANNOTATION));

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
  // An agent that has lost its store adopts the manifest that it finds here: what a pod wrote under that name must not
  // be it.
  const annotations = new Map(Object.entries(metadata.annotations ?? {}).filter(([key]) => !OWN_ANNOTATIONS.has(key)));
  annotations.set(ANNOTATION.configSource, desired.source);
  if (forList) {
    annotations.set(ANNOTATION.launch, JSON.stringify(launch));
    const manifest = JSON.stringify(desired);
    if (Buffer.byteLength(manifest) <= MAX_MANIFEST_BYTES) annotations.set(ANNOTATION.manifest, manifest);
  }
  const sysctls = (spec.securityContext.sysctls ?? []).map(({ name, value }) => [dotted(name), value] as const);
  return {
    metadata: { name: metadata.name, uid, namespace: metadata.namespace, attempt: launch.attempt },
    hostname: onHostNetwork ? "" : launch.hostname,
    logDirectory: launch.logDirectory,
    dnsConfig: launch.dns,
    portMappings: onHostNetwork ? [] : portMappings(pod),
    labels: new Map([...Object.entries(metadata.labels ?? {}), ...podLabels(desired, settings.owner)]),
    annotations,
    linux: {
      cgroupParent: cgroupParent(settings.cgroupDriver ?? "cgroupfs", launch.cgroupParent),
      securityContext: sandboxSecurity(pod, launch),
      sysctls: new Map(sysctls),
      resources: sandboxResources(pod, settings),
      overhead: overheadResources(pod, settings),
    },
  };
}

/** sysctl.d(5): a name that has a slash first has dots where the others have slashes. */
function dotted(name: string): string {
  const [first] = /[./]/.exec(name) ?? [];
  return first === "/" ? name.replace(/[./]/g, (each) => (each === "." ? "/" : ".")) : name;
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
 * @param own `imageUser` where `needsImageUser` says so; the sandbox that the container is made in.
 * @throws `internal` when the pod has no container of the launch's name; what `containerSecurity` throws.
 */
export function containerConfig(
  desired: DesiredPod,
  launch: ContainerLaunch,
  own: { readonly imageUser: ImageUser | undefined; readonly sandbox: SandboxLaunch },
  settings: PodConfigSettings,
): ContainerConfigInput {
  const { pod } = desired;
  const { userNamespace } = own.sandbox;
  const mappings = userNamespace === undefined ? [] : idMappings(userNamespace);
  const container = findContainerByName(pod, launch.name);
  return {
    metadata: { name: launch.name, attempt: launch.attempt },
    image: { image: launch.image.id, userSpecifiedImage: launch.image.requested },
    command: launch.command,
    args: launch.args,
    workingDir: launch.workingDir,
    envs: launch.env.map(({ name, value }) => ({ key: name, value: Buffer.from(value) })),
    mounts: launch.mounts.map((mount) => ({
      containerPath: mount.containerPath,
      hostPath: mount.hostPath,
      readonly: mount.readOnly,
      recursiveReadOnly: mount.recursiveReadOnly ?? false,
      propagation: MountPropagation[mount.propagation],
      image: mount.image === undefined ? undefined : { image: mount.image.id },
      imageSubPath: mount.image?.subPath ?? "",
      uidMappings: mappings,
      gidMappings: mappings,
    })),
    devices: (launch.devices ?? []).map(({ containerPath, hostPath, readOnly, permissions }) => ({
      containerPath,
      hostPath,
      permissions: permissions ?? (readOnly ? "r" : "mrw"),
    })),
    cdiDevices: (launch.cdiDevices ?? []).map((name) => ({ name })),
    labels: new Map([...podLabels(desired, settings.owner), [LABEL.containerName, launch.name]]),
    annotations: containerAnnotations(pod, container, launch),
    logPath: launch.logPath,
    stdin: container.stdin ?? false,
    stdinOnce: container.stdinOnce ?? false,
    tty: container.tty ?? false,
    linux: {
      resources: containerResources(pod, container, settings, launch.cpuset),
      securityContext: containerSecurity(
        desired,
        container,
        {
          ...{ imageUser: own.imageUser, targetContainerId: launch.targetContainerId, userNamespace },
          extraGroups: launch.extraGroups,
        },
        settings,
      ),
    },
    stopSignal: SIGNAL_NUMBERS.get(container.lifecycle?.stopSignal ?? ""),
  };
}

/** Finds a container of any kind. @throws `internal` when there is none */
export function findContainerByName({ spec }: Pod, name: string): Container {
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
    ...Object.entries(launch.annotations ?? {}),
    [ANNOTATION.containerHash, launch.hash],
    [ANNOTATION.containerRestartCount, String(launch.attempt)],
    [ANNOTATION.containerTerminationMessagePath, container.terminationMessagePath],
    [ANNOTATION.containerTerminationMessagePolicy, container.terminationMessagePolicy],
    [ANNOTATION.podTerminationGracePeriod, String(pod.spec.terminationGracePeriodSeconds)],
    [ANNOTATION.backoffMs, String(launch.backoff)],
    [ANNOTATION.image, launch.image.requested],
    [ANNOTATION.resources, resourcesAnnotation(container)],
  ]);
  const { ports = [], lifecycle } = container;
  if (ports.length > 0) annotations.set(ANNOTATION.containerPorts, JSON.stringify(ports));
  if (lifecycle?.preStop !== undefined) {
    annotations.set(ANNOTATION.containerPreStopHandler, JSON.stringify(lifecycle.preStop));
  }
  if (lifecycle?.stopSignal !== undefined) annotations.set(ANNOTATION.stopSignal, lifecycle.stopSignal);
  const { deletionGracePeriodSeconds } = pod.metadata;
  if (deletionGracePeriodSeconds !== undefined) {
    annotations.set(ANNOTATION.podDeletionGracePeriod, String(deletionGracePeriodSeconds));
  }
  return annotations;
}
