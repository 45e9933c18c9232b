/**
 * Kubernetes' admission plugin NodeRestriction: the rules for objects that a board writes. The row of the access table
 * names the rule of a write. Writes of closed resources without a row are refused, also where roles grant them.
 */

import { BOARD_FORBIDDEN_RESOURCES, type BodyRule, rowsOf } from "@picolet/hub-core/access-table.ts";
import {
  isMirrorPod,
  MIRROR_ANNOTATION,
  podReferences,
  type ReferencedKind,
} from "@picolet/hub-core/pod-references.ts";
import { parseCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { NODE_USER_PREFIX } from "@picolet/protocol/pki/node-subject.ts";
import { parsePem } from "@picolet/protocol/pki/pem.ts";
import { fieldAt, listAt, sameValue, textAt } from "../api/object-fields.ts";
import { type ApiObject, type ObjectLookup, resourceName } from "../api/resource-definition.ts";
import { forbidden, notFound } from "../api/status-error.ts";
import type { Authorizer } from "../auth/attributes.ts";
import { nodeNameOf } from "../auth/node-authorizer.ts";
import { tokenSourcesOf } from "../auth/token-sources.ts";
import type { AdmissionRequest } from "../service/resource-request.ts";

interface Restriction extends AdmissionRequest {
  readonly node: string;
  readonly lookup: ObjectLookup;
  readonly authorizer: Authorizer;
  readonly refuse: (why: string) => never;
}

const VERBS: Readonly<Record<AdmissionRequest["operation"], readonly string[]>> = {
  CREATE: ["create"],
  UPDATE: ["update", "patch"],
  DELETE: ["delete", "deletecollection"],
};

const RULES: Readonly<Record<BodyRule, (restriction: Restriction) => void>> = {
  self: requireOwnName,
  "own node": restrictNodeObject,
  mirror: requireMirror,
  bound: requireBound,
  "bound status": restrictPodStatus,
  "claim status": restrictClaimStatus,
  "pod token": restrictToken,
  "own request": restrictRequest,
};

/** Rules of resources, which hold for each write that a row or a role grants. By the name with the group. */
const RESOURCE_RULES: ReadonlyMap<string, (restriction: Restriction) => void> = new Map([
  ["resourceslices.resource.k8s.io", requireOwnSlice],
]);

/**
 * @param node undefined: a user of the group of nodes without a name that a node can have
 * @throws StatusError 403, 404
 */
export function restrictNode(
  admission: AdmissionRequest,
  node: string | undefined,
  components: { readonly lookup: ObjectLookup; readonly authorizer: Authorizer },
): void {
  const { operation, request, object } = admission;
  const { definition, subresource, user, name } = request;
  const refuse = (why: string): never => {
    throw forbidden(definition, operation === "CREATE" && name === "" ? (object?.metadata?.name ?? "") : name, why);
  };
  if (node === undefined) {
    refuse(`could not determine node from user ${JSON.stringify(user.name)}`);
    return;
  }
  const wanted = subresource === "" ? definition.plural : `${definition.plural}/${subresource}`;
  const row = rowsOf("board").find(
    (each) =>
      each.group === definition.group &&
      each.resources.includes(wanted) &&
      each.verbs.some((verb) => VERBS[operation].includes(verb)),
  );
  if (row?.body !== undefined) {
    if (row.namespace !== undefined && request.namespace !== row.namespace) {
      refuse(`can only access ${definition.plural} in the "${row.namespace}" system namespace`);
    }
    RULES[row.body]({ ...admission, ...components, node, refuse });
  } else if (row === undefined && BOARD_FORBIDDEN_RESOURCES.has(resourceName(definition))) {
    refuse(`node "${node}" is not allowed to ${operation.toLowerCase()} ${wanted}`);
  }
  RESOURCE_RULES.get(resourceName(definition))?.({ ...admission, ...components, node, refuse });
}

/** As in Kubernetes an update is the authorizer's affair: it sees which slice is meant, and its node cannot change. */
function requireOwnSlice({ operation, object, old, node, refuse }: Restriction): void {
  if (operation === "UPDATE") return;
  const isNew = operation === "CREATE";
  if (textAt(isNew ? object : old, "spec", "nodeName") === node) return;
  refuse(`can only ${isNew ? "create" : "delete"} ResourceSlice with the same NodeName as the requesting node`);
}

function requireOwnName({ operation, request, object, node, refuse }: Restriction): void {
  const name = operation === "CREATE" ? object?.metadata.name : request.name;
  const what = resourceName(request.definition);
  if (name !== node) refuse(`can only access ${what} with the same name as the requesting node`);
}

/** Nodes make no pods but those that show what they run by themselves, and such a pod names nothing. */
function requireMirror({ object, node, lookup, refuse }: Restriction): void {
  if (object === undefined) return;
  if (!isMirrorPod(object)) {
    refuse(`pod does not have "${MIRROR_ANNOTATION}" annotation, node "${node}" can only create mirror pods`);
  }
  if (nodeNameOf(object) !== node) refuse(`node "${node}" can only create pods with spec.nodeName set to itself`);
  requireOwnership(object.metadata.ownerReferences ?? [], node, { lookup, refuse });
  const named = podReferences(object).find(({ kind }) => REFUSED_REFERENCES[kind] !== undefined);
  if (named !== undefined) {
    refuse(`node "${node}" can not create pods that reference ${REFUSED_REFERENCES[named.kind]}`);
  }
}

function requireOwnership(
  [owner, ...others]: NonNullable<ApiObject["metadata"]["ownerReferences"]>,
  node: string,
  { lookup, refuse }: Pick<Restriction, "lookup" | "refuse">,
): void {
  if (others.length > 0) refuse(`node "${node}" can only create pods with a single owner reference set to itself`);
  if (owner?.apiVersion !== "v1" || owner.kind !== "Node" || owner.name !== node) {
    refuse(`node "${node}" can only create pods with an owner reference set to itself`);
  }
  if (owner?.controller !== true) {
    refuse(`node "${node}" can only create pods with a controller owner reference set to itself`);
  }
  if (owner?.blockOwnerDeletion === true) {
    refuse(`node "${node}" must not set blockOwnerDeletion on an owner reference`);
  }
  const own = lookup.get("nodes", "", node);
  if (own === undefined) throw notFound({ group: "", plural: "nodes" }, node);
  if (owner?.uid !== own.metadata.uid) {
    refuse(`node ${node} UID mismatch: expected ${owner?.uid ?? ""} got ${own.metadata.uid ?? ""}`);
  }
}

/** In Kubernetes' words. A RuntimeClass is no secret and changes nothing for the node's own pods. */
const REFUSED_REFERENCES: Readonly<Record<ReferencedKind, string | undefined>> = {
  ClusterTrustBundle: "clustertrustbundles",
  ConfigMap: "configmaps",
  CSIDriver: "csidrivers (via CSI volumes)",
  Endpoints: "endpoints (via glusterFS volumes)",
  PersistentVolumeClaim: "persistentvolumeclaims",
  PodCertificateRequest: "podcertificates",
  ResourceClaim: "resourceclaims",
  RuntimeClass: undefined,
  Secret: "secrets",
  ServiceAccount: "serviceaccounts",
  Unknown: "volumes of an unknown kind",
};

/** Deletions and evictions, which a node does for what it has ended itself. */
function requireBound({ operation, request, node, lookup, refuse }: Restriction): void {
  const { namespace, name } = request;
  const pod = lookup.get("pods", namespace, name);
  if (pod === undefined) throw notFound({ group: "", plural: "pods" }, name);
  if (nodeNameOf(pod) === node) return;
  const what = operation === "DELETE" ? `node "${node}" can only delete` : `node ${node} can only evict`;
  refuse(`${what} pods with spec.nodeName set to itself`);
}

/** Fields of a pod's status that other writers than the node own. */
const CLAIM_STATUSES = ["resourceClaimStatuses", "extendedResourceClaimStatus"];

function restrictPodStatus({ object, old, node, refuse }: Restriction): void {
  if (object === undefined || old === undefined) return;
  if (nodeNameOf(old) !== node) {
    refuse(`node "${node}" can only update pod status for pods with spec.nodeName set to itself`);
  }
  if (!sameValue(object.metadata.labels ?? {}, old.metadata.labels ?? {})) {
    refuse(`node "${node}" cannot update labels through pod status`);
  }
  if (CLAIM_STATUSES.some((field) => !sameValue(fieldAt(object, "status", field), fieldAt(old, "status", field)))) {
    refuse(`node "${node}" cannot update resource claim statues`);
  }
}

const CLAIM_STATUS_FIELDS = ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"];

function restrictClaimStatus({ object, old, node, refuse }: Restriction): void {
  if (object === undefined || old === undefined) return;
  const rest = ({ metadata, status, ...others }: ApiObject): unknown => ({
    ...others,
    metadata: { ...metadata, resourceVersion: undefined, managedFields: undefined },
    status: { ...(status as object), ...Object.fromEntries(CLAIM_STATUS_FIELDS.map((field) => [field, undefined])) },
  });
  if (!sameValue(rest(object), rest(old))) {
    refuse(`node "${node}" is not allowed to update fields other than status.quantity and status.conditions`);
  }
}

const OWN_LABELS = new Set([
  "kubernetes.io/hostname",
  "kubernetes.io/arch",
  "kubernetes.io/os",
  "beta.kubernetes.io/arch",
  "beta.kubernetes.io/os",
  "beta.kubernetes.io/instance-type",
  "node.kubernetes.io/instance-type",
  "failure-domain.beta.kubernetes.io/region",
  "failure-domain.beta.kubernetes.io/zone",
  "topology.kubernetes.io/region",
  "topology.kubernetes.io/zone",
]);
const OWN_LABEL_DOMAINS = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/** Labels of Kubernetes' own domains that no node may give itself. */
function isForbiddenLabel(key: string): boolean {
  const domain = key.includes("/") ? key.slice(0, key.indexOf("/")) : "";
  const within = (parent: string): boolean => domain === parent || domain.endsWith(`.${parent}`);
  if (!within("kubernetes.io") && !within("k8s.io")) return false;
  if (OWN_LABELS.has(key)) return false;
  return within("node-restriction.kubernetes.io") || !OWN_LABEL_DOMAINS.some(within);
}

function restrictNodeObject({ request, object, old, node, refuse }: Restriction): void {
  if (object === undefined) return;
  const { name } = old?.metadata ?? object.metadata;
  if (name !== node) refuse(`node "${node}" is not allowed to modify node "${name}"`);
  const before = old?.metadata.labels ?? {};
  const after = object.metadata.labels ?? {};
  const changed = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    (key) => before[key] !== after[key],
  );
  const labels = changed.filter(isForbiddenLabel).sort().join(", ");
  if (labels !== "") {
    refuse(
      old === undefined
        ? `node "${node}" is not allowed to set the following labels: ${labels}`
        : `is not allowed to modify labels: ${labels}`,
    );
  }
  const source = fieldAt(object, "spec", "configSource");
  if (source !== undefined && source !== null && !sameValue(source, fieldAt(old, "spec", "configSource"))) {
    refuse(`node "${node}" is not allowed to update configSource to a new non-nil configSource`);
  }
  if (old === undefined || request.subresource !== "") return;
  if (!sameValue(fieldAt(object, "spec", "taints") ?? [], fieldAt(old, "spec", "taints") ?? [])) {
    refuse(`node "${node}" is not allowed to modify taints`);
  }
  if (!sameValue(object.metadata.ownerReferences ?? [], old.metadata.ownerReferences ?? [])) {
    refuse(`node "${node}" is not allowed to modify ownerReferences`);
  }
}

/** TokenRequests of a board are for a pod of its own, and for what that pod's volumes ask for. */
function restrictToken({ request, object, node, lookup, authorizer, refuse }: Restriction): void {
  const reference = fieldAt(object, "spec", "boundObjectRef");
  const name = textAt(reference, "name");
  if (textAt(reference, "apiVersion") !== "v1" || textAt(reference, "kind") !== "Pod" || name === "") {
    refuse("node requested token not bound to a pod");
  }
  const uid = textAt(reference, "uid");
  if (uid === "") refuse("node requested token with a pod binding without a uid");
  const pod = lookup.get("pods", request.namespace, name);
  if (pod === undefined) throw notFound({ group: "", plural: "pods" }, name);
  if (uid !== pod.metadata.uid) {
    const why = "does not match the UID in record. The object might have been deleted and then recreated";
    refuse(`the UID in the bound object reference (${uid}) ${why}`);
  }
  if (nodeNameOf(pod) !== node) refuse("node requested token bound to a pod scheduled on a different node");
  // Its account is named by what the board itself has written.
  if (isMirrorPod(pod)) refuse("node requested token bound to a mirror pod");
  const audiences = listAt(object, "spec", "audiences");
  if (audiences.length > 1) refuse("node may only request 0 or 1 audiences");
  const audience = String(audiences[0] ?? "");
  if (tokenSourcesOf(pod, lookup).some((each) => each.audience === audience)) return;
  const mayAny = authorizer.authorize({
    ...{ kind: "resource", user: request.user, verb: "request-serviceaccounts-token-audience" },
    ...{ group: "", version: "v1", plural: audience, subresource: "" },
    ...{ namespace: request.namespace, name: request.name },
  });
  if (mayAny.kind === "allowed") return;
  const why = `${request.user.name} is not authorized to request tokens for this audience`;
  refuse(`audience ${JSON.stringify(audience)} not found in pod spec volume, ${why}`);
}

const NODE_SIGNERS: ReadonlySet<string> = new Set([
  "kubernetes.io/kubelet-serving",
  "kubernetes.io/kube-apiserver-client-kubelet",
]);

function restrictRequest({ object, node, refuse }: Restriction): void {
  if (!NODE_SIGNERS.has(textAt(object, "spec", "signerName"))) return;
  const own = `${NODE_USER_PREFIX}${node}`;
  if (commonNameOf(textAt(object, "spec", "request")) !== own) refuse(`can only create a node CSR with CN=${own}`);
}

/** Undefined: the request cannot be read, or has several. */
function commonNameOf(request: string): string | undefined {
  try {
    const [block] = parsePem(Buffer.from(request, "base64").toString("latin1"));
    if (block === undefined) return undefined;
    const names = parseCertificateRequest(block.der).subject.filter(({ type }) => type === "CN");
    return names.length === 1 ? names[0]?.value : undefined;
  } catch {
    return undefined;
  }
}
