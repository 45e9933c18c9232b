import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { type FieldError, invalidValue, requiredValue, tooLongValue } from "../api/field-errors.ts";
import { fieldAt, listAt, mappingAt, sameValue, section, textAt } from "../api/object-fields.ts";
import type { ApiObject, ResourceDefinition } from "../api/resource-definition.ts";
import { humanDuration } from "../printing/age.ts";
import { ageColumn, column, field, nameColumn } from "../printing/columns.ts";

function conditionText(request: ApiObject): string {
  const types = listAt(request, "status", "conditions").map((each) => textAt(each, "type"));
  const decided = types.includes("Denied") ? "Denied" : types.includes("Approved") ? "Approved" : "Pending";
  const failed = types.includes("Failed") ? ",Failed" : "";
  return `${decided}${failed}${textAt(request, "status", "certificate") === "" ? "" : ",Issued"}`;
}

function requestedDuration(request: ApiObject): string {
  const seconds = fieldAt(request, "spec", "expirationSeconds");
  return typeof seconds === "number" ? humanDuration(seconds * 1000) : "<none>";
}

/** Signer of certificates.k8s.io/v1beta1, where a request needed none. */
const LEGACY_SIGNER = "kubernetes.io/legacy-unknown";
/** kube-apiserver takes no shorter certificates. */
const MIN_EXPIRATION_SECONDS = 600;

/** PEM of a request with a 4096-bit key and a hundred names; what is longer is not read. */
const MAX_REQUEST_BYTES = 8192;
/** Kubernetes knows 23. */
const MAX_USAGES = 32;

function validateRequest(request: ApiObject): readonly FieldError[] {
  const errors: FieldError[] = [];
  const encoded = textAt(request, "spec", "request");
  if (encoded.length > (MAX_REQUEST_BYTES / 3) * 4 + 4) {
    return [tooLongValue("spec.request", MAX_REQUEST_BYTES)];
  }
  if (listAt(request, "spec", "usages").length > MAX_USAGES) {
    return [
      { type: "FieldValueTooMany", field: "spec.usages", message: `Too many: must have at most ${MAX_USAGES} items` },
    ];
  }
  const pem = Buffer.from(encoded, "base64").toString("latin1");
  if (!/^-----BEGIN CERTIFICATE REQUEST-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE REQUEST-----\s*$/.test(pem)) {
    errors.push(
      invalidValue("spec.request", textAt(request, "spec", "request"), "PEM block type must be CERTIFICATE REQUEST"),
    );
  }
  if (listAt(request, "spec", "usages").length === 0) errors.push(requiredValue("spec.usages"));
  const signer = textAt(request, "spec", "signerName");
  if (signer === "") errors.push(requiredValue("spec.signerName"));
  else if (signer === LEGACY_SIGNER) {
    const why = "the legacy signerName is not allowed via this API version";
    errors.push(invalidValue("spec.signerName", signer, why));
  } else if (!/^[^/\s]+\.[^/\s]+\/[^\s]+$/.test(signer)) {
    errors.push(
      invalidValue(
        "spec.signerName",
        signer,
        "must be a fully qualified domain and path of the form 'example.com/signer-name'",
      ),
    );
  }
  const seconds = fieldAt(request, "spec", "expirationSeconds");
  if (typeof seconds === "number" && seconds < MIN_EXPIRATION_SECONDS) {
    errors.push(
      invalidValue(
        "spec.expirationSeconds",
        seconds,
        `may not specify a duration less than ${MIN_EXPIRATION_SECONDS} seconds (10 minutes)`,
      ),
    );
  }
  return errors;
}

const decisions = (request: ApiObject, type: string): readonly unknown[] =>
  listAt(request, "status", "conditions").filter((each) => textAt(each, "type") === type);

/** A decision is final: it is neither taken back nor joined by its opposite. */
function validateDecision(request: ApiObject, old: ApiObject): readonly FieldError[] {
  const errors: FieldError[] = [];
  const path = "status.conditions";
  for (const type of DECISIONS) {
    if (decisions(old, type).length > 0 && !sameValue(decisions(request, type), decisions(old, type))) {
      errors.push({
        type: "FieldValueForbidden",
        field: path,
        message: `Forbidden: updates may not remove a condition of type "${type}"`,
      });
    }
  }
  if (decisions(request, "Approved").length > 0 && decisions(request, "Denied").length > 0) {
    errors.push(invalidValue(path, "Denied", "Approved and Denied conditions are mutually exclusive"));
  }
  return errors;
}

const DECISIONS = ["Approved", "Denied"];

/** A signer decides nothing: what was approved or denied stays as it was, as in Kubernetes. */
function keepDecisions(request: ApiObject, old: ApiObject): void {
  const isDecision = (condition: unknown): boolean => DECISIONS.includes(textAt(condition, "type"));
  const kept = listAt(old, "status", "conditions").filter(isDecision);
  const others = listAt(request, "status", "conditions").filter((each) => !isDecision(each));
  if (kept.length + others.length > 0) section(request, "status").conditions = [...kept, ...others];
}

/** Times of conditions that their writer left out. */
function stampConditions(request: ApiObject, old: ApiObject, now: Date): void {
  const time = kubeTime(now);
  const conditions = listAt(old, "status", "conditions").map((each): [string, unknown] => [textAt(each, "type"), each]);
  // The first of a type counts.
  const known = new Map(conditions.toReversed());
  for (const condition of listAt(request, "status", "conditions") as Record<string, unknown>[]) {
    const before = known.get(textAt(condition, "type"));
    condition.status ??= "True";
    condition.lastUpdateTime ??= time;
    condition.lastTransitionTime ??= textAt(before, "lastTransitionTime") || time;
  }
}

export const certificateSigningRequestResource: ResourceDefinition = {
  group: "certificates.k8s.io",
  version: "v1",
  plural: "certificatesigningrequests",
  singular: "certificatesigningrequest",
  kind: "CertificateSigningRequest",
  namespaced: false,
  shortNames: ["csr"],
  model: "V1CertificateSigningRequest",
  subresources: [
    { name: "approval", verbs: ["get", "patch", "update"] },
    { name: "status", verbs: ["get", "patch", "update"] },
  ],
  columns: [
    nameColumn,
    ageColumn,
    column("SignerName", field("<none>", "spec", "signerName")),
    column("Requestor", field("", "spec", "username")),
    column("RequestedDuration", requestedDuration),
    column("Condition", conditionText),
  ],
  selectableFields: { "spec.signerName": (request) => textAt(request, "spec", "signerName") },
  strategy: {
    prepareForCreate(request, { user }) {
      const spec = section(request, "spec");
      delete spec.uid;
      Object.assign(spec, {
        username: user.name,
        ...(user.uid === "" ? {} : { uid: user.uid }),
        groups: [...user.groups],
        extra: structuredClone(user.extra),
      });
      request.status = {};
    },
    prepareForUpdate(request, old) {
      request.spec = old.spec;
      request.status = old.status;
    },
    prepareForSubresource(request, old, { subresource, now }) {
      section(request, "status");
      request.spec = old.spec;
      const certificate = fieldAt(old, "status", "certificate");
      // An approver decides, a signer signs.
      if (subresource === "approval") {
        request.status = {
          ...mappingAt(old, "status"),
          conditions: listAt(request, "status", "conditions"),
          certificate,
        };
      } else keepDecisions(request, old);
      stampConditions(request, old, now);
    },
    validate: (request) => validateRequest(request),
    validateUpdate: (request, old, { subresource }) => (subresource === "" ? [] : validateDecision(request, old)),
  },
};
