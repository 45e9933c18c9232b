/** Reads and checks the names of a kubelet's serving certificate. */
import { isIP } from "node:net";
import { addressBytes } from "@picolet/kubelet-api/fairness/address-bytes.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { CertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { equalBytes } from "@picolet/protocol/pki/der.ts";
import { EXTENSION, type RequestedNames, readSubjectAltName } from "@picolet/protocol/pki/extensions.ts";

/** Under these names pods and clients find the API server; a kubelet with one of them could pose as it. */
const API_SERVICE_NAMES = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];
const API_SERVICE_DOMAIN = "kubernetes.default.svc.cluster.local";

const LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?";
const DNS_NAME = new RegExp(`^(?:\\*\\.)?${LABEL}(?:\\.${LABEL})*\\.?$`, "i");

/**
 * The alternative names that a request asks for.
 * @throws `invalid` for malformed ones, and for several extensions of them
 */
export function alternativeNamesOf({ extensions }: CertificateRequest): RequestedNames {
  const [extension, ...more] = extensions.filter(({ oid }) => oid === EXTENSION.subjectAltName);
  if (more.length > 0) throw new PicoletError("invalid", "the request has alternative names twice");
  if (extension === undefined) return { dns: [], addresses: [], others: [] };
  const names = readSubjectAltName(extension.value);
  const malformed = names.dns.find((name) => name.length > 253 || isIP(name) !== 0 || !DNS_NAME.test(name));
  if (malformed !== undefined) {
    throw new PicoletError("invalid", `alternative name ${JSON.stringify(malformed.slice(0, 253))} is no DNS name`);
  }
  return names;
}

/**
 * Refuses names of the hub: boards, kubectl and pods trust the CA that signs, so its holder could pose as the hub.
 * @param own DNS names and addresses of the hub
 * @throws `permission_denied`
 */
export function refuseHubNames({ dns, addresses }: Pick<RequestedNames, "dns" | "addresses">, own: readonly string[]) {
  const ownDns = [...own.filter((name) => isIP(name) === 0), ...API_SERVICE_NAMES, API_SERVICE_DOMAIN].map(normalized);
  const ownAddresses = own.filter((name) => isIP(name) !== 0);
  const taken =
    dns.find((name) => ownDns.some((each) => overlaps(each, normalized(name)))) ??
    ownAddresses.find((each) => addresses.some((address) => equalBytes(address, addressBytes(each))));
  if (taken === undefined) return;
  throw new PicoletError("permission_denied", `subjectAltName ${taken} is not allowed: it is the hub's own`);
}

const normalized = (name: string): string => name.toLowerCase().replace(/\.$/, "");

/** True when some host name matches both patterns, where `*.` is one label. */
const overlaps = (left: string, right: string): boolean => left === right || covers(left, right) || covers(right, left);

const covers = (pattern: string, name: string): boolean =>
  pattern.startsWith("*.") && name.includes(".") && name.slice(name.indexOf(".")) === pattern.slice(1);
