/** What of a pod has no meaning for a component, which has neither a kernel of its own nor processes. Pure. */
import { appArmorProfile } from "../../protocol/apparmor-profile.ts";
import { PicoletError } from "../../protocol/errors.ts";
import type { Container, EphemeralContainer, Pod } from "../../protocol/pod.ts";

type AnyContainer = Container | EphemeralContainer;
type Problem = readonly [path: string, why: string];

/** How every component is ended; there is nothing in it that a signal could reach. */
const STOP_SIGNALS: ReadonlySet<string> = new Set(["SIGTERM", "SIGKILL"]);

/** @throws `invalid` with everything that is wrong with the pod and its containers, and FailedCreatePodSandBox */
export function refuseWhatComponentsCannotBe(pod: Pod): void {
  const { containers, initContainers = [] } = pod.spec;
  const problems = [
    ...podProblems(pod),
    ...containers.flatMap((each, index) => containerProblems(pod, each, `spec.containers[${index}]`)),
    ...initContainers.flatMap((each, index) => containerProblems(pod, each, `spec.initContainers[${index}]`)),
  ];
  refuse(problems, "FailedCreatePodSandBox");
}

/** For those that come when the pod stands already. @throws `invalid` with CreateContainerConfigError */
export function refuseEphemeral(pod: Pod, name: string): void {
  const index = (pod.spec.ephemeralContainers ?? []).findIndex((each) => each.name === name);
  const container = pod.spec.ephemeralContainers?.[index];
  if (container === undefined) return;
  const path = `spec.ephemeralContainers[${index}]`;
  const target: readonly Problem[] =
    (container.targetContainerName ?? "") === ""
      ? []
      : [[`${path}.targetContainerName`, "a component has no processes that another could see"]];
  refuse([...containerProblems(pod, container, path), ...target], "CreateContainerConfigError");
}

function refuse(problems: readonly Problem[], reason: string): void {
  if (problems.length === 0) return;
  const list = problems.map(([path, why]) => `${path}: ${why}`).join("; ");
  throw new PicoletError("invalid", `cannot run WebAssembly components so: ${list}`, { reason });
}

function podProblems({ spec }: Pod): Problem[] {
  const { sysctls = [], seLinuxOptions, seccompProfile } = spec.securityContext;
  const found: (Problem | false)[] = [
    spec.hostPID === true && ["spec.hostPID", "a component sees no processes"],
    spec.hostIPC === true && ["spec.hostIPC", "a component has no shared memory, semaphores or message queues"],
    spec.shareProcessNamespace === true && ["spec.shareProcessNamespace", "a component sees no processes"],
    spec.hostUsers === false && ["spec.hostUsers", "a component has no user namespace"],
    sysctls.length > 0 && ["spec.securityContext.sysctls", "a component has no kernel parameters of its own"],
    seLinuxOptions !== undefined && ["spec.securityContext.seLinuxOptions", "a component has no SELinux label"],
    seccompProfile?.type === "Localhost" && [
      "spec.securityContext.seccompProfile",
      "a component makes no system calls",
    ],
  ];
  return found.filter((each) => each !== false);
}

function containerProblems(pod: Pod, container: AnyContainer, path: string): Problem[] {
  const { securityContext: own = {}, lifecycle, ports = [], volumeDevices = [] } = container;
  const context = `${path}.securityContext`;
  const reachable = pod.spec.hostNetwork !== true && ports.some(({ hostPort = 0 }) => hostPort > 0);
  const stopSignal = lifecycle?.stopSignal;
  const found: (Problem | false)[] = [
    own.privileged === true && [`${context}.privileged`, "there is nothing that a component could be let into"],
    (own.capabilities?.add ?? []).length > 0 && [`${context}.capabilities.add`, "a component has no capabilities"],
    own.procMount === "Unmasked" && [`${context}.procMount`, "a component has no /proc"],
    own.seLinuxOptions !== undefined && [`${context}.seLinuxOptions`, "a component has no SELinux label"],
    own.seccompProfile?.type === "Localhost" && [`${context}.seccompProfile`, "a component makes no system calls"],
    appArmorProfile(pod, container)?.type === "Localhost" && [
      `${context}.appArmorProfile`,
      "a component has no profile",
    ],
    reachable && [`${path}.ports`, "a component has no network address that a hostPort could lead to"],
    volumeDevices.length > 0 && [`${path}.volumeDevices`, "a component has no devices"],
    stopSignal !== undefined &&
      !STOP_SIGNALS.has(stopSignal) && [`${path}.lifecycle.stopSignal`, "a component gets no signals"],
  ];
  return found.filter((each) => each !== false);
}
