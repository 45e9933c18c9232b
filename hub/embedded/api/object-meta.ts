/**
 * `metadata` as the server keeps it for every kind: what clients may set, what they may not, and whether it is valid.
 */
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import {
  dnsLabelProblems,
  dnsSubdomainProblems,
  labelValueProblems,
  qualifiedNameProblems,
} from "@picolet/protocol/kubernetes/name-rules.ts";
import type { Random } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { type FieldError, forbiddenValue, invalidValue, requiredValue, tooLongValue } from "./field-errors.ts";
import type { ApiMetadata, ApiObject, ResourceDefinition } from "./resource-definition.ts";

/** Kubernetes' limit for all annotations of one object together. */
const MAX_ANNOTATION_BYTES = 256 * KIBIBYTE;
/** Kubernetes cuts the base of a generated name so that the whole is a label. */
const MAX_GENERATED_BASE = 58;
/** No vowels and no digits that look like them: no words by accident. */
const SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH = 5;

export function generateName(base: string, random: Random): string {
  let suffix = "";
  for (let n = 0; n < SUFFIX_LENGTH; n += 1) {
    suffix += SUFFIX_ALPHABET[Math.floor(random.next() * SUFFIX_ALPHABET.length)] ?? "b";
  }
  return `${base.slice(0, MAX_GENERATED_BASE)}${suffix}`;
}

/** A version 4 UUID. It has to be different, not secret. */
export function generateUid(random: Random): string {
  const bytes = Buffer.from(Array.from({ length: 16 }, () => Math.floor(random.next() * 256)));
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x40, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** Sets the server's fields of a new object; values from the client are dropped. */
export function initializeMetadata(object: ApiObject, now: Date, random: Random, hasGeneration: boolean): void {
  const { metadata } = object;
  delete metadata.deletionTimestamp;
  delete metadata.deletionGracePeriodSeconds;
  delete metadata.resourceVersion;
  delete metadata.selfLink;
  delete metadata.generation;
  metadata.uid = generateUid(random);
  metadata.creationTimestamp = kubeTime(now);
  if (hasGeneration) metadata.generation = 1;
}

const KEPT = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] as const;

/** Restores the fields that no update may change. */
export function keepSystemMetadata(metadata: ApiMetadata, old: ApiMetadata): void {
  for (const field of KEPT) {
    if (old[field] === undefined) delete metadata[field];
    else Object.assign(metadata, { [field]: old[field] });
  }
  delete metadata.selfLink;
  if (metadata.generateName === undefined && old.generateName !== undefined) metadata.generateName = old.generateName;
}

export function nameProblems(definition: ResourceDefinition, name: string): string[] {
  switch (definition.nameRule ?? "subdomain") {
    case "label":
      return dnsLabelProblems(name);
    case "subdomain":
      return dnsSubdomainProblems(name);
    case "path-segment":
      if (name === "." || name === "..") return [`may not be '${name}'`];
      return ["/", "%"].filter((each) => name.includes(each)).map((each) => `may not contain '${each}'`);
  }
}

export function validateMetadata(object: ApiObject, definition: ResourceDefinition): FieldError[] {
  const { metadata } = object;
  const errors: FieldError[] = [];
  if (metadata.name === "" || metadata.name === undefined) {
    errors.push(requiredValue("metadata.name", "name or generateName is required"));
  } else {
    for (const problem of nameProblems(definition, metadata.name)) {
      errors.push(invalidValue("metadata.name", metadata.name, problem));
    }
  }
  errors.push(...validateLabels("metadata.labels", metadata.labels));
  errors.push(...validateAnnotations(metadata.annotations));
  for (const [index, finalizer] of (metadata.finalizers ?? []).entries()) {
    for (const problem of qualifiedNameProblems(finalizer)) {
      errors.push(invalidValue(`metadata.finalizers[${index}]`, finalizer, problem));
    }
  }
  errors.push(...validateOwners(metadata));
  return errors;
}

export function validateLabels(field: string, labels: Readonly<Record<string, string>> | undefined): FieldError[] {
  return Object.entries(labels ?? {}).flatMap(([key, value]) => [
    ...qualifiedNameProblems(key).map((problem) => invalidValue(field, key, problem)),
    ...labelValueProblems(value).map((problem) => invalidValue(field, value, problem)),
  ]);
}

function validateAnnotations(annotations: Readonly<Record<string, string>> | undefined): FieldError[] {
  const errors: FieldError[] = [];
  let bytes = 0;
  for (const [key, value] of Object.entries(annotations ?? {})) {
    for (const problem of qualifiedNameProblems(key.toLowerCase())) {
      errors.push(invalidValue("metadata.annotations", key, problem));
    }
    bytes += Buffer.byteLength(key) + Buffer.byteLength(value);
  }
  if (bytes > MAX_ANNOTATION_BYTES) errors.push(tooLongValue("metadata.annotations", MAX_ANNOTATION_BYTES));
  return errors;
}

function validateOwners({ ownerReferences = [] }: ApiMetadata): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, owner] of ownerReferences.entries()) {
    const field = `metadata.ownerReferences[${index}]`;
    for (const part of ["apiVersion", "kind", "name", "uid"] as const) {
      if (!owner[part])
        errors.push(
          invalidValue(
            `${field}.${part}`,
            owner[part] ?? "",
            `${part === "apiVersion" ? "version" : part} must not be empty`,
          ),
        );
    }
  }
  if (ownerReferences.filter(({ controller }) => controller === true).length > 1) {
    const names = ownerReferences.map(({ kind, name }) => `${kind}/${name}`).join(", ");
    errors.push(invalidValue("metadata.ownerReferences", names, "Only one reference can have Controller set to true"));
  }
  return errors;
}

const FIELD_IS_IMMUTABLE = "field is immutable";

export function validateMetadataUpdate(metadata: ApiMetadata, old: ApiMetadata): FieldError[] {
  const errors: FieldError[] = [];
  if (metadata.name !== old.name) errors.push(invalidValue("metadata.name", metadata.name, FIELD_IS_IMMUTABLE));
  if ((metadata.namespace ?? "") !== (old.namespace ?? "")) {
    errors.push(invalidValue("metadata.namespace", metadata.namespace, FIELD_IS_IMMUTABLE));
  }
  if (old.deletionTimestamp !== undefined) {
    const before = new Set(old.finalizers);
    const added = (metadata.finalizers ?? []).filter((each) => !before.has(each));
    if (added.length > 0) {
      const shown = added.map((each) => JSON.stringify(each)).join(", ");
      const detail = `no new finalizers can be added if the object is being deleted, found new finalizers []string{${shown}}`;
      errors.push(forbiddenValue("metadata.finalizers", detail));
    }
  }
  return errors;
}
