/** `fieldRef`, `resourceFieldRef` and references to ConfigMaps and Secrets, of env and of volumes alike. */
import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import { configKeyProblems, dnsSubdomainProblems, qualifiedNameProblems } from "../../kubernetes/name-rules.ts";
import type { Parsed } from "./field-schemas.ts";
import { validateQuantity } from "./quantity-validation.ts";
import type { objectFieldSelectorSchema, resourceFieldSelectorSchema } from "./reference-schemas.ts";

type FieldReference = Parsed<typeof objectFieldSelectorSchema>;
type ResourceReference = Parsed<typeof resourceFieldSelectorSchema>;

const RESOURCES = [
  "limits.cpu",
  "limits.ephemeral-storage",
  "limits.memory",
  "requests.cpu",
  "requests.ephemeral-storage",
  "requests.memory",
];
const HUGE_PAGES = /^(?:limits|requests)\.hugepages-/;
const CPU_DIVISORS = ["1m", "1"];
const BYTE_DIVISORS = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/** The fields that `fieldRef` may name besides `metadata.labels['…']` and `metadata.annotations['…']`. Sorted. */
export const ENV_FIELDS = [
  "metadata.name",
  "metadata.namespace",
  "metadata.uid",
  "spec.nodeName",
  "spec.serviceAccountName",
  "status.hostIP",
  "status.hostIPs",
  "status.podIP",
  "status.podIPs",
];
export const VOLUME_FIELDS = [
  "metadata.annotations",
  "metadata.labels",
  "metadata.name",
  "metadata.namespace",
  "metadata.uid",
];

export function validateFieldReference(
  { apiVersion, fieldPath }: FieldReference,
  supported: readonly string[],
  path: string,
  problems: FieldProblems,
): void {
  const fieldPathPath = `${path}.fieldPath`;
  if (apiVersion !== "v1") problems.invalid(`${path}.apiVersion`, apiVersion, `unsupported pod version: ${apiVersion}`);
  else if (fieldPath === "") problems.required(fieldPathPath);
  else {
    const [, base = fieldPath, subscript] = /^(.*?)\['(.*)'\]$/s.exec(fieldPath) ?? [];
    if (subscript === undefined) {
      if (!supported.includes(base)) problems.unsupported(fieldPathPath, base, supported);
    } else if (base === "metadata.labels" || base === "metadata.annotations") {
      const key = base === "metadata.labels" ? subscript : subscript.toLowerCase();
      problems.invalidAll(path, key, qualifiedNameProblems(key));
    } else problems.invalid(fieldPathPath, fieldPath, "does not support subscript");
  }
}

/** @param inVolume a volume must say which container's resource is meant. */
export function validateResourceReference(
  { containerName = "", resource, divisor }: ResourceReference,
  inVolume: boolean,
  path: string,
  problems: FieldProblems,
): void {
  if (inVolume && containerName === "") problems.required(`${path}.containerName`);
  else if (resource === "") problems.required(`${path}.resource`);
  else if (!RESOURCES.includes(resource) && !HUGE_PAGES.test(resource)) {
    problems.unsupported(`${path}.resource`, resource, RESOURCES);
  }
  if (divisor === undefined) return;
  const quantity = validateQuantity(divisor, `${path}.divisor`, problems);
  if (quantity === undefined || quantity.nano === 0n) return;
  const name = resource.replace(/^(?:limits|requests)\./, "").replace(/^hugepages-.*/, "hugepages");
  const divisors = name === "cpu" ? CPU_DIVISORS : BYTE_DIVISORS;
  const shownName = name === "ephemeral-storage" ? "local ephemeral storage" : name;
  if (!divisors.includes(divisor)) {
    const list = name === "cpu" ? divisors.join(" and ") : divisors.join(", ");
    problems.invalid(
      `${path}.divisor`,
      divisor,
      `only divisor's values ${list} are supported with the ${shownName} resource`,
    );
  }
}

export function validateObjectName(name: string, path: string, problems: FieldProblems): void {
  if (name === "") problems.required(`${path}.name`);
  else problems.invalidAll(`${path}.name`, name, dnsSubdomainProblems(name));
}

export function validateKeyReference(
  { name, key }: { readonly name: string; readonly key: string },
  path: string,
  problems: FieldProblems,
): void {
  validateObjectName(name, path, problems);
  if (key === "") problems.required(`${path}.key`);
  else problems.invalidAll(`${path}.key`, key, configKeyProblems(key));
}
