/** Admission by user: boards write only their own objects, and no user grants a right that it does not have. */
import { parseCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { parsePem } from "@picolet/protocol/pki/pem.ts";
import { StepBudget } from "../api/limits.ts";
import type { ApiObject, ObjectLookup, UserInfo } from "../api/resource-definition.ts";
import { forbidden } from "../api/status-error.ts";
import { type Attributes, type Authorizer, MASTERS } from "../auth/attributes.ts";
import { isNodeUser, nodeOf } from "../auth/node-authorizer.ts";
import { type PolicyRule, type RbacAuthorizer, textsIn } from "../auth/rbac.ts";
import type { Admission, AdmissionRequest, ResourceRequest } from "../service/resource-request.ts";
import { restrictNode } from "./node-restriction.ts";

const CERTIFICATES = "certificates.k8s.io";
/** The signer of client certificates for this API. */
const CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client";
const RBAC = "rbac.authorization.k8s.io";

export function accessAdmission({
  authorizer,
  rbac,
  lookup,
}: {
  readonly authorizer: Authorizer;
  readonly rbac: RbacAuthorizer;
  readonly lookup: ObjectLookup;
}): Admission {
  return (admission) => {
    const { definition, user } = admission.request;
    if (isNodeUser(user)) restrictNode(admission, nodeOf(user), { lookup, authorizer });
    if (definition.group === CERTIFICATES) restrictCertificates(authorizer, admission);
    if (definition.group === RBAC && admission.object !== undefined) {
      preventEscalation(authorizer, rbac, admission.request, admission.object);
    }
  };
}

/**
 * Kubernetes' CertificateApproval, CertificateSigning and CertificateSubjectRestriction: a writer of the subresource
 * needs the signer's consent besides, and no certificate makes its holder `system:masters`.
 */
function restrictCertificates(authorizer: Authorizer, { operation, request, object }: AdmissionRequest): void {
  const { definition, user, subresource, name } = request;
  if (definition.plural !== "certificatesigningrequests" || object === undefined) return;
  const { signerName = "", request: pem = "" } = (object.spec ?? {}) as { signerName?: string; request?: string };
  if (operation === "CREATE") {
    if (signerName === CLIENT_SIGNER && asksForMasters(pem)) {
      throw forbidden(
        definition,
        object.metadata.name,
        `use of ${CLIENT_SIGNER} signer with system:masters group is not allowed`,
      );
    }
    return;
  }
  const verb = subresource === "approval" ? "approve" : subresource === "status" ? "sign" : undefined;
  if (verb === undefined) return;
  const domain = `${signerName.split("/")[0] ?? ""}/*`;
  const may = (signer: string): boolean =>
    authorizer.authorize({
      ...{ kind: "resource", user, verb, group: CERTIFICATES, version: "*" },
      ...{ plural: "signers", subresource: "", namespace: "", name: signer },
    }).kind === "allowed";
  if (may(signerName) || may(domain)) return;
  throw forbidden(
    definition,
    name,
    `user not permitted to ${verb} requests with signerName ${JSON.stringify(signerName)}`,
  );
}

/** A request that cannot be read might ask for anything. */
function asksForMasters(request: string): boolean {
  try {
    const [block] = parsePem(Buffer.from(request, "base64").toString("latin1"));
    if (block === undefined) return true;
    return parseCertificateRequest(block.der).subject.some(({ value }) => value === MASTERS);
  } catch {
    return true;
  }
}

const EVERYTHING: PolicyRule = { apiGroups: ["*"], resources: ["*"], verbs: ["*"] };

/** @throws StatusError 403 unless the user has everything that the role or binding would give */
function preventEscalation(
  authorizer: Authorizer,
  rbac: RbacAuthorizer,
  request: ResourceRequest,
  object: ApiObject,
): void {
  const { definition, user, namespace } = request;
  const isRole = definition.plural === "roles" || definition.plural === "clusterroles";
  const reference = (object.roleRef ?? {}) as { kind?: string; name?: string };
  const kind = isRole ? definition.plural : reference.kind === "ClusterRole" ? "clusterroles" : "roles";
  const name = isRole ? object.metadata.name : (reference.name ?? "");
  const may = authorizer.authorize({
    ...{ kind: "resource", user, verb: isRole ? "escalate" : "bind", group: RBAC, version: "v1" },
    ...{ plural: kind, subresource: "", namespace, name },
  });
  if (may.kind === "allowed") return;
  // The rules of an aggregation are not known yet, so only a user with all rights may make one.
  const aggregated = object.aggregationRule === undefined || object.aggregationRule === null ? [] : [EVERYTHING];
  const rules = isRole
    ? [...((object.rules ?? []) as readonly PolicyRule[]), ...aggregated]
    : rbac.rulesOfRole(reference.kind ?? "", name, namespace);
  // A role that is not there yet may give anything later.
  const budget = new StepBudget(MAX_COVER_STEPS, "comparing the rules with those of the user");
  const cost = CHECK_STEPS + textsIn(rbac.rulesOf(user, namespace));
  const has = (attributes: Attributes): boolean => {
    budget.spend(cost);
    return authorizer.authorize(attributes).kind === "allowed";
  };
  const missing =
    rules === undefined ? ["{everything}"] : rules.filter((rule) => !covers(has, user, namespace, rule)).map(describe);
  if (missing.length === 0) return;
  const groups = user.groups.map((each) => JSON.stringify(each)).join(" ");
  const why = `user ${JSON.stringify(user.name)} (groups=[${groups}]) is attempting to grant RBAC permissions not currently held:\n${missing.join("\n")}`;
  throw forbidden(definition, object.metadata.name, why);
}

/**
 * Bounds the comparison of new rules with those that their writer has: each combination of verb, group, resource and
 * name in them, times the texts of the writer's own rules. 5 ns each, so 40 ms. An administrator of a namespace, with
 * 300 texts, may bind the largest role of Kubernetes (`admin`, 2,400 combinations) four times over.
 */
const MAX_COVER_STEPS = 8_000_000;
/** Steps of one combination besides those for the texts that it is compared with. */
const CHECK_STEPS = 500;

/** True when the user has each right that the rule grants. */
function covers(
  has: (attributes: Attributes) => boolean,
  user: UserInfo,
  namespace: string,
  rule: PolicyRule,
): boolean {
  const distinct = (texts: readonly string[] | undefined): readonly string[] => [...new Set(texts)];
  const groups = distinct(rule.apiGroups);
  const resources = distinct(rule.resources);
  const names = distinct(rule.resourceNames);
  const paths = distinct(rule.nonResourceURLs);
  return distinct(rule.verbs).every(
    (verb) =>
      paths.every((path) => has({ kind: "path", user, verb, path })) &&
      groups.every((group) =>
        resources.every((resource) => {
          const [plural = "", subresource = ""] = resource.split("/");
          const wanted = { kind: "resource", user, verb, group, version: "*", plural, subresource, namespace } as const;
          return (names.length === 0 ? [""] : names).every((name) => has({ ...wanted, name }));
        }),
      ),
  );
}

const describe = ({ apiGroups, resources, verbs, resourceNames, nonResourceURLs }: PolicyRule): string => {
  const parts = {
    APIGroups: apiGroups,
    Resources: resources,
    ResourceNames: resourceNames,
    NonResourceURLs: nonResourceURLs,
    Verbs: verbs,
  };
  const shown = Object.entries(parts).filter(([, values]) => values !== undefined && values.length > 0);
  return `{${shown.map(([name, values]) => `${name}:${JSON.stringify(values)}`).join(", ")}}`;
};
