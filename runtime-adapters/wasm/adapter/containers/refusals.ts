/**
 * Finds fields of a pod that have no meaning for a component, which has neither a kernel of its own nor processes.
 * Pure. A field that would promise something that does not happen is refused. A field that is lost without harm is
 * ignored, with an event. Fields that every pod has or a controller writes (`dnsPolicy`, `hostname`, `subdomain`,
 * ports) are ignored silently, and so are those that only remove what a component does not have (dropped capabilities,
 * RuntimeDefault, a root that is read-only). docs/components.md has the list.
 */

import { PicoletError } from "@picolet/protocol/errors.ts";
import { appArmorProfile } from "@picolet/protocol/pod/apparmor-profile.ts";
import type { Container, EphemeralContainer, Pod, Probe } from "@picolet/protocol/pod/pod.ts";

type AnyContainer = Container | EphemeralContainer;
type Problem = readonly [path: string, why: string];

/** Annotations by which a component can have ports that its container does not name. */
const SERVING_ANNOTATIONS = ["wasm.picolet.io/http", "wasm.picolet.io/network"];

/** How every component is ended; there is nothing in it that a signal could reach. */
const STOP_SIGNALS: ReadonlySet<string> = new Set(["SIGTERM", "SIGKILL"]);

/** @throws `invalid` with everything that is wrong with the pod and its containers, and FailedCreatePodSandBox */
export function checkComponentPod(pod: Pod): void {
  const { containers, initContainers = [] } = pod.spec;
  const problems = [
    ...podProblems(pod),
    ...containers.flatMap((each, index) => containerProblems(pod, each, `spec.containers[${index}]`)),
    ...initContainers.flatMap((each, index) => containerProblems(pod, each, `spec.initContainers[${index}]`)),
  ];
  refuse(problems, "FailedCreatePodSandBox");
}

/** Refuses ephemeral containers, which are added to a running pod. @throws `invalid` with CreateContainerConfigError */
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

function podProblems({ metadata, spec }: Pod): Problem[] {
  const { sysctls = [], seLinuxOptions, seccompProfile } = spec.securityContext;
  const found: (Problem | false)[] = [
    spec.hostPID === true && ["spec.hostPID", "a component sees no processes"],
    spec.hostIPC === true && ["spec.hostIPC", "a component has no shared memory, semaphores or message queues"],
    spec.shareProcessNamespace === true && ["spec.shareProcessNamespace", "a component sees no processes"],
    spec.hostUsers === false && ["spec.hostUsers", "a component has no user namespace"],
    (spec.resourceClaims ?? []).length > 0 && ["spec.resourceClaims", "a component gets no devices of claims"],
    (metadata.annotations?.["picolet.io/devices"] ?? "") !== "" && [
      "metadata.annotations[picolet.io/devices]",
      "a component has no device nodes; wasm.picolet.io/devices opens ports for it",
    ],
    sysctls.length > 0 && ["spec.securityContext.sysctls", "a component has no kernel parameters of its own"],
    seLinuxOptions !== undefined && ["spec.securityContext.seLinuxOptions", "a component has no SELinux label"],
    seccompProfile?.type === "Localhost" && [
      "spec.securityContext.seccompProfile",
      "a component makes no system calls",
    ],
  ];
  return found.filter((each) => each !== false);
}

/** All of the pod that is as if it was not there. */
export function ignoredPodFields({ spec }: Pod): readonly string[] {
  const { containers, initContainers = [], hostAliases = [], dnsConfig, setHostnameAsFQDN } = spec;
  const found: (Problem | false)[] = [
    hostAliases.length > 0 && ["spec.hostAliases", "a component has no /etc/hosts"],
    dnsConfig !== undefined && ["spec.dnsConfig", "a component has no resolver"],
    setHostnameAsFQDN === true && ["spec.setHostnameAsFQDN", "a component has no hostname"],
    ...containers.flatMap((each, index) => ignoredOf(each, `spec.containers[${index}]`)),
    ...initContainers.flatMap((each, index) => ignoredOf(each, `spec.initContainers[${index}]`)),
  ];
  return found.filter((each) => each !== false).map(([path, why]) => `${path}: ${why}`);
}

const ignoredOf = ({ stdin, tty }: Container, path: string): (Problem | false)[] => [
  stdin === true && [`${path}.stdin`, "a component has no standard input"],
  tty === true && [`${path}.tty`, "a component has no terminal"],
];

/** Finds probes that could never pass: such a pod would restart, or wait to be ready, without end. */
function probeProblems(pod: Pod, container: AnyContainer, path: string): Problem[] {
  const kinds = ["livenessProbe", "readinessProbe", "startupProbe"] as const;
  return kinds.flatMap((kind): Problem[] => {
    const probe = container[kind];
    const why = probe === undefined ? undefined : whyItNeverPasses(probe, mayServe(pod, container));
    return why === undefined ? [] : [[`${path}.${kind}`, why]];
  });
}

/**
 * @returns whether the component may answer on the pod's address, which is the node's: its exports are not known yet
 */
const mayServe = ({ metadata }: Pod, { ports = [] }: AnyContainer): boolean =>
  ports.some(({ protocol = "TCP" }) => protocol === "TCP") ||
  SERVING_ANNOTATIONS.some((name) => metadata.annotations?.[name] !== undefined);

function whyItNeverPasses({ exec, httpGet, tcpSocket, grpc }: Probe, served: boolean): string | undefined {
  if (exec !== undefined)
    return "a component has no second program to run: let it end when it is not well, which restarts it, or probe another host by httpGet or tcpSocket";
  const asked = httpGet ?? tcpSocket;
  if (grpc !== undefined) return "a component does not serve gRPC: ask by httpGet or tcpSocket";
  if (asked !== undefined && !asked.host && !served)
    return "the container has no TCP port, so that nothing of it could answer: name one in ports, or name the host that answers";
  return undefined;
}

function hookProblems({ lifecycle }: AnyContainer, path: string): Problem[] {
  const hooks = ["postStart", "preStop"] as const;
  const isExec = (hook: (typeof hooks)[number]): boolean => lifecycle?.[hook]?.exec !== undefined;
  const why = "a component has no second program to run: take httpGet or sleep";
  return hooks.filter(isExec).map((hook): Problem => [`${path}.lifecycle.${hook}.exec`, why]);
}

function containerProblems(pod: Pod, container: AnyContainer, path: string): Problem[] {
  const { securityContext: own = {}, lifecycle, ports = [], volumeDevices = [] } = container;
  const context = `${path}.securityContext`;
  const elsewhere = ports.some(({ hostPort = 0, containerPort }) => hostPort > 0 && hostPort !== containerPort);
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
    pod.spec.hostNetwork !== true &&
      elsewhere && [`${path}.ports`, "a component has the node's own ports: hostPort has to be containerPort"],
    volumeDevices.length > 0 && [`${path}.volumeDevices`, "a component has no devices"],
    stopSignal !== undefined &&
      !STOP_SIGNALS.has(stopSignal) && [`${path}.lifecycle.stopSignal`, "a component gets no signals"],
  ];
  const itself = found.filter((each) => each !== false);
  return [...itself, ...probeProblems(pod, container, path), ...hookProblems(container, path)];
}

export interface DenseRequirements {
  readonly ownCpus: boolean;
  readonly devices: boolean;
  readonly infers: boolean;
  readonly p3: boolean;
  /** Why the user that it is run as could not reach its files; undefined: it can. */
  readonly unjailed: string | undefined;
}

/** @throws `invalid` with all of it, and CreateContainerConfigError */
export function refuseDense({ ownCpus, devices, infers, p3, unjailed }: DenseRequirements): void {
  const problems = [
    ownCpus && "CPUs of its own, which the CPU manager gives for a whole number of them",
    devices && "devices (gpio, i2c, serial), for which native code is loaded into the process",
    infers && "models (nn), whose library takes more memory than a shared process has",
    p3 && "WASI 0.3, whose glue keeps the event loop to itself",
    unjailed !== undefined &&
      `another user than root where no jail can be made (${unjailed}), as files of containers that come later are opened by that user`,
  ].filter((each) => each !== false);
  if (problems.length === 0) return;
  throw new PicoletError(
    "invalid",
    `a container that shares its process cannot have ${problems.join("; nor ")}: take the annotation wasm.picolet.io/mode: isolated`,
    { reason: "CreateContainerConfigError" },
  );
}
