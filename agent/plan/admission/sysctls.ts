/** Checks a pod's sysctls: the kubelet's safe ones and those of `allowedUnsafeSysctls` are allowed. Pure. */
import type { Pod } from "@picolet/protocol/pod/pod.ts";

type Namespace = "IPC" | "Net";

export interface SysctlAllowlist {
  readonly names: ReadonlyMap<string, Namespace>;
  /** Allowed prefixes of names. */
  readonly prefixes: ReadonlyMap<string, Namespace>;
}

/** Namespaced and of no effect on other pods, each with the kernel from which on it is so (Kubernetes' list). */
const SAFE: readonly (readonly [name: string, kernel: readonly [number, number]])[] = [
  ["kernel.shm_rmid_forced", [0, 0]],
  ["net.ipv4.ip_local_port_range", [0, 0]],
  ["net.ipv4.tcp_syncookies", [0, 0]],
  ["net.ipv4.ping_group_range", [0, 0]],
  ["net.ipv4.ip_unprivileged_port_start", [0, 0]],
  ["net.ipv4.ip_local_reserved_ports", [3, 16]],
  ["net.ipv4.tcp_keepalive_time", [4, 5]],
  ["net.ipv4.tcp_fin_timeout", [4, 6]],
  ["net.ipv4.tcp_keepalive_intvl", [4, 5]],
  ["net.ipv4.tcp_keepalive_probes", [4, 5]],
  ["net.ipv4.tcp_rmem", [4, 15]],
  ["net.ipv4.tcp_wmem", [4, 15]],
];

/** ipc_namespaces(7); `kernel.shm` and `kernel.msg` are what is left of `kernel.shm*` and `kernel.msg*`. */
const OF_IPC: ReadonlySet<string> = new Set([
  ...["kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced", "kernel.shm"],
  ...["kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg"],
]);

function namespaceOf(name: string): Namespace | undefined {
  if (OF_IPC.has(name) || name.startsWith("fs.mqueue.")) return "IPC";
  return name.startsWith("net.") ? "Net" : undefined;
}

/**
 * Names may be written with slashes, and then have dots where the others have slashes:
 * `net/ipv4/conf/eno2.100/rp_filter`.
 */
export function normalizeSysctl(name: string): string {
  const [first] = /[./]/.exec(name) ?? [];
  return first === "/" ? name.replace(/[./]/g, (each) => (each === "." ? "/" : ".")) : name;
}

/** @returns whether `allowedUnsafeSysctls` may contain the pattern: only namespaced sysctls are allowed */
export const isNamespacedSysctl = (pattern: string): boolean =>
  namespaceOf(normalizeSysctl(pattern).replace(/\*.*$/, "")) !== undefined;

/**
 * @param unsafe `allowedUnsafeSysctls`: names, or beginnings of names with a `*`. Those that are not namespaced are
 * left out.
 * @param kernel `uname -r`
 */
export function sysctlAllowlist(unsafe: readonly string[], kernel: string): SysctlAllowlist {
  const [, major = 0, minor = 0] = /^(\d+)\.(\d+)/.exec(kernel)?.map(Number) ?? [];
  const safe = SAFE.filter(([, since]) => major > since[0] || (major === since[0] && minor >= since[1]));
  const names = new Map<string, Namespace>();
  const prefixes = new Map<string, Namespace>();
  for (const pattern of [...safe.map(([name]) => name), ...unsafe]) {
    const normal = normalizeSysctl(pattern);
    const star = normal.indexOf("*");
    const name = star < 0 ? normal : normal.slice(0, star);
    const namespace = namespaceOf(name);
    if (namespace !== undefined) (star < 0 ? names : prefixes).set(name, namespace);
  }
  return { names, prefixes };
}

/** Why the node does not take the pod, as the kubelet words it; `undefined` when all of its sysctls are allowed. */
export function forbiddenSysctl({ spec }: Pod, allowlist: SysctlAllowlist): string | undefined {
  for (const { name: written } of spec.securityContext.sysctls ?? []) {
    const name = normalizeSysctl(written);
    const namespace = allowedAs(name, allowlist);
    if (namespace === undefined) return `forbidden sysctl: "${name}" not allowlisted`;
    const isHosts = namespace === "IPC" ? spec.hostIPC : spec.hostNetwork;
    if (isHosts === true) return `forbidden sysctl: "${name}" not allowed with host ${namespace} enabled`;
  }
  return undefined;
}

function allowedAs(name: string, { names, prefixes }: SysctlAllowlist): Namespace | undefined {
  const exact = names.get(name);
  if (exact !== undefined) return exact;
  for (const [prefix, namespace] of prefixes) if (name.startsWith(prefix)) return namespace;
  return undefined;
}
