import { type FieldError, invalidValue, requiredValue } from "../field-errors.ts";
import type { ApiObject, ResourceDefinition } from "../resource-definition.ts";
import { humanDuration } from "./age.ts";
import { ageColumn, column, field, nameColumn } from "./columns.ts";
import { fieldAt, listAt, sameValue, section, textAt } from "./object-fields.ts";

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

/** kube-apiserver takes no shorter certificates. */
const MIN_EXPIRATION_SECONDS = 600;

function validateRequest(request: ApiObject): readonly FieldError[] {
  const errors: FieldError[] = [];
  const pem = Buffer.from(textAt(request, "spec", "request"), "base64").toString("latin1");
  if (!/^-----BEGIN CERTIFICATE REQUEST-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE REQUEST-----\s*$/.test(pem)) {
    errors.push(
      invalidValue("spec.request", textAt(request, "spec", "request"), "PEM block type must be CERTIFICATE REQUEST"),
    );
  }
  if (listAt(request, "spec", "usages").length === 0) errors.push(requiredValue("spec.usages"));
  const signer = textAt(request, "spec", "signerName");
  if (signer === "") errors.push(requiredValue("spec.signerName"));
  else if (!/^[^/\s]+\.[^/\s]+\/[^\s]+$/.test(signer)) {
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

/** A decision stands: it is neither taken back nor joined by its opposite. */
function validateDecision(request: ApiObject, old: ApiObject): readonly FieldError[] {
  const errors: FieldError[] = [];
  const path = "status.conditions";
  for (const type of ["Approved", "Denied"]) {
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

/** Times of conditions that their writer left out. */
function stampConditions(request: ApiObject, old: ApiObject, now: Date): void {
  const time = now.toISOString().replace(/\.\d+Z$/, "Z");
  for (const condition of listAt(request, "status", "conditions") as Record<string, unknown>[]) {
    const type = textAt(condition, "type");
    const before = listAt(old, "status", "conditions").find((each) => textAt(each, "type") === type);
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
      Object.assign(section(request, "spec"), {
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
      const status = section(request, "status");
      request.spec = old.spec;
      const certificate = fieldAt(old, "status", "certificate");
      // An approver decides, a signer signs.
      if (subresource === "approval") request.status = { ...status, certificate };
      stampConditions(request, old, now);
    },
    validate: (request) => validateRequest(request),
    validateUpdate: (request, old, { subresource }) => (subresource === "" ? [] : validateDecision(request, old)),
  },
};
