/** Containers of every kind, as pkg/apis/core/validation of Kubernetes 1.34 judges them. */
import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import {
  dnsLabelProblems,
  envNameProblems,
  portNameProblems,
  portNumberProblems,
} from "../../kubernetes/name-rules.ts";
import {
  ENV_FIELDS,
  validateFieldReference,
  validateKeyReference,
  validateObjectName,
  validateResourceReference,
} from "../fields/reference-validation.ts";
import type {
  Container,
  ContainerPort,
  EphemeralContainer,
  Lifecycle,
  LifecycleHandler,
  Pod,
  Probe,
  Volume,
} from "../pod.ts";
import { isSidecar } from "../pod-resources.ts";
import { validateResources } from "./resource-validation.ts";
import { validateContainerSecurity } from "./security-validation.ts";
import { validateMounts } from "./volume-validation.ts";

/**
 * Bounds containers of all kinds in one pod. Kubernetes bounds only the object's size; here each container is a process
 * and a cgroup.
 */
export const MAX_CONTAINERS = 256;

const PROTOCOLS = ["SCTP", "TCP", "UDP"];
const PULL_POLICIES = ["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES = ["File", "FallbackToLogsOnError"];
const SCHEMES = ["HTTP", "HTTPS"];
const RESIZABLE = ["cpu", "memory"];
const RESIZE_POLICIES = ["NotRequired", "RestartContainer"];
const RESTART_POLICIES = ["Always", "Never", "OnFailure"];
/** Kubernetes' limits. */
const MAX_RESTART_RULES = 20;
const MAX_EXIT_CODES = 255;
const NOT_FOR_SIDECARS = "restartPolicyRules are not allowed for init containers with restart policy Always";
const NOT_FOR_INIT = "may not be set for init containers without restartPolicy=Always";
const NOT_FOR_EPHEMERAL = "cannot be set for an Ephemeral Container";
const IS_NEGATIVE = "must be greater than or equal to 0";

/** The parts of a pod that the checks of one container need. */
interface Surroundings {
  readonly pod: Pod;
  readonly volumes: ReadonlyMap<string, Volume>;
  readonly claims: ReadonlySet<string>;
  readonly problems: FieldProblems;
}

export function validateContainers(pod: Pod, problems: FieldProblems): void {
  const { containers, initContainers = [], ephemeralContainers = [], volumes = [], resourceClaims = [] } = pod.spec;
  const count = containers.length + initContainers.length + ephemeralContainers.length;
  if (count > MAX_CONTAINERS) {
    problems.tooMany("spec.containers", count, MAX_CONTAINERS);
    return;
  }
  const around: Surroundings = {
    pod,
    volumes: new Map(volumes.map((volume) => [volume.name, volume])),
    claims: new Set(resourceClaims.map(({ name }) => name)),
    problems,
  };
  if (containers.length === 0) problems.required("spec.containers");
  const names = new Set<string>();
  containers.forEach((container, index) => {
    validateRegular(container, `spec.containers[${index}]`, names, around);
  });
  initContainers.forEach((container, index) => {
    validateInit(container, `spec.initContainers[${index}]`, names, around);
  });
  const targets = new Set(names);
  ephemeralContainers.forEach((container, index) => {
    validateEphemeral(container, `spec.ephemeralContainers[${index}]`, names, targets, around);
  });
  validateHostPorts(pod, problems);
}

function validateRegular(container: Container, path: string, names: Set<string>, around: Surroundings): void {
  validateCommon(container, path, names, around);
  validateLifecycleAndProbes(container, path, around);
  validateRestartRules(container, path, around.problems);
}

/** Checks the rules of regular containers, and of init containers that are not sidecars (KEP 5307). */
function validateRestartRules(container: Container, path: string, problems: FieldProblems): void {
  const { restartPolicy, restartPolicyRules: rules = [] } = container;
  if (restartPolicy !== undefined) problems.oneOf(`${path}.restartPolicy`, restartPolicy, RESTART_POLICIES);
  else if (rules.length > 0) problems.required(`${path}.restartPolicy`);
  if (rules.length > MAX_RESTART_RULES) {
    problems.tooMany(`${path}.restartPolicyRules`, rules.length, MAX_RESTART_RULES);
    return;
  }
  rules.forEach(({ action, exitCodes }, index) => {
    const each = `${path}.restartPolicyRules[${index}]`;
    problems.oneOf(`${each}.action`, action, ["Restart"]);
    if (exitCodes === undefined) {
      problems.required(`${each}.exitCodes`);
      return;
    }
    problems.oneOf(`${each}.exitCodes.operator`, exitCodes.operator, ["In", "NotIn"]);
    const count = exitCodes.values?.length ?? 0;
    if (count > MAX_EXIT_CODES) problems.tooMany(`${each}.exitCodes.values`, count, MAX_EXIT_CODES);
  });
}

function validateInit(container: Container, path: string, names: Set<string>, around: Surroundings): void {
  const { problems } = around;
  validateCommon(container, path, names, around);
  if (isSidecar(container)) {
    if ((container.restartPolicyRules ?? []).length > 0) {
      problems.forbidden(`${path}.restartPolicyRules`, NOT_FOR_SIDECARS);
    }
    validateLifecycleAndProbes(container, path, around);
    return;
  }
  validateRestartRules(container, path, problems);
  for (const field of ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] as const) {
    if (container[field] !== undefined) problems.forbidden(`${path}.${field}`, NOT_FOR_INIT);
  }
}

function validateEphemeral(
  container: EphemeralContainer,
  path: string,
  names: Set<string>,
  targets: ReadonlySet<string>,
  around: Surroundings,
): void {
  const { problems } = around;
  validateCommon(container, path, names, around);
  const target = container.targetContainerName ?? "";
  if (target !== "" && !targets.has(target)) problems.notFound(`${path}.targetContainerName`, target);
  const forbidden = ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "restartPolicy"] as const;
  for (const field of [...forbidden, "restartPolicyRules", "resizePolicy"] as const) {
    if (container[field] !== undefined) problems.forbidden(`${path}.${field}`, NOT_FOR_EPHEMERAL);
  }
  if (Object.keys(container.resources).length > 0) problems.forbidden(`${path}.resources`, NOT_FOR_EPHEMERAL);
  (container.volumeMounts ?? []).forEach((mount, index) => {
    for (const field of ["subPath", "subPathExpr"] as const) {
      if ((mount[field] ?? "") !== "") problems.forbidden(`${path}.volumeMounts[${index}].${field}`, NOT_FOR_EPHEMERAL);
    }
  });
}

function validateCommon(container: Container, path: string, names: Set<string>, around: Surroundings): void {
  const { problems, pod, volumes, claims } = around;
  const { name, image } = container;
  if (name === "") problems.required(`${path}.name`);
  else problems.invalidAll(`${path}.name`, name, dnsLabelProblems(name));
  if (name !== "" && names.has(name)) problems.duplicate(`${path}.name`, name);
  names.add(name);
  if (image === "") problems.required(`${path}.image`);
  else if (image.trim() !== image) {
    problems.invalid(`${path}.image`, image, "must not have leading or trailing whitespace");
  }
  problems.oneOf(`${path}.imagePullPolicy`, container.imagePullPolicy, PULL_POLICIES);
  problems.oneOf(`${path}.terminationMessagePolicy`, container.terminationMessagePolicy, MESSAGE_POLICIES);
  validatePorts(container.ports ?? [], `${path}.ports`, problems);
  validateEnv(container.env ?? [], `${path}.env`, problems);
  validateEnvFrom(container.envFrom ?? [], `${path}.envFrom`, problems);
  validateMounts(container, volumes, path, problems);
  validateResources(container.resources, claims, `${path}.resources`, problems);
  validateResizePolicy(container, pod.spec.restartPolicy === "Never", `${path}.resizePolicy`, problems);
  if (container.securityContext !== undefined) {
    const hostUsers = pod.spec.hostUsers !== false;
    validateContainerSecurity(container.securityContext, hostUsers, `${path}.securityContext`, problems);
  }
}

function validatePorts(ports: readonly ContainerPort[], path: string, problems: FieldProblems): void {
  const names = new Set<string>();
  ports.forEach(({ name = "", containerPort, hostPort = 0, protocol }, index) => {
    const each = `${path}[${index}]`;
    if (name !== "") {
      problems.invalidAll(`${each}.name`, name, portNameProblems(name));
      if (names.has(name)) problems.duplicate(`${each}.name`, name);
      names.add(name);
    }
    if (containerPort === 0) problems.required(`${each}.containerPort`);
    else problems.invalidAll(`${each}.containerPort`, containerPort, portNumberProblems(containerPort));
    if (hostPort !== 0) problems.invalidAll(`${each}.hostPort`, hostPort, portNumberProblems(hostPort));
    problems.oneOf(`${each}.protocol`, protocol, PROTOCOLS);
  });
}

/** Init containers run one by one, so only those of one of them can clash; the others run together. */
function validateHostPorts(pod: Pod, problems: FieldProblems): void {
  const { containers, initContainers = [], hostNetwork } = pod.spec;
  const shared = new Set<string>();
  const check = (container: Container, path: string, used: Set<string>): void => {
    (container.ports ?? []).forEach(({ hostPort = 0, hostIP = "", protocol, containerPort }, index) => {
      if (hostPort === 0) return;
      const key = `${protocol}/${hostIP}/${hostPort}`;
      if (used.has(key)) problems.duplicate(`${path}.ports[${index}].hostPort`, key);
      used.add(key);
      if (hostNetwork === true && hostPort !== containerPort) {
        const detail = "must match `containerPort` when `hostNetwork` is true";
        problems.invalid(`${path}.ports[${index}].hostPort`, hostPort, detail);
      }
    });
  };
  containers.forEach((container, index) => {
    check(container, `spec.containers[${index}]`, shared);
  });
  initContainers.forEach((container, index) => {
    check(container, `spec.initContainers[${index}]`, new Set());
  });
}

function validateEnv(env: NonNullable<Container["env"]>, path: string, problems: FieldProblems): void {
  env.forEach(({ name, value = "", valueFrom }, index) => {
    const each = `${path}[${index}]`;
    if (name === "") problems.required(`${each}.name`);
    else problems.invalidAll(`${each}.name`, name, envNameProblems(name));
    if (valueFrom === undefined) return;
    const from = `${each}.valueFrom`;
    const { fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef } = valueFrom;
    if (fieldRef) validateFieldReference(fieldRef, ENV_FIELDS, `${from}.fieldRef`, problems);
    if (resourceFieldRef) validateResourceReference(resourceFieldRef, false, `${from}.resourceFieldRef`, problems);
    if (configMapKeyRef) validateKeyReference(configMapKeyRef, `${from}.configMapKeyRef`, problems);
    if (secretKeyRef) validateKeyReference(secretKeyRef, `${from}.secretKeyRef`, problems);
    const sources = [fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef];
    const count = sources.filter((source) => source !== undefined).length;
    if (count === 0) {
      const detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
      problems.invalid(from, "", detail);
    } else if (value !== "") problems.invalid(from, "", "may not be specified when `value` is not empty");
    else if (count > 1) problems.invalid(from, "", "may not have more than one field specified at a time");
  });
}

function validateEnvFrom(sources: NonNullable<Container["envFrom"]>, path: string, problems: FieldProblems): void {
  sources.forEach(({ prefix = "", configMapRef, secretRef }, index) => {
    const each = `${path}[${index}]`;
    if (prefix !== "") problems.invalidAll(`${each}.prefix`, prefix, envNameProblems(prefix));
    if (configMapRef) validateObjectName(configMapRef.name, `${each}.configMapRef`, problems);
    if (secretRef) validateObjectName(secretRef.name, `${each}.secretRef`, problems);
    if (!configMapRef && !secretRef) problems.invalid(each, "", "must specify one of: `configMapRef` or `secretRef`");
    else if (configMapRef && secretRef) {
      problems.invalid(each, "", "may not have more than one field specified at a time");
    }
  });
}

function validateResizePolicy(
  container: Container,
  neverRestarts: boolean,
  path: string,
  problems: FieldProblems,
): void {
  const seen = new Set<string>();
  (container.resizePolicy ?? []).forEach(({ resourceName, restartPolicy }, index) => {
    const each = `${path}[${index}]`;
    if (seen.has(resourceName)) problems.duplicate(each, resourceName);
    seen.add(resourceName);
    problems.oneOf(`${each}.resourceName`, resourceName, RESIZABLE);
    problems.oneOf(`${each}.restartPolicy`, restartPolicy, RESIZE_POLICIES);
    if (neverRestarts && restartPolicy === "RestartContainer") {
      const detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
      problems.invalid(`${each}.restartPolicy`, restartPolicy, detail);
    }
  });
}

function validateLifecycleAndProbes(container: Container, path: string, around: Surroundings): void {
  const { lifecycle, livenessProbe, readinessProbe, startupProbe } = container;
  if (lifecycle) validateLifecycle(lifecycle, `${path}.lifecycle`, around);
  if (livenessProbe) validateOnceProbe(livenessProbe, `${path}.livenessProbe`, around);
  if (startupProbe) validateOnceProbe(startupProbe, `${path}.startupProbe`, around);
  if (readinessProbe === undefined) return;
  validateProbe(readinessProbe, `${path}.readinessProbe`, around);
  if (readinessProbe.terminationGracePeriodSeconds !== undefined) {
    around.problems.invalid(
      `${path}.readinessProbe.terminationGracePeriodSeconds`,
      readinessProbe.terminationGracePeriodSeconds,
      "must not be set for readinessProbes",
    );
  }
}

function validateLifecycle(lifecycle: Lifecycle, path: string, around: Surroundings): void {
  if (lifecycle.postStart) validateHandler(lifecycle.postStart, `${path}.postStart`, around);
  if (lifecycle.preStop) validateHandler(lifecycle.preStop, `${path}.preStop`, around);
  if (lifecycle.stopSignal === undefined) return;
  if (around.pod.spec.os === undefined) {
    around.problems.forbidden(`${path}.stopSignal`, "may not be set for containers with empty `spec.os.name`");
  }
  if (!/^SIG[A-Z0-9]+(?:[+-]\d+)?$/.test(lifecycle.stopSignal)) {
    around.problems.invalid(
      `${path}.stopSignal`,
      lifecycle.stopSignal,
      "must be the name of a signal, such as SIGTERM",
    );
  }
}

/** Liveness and startup: one success is enough. */
function validateOnceProbe(probe: Probe, path: string, around: Surroundings): void {
  validateProbe(probe, path, around);
  if (probe.successThreshold !== 1)
    around.problems.invalid(`${path}.successThreshold`, probe.successThreshold, "must be 1");
}

function validateProbe(probe: Probe, path: string, around: Surroundings): void {
  const { problems } = around;
  validateHandler(probe, path, around);
  for (const field of [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
  ] as const) {
    const value = probe[field];
    if (value !== undefined && value < 0) problems.invalid(`${path}.${field}`, value, IS_NEGATIVE);
  }
  const grace = probe.terminationGracePeriodSeconds;
  if (grace !== undefined && grace <= 0) {
    problems.invalid(`${path}.terminationGracePeriodSeconds`, grace, "must be greater than 0");
  }
}

type Handler = Partial<Pick<Probe, "exec" | "httpGet" | "tcpSocket" | "grpc"> & Pick<LifecycleHandler, "sleep">>;

function validateHandler(handler: Handler, path: string, { pod, problems }: Surroundings): void {
  const kinds = (["exec", "httpGet", "tcpSocket", "grpc", "sleep"] as const).filter(
    (kind) => handler[kind] !== undefined,
  );
  if (kinds.length === 0) problems.required(path, "must specify a handler type");
  for (const kind of kinds.slice(1)) problems.forbidden(`${path}.${kind}`, "may not specify more than 1 handler type");
  const { exec, httpGet, tcpSocket, grpc, sleep } = handler;
  if (exec && (exec.command ?? []).length === 0) problems.required(`${path}.exec.command`);
  if (httpGet) {
    validatePort(httpGet.port, `${path}.httpGet.port`, problems);
    problems.oneOf(`${path}.httpGet.scheme`, httpGet.scheme, SCHEMES);
    for (const { name } of httpGet.httpHeaders ?? []) {
      if (!/^[-A-Za-z0-9]+$/.test(name)) {
        problems.invalid(
          `${path}.httpGet.httpHeaders`,
          name,
          "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
        );
      }
    }
  }
  if (tcpSocket) validatePort(tcpSocket.port, `${path}.tcpSocket.port`, problems);
  if (grpc) validatePort(grpc.port, `${path}.grpc.port`, problems);
  const grace = pod.spec.terminationGracePeriodSeconds;
  if (sleep && (sleep.seconds < 0 || sleep.seconds > grace)) {
    const detail = `must be non-negative and less than terminationGracePeriodSeconds (${grace})`;
    problems.invalid(`${path}.sleep`, sleep.seconds, detail);
  }
}

function validatePort(port: string | number, path: string, problems: FieldProblems): void {
  problems.invalidAll(path, port, typeof port === "number" ? portNumberProblems(port) : portNameProblems(port));
}
