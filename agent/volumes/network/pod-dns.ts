import type { Pod, PodDnsConfig } from "@picolet/protocol/pod/pod.ts";
import type { DnsConfig } from "@picolet/runtime-contract/runtime-adapter.ts";

/** Kubernetes' limits. What is beyond them is left out, with an event. */
export const MAX_NAMESERVERS = 3;
export const MAX_SEARCH_PATHS = 32;
export const MAX_SEARCH_CHARACTERS = 2048;
/** glibc 2.28 aborts on a longer search path. */
const MAX_SEARCH_PATH_LENGTH = 253;
/** resolv.conf(5) has no limit; more lines than this are no resolver configuration. */
const MAX_RESOLV_CONF_CHARACTERS = 256 * 1024;

export interface ClusterDns {
  /** `clusterDNS` of the configuration; may be empty. */
  readonly servers: readonly string[];
  /** `clusterDomain`; may be "". */
  readonly domain: string;
}

export interface PodDns {
  readonly dns: DnsConfig;
  /** Messages of events with the reason `DNSConfigForming`. */
  readonly warnings: readonly string[];
  /** The policy asks for the cluster's DNS, and this node knows none. */
  readonly missingClusterDns: boolean;
}

/**
 * The resolver configuration of a pod.
 * @param host the node's; `undefined` with an empty `resolvConf`: the pod asks a server on its own machine
 * @param hostIPs of the node: that server has an address for each
 */
export function podDns(
  pod: Pod,
  host: DnsConfig | undefined,
  cluster: ClusterDns,
  hostIPs: readonly string[] = [],
): PodDns {
  const { dnsPolicy, hostNetwork, dnsConfig } = pod.spec;
  const wantsCluster =
    dnsPolicy === "ClusterFirstWithHostNet" || (dnsPolicy === "ClusterFirst" && hostNetwork !== true);
  const base =
    dnsPolicy === "None"
      ? { servers: [], searches: [], options: [] }
      : wantsCluster && cluster.servers.length > 0
        ? clusterConfig(pod, host, cluster)
        : (host ?? ownMachine(hostIPs));
  const merged = dnsConfig === undefined ? base : withPodConfig(base, dnsConfig);
  return { ...withinLimits(merged), missingClusterDns: wantsCluster && cluster.servers.length === 0 };
}

function ownMachine(hostIPs: readonly string[]): DnsConfig {
  const servers = hostIPs.map((ip) => (ip.includes(":") ? "::1" : "127.0.0.1"));
  return { servers: servers.length === 0 ? ["127.0.0.1"] : servers, searches: ["."], options: [] };
}

function clusterConfig(pod: Pod, host: DnsConfig | undefined, { servers, domain }: ClusterDns): DnsConfig {
  const own = domain === "" ? [] : [`${pod.metadata.namespace}.svc.${domain}`, `svc.${domain}`, domain];
  return { servers, searches: unique([...own, ...(host?.searches ?? [])]), options: ["ndots:5"] };
}

function withPodConfig(base: DnsConfig, own: PodDnsConfig): DnsConfig {
  const options = new Map(base.options.map((option): [string, string] => splitOption(option)));
  for (const { name, value } of own.options ?? []) if (name) options.set(name, value ?? "");
  return {
    servers: unique([...base.servers, ...(own.nameservers ?? [])]),
    searches: unique([...base.searches, ...(own.searches ?? [])]),
    options: [...options].map(([name, value]) => (value === "" ? name : `${name}:${value}`)),
  };
}

function splitOption(option: string): [string, string] {
  const colon = option.indexOf(":");
  return colon < 0 ? [option, ""] : [option.slice(0, colon), option.slice(colon + 1)];
}

function withinLimits(config: DnsConfig): { readonly dns: DnsConfig; readonly warnings: readonly string[] } {
  const warnings: string[] = [];
  const servers = config.servers.slice(0, MAX_NAMESERVERS);
  if (servers.length < config.servers.length)
    warnings.push(
      `Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: ${servers.join(" ")}`,
    );
  const searches = config.searches
    .slice(0, MAX_SEARCH_PATHS)
    .filter((search) => search.length <= MAX_SEARCH_PATH_LENGTH);
  while (searches.join(" ").length > MAX_SEARCH_CHARACTERS) searches.pop();
  if (searches.length < config.searches.length)
    warnings.push(
      `Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ${searches.join(" ")}`,
    );
  return { dns: { servers, searches, options: config.options }, warnings };
}

/**
 * resolv.conf(5) as Kubernetes reads it: name servers add up and so do options, of which the last of a name counts; of
 * search lines the last counts. Never throws.
 */
export function parseResolvConf(text: string): DnsConfig {
  const servers: string[] = [];
  let searches: string[] = [];
  const options = new Map<string, string>();
  for (const line of text.slice(0, MAX_RESOLV_CONF_CHARACTERS).split("\n")) {
    const [keyword, ...values] = line.trim().split(/\s+/);
    const [first] = values;
    if (keyword === "nameserver" && first !== undefined) servers.push(first);
    // A domain is the same with a final dot. A lone dot is the root, which is no search domain.
    if (keyword === "search") searches = values.filter((each) => each !== ".").map((each) => each.replace(/\.$/, ""));
    if (keyword === "options") for (const option of values) options.set(splitOption(option)[0], option);
  }
  return { servers, searches, options: [...options.values()] };
}

const unique = (texts: readonly string[]): string[] => [...new Set(texts)];
