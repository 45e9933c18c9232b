/**
 * Pods for each check of Pod Security, allowed and forbidden, in the manner of Kubernetes' own fixtures: a minimal pod
 * that satisfies every level, with one thing changed. What a real kube-apiserver 1.34 answered to each is recorded in
 * `test/golden/pod-security/`.
 */
type Fields = Record<string, unknown>;

export interface PodCase {
  /** The check and what is changed. */
  readonly name: string;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly spec: Fields;
  /** Versions of the policy. */
  readonly versions: readonly string[];
}

const ANY_VERSION = ["v1.0", "v1.24", "v1.34", "latest"];

export const safeContainer = (name: string, more: Fields = {}): Fields => ({
  name,
  image: "registry.example/app:1",
  securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
  ...more,
});

/** A pod that the level restricted allows in every version. */
export const safeSpec = (): Fields => ({
  securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
  initContainers: [safeContainer("init")],
  containers: [safeContainer("app")],
});

type Change = (parts: {
  readonly spec: Fields;
  readonly pod: Fields;
  readonly app: Fields;
  readonly init: Fields;
  readonly appContext: Fields;
  readonly initContext: Fields;
}) => void;

const nothing: Change = () => undefined;

const APP = "app";
const INIT = "init";

function changed(change: Change): Fields {
  const appContext: Fields = { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } };
  const initContext = structuredClone(appContext);
  const app = safeContainer(APP, { securityContext: appContext });
  const init = safeContainer(INIT, { securityContext: initContext });
  const pod: Fields = { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } };
  const spec: Fields = { securityContext: pod, initContainers: [init], containers: [app] };
  change({ spec, pod, app, init, appContext, initContext });
  return spec;
}

const group = (
  check: string,
  versions: readonly string[],
  cases: Readonly<Record<string, Change>>,
): readonly PodCase[] =>
  Object.entries(cases).map(([name, change]) => ({ name: `${check}: ${name}`, spec: changed(change), versions }));

const annotated = (
  check: string,
  versions: readonly string[],
  cases: Readonly<Record<string, Readonly<Record<string, string>>>>,
  change: Change = nothing,
): readonly PodCase[] =>
  Object.entries(cases).map(([name, annotations]) => ({
    ...{ name: `${check}: ${name}`, spec: changed(change), versions, annotations },
  }));

const APPARMOR = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/";

const capabilities = (context: Fields, add: readonly string[], drop: readonly string[] = ["ALL"]): void => {
  context.capabilities = { add, drop };
};
const volumes =
  (...sources: readonly Fields[]): Change =>
  ({ spec }) => {
    spec.volumes = sources.map((source, index) => ({ name: `volume-${index}`, ...source }));
  };
const windows =
  (change: Change): Change =>
  (parts) => {
    parts.spec.os = { name: "windows" };
    parts.spec.securityContext = { runAsNonRoot: true };
    parts.app.securityContext = undefined;
    parts.init.securityContext = undefined;
    change(parts);
  };

const NFS = { nfs: { server: "nfs.example", path: "/" } };
const ISCSI = { iscsi: { targetPortal: "10.0.0.1:3260", iqn: "iqn.2001-04.com.example:storage", lun: 0 } };
const PROBE_PORT = 8080;

const baselineCases: readonly PodCase[] = [
  ...group("base", ["v1.0", "v1.7", "v1.8", "v1.18", "v1.19", "v1.22", "v1.25", "v1.33", "v1.34", "v1.99", "latest"], {
    "the safe pod": nothing,
    "nothing set": ({ spec, app }) => {
      app.securityContext = undefined;
      spec.securityContext = undefined;
      spec.initContainers = undefined;
    },
    "everything wrong": ({ spec, pod, app, appContext, initContext }) => {
      Object.assign(spec, { hostNetwork: true, hostPID: true, hostIPC: true });
      spec.volumes = [{ name: "root", hostPath: { path: "/" } }];
      Object.assign(pod, { runAsNonRoot: false, runAsUser: 0, seccompProfile: { type: "Unconfined" } });
      app.ports = [{ containerPort: PROBE_PORT, hostPort: PROBE_PORT }];
      appContext.privileged = true;
      appContext.allowPrivilegeEscalation = true;
      capabilities(appContext, ["SYS_ADMIN"], []);
      capabilities(initContext, ["NET_RAW"], []);
    },
  }),
  ...group("appArmorProfile", ANY_VERSION, {
    "runtime default in the pod": ({ pod }) => (pod.appArmorProfile = { type: "RuntimeDefault" }),
    "localhost in a container": ({ appContext }) =>
      (appContext.appArmorProfile = { type: "Localhost", localhostProfile: "web" }),
    "unconfined pod": ({ pod }) => (pod.appArmorProfile = { type: "Unconfined" }),
    "unconfined container": ({ appContext }) => (appContext.appArmorProfile = { type: "Unconfined" }),
    "unconfined pod and containers": ({ pod, appContext, initContext }) => {
      for (const each of [pod, appContext, initContext]) each.appArmorProfile = { type: "Unconfined" };
    },
  }),
  ...annotated("appArmorProfile", ANY_VERSION, {
    "annotation runtime/default": { [APPARMOR + APP]: "runtime/default" },
    "annotation localhost": { [APPARMOR + APP]: "localhost/web" },
    "annotation unconfined": { [APPARMOR + APP]: "unconfined" },
    "annotations unconfined": { [APPARMOR + APP]: "unconfined", [APPARMOR + INIT]: "unconfined" },
  }),
  ...group("capabilities", ["v1.0", "v1.21", "v1.22", "v1.24", "v1.25", "latest"], {
    "the default set": ({ appContext }) => capabilities(appContext, ["CHOWN", "KILL"]),
    "bind service": ({ appContext }) => capabilities(appContext, ["NET_BIND_SERVICE"]),
    "raw sockets": ({ appContext }) => capabilities(appContext, ["NET_RAW"]),
    "administration in both": ({ appContext, initContext }) => {
      capabilities(appContext, ["SYS_ADMIN", "NET_RAW"]);
      capabilities(initContext, ["SYS_PTRACE"]);
    },
    "lower case": ({ appContext }) => capabilities(appContext, ["chown"]),
    "all added": ({ appContext }) => capabilities(appContext, ["ALL"]),
    "not dropped": ({ appContext }) => capabilities(appContext, [], ["NET_RAW"]),
    "dropped in lower case": ({ appContext }) => capabilities(appContext, [], ["all"]),
    "nothing dropped in the init container": ({ initContext }) => delete initContext.capabilities,
    "windows without capabilities": windows(nothing),
  }),
  ...group("hostNamespaces", ANY_VERSION, {
    network: ({ spec }) => (spec.hostNetwork = true),
    processes: ({ spec }) => (spec.hostPID = true),
    ipc: ({ spec }) => (spec.hostIPC = true),
    "all three": ({ spec }) => Object.assign(spec, { hostIPC: true, hostPID: true, hostNetwork: true }),
    "set to false": ({ spec }) => Object.assign(spec, { hostIPC: false, hostPID: false, hostNetwork: false }),
  }),
  ...group("hostPathVolumes", ANY_VERSION, {
    one: volumes({ hostPath: { path: "/etc" } }),
    two: volumes({ hostPath: { path: "/etc" } }, { emptyDir: {} }, { hostPath: { path: "/dev", type: "Directory" } }),
  }),
  ...group("hostPorts", ANY_VERSION, {
    none: ({ app }) => (app.ports = [{ containerPort: 8080 }]),
    zero: ({ app }) => (app.ports = [{ containerPort: 8080, hostPort: 0 }]),
    one: ({ app }) => (app.ports = [{ containerPort: 8080, hostPort: 8080 }]),
    "several, sorted as text": ({ app, init }) => {
      app.ports = [9000, 1000, 80].map((port) => ({ containerPort: port, hostPort: port }));
      init.ports = [{ containerPort: 443, hostPort: 443, protocol: "UDP" }];
    },
  }),
  ...group("hostProbesAndHostLifecycle", ["v1.0", "v1.33", "v1.34", "v1.35", "latest"], {
    "probes without a host": ({ app }) =>
      Object.assign(app, {
        livenessProbe: { httpGet: { port: PROBE_PORT } },
        readinessProbe: { tcpSocket: { port: PROBE_PORT } },
      }),
    "an empty host": ({ app }) => (app.livenessProbe = { httpGet: { host: "", port: PROBE_PORT } }),
    "a liveness probe": ({ app }) => (app.livenessProbe = { httpGet: { host: "127.0.0.1", port: PROBE_PORT } }),
    "a readiness probe": ({ app }) => (app.readinessProbe = { tcpSocket: { host: "10.0.0.1", port: PROBE_PORT } }),
    "a startup probe": ({ app }) => (app.startupProbe = { httpGet: { host: "metadata.example", port: PROBE_PORT } }),
    hooks: ({ app }) =>
      (app.lifecycle = {
        postStart: { httpGet: { host: "b.example", port: PROBE_PORT } },
        preStop: { httpGet: { host: "a.example", port: PROBE_PORT } },
      }),
    "a sidecar and a container": ({ app, init }) => {
      init.restartPolicy = "Always";
      init.livenessProbe = { tcpSocket: { host: "127.0.0.1", port: PROBE_PORT } };
      app.livenessProbe = { tcpSocket: { host: "127.0.0.1", port: PROBE_PORT } };
    },
  }),
  ...group("privileged", ANY_VERSION, {
    no: ({ appContext }) => (appContext.privileged = false),
    container: ({ appContext }) => Object.assign(appContext, { privileged: true, allowPrivilegeEscalation: true }),
    "both containers": ({ appContext, initContext }) => {
      for (const each of [appContext, initContext]) {
        Object.assign(each, { privileged: true, allowPrivilegeEscalation: true });
      }
    },
  }),
  ...group("procMount", ANY_VERSION, {
    default: ({ appContext }) => (appContext.procMount = "Default"),
    unmasked: ({ spec, appContext }) => {
      spec.hostUsers = false;
      appContext.procMount = "Unmasked";
    },
    "unmasked in both": ({ spec, appContext, initContext }) => {
      spec.hostUsers = false;
      appContext.procMount = "Unmasked";
      initContext.procMount = "Unmasked";
    },
  }),
  ...group("seLinuxOptions", ["v1.0", "v1.30", "v1.31", "latest"], {
    "a level": ({ pod }) => (pod.seLinuxOptions = { level: "s0:c123,c456" }),
    "an allowed type": ({ pod, appContext }) => {
      pod.seLinuxOptions = { type: "container_t" };
      appContext.seLinuxOptions = { type: "container_kvm_t" };
    },
    "the engine's type": ({ appContext }) => (appContext.seLinuxOptions = { type: "container_engine_t" }),
    "another type in the pod": ({ pod }) => (pod.seLinuxOptions = { type: "spc_t" }),
    "types in containers": ({ appContext, initContext }) => {
      appContext.seLinuxOptions = { type: "unconfined_t" };
      initContext.seLinuxOptions = { type: "spc_t" };
    },
    "user and role": ({ pod }) => (pod.seLinuxOptions = { user: "system_u", role: "system_r" }),
    "everything everywhere": ({ pod, appContext }) => {
      pod.seLinuxOptions = { type: "spc_t", user: "system_u" };
      appContext.seLinuxOptions = { type: "container_t", role: "system_r" };
    },
  }),
  ...group("seccompProfile", ["v1.0", "v1.18", "v1.19", "v1.24", "v1.25", "latest"], {
    "localhost in a container": ({ appContext }) =>
      (appContext.seccompProfile = { type: "Localhost", localhostProfile: "web.json" }),
    "unconfined pod": ({ pod }) => (pod.seccompProfile = { type: "Unconfined" }),
    "unconfined container": ({ appContext }) => (appContext.seccompProfile = { type: "Unconfined" }),
    "unconfined pod and containers": ({ pod, appContext, initContext }) => {
      for (const each of [pod, appContext, initContext]) each.seccompProfile = { type: "Unconfined" };
    },
    none: ({ pod }) => delete pod.seccompProfile,
    "none in one container": ({ pod, appContext }) => {
      delete pod.seccompProfile;
      appContext.seccompProfile = { type: "RuntimeDefault" };
    },
    "unconfined pod, safe containers": ({ pod, appContext, initContext }) => {
      pod.seccompProfile = { type: "Unconfined" };
      for (const each of [appContext, initContext]) each.seccompProfile = { type: "RuntimeDefault" };
    },
  }),
  ...annotated(
    "seccompProfile",
    ["v1.0", "v1.18", "v1.19", "latest"],
    {
      "annotation runtime/default": { [SECCOMP]: "runtime/default" },
      "annotation docker/default": { [SECCOMP_CONTAINER + APP]: "docker/default" },
      "annotation localhost": { [SECCOMP]: "localhost/web.json" },
      "annotation unconfined": { [SECCOMP]: "unconfined" },
      "annotations unconfined": { [SECCOMP]: "unconfined", [SECCOMP_CONTAINER + APP]: "unconfined" },
      "annotation of no container": { [`${SECCOMP_CONTAINER}other`]: "unconfined" },
    },
    ({ pod }) => delete pod.seccompProfile,
  ),
  ...group("sysctls", ["v1.0", "v1.26", "v1.27", "v1.28", "v1.29", "v1.31", "v1.32", "latest"], {
    "safe ones": ({ pod }) => (pod.sysctls = [{ name: "kernel.shm_rmid_forced", value: "0" }]),
    "of 1.27": ({ pod }) => (pod.sysctls = [{ name: "net.ipv4.ip_local_reserved_ports", value: "1-2" }]),
    "of 1.29": ({ pod }) =>
      (pod.sysctls = ["time", "intvl", "probes"].map((each) => ({
        name: `net.ipv4.tcp_keepalive_${each}`,
        value: "1",
      }))),
    "of 1.32": ({ pod }) => (pod.sysctls = [{ name: "net.ipv4.tcp_rmem", value: "1 2 3" }]),
    "unsafe ones": ({ pod }) =>
      (pod.sysctls = [
        { name: "kernel.msgmax", value: "65536" },
        { name: "net.core.somaxconn", value: "1" },
        { name: "net.ipv4.tcp_syncookies", value: "0" },
      ]),
  }),
  ...group("windowsHostProcess", ["v1.0", "v1.24", "v1.25", "latest"], {
    pod: windows(({ spec }) => {
      spec.hostNetwork = true;
      spec.securityContext = { runAsNonRoot: true, windowsOptions: { hostProcess: true } };
    }),
    "pod and containers": windows(({ spec, app, init }) => {
      spec.hostNetwork = true;
      spec.securityContext = { windowsOptions: { hostProcess: true } };
      app.securityContext = { windowsOptions: { hostProcess: true } };
      init.securityContext = { windowsOptions: { hostProcess: true } };
    }),
  }),
];

const restrictedCases: readonly PodCase[] = [
  ...group("allowPrivilegeEscalation", ["v1.0", "v1.7", "v1.8", "v1.24", "v1.25", "latest"], {
    unset: ({ appContext }) => delete appContext.allowPrivilegeEscalation,
    "unset in both": ({ appContext, initContext }) => {
      delete appContext.allowPrivilegeEscalation;
      delete initContext.allowPrivilegeEscalation;
    },
    allowed: ({ initContext }) => (initContext.allowPrivilegeEscalation = true),
    "no context": ({ app }) => (app.securityContext = undefined),
  }),
  ...group("restrictedVolumes", ANY_VERSION, {
    "the allowed ones": volumes(
      { emptyDir: {} },
      { configMap: { name: "c" } },
      { secret: { secretName: "s" } },
      { downwardAPI: { items: [{ path: "p", fieldRef: { fieldPath: "metadata.name" } }] } },
      { projected: { sources: [{ configMap: { name: "c" } }] } },
      { persistentVolumeClaim: { claimName: "p" } },
      { csi: { driver: "inline.example" } },
    ),
    nfs: volumes(NFS),
    "nfs, iscsi and hostPath": volumes(ISCSI, NFS, { hostPath: { path: "/etc" } }),
  }),
  ...group("runAsNonRoot", ANY_VERSION, {
    unset: ({ pod }) => delete pod.runAsNonRoot,
    "false in the pod": ({ pod }) => (pod.runAsNonRoot = false),
    "false in a container": ({ appContext }) => (appContext.runAsNonRoot = false),
    "false in both": ({ pod, appContext, initContext }) => {
      for (const each of [pod, appContext, initContext]) each.runAsNonRoot = false;
    },
    "set in one container": ({ pod, appContext }) => {
      delete pod.runAsNonRoot;
      appContext.runAsNonRoot = true;
    },
    "set in all containers": ({ pod, appContext, initContext }) => {
      delete pod.runAsNonRoot;
      appContext.runAsNonRoot = true;
      initContext.runAsNonRoot = true;
    },
    "unset in a user namespace": ({ spec, pod }) => {
      spec.hostUsers = false;
      delete pod.runAsNonRoot;
    },
  }),
  ...group("runAsUser", ["v1.0", "v1.22", "v1.23", "latest"], {
    "a user": ({ pod }) => (pod.runAsUser = 1000),
    "root in the pod": ({ pod }) => (pod.runAsUser = 0),
    "root in containers": ({ appContext, initContext }) => {
      appContext.runAsUser = 0;
      initContext.runAsUser = 0;
    },
    "root in both": ({ pod, appContext }) => {
      pod.runAsUser = 0;
      appContext.runAsUser = 0;
    },
    "root in a user namespace": ({ spec, pod }) => {
      spec.hostUsers = false;
      pod.runAsUser = 0;
    },
  }),
  ...group("windows", ["v1.0", "v1.8", "v1.19", "v1.22", "v1.24", "v1.25", "latest"], {
    "nothing set but the user": windows(nothing),
    "nothing set at all": windows(({ spec }) => (spec.securityContext = undefined)),
  }),
];

export const POD_CASES: readonly PodCase[] = [...baselineCases, ...restrictedCases];

export const ENFORCED_LEVELS = ["baseline", "restricted"] as const;

/** `baseline:v1.34` -> `baseline-v1-34`. */
export const namespaceOf = (policy: string): string => policy.replace(/[:.]/g, "-");
