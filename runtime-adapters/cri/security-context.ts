/** Security contexts of sandboxes and containers as the kubelet makes them (pkg/kubelet/kuberuntime/security_context.go). */
import { join } from "node:path";
import { PicoletError } from "../../protocol/errors.ts";
import type { Container, Pod, SecurityContext } from "../../protocol/pod.ts";
import {
  type LinuxContainerSecurityContext,
  type LinuxSandboxSecurityContext,
  NamespaceMode,
  ProfileType,
  SupplementalGroupsPolicy,
} from "./cri-messages.ts";
import type { InputOf } from "./wire/protobuf.ts";

export interface SecuritySettings {
  /** The folder that `localhostProfile` of a seccomp profile is relative to. */
  readonly seccompProfileRoot: string;
  /** The kubelet's `seccompDefault`: RuntimeDefault where a pod says nothing. */
  readonly seccompDefault: boolean;
}

/** Who an image runs as by itself: a number, a name, or neither, which means root. */
export interface ImageUser {
  readonly uid: number | undefined;
  readonly username: string;
}

type ContainerSecurity = InputOf<typeof LinuxContainerSecurityContext>;
type SandboxSecurity = InputOf<typeof LinuxSandboxSecurityContext>;
type NamespaceOptions = NonNullable<ContainerSecurity["namespaceOptions"]>;
type Profile = NonNullable<ContainerSecurity["seccomp"]>;

/** pkg/securitycontext/util.go */
const MASKED_PATHS: readonly string[] = [
  "/proc/asound",
  "/proc/acpi",
  "/proc/interrupts",
  "/proc/kcore",
  "/proc/keys",
  "/proc/latency_stats",
  "/proc/timer_list",
  "/proc/timer_stats",
  "/proc/sched_debug",
  "/proc/scsi",
  "/sys/firmware",
  "/sys/devices/virtual/powercap",
];
const READONLY_PATHS: readonly string[] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

export function sandboxSecurity(pod: Pod): SandboxSecurity {
  const { securityContext } = pod.spec;
  const containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
  return {
    namespaceOptions: namespaceOptions(pod),
    privileged: containers.some((container) => container.securityContext?.privileged === true),
    // The pause program needs nothing; what the pod's containers may do is theirs.
    seccomp: { profileType: ProfileType.RuntimeDefault },
    runAsUser: int64Of(securityContext?.runAsUser),
    runAsGroup: int64Of(securityContext?.runAsGroup),
    selinuxOptions: securityContext?.seLinuxOptions,
    ...groups(pod),
  };
}

/**
 * @param imageUser needed where `needsImageUser` says so.
 * @throws `invalid` with the reason CreateContainerConfigError when the user breaks `runAsNonRoot`.
 */
export function containerSecurity(
  pod: Pod,
  container: Container,
  imageUser: ImageUser | undefined,
  settings: SecuritySettings,
): ContainerSecurity {
  const own: SecurityContext = container.securityContext ?? {};
  const ofPod = pod.spec.securityContext;
  const runAsUser = own.runAsUser ?? ofPod?.runAsUser;
  verifyNonRoot(own.runAsNonRoot ?? ofPod?.runAsNonRoot, runAsUser, imageUser);
  const unmasked = own.procMount === "Unmasked";
  return {
    capabilities: { addCapabilities: own.capabilities?.add, dropCapabilities: own.capabilities?.drop },
    privileged: own.privileged ?? false,
    namespaceOptions: namespaceOptions(pod),
    selinuxOptions: own.seLinuxOptions ?? ofPod?.seLinuxOptions,
    ...userOf(runAsUser, imageUser),
    runAsGroup: int64Of(own.runAsGroup ?? ofPod?.runAsGroup),
    readonlyRootfs: own.readOnlyRootFilesystem ?? false,
    noNewPrivs: own.allowPrivilegeEscalation === false,
    maskedPaths: unmasked ? [] : MASKED_PATHS,
    readonlyPaths: unmasked ? [] : READONLY_PATHS,
    seccomp: seccompOf(own.seccompProfile ?? ofPod?.seccompProfile, settings),
    apparmor: appArmorOf(own.appArmorProfile ?? ofPod?.appArmorProfile),
    ...groups(pod),
  };
}

/** Whether the image's own user matters: to see that it is not root, or because a group cannot stand without a user. */
export function needsImageUser(pod: Pod, container: Container): boolean {
  const own = container.securityContext;
  const ofPod = pod.spec.securityContext;
  if ((own?.runAsUser ?? ofPod?.runAsUser) !== undefined) return false;
  return (own?.runAsNonRoot ?? ofPod?.runAsNonRoot) === true || (own?.runAsGroup ?? ofPod?.runAsGroup) !== undefined;
}

function verifyNonRoot(
  runAsNonRoot: boolean | undefined,
  runAsUser: number | undefined,
  imageUser: ImageUser | undefined,
): void {
  if (runAsNonRoot !== true) return;
  const refuse = (message: string): never => {
    throw new PicoletError("invalid", message, { reason: "CreateContainerConfigError" });
  };
  if (runAsUser === 0) refuse("container's runAsUser breaks non-root policy");
  if (runAsUser !== undefined) return;
  if (imageUser !== undefined && imageUser.uid === undefined && imageUser.username !== "") {
    refuse(
      `container has runAsNonRoot and image has non-numeric user (${imageUser.username}), cannot verify user is non-root`,
    );
  }
  if ((imageUser?.uid ?? 0) === 0) refuse("container has runAsNonRoot and image will run as root");
}

function userOf(
  runAsUser: number | undefined,
  imageUser: ImageUser | undefined,
): Pick<ContainerSecurity, "runAsUser" | "runAsUsername"> {
  if (runAsUser !== undefined) return { runAsUser: { value: runAsUser } };
  if (imageUser === undefined) return {};
  if (imageUser.username !== "") return { runAsUsername: imageUser.username };
  return { runAsUser: { value: imageUser.uid ?? 0 } };
}

function namespaceOptions({ spec }: Pod): NamespaceOptions {
  const ownOrNode = (host: boolean | undefined): number => (host === true ? NamespaceMode.node : NamespaceMode.pod);
  const pid = spec.shareProcessNamespace === true ? NamespaceMode.pod : NamespaceMode.container;
  return {
    network: ownOrNode(spec.hostNetwork),
    ipc: ownOrNode(spec.hostIPC),
    pid: spec.hostPID === true ? NamespaceMode.node : pid,
  };
}

function groups({ spec }: Pod): Pick<ContainerSecurity, "supplementalGroups" | "supplementalGroupsPolicy"> {
  const { fsGroup, supplementalGroups, supplementalGroupsPolicy } = spec.securityContext ?? {};
  return {
    supplementalGroups: [...(fsGroup === undefined ? [] : [fsGroup]), ...(supplementalGroups ?? [])],
    supplementalGroupsPolicy: SupplementalGroupsPolicy[supplementalGroupsPolicy ?? "Merge"],
  };
}

function seccompOf(profile: SecurityContext["seccompProfile"], settings: SecuritySettings): Profile {
  // 0 on the wire is RuntimeDefault, so that nothing said must be said as Unconfined.
  if (profile === undefined) {
    return { profileType: settings.seccompDefault ? ProfileType.RuntimeDefault : ProfileType.Unconfined };
  }
  if (profile.type !== "Localhost") return { profileType: ProfileType[profile.type] };
  const localhostRef = join(settings.seccompProfileRoot, profile.localhostProfile ?? "");
  return { profileType: ProfileType.Localhost, localhostRef };
}

function appArmorOf(profile: SecurityContext["appArmorProfile"]): Profile | undefined {
  if (profile === undefined) return undefined;
  return { profileType: ProfileType[profile.type], localhostRef: profile.localhostProfile ?? "" };
}

const int64Of = (value: number | undefined): { value: number } | undefined =>
  value === undefined ? undefined : { value };
