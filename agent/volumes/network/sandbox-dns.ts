import { readFileSync } from "node:fs";
import { describeError } from "@picolet/protocol/errors.ts";
import type { DesiredPod, DnsConfig } from "@picolet/runtime-contract/runtime-adapter.ts";
import { isComponentPod } from "../../core/pods/pod-runtime.ts";
import { warnOfPod } from "../../core/pods/pod-warning.ts";
import { type EventRecorder, nodeReference } from "../../core/store/store-ports.ts";
import { type ClusterDns, parseResolvConf, podDns } from "./pod-dns.ts";

export interface NodeDns {
  readonly nodeName: string;
  /** Path of the node's resolver configuration; "" for none. */
  readonly resolvConf: string;
  readonly clusterDNS: ClusterDns;
}

/** Records events for settings that cannot be applied. @returns undefined: the runtime makes the file itself */
export function sandboxDns(
  pod: DesiredPod,
  { nodeName, resolvConf, clusterDNS }: NodeDns,
  hostIPs: readonly string[],
  events: EventRecorder,
): DnsConfig | undefined {
  let host: DnsConfig | undefined;
  try {
    host = resolvConf === "" ? undefined : parseResolvConf(readFileSync(resolvConf, "utf8"));
  } catch (error) {
    warnOfPod(events, pod, "DNSConfigForming", `cannot read ${resolvConf}: ${describeError(error)}`);
    host = { servers: [], searches: [], options: [] };
  }
  const { dns, warnings, missingClusterDns } = podDns(pod.pod, host, clusterDNS, hostIPs);
  for (const warning of warnings) warnOfPod(events, pod, "DNSConfigForming", warning);
  // An event of the node, not of each pod: ClusterFirst is the default of every pod. The host resolves names for
  // components, under every dnsPolicy.
  if (missingClusterDns && !isComponentPod(pod))
    events.record({
      regarding: nodeReference(nodeName),
      type: "Warning",
      reason: "MissingClusterDNS",
      message: `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`,
    });
  const isEmpty = dns.servers.length === 0 && dns.searches.length === 0 && dns.options.length === 0;
  // Without settings the runtime makes a better file itself.
  return isEmpty && pod.pod.spec.dnsPolicy !== "None" ? undefined : dns;
}
