/**
 * Validation of a defaulted pod in the words of Kubernetes' API server (pkg/apis/core/validation of Kubernetes 1.34),
 * which the kubelet applies to static pods too. Left to the scheduler, because no node acts upon them: affinity between
 * pods and topology spread. Ephemeral containers are let through: pods of the API server have them.
 */

import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import {
  dnsLabelProblems,
  dnsSubdomainProblems,
  ipProblems,
  labelValueProblems,
  qualifiedNameProblems,
  searchDomainProblems,
} from "../../kubernetes/name-rules.ts";
import { validateQuantity } from "../fields/quantity-validation.ts";
import type { Pod, PodSpec } from "../pod.ts";
import { validateContainers } from "./container-validation.ts";
import { validatePodResources } from "./resource-validation.ts";
import { validatePodSecurity } from "./security-validation.ts";
import { validateVolumes } from "./volume-validation.ts";

/** Kubernetes' limit for all annotations together, keys and values. */
export const MAX_ANNOTATIONS_BYTES = 262_144;
const MAX_INT32 = 2_147_483_647;
/** The limits of Linux' libc for a resolv.conf. */
const MAX_NAMESERVERS = 3;
const MAX_SEARCHES = 32;
const MAX_SEARCH_CHARACTERS = 2048;

const RESTART_POLICIES = ["Always", "OnFailure", "Never"];
const DNS_POLICIES = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PREEMPTION_POLICIES = ["PreemptLowerPriority", "Never"];
const TAINT_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

export function validatePod(pod: Pod, problems: FieldProblems): void {
  validateMetadata(pod, problems);
  validateVolumes(pod, problems);
  validateResourceClaims(pod.spec, problems);
  validateContainers(pod, problems);
  validatePodResources(pod, problems);
  for (const [name, text] of Object.entries(pod.spec.overhead ?? {})) {
    validateQuantity(text, `spec.overhead[${name}]`, problems);
  }
  validatePolicies(pod.spec, problems);
  validateNames(pod.spec, problems);
  validatePodSecurity(pod, problems);
  validateDns(pod.spec, problems);
  validateScheduling(pod.spec, problems);
  validateHostUsers(pod.spec, problems);
}

function validateMetadata({ metadata, spec }: Pod, problems: FieldProblems): void {
  const { name, namespace, generateName = "", labels = {}, annotations = {} } = metadata;
  if (name === "") {
    problems.required("metadata.name", generateName === "" ? "name or generateName is required" : "");
  } else problems.invalidAll("metadata.name", name, dnsSubdomainProblems(name));
  if (namespace === "") problems.required("metadata.namespace");
  else problems.invalidAll("metadata.namespace", namespace, dnsLabelProblems(namespace));
  if (metadata.generation !== undefined && metadata.generation < 0) {
    problems.invalid("metadata.generation", metadata.generation, "must be greater than or equal to 0");
  }
  validateLabels(labels, "metadata.labels", problems);
  let bytes = 0;
  for (const [key, value] of Object.entries(annotations)) {
    problems.invalidAll("metadata.annotations", key, qualifiedNameProblems(key.toLowerCase()));
    bytes += utf8Length(key) + utf8Length(value);
  }
  if (bytes > MAX_ANNOTATIONS_BYTES) problems.tooLong("metadata.annotations", MAX_ANNOTATIONS_BYTES);
  if (Object.hasOwn(annotations, "kubernetes.io/config.mirror") && (spec.nodeName ?? "") === "") {
    const key = "kubernetes.io/config.mirror";
    const detail = "must set spec.nodeName if mirror pod annotation is set";
    problems.invalid(`metadata.annotations[${key}]`, annotations[key], detail);
  }
}

const utf8Length = (text: string): number => new TextEncoder().encode(text).length;

function validateLabels(labels: Readonly<Record<string, string>>, path: string, problems: FieldProblems): void {
  for (const [key, value] of Object.entries(labels)) {
    problems.invalidAll(path, key, qualifiedNameProblems(key));
    problems.invalidAll(`${path}[${key}]`, value, labelValueProblems(value));
  }
}

function validatePolicies(spec: PodSpec, problems: FieldProblems): void {
  problems.oneOf("spec.restartPolicy", spec.restartPolicy, RESTART_POLICIES);
  problems.oneOf("spec.dnsPolicy", spec.dnsPolicy, DNS_POLICIES);
  if (spec.preemptionPolicy !== undefined) {
    problems.oneOf("spec.preemptionPolicy", spec.preemptionPolicy, PREEMPTION_POLICIES);
  }
  if (spec.os !== undefined) problems.oneOf("spec.os.name", spec.os.name, ["linux", "windows"]);
  const { activeDeadlineSeconds: deadline } = spec;
  if (deadline !== undefined && (deadline < 1 || deadline > MAX_INT32)) {
    problems.invalid("spec.activeDeadlineSeconds", deadline, `must be between 1 and ${MAX_INT32}, inclusive`);
  }
}

function validateNames(spec: PodSpec, problems: FieldProblems): void {
  for (const field of ["serviceAccountName", "nodeName", "priorityClassName", "hostnameOverride"] as const) {
    const name = spec[field] ?? "";
    if (name !== "") problems.invalidAll(`spec.${field}`, name, dnsSubdomainProblems(name));
  }
  if (spec.runtimeClassName !== undefined) {
    const name = spec.runtimeClassName;
    problems.invalidAll("spec.runtimeClassName", name, dnsSubdomainProblems(name));
  }
  for (const field of ["hostname", "subdomain"] as const) {
    const name = spec[field] ?? "";
    if (name !== "") problems.invalidAll(`spec.${field}`, name, dnsLabelProblems(name));
  }
  (spec.hostAliases ?? []).forEach(({ ip, hostnames = [] }, index) => {
    problems.invalidAll(`spec.hostAliases[${index}].ip`, ip, ipProblems(ip));
    hostnames.forEach((hostname, position) => {
      const path = `spec.hostAliases[${index}].hostnames[${position}]`;
      problems.invalidAll(path, hostname, dnsSubdomainProblems(hostname));
    });
  });
  (spec.readinessGates ?? []).forEach(({ conditionType }, index) => {
    const path = `spec.readinessGates[${index}].conditionType`;
    problems.invalidAll(path, conditionType, qualifiedNameProblems(conditionType));
  });
}

function validateDns({ dnsPolicy, dnsConfig }: PodSpec, problems: FieldProblems): void {
  const path = "spec.dnsConfig";
  if (dnsConfig === undefined) {
    if (dnsPolicy === "None") problems.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
    return;
  }
  const { nameservers = [], searches = [], options = [] } = dnsConfig;
  if (dnsPolicy === "None" && nameservers.length === 0) {
    const detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
    problems.required(`${path}.nameservers`, detail);
  }
  if (nameservers.length > MAX_NAMESERVERS) {
    problems.invalid(`${path}.nameservers`, nameservers, `must not have more than ${MAX_NAMESERVERS} nameservers`);
  }
  nameservers.forEach((server, index) => {
    problems.invalidAll(`${path}.nameservers[${index}]`, server, ipProblems(server));
  });
  if (searches.length > MAX_SEARCHES) {
    problems.invalid(`${path}.searches`, searches, `must not have more than ${MAX_SEARCHES} search paths`);
  }
  if (searches.join(" ").length > MAX_SEARCH_CHARACTERS) {
    const detail = `must not have more than ${MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list`;
    problems.invalid(`${path}.searches`, searches, detail);
  }
  searches.forEach((search, index) => {
    problems.invalidAll(`${path}.searches[${index}]`, search, searchDomainProblems(search));
  });
  options.forEach(({ name = "" }, index) => {
    if (name === "") problems.required(`${path}.options[${index}]`, "must not be empty");
  });
}

function validateScheduling(spec: PodSpec, problems: FieldProblems): void {
  validateLabels(spec.nodeSelector ?? {}, "spec.nodeSelector", problems);
  (spec.tolerations ?? []).forEach(({ key = "", operator, value = "", effect, tolerationSeconds }, index) => {
    const path = `spec.tolerations[${index}]`;
    if (key !== "") problems.invalidAll(`${path}.key`, key, qualifiedNameProblems(key));
    else if (operator !== "Exists") {
      const detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"';
      problems.invalid(`${path}.operator`, operator ?? "", detail);
    }
    if (tolerationSeconds !== undefined && effect !== "NoExecute") {
      problems.invalid(`${path}.effect`, effect ?? "", "effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
    if (operator === "Exists") {
      if (value !== "") problems.invalid(`${path}.operator`, value, "value must be empty when `operator` is 'Exists'");
    } else if (operator === undefined || operator === "Equal") {
      problems.invalidAll(`${path}.operator`, value, labelValueProblems(value));
    } else problems.unsupported(`${path}.operator`, operator, ["Equal", "Exists"]);
    if (effect !== undefined && !TAINT_EFFECTS.includes(effect)) {
      problems.unsupported(`${path}.effect`, effect, TAINT_EFFECTS);
    }
  });
  const required = spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  if (required !== undefined && required.nodeSelectorTerms.length === 0) {
    problems.required(
      "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
      "must have at least one node selector term",
    );
  }
}

function validateResourceClaims(spec: PodSpec, problems: FieldProblems): void {
  const names = new Set<string>();
  (spec.resourceClaims ?? []).forEach((claim, index) => {
    const path = `spec.resourceClaims[${index}]`;
    if (claim.name === "") problems.required(`${path}.name`);
    else if (names.has(claim.name)) problems.duplicate(`${path}.name`, claim.name);
    else problems.invalidAll(`${path}.name`, claim.name, dnsLabelProblems(claim.name));
    names.add(claim.name);
    const { resourceClaimName, resourceClaimTemplateName } = claim;
    if (resourceClaimName !== undefined && resourceClaimTemplateName !== undefined) {
      const detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
      problems.invalid(path, claim, detail);
    } else if (resourceClaimName === undefined && resourceClaimTemplateName === undefined) {
      problems.invalid(path, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`");
    }
  });
}

/** A user namespace of the pod's own goes with none of the host's other namespaces. */
function validateHostUsers(spec: PodSpec, problems: FieldProblems): void {
  if (spec.hostUsers !== false) return;
  // The paths of the last two are the API server's own.
  const shared = { hostNetwork: spec.hostNetwork, HostPID: spec.hostPID, HostIPC: spec.hostIPC };
  for (const [field, isShared] of Object.entries(shared)) {
    if (isShared === true) problems.forbidden(`spec.${field}`, "when `hostUsers` is false");
  }
}
