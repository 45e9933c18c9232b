import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";

/** Linux takes 64 bytes; Kubernetes keeps one for C's NUL. */
const MAX_HOSTNAME_LENGTH = 63;
const MAX_FQDN_LENGTH = 64;

export interface PodHostname {
  /** Short. */
  readonly hostname: string;
  /** `<subdomain>.<namespace>.svc.<cluster domain>`, "" without a subdomain. */
  readonly domain: string;
  /** The kernel's host name: the short one, or with `setHostnameAsFQDN` the full one. */
  readonly kernelHostname: string;
}

/** @throws PicoletError with the reason `FailedCreatePodSandBox` when the full name is too long for the kernel */
export function podHostname(pod: Pod, clusterDomain: string): PodHostname {
  const { metadata, spec } = pod;
  if (spec.hostnameOverride !== undefined) {
    const hostname = cut(spec.hostnameOverride);
    return { hostname, domain: "", kernelHostname: hostname };
  }
  const hostname = cut(spec.hostname || metadata.name);
  const domain = spec.subdomain ? `${spec.subdomain}.${metadata.namespace}.svc.${clusterDomain}` : "";
  if (spec.setHostnameAsFQDN !== true || domain === "") return { hostname, domain, kernelHostname: hostname };
  const full = `${hostname}.${domain}`;
  if (full.length > MAX_FQDN_LENGTH)
    throw new PicoletError(
      "invalid",
      `failed to construct FQDN from pod hostname and cluster domain, FQDN ${full} is too long (${MAX_FQDN_LENGTH} characters is the max, ${full.length} characters requested)`,
      { reason: "FailedCreatePodSandBox" },
    );
  return { hostname, domain, kernelHostname: full };
}

const cut = (name: string): string => name.slice(0, MAX_HOSTNAME_LENGTH).replace(/[-.]+$/, "");
