/**
 * The checks of the level baseline of Kubernetes' Pod Security Standards (1.34). A new check is one entry of
 * `baselineChecks`. Pure; texts are Kubernetes' own, since clients print them.
 */
import { fieldAt, listAt, mappingAt, textAt } from "../api/object-fields.ts";
import { hostAccess, JUDGED_ANNOTATIONS } from "./host-access.ts";
import {
  containerNames,
  containersOf,
  type Evaluate,
  filterContainerNames,
  isRelaxed,
  isSafeProfileType,
  nameOf,
  type PodSecurityCheck,
  plural,
  quoteAll,
  seccompTypeOf,
  settersText,
  sortedSet,
} from "./pod-security-view.ts";

const APPARMOR_PREFIX = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER_PREFIX = "container.seccomp.security.alpha.kubernetes.io/";

const appArmorProfile: Evaluate = ({ annotations, spec }) => {
  // Kubernetes copies the annotation into a container's field, which the agent reads first.
  const annotatedType = (holder: unknown): string | undefined =>
    annotations[APPARMOR_PREFIX + nameOf(holder)] === "unconfined" ? "Unconfined" : undefined;
  const typeIn = (holder: unknown): string | undefined => {
    const profile = fieldAt(holder, "securityContext", "appArmorProfile");
    return profile === undefined ? annotatedType(holder) : textAt(profile, "type");
  };
  const isForbidden = (holder: unknown): boolean => {
    const type = typeIn(holder);
    return type !== undefined && !isSafeProfileType(type);
  };
  const holders = [spec, ...containersOf(spec)].filter(isForbidden);
  const forbidden = Object.entries(annotations)
    .filter(([key, value]) => key.startsWith(APPARMOR_PREFIX) && !isSafeAppArmorAnnotation(String(value)))
    .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
    .sort();
  if (holders.length === 0 && forbidden.length === 0) return undefined;
  const values = [...sortedSet(holders.map((holder) => typeIn(holder) ?? "")), ...forbidden];
  const fields = settersText(isForbidden(spec), filterContainerNames(spec, isForbidden));
  const annotation = forbidden.length === 0 ? "" : plural("annotation", "annotations", forbidden.length);
  const setters = [fields, annotation].filter((each) => each !== "").join(" and ");
  return {
    reason: plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.length),
    detail: `${setters} must not set AppArmor profile type to ${quoteAll(values)}`,
  };
};

const isSafeAppArmorAnnotation = (value: string): boolean =>
  value === "" || value === "runtime/default" || value.startsWith("localhost/");

const DEFAULT_CAPABILITIES: ReadonlySet<string> = new Set([
  ...["AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"],
  ...["SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"],
]);

const capabilitiesBaseline: Evaluate = ({ spec }) => {
  const forbiddenOf = (container: unknown): readonly string[] =>
    listAt(container, "securityContext", "capabilities", "add")
      .map(String)
      .filter((name) => !DEFAULT_CAPABILITIES.has(name));
  const names = filterContainerNames(spec, (container) => forbiddenOf(container).length > 0);
  if (names.length === 0) return undefined;
  const added = quoteAll(sortedSet(containersOf(spec).flatMap(forbiddenOf)));
  return {
    reason: "non-default capabilities",
    detail: `${containerNames(names)} must not include ${added} in securityContext.capabilities.add`,
  };
};

const hostNamespaces: Evaluate = ({ spec }) => {
  const set = ["hostNetwork", "hostPID", "hostIPC"].filter((field) => fieldAt(spec, field) === true);
  if (set.length === 0) return undefined;
  return { reason: "host namespaces", detail: set.map((field) => `${field}=true`).join(", ") };
};

const hostPathVolumes: Evaluate = ({ spec }) => {
  const names = listAt(spec, "volumes")
    .filter((volume) => fieldAt(volume, "hostPath") !== undefined)
    .map(nameOf);
  if (names.length === 0) return undefined;
  return { reason: "hostPath volumes", detail: `${plural("volume", "volumes", names.length)} ${quoteAll(names)}` };
};

const hostPorts: Evaluate = ({ spec }) => {
  const portsOf = (container: unknown): readonly string[] =>
    listAt(container, "ports")
      .map((port) => Number(fieldAt(port, "hostPort") ?? 0))
      .filter((port) => port !== 0)
      .map(String);
  const names = filterContainerNames(spec, (container) => portsOf(container).length > 0);
  if (names.length === 0) return undefined;
  const ports = sortedSet(containersOf(spec).flatMap(portsOf));
  const uses = plural("uses", "use", names.length);
  const what = plural("hostPort", "hostPorts", ports.length);
  return { reason: "hostPort", detail: `${containerNames(names)} ${uses} ${what} ${ports.join(", ")}` };
};

const PROBED = [["livenessProbe"], ["readinessProbe"], ["startupProbe"]] as const;
const HOOKS = [
  ["lifecycle", "postStart"],
  ["lifecycle", "preStop"],
] as const;

const hostProbesAndHostLifecycle: Evaluate = ({ spec }) => {
  const hostsOf = (container: unknown): readonly string[] =>
    [...PROBED, ...HOOKS].flatMap((path) =>
      ["httpGet", "tcpSocket"].map((kind) => textAt(container, ...path, kind, "host")).filter((host) => host !== ""),
    );
  const names = sortedSet(filterContainerNames(spec, (container) => hostsOf(container).length > 0));
  if (names.length === 0) return undefined;
  const hosts = sortedSet(containersOf(spec).flatMap(hostsOf));
  const what = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.length);
  const uses = plural("uses", "use", names.length);
  return { reason: "probe or lifecycle host", detail: `${containerNames(names)} ${uses} ${what} ${quoteAll(hosts)}` };
};

const privileged: Evaluate = ({ spec }) => {
  const names = filterContainerNames(spec, (container) => fieldAt(container, "securityContext", "privileged") === true);
  if (names.length === 0) return undefined;
  return {
    reason: "privileged",
    detail: `${containerNames(names)} must not set securityContext.privileged=true`,
  };
};

const procMount: Evaluate = (pod, settings) => {
  if (isRelaxed(pod, settings)) return undefined;
  const { spec } = pod;
  const typeOf = (container: unknown): string | undefined => {
    const type = fieldAt(container, "securityContext", "procMount");
    return type === undefined || type === "Default" ? undefined : String(type);
  };
  const names = filterContainerNames(spec, (container) => typeOf(container) !== undefined);
  if (names.length === 0) return undefined;
  const types = sortedSet(containersOf(spec).flatMap((container) => typeOf(container) ?? []));
  return {
    reason: "procMount",
    detail: `${containerNames(names)} must not set securityContext.procMount to ${quoteAll(types)}`,
  };
};

const SELINUX_TYPES = ["", "container_t", "container_init_t", "container_kvm_t"];

const seLinuxOptions =
  (allowedTypes: readonly string[]): Evaluate =>
  ({ spec }) => {
    const optionsOf = (holder: unknown): unknown => fieldAt(holder, "securityContext", "seLinuxOptions");
    const isForbidden = (holder: unknown): boolean => {
      const options = optionsOf(holder);
      if (options === undefined) return false;
      const isKnown = allowedTypes.includes(textAt(options, "type"));
      return !isKnown || textAt(options, "user") !== "" || textAt(options, "role") !== "";
    };
    const setters = [spec, ...containersOf(spec)].filter(isForbidden).map(optionsOf);
    if (setters.length === 0) return undefined;
    const types = sortedSet(setters.map((each) => textAt(each, "type")).filter((type) => !allowedTypes.includes(type)));
    const data = [
      ...(types.length > 0 ? [`${plural("type", "types", types.length)} ${quoteAll(types)}`] : []),
      ...(setters.some((each) => textAt(each, "user") !== "") ? ["user may not be set"] : []),
      ...(setters.some((each) => textAt(each, "role") !== "") ? ["role may not be set"] : []),
    ];
    const who = settersText(isForbidden(spec), filterContainerNames(spec, isForbidden));
    const detail = `${who} set forbidden securityContext.seLinuxOptions: ${data.join("; ")}`;
    return { reason: "seLinuxOptions", detail };
  };

const isSafeSeccompAnnotation = (value: string): boolean =>
  value === "runtime/default" || value === "docker/default" || value.startsWith("localhost/");

const seccompAnnotations: Evaluate = ({ annotations, spec }) => {
  const keys = [SECCOMP_POD, ...containersOf(spec).map((each) => SECCOMP_CONTAINER_PREFIX + nameOf(each))];
  const forbidden = sortedSet(
    keys
      .filter((key) => Object.hasOwn(annotations, key) && !isSafeSeccompAnnotation(String(annotations[key])))
      .map((key) => `${key}=${JSON.stringify(annotations[key])}`),
  );
  if (forbidden.length === 0) return undefined;
  const what = plural("annotation", "annotations", forbidden.length);
  return { reason: "seccompProfile", detail: `forbidden ${what} ${forbidden.join(", ")}` };
};

/** Finds `securityContext.seccompProfile` of a type that runs without a filter. */
export const seccompProfile: Evaluate = ({ spec }) => {
  const isForbidden = (holder: unknown): boolean => {
    const type = seccompTypeOf(holder);
    return type !== undefined && !isSafeProfileType(type);
  };
  const setters = [spec, ...containersOf(spec)].filter(isForbidden);
  if (setters.length === 0) return undefined;
  const types = quoteAll(sortedSet(setters.map((each) => seccompTypeOf(each) ?? "")));
  const who = settersText(isForbidden(spec), filterContainerNames(spec, isForbidden));
  return { reason: "seccompProfile", detail: `${who} must not set securityContext.seccompProfile.type to ${types}` };
};

const SYSCTLS_1_0 = [
  ...["kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"],
  ...["net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"],
];
const SYSCTLS_1_27 = [...SYSCTLS_1_0, "net.ipv4.ip_local_reserved_ports"];
const SYSCTLS_1_29 = [
  ...[...SYSCTLS_1_27, "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout"],
  ...["net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes"],
];
const SYSCTLS_1_32 = [...SYSCTLS_1_29, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];

const sysctls =
  (allowed: readonly string[]): Evaluate =>
  ({ spec }) => {
    const names = listAt(spec, "securityContext", "sysctls").map(nameOf);
    const forbidden = names.filter((name) => !allowed.includes(name));
    return forbidden.length === 0 ? undefined : { reason: "forbidden sysctls", detail: forbidden.join(", ") };
  };

const windowsHostProcess: Evaluate = ({ spec }) => {
  const isForbidden = (holder: unknown): boolean =>
    mappingAt(holder, "securityContext", "windowsOptions").hostProcess === true;
  const who = settersText(isForbidden(spec), filterContainerNames(spec, isForbidden));
  if (who === "") return undefined;
  return { reason: "hostProcess", detail: `${who} must not set securityContext.windowsOptions.hostProcess=true` };
};

const baseline = (
  id: string,
  revisions: PodSecurityCheck["revisions"] | Evaluate,
  annotations: readonly string[] = [],
): PodSecurityCheck => ({
  id,
  level: "baseline",
  revisions: typeof revisions === "function" ? [{ since: 0, evaluate: revisions }] : revisions,
  annotations,
});

export const baselineChecks: readonly PodSecurityCheck[] = [
  baseline("appArmorProfile", appArmorProfile, [APPARMOR_PREFIX]),
  baseline("capabilities_baseline", capabilitiesBaseline),
  baseline("hostNamespaces", hostNamespaces),
  baseline("hostPathVolumes", hostPathVolumes),
  baseline("hostPorts", hostPorts),
  baseline("hostProbesAndHostLifecycle", [{ since: 34, evaluate: hostProbesAndHostLifecycle }]),
  baseline("picoletHostAccess", hostAccess, JUDGED_ANNOTATIONS),
  baseline("privileged", privileged),
  baseline("procMount", procMount),
  baseline("seLinuxOptions", [
    { since: 0, evaluate: seLinuxOptions(SELINUX_TYPES) },
    { since: 31, evaluate: seLinuxOptions([...SELINUX_TYPES, "container_engine_t"]) },
  ]),
  baseline("seccompProfile_baseline", [
    { since: 0, evaluate: seccompAnnotations },
    { since: 19, evaluate: seccompProfile },
  ]),
  baseline("sysctls", [
    { since: 0, evaluate: sysctls(SYSCTLS_1_0) },
    { since: 27, evaluate: sysctls(SYSCTLS_1_27) },
    { since: 29, evaluate: sysctls(SYSCTLS_1_29) },
    { since: 32, evaluate: sysctls(SYSCTLS_1_32) },
  ]),
  baseline("windowsHostProcess", windowsHostProcess),
];
