import type { HostAlias, Pod } from "@picolet/protocol/pod/pod.ts";
import type { PodHostname } from "./hostname.ts";

const OWN_HEADER = "# Kubernetes-managed hosts file.\n";
const NODE_HEADER = "# Kubernetes-managed hosts file (host network).\n";
const FIXED = [
  "127.0.0.1\tlocalhost",
  "::1\tlocalhost ip6-localhost ip6-loopback",
  "fe00::0\tip6-localnet",
  "fe00::0\tip6-mcastprefix",
  "fe00::1\tip6-allnodes",
  "fe00::2\tip6-allrouters",
];

/** /etc/hosts of a pod with a network of its own, word for word as the kubelet writes it. */
export function podHostsFile(pod: Pod, podIPs: readonly string[], { hostname, domain }: PodHostname): string {
  const names = domain === "" ? hostname : `${hostname}.${domain}\t${hostname}`;
  const lines = [...FIXED, ...podIPs.map((ip) => `${ip}\t${names}`)];
  return `${OWN_HEADER}${lines.join("\n")}\n${aliasLines(pod.spec.hostAliases)}`;
}

/** The node's own file and the pod's aliases. */
export const nodeHostsFile = (pod: Pod, nodeHosts: string): string =>
  `${NODE_HEADER}${nodeHosts}${aliasLines(pod.spec.hostAliases)}`;

function aliasLines(aliases: readonly HostAlias[] | undefined): string {
  if (aliases === undefined || aliases.length === 0) return "";
  const lines = aliases.map(({ ip, hostnames }) => `${ip}\t${(hostnames ?? []).join("\t")}\n`);
  return `\n# Entries added by HostAliases.\n${lines.join("")}`;
}
