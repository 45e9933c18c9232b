/** Validates the section `hub`, and the labels and taints with which a node registers. */
import type { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { labelValueProblems, qualifiedNameProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { parseHubAddress, parseHubProxy } from "../core/hub/hub-address.ts";
import type { Configuration } from "./configuration-defaults.ts";

/** Each costs a dial, of up to 30 s, before the back-off: replicas of one hub are behind one name. */
const MAX_HUBS = 8;
/** Bounds the hashes: the CA in use, the next one, and a few more. */
const MAX_CA_HASHES = 16;

const CA_HASH = /^sha256:[0-9a-f]{64}$/i;
/** Kubernetes' bootstrap tokens. */
const TOKEN = /^[a-z0-9]{6}\.[a-z0-9]{16}$/;

export function validateHub({ hub }: Configuration, problems: FieldProblems): void {
  if (hub === null) return;
  const { server, token, tokenFile, caHash, caFile, proxy, reconnectBackoff } = hub;
  if (server.length === 0) problems.required("hub.server", 'the hub\'s URL, such as "https://hub.example:10270"');
  if (server.length > MAX_HUBS) problems.tooMany("hub.server", server.length, MAX_HUBS);
  server.forEach((url, index) => {
    const address = parseHubAddress(url);
    const path = server.length === 1 ? "hub.server" : `hub.server[${index}]`;
    if (typeof address === "string") problems.invalid(path, url, address);
    else if (server.indexOf(url) < index) problems.duplicate(path, url);
  });
  if (token !== "" && tokenFile !== "") problems.forbidden("hub.token", "may not be specified together with tokenFile");
  // The token itself is not shown: it may be right but for a character.
  if (token !== "" && !TOKEN.test(token)) {
    problems.add("hub.token", 'Invalid value: must be a token such as "abcdef.0123456789abcdef"');
  }
  if (caHash.length > 0 && caFile !== "") problems.forbidden("hub.caHash", "may not be specified together with caFile");
  if (caHash.length > MAX_CA_HASHES) problems.tooMany("hub.caHash", caHash.length, MAX_CA_HASHES);
  caHash.forEach((each, index) => {
    const path = caHash.length === 1 ? "hub.caHash" : `hub.caHash[${index}]`;
    if (!CA_HASH.test(each)) problems.invalid(path, each, 'must be "sha256:" and 64 hexadecimal digits');
  });
  if (token + tokenFile !== "" && caHash.length === 0 && caFile === "") {
    problems.required("hub.caHash", "a token is shown only to a hub that is known by its CA: caHash or caFile");
  }
  for (const field of ["tokenFile", "caFile"] as const) {
    if (hub[field] !== "" && !hub[field].startsWith("/")) {
      problems.invalid(`hub.${field}`, hub[field], "must be an absolute path");
    }
  }
  const faulty = proxy === "" ? undefined : parseHubProxy(proxy);
  // The proxy itself is not shown: it may hold a password.
  if (typeof faulty === "string") problems.add("hub.proxy", `Invalid value: ${faulty}`);
  if (reconnectBackoff.max < reconnectBackoff.initial) {
    problems.add(
      "hub.reconnectBackoff.max",
      `Invalid value: ${reconnectBackoff.max / 1000}s: must be greater than or equal to initial ${reconnectBackoff.initial / 1000}s`,
    );
  }
}

/** Labels of Kubernetes' own that a node may give itself (k8s.io/kubelet/pkg/apis/well_known_labels.go). */
const OWN_LABELS: ReadonlySet<string> = new Set([
  "kubernetes.io/hostname",
  "kubernetes.io/os",
  "kubernetes.io/arch",
  "beta.kubernetes.io/os",
  "beta.kubernetes.io/arch",
  "beta.kubernetes.io/instance-type",
  "topology.kubernetes.io/zone",
  "topology.kubernetes.io/region",
  "failure-domain.beta.kubernetes.io/zone",
  "failure-domain.beta.kubernetes.io/region",
]);
const OWN_PREFIXES = /^(?:[^/]+\.)?(?:kubelet|node)\.kubernetes\.io\//;
const RESERVED_PREFIXES = /^(?:[^/]+\.)?(?:kubernetes|k8s)\.io\//;

const TAINT_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

export function validateNode({ nodeLabels, registerWithTaints }: Configuration, problems: FieldProblems): void {
  for (const [key, value] of Object.entries(nodeLabels)) {
    const path = `nodeLabels[${key}]`;
    problems.invalidAll(path, key, qualifiedNameProblems(key));
    problems.invalidAll(path, value, labelValueProblems(value));
    const isOwn = OWN_LABELS.has(key) || OWN_PREFIXES.test(key);
    if (RESERVED_PREFIXES.test(key) && !isOwn) {
      problems.forbidden(path, "a node may not give itself this label of Kubernetes'");
    }
  }
  registerWithTaints.forEach(({ key, value, effect }, index) => {
    const path = `registerWithTaints[${index}]`;
    problems.invalidAll(`${path}.key`, key, qualifiedNameProblems(key));
    problems.invalidAll(`${path}.value`, value ?? "", labelValueProblems(value ?? ""));
    problems.oneOf(`${path}.effect`, effect, TAINT_EFFECTS);
  });
}
