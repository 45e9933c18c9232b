/** Security contexts of sandboxes and containers as the kubelet makes them. */
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type AppArmorProfile, appArmorProfile } from "@picolet/protocol/pod/apparmor-profile.ts";
import type { Container, Pod, SecurityContext } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod, SandboxLaunch, UserNamespace } from "@picolet/runtime-contract/runtime-adapter.ts";
import {
  type LinuxContainerSecurityContext,
  type LinuxSandboxSecurityContext,
  NamespaceMode,
  ProfileType,
  SupplementalGroupsPolicy,
} from "../wire/cri-messages.ts";
import type { InputOf } from "../wire/protobuf.ts";
import type { RuntimeMachine } from "./runtime-machine.ts";

export interface SecuritySettings {
  /** The folder that `localhostProfile` of a seccomp profile is relative to. */
  readonly seccompProfileRoot: string;
  /** The kubelet's `seccompDefault`: RuntimeDefault where a pod says nothing. */
  readonly seccompDefault: boolean;
  readonly machine: RuntimeMachine;
}

/** The user in an image's configuration: a number, a name, or neither, which means root. */
export interface ImageUser {
  readonly uid: number | undefined;
  readonly username: string;
}

/** The identity of a container besides its spec. */
export interface ContainerIdentity {
  /** Needed where `needsImageUser` says so. */
  readonly imageUser?: ImageUser | undefined;
  /** The container whose processes it shares. */
  readonly targetContainerId?: string | undefined;
  readonly userNamespace?: UserNamespace | undefined;
  readonly extraGroups?: readonly number[] | undefined;
}

type ContainerSecurity = InputOf<typeof LinuxContainerSecurityContext>;
type SandboxSecurity = InputOf<typeof LinuxSandboxSecurityContext>;
type NamespaceOptions = NonNullable<ContainerSecurity["namespaceOptions"]>;
type Profile = NonNullable<ContainerSecurity["seccomp"]>;

/**
 * Kubernetes' own lists. Folders of thermal counters are masked too: by them a container could observe what others
 * compute.
 */
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

/** MaxInt32: the highest uid that Kubernetes lets run. */
const MAX_USER_ID = 2_147_483_647;

export function sandboxSecurity(
  pod: Pod,
  { userNamespace, extraGroups }: Pick<SandboxLaunch, "userNamespace" | "extraGroups">,
): SandboxSecurity {
  const { securityContext } = pod.spec;
  const containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
  return {
    namespaceOptions: namespaceOptions(pod, userNamespace),
    privileged: containers.some((container) => container.securityContext?.privileged === true),
    // The pause program needs nothing; what the pod's containers may do is theirs.
    seccomp: { profileType: ProfileType.RuntimeDefault },
    runAsUser: int64Of(securityContext.runAsUser),
    runAsGroup: int64Of(securityContext.runAsGroup),
    selinuxOptions: securityContext.seLinuxOptions,
    ...groups(pod, extraGroups),
  };
}

/** @throws `invalid` with the reason CreateContainerConfigError, worded as the kubelet does, for what cannot be. */
export function containerSecurity(
  desired: DesiredPod,
  container: Container,
  identity: ContainerIdentity,
  settings: SecuritySettings,
): ContainerSecurity {
  const { pod } = desired;
  const own: SecurityContext = container.securityContext ?? {};
  const ofPod = pod.spec.securityContext;
  const runAsUser = own.runAsUser ?? ofPod.runAsUser;
  const problem = nonRootProblem(own.runAsNonRoot ?? ofPod.runAsNonRoot, runAsUser, identity.imageUser);
  if (problem !== undefined) refuse(`${problem} (${whose(desired, container)})`);
  const unmasked = own.procMount === "Unmasked";
  return {
    capabilities: { addCapabilities: own.capabilities?.add, dropCapabilities: own.capabilities?.drop },
    privileged: own.privileged ?? false,
    namespaceOptions: withTarget(namespaceOptions(pod, identity.userNamespace), identity.targetContainerId),
    selinuxOptions: own.seLinuxOptions ?? ofPod.seLinuxOptions,
    ...userOf(runAsUser, identity.imageUser),
    runAsGroup: int64Of(own.runAsGroup ?? ofPod.runAsGroup),
    readonlyRootfs: own.readOnlyRootFilesystem ?? false,
    noNewPrivs: own.allowPrivilegeEscalation === false,
    maskedPaths: unmasked ? [] : [...MASKED_PATHS, ...settings.machine.thermalFolders],
    readonlyPaths: unmasked ? [] : READONLY_PATHS,
    seccomp: seccompOf(own.seccompProfile ?? ofPod.seccompProfile, settings),
    apparmor: appArmorOf(appArmorProfile(pod, container)),
    ...groups(pod, identity.extraGroups),
  };
}

/** As the kubelet does: the image's user is sent unless the pod names a user. A group in the image does not count. */
export function needsImageUser(pod: Pod, container: Container): boolean {
  return (container.securityContext?.runAsUser ?? pod.spec.securityContext.runAsUser) === undefined;
}

const whose = ({ pod, uid }: DesiredPod, { name }: Container): string => {
  const { name: podName, namespace, uid: apiUid = uid } = pod.metadata;
  return `pod: "${podName}_${namespace}(${apiUid})", container: ${name}`;
};

function refuse(message: string): never {
  throw new PicoletError("invalid", message, { reason: "CreateContainerConfigError" });
}

function nonRootProblem(
  runAsNonRoot: boolean | undefined,
  runAsUser: number | undefined,
  imageUser: ImageUser | undefined,
): string | undefined {
  if (runAsNonRoot !== true) return undefined;
  if (runAsUser !== undefined) return runAsUser === 0 ? "container's runAsUser breaks non-root policy" : undefined;
  const { uid, username } = imageUser ?? { uid: undefined, username: "" };
  if (uid === undefined && username !== "") {
    return `container has runAsNonRoot and image has non-numeric user (${username}), cannot verify user is non-root`;
  }
  if (uid === undefined || uid === 0) return "container has runAsNonRoot and image will run as root";
  if (uid > 0 && uid <= MAX_USER_ID) return undefined;
  const must = `must be between 0 and ${MAX_USER_ID}, inclusive`;
  return `container has runAsNonRoot and image has an invalid user id (${uid}). (Must be 1-(${MAX_USER_ID})): ${must}`;
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

function namespaceOptions({ spec }: Pod, userNamespace: UserNamespace | undefined): NamespaceOptions {
  const ownOrNode = (host: boolean | undefined): number => (host === true ? NamespaceMode.node : NamespaceMode.pod);
  const pid = spec.shareProcessNamespace === true ? NamespaceMode.pod : NamespaceMode.container;
  const options = {
    network: ownOrNode(spec.hostNetwork),
    ipc: ownOrNode(spec.hostIPC),
    pid: spec.hostPID === true ? NamespaceMode.node : pid,
  };
  if (userNamespace === undefined) return options;
  const mappings = idMappings(userNamespace);
  return { ...options, usernsOptions: { mode: NamespaceMode.pod, uids: mappings, gids: mappings } };
}

export const idMappings = ({ hostId, length }: UserNamespace) => [{ hostId, containerId: 0, length }];

/** One that shares processes with the whole pod, or with the node, sees those of its target anyway. */
const withTarget = (options: NamespaceOptions, targetId: string | undefined): NamespaceOptions =>
  targetId === undefined || options.pid !== NamespaceMode.container
    ? options
    : { ...options, pid: NamespaceMode.target, targetId };

function groups(
  { spec }: Pod,
  extraGroups: readonly number[] = [],
): Pick<ContainerSecurity, "supplementalGroups" | "supplementalGroupsPolicy"> {
  const { fsGroup, supplementalGroups, supplementalGroupsPolicy } = spec.securityContext;
  return {
    supplementalGroups: [...(fsGroup === undefined ? [] : [fsGroup]), ...(supplementalGroups ?? []), ...extraGroups],
    supplementalGroupsPolicy: SupplementalGroupsPolicy[supplementalGroupsPolicy ?? "Merge"],
  };
}

function seccompOf(profile: SecurityContext["seccompProfile"], settings: SecuritySettings): Profile {
  // 0 on the wire is RuntimeDefault, so that nothing said must be said as Unconfined.
  if (profile === undefined) {
    return { profileType: settings.seccompDefault ? ProfileType.RuntimeDefault : ProfileType.Unconfined };
  }
  if (profile.type !== "Localhost") return { profileType: ProfileType[profile.type] };
  const file = profile.localhostProfile ?? "";
  if (file === "") refuse("localhostProfile must be set if seccompProfile type is Localhost.");
  const localhostRef = join(settings.seccompProfileRoot, file);
  // Validation has said so already; a profile is what the node's owner put there.
  if (!localhostRef.startsWith(`${join(settings.seccompProfileRoot, "/")}`)) {
    refuse(`localhostProfile ${JSON.stringify(file)} must not lead out of the folder of seccomp profiles`);
  }
  return { profileType: ProfileType.Localhost, localhostRef };
}

function appArmorOf(profile: AppArmorProfile | undefined): Profile | undefined {
  if (profile === undefined) return undefined;
  const { type, localhostProfile = "" } = profile;
  if (type === "Localhost" && localhostProfile === "") refuse("missing localhost apparmor profile name");
  return { profileType: ProfileType[type], localhostRef: localhostProfile };
}

const int64Of = (value: number | undefined): { value: number } | undefined =>
  value === undefined ? undefined : { value };
