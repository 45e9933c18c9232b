const isIpv6 = (ip: string): boolean => ip.includes(":");

/** At most one of each family, that of the node's main address first: what Kubernetes shows of a pod. */
export function podIpsInOrder(podIps: readonly string[], hostIps: readonly string[]): readonly string[] {
  const prefersIpv6 = isIpv6(hostIps[0] ?? "");
  const first = podIps.find((ip) => isIpv6(ip) === prefersIpv6);
  const second = podIps.find((ip) => isIpv6(ip) !== prefersIpv6);
  return [first, second].filter((ip) => ip !== undefined);
}
