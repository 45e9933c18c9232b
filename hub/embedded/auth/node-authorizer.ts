/**
 * What a node may do: Kubernetes' Node authorizer with its rules of 1.34, by which a node reads only what is its own:
 * itself, the pods bound to it, and what these pods name.
 */
import type { ApiObject, ObjectLookup } from "../resource-definition.ts";
import { parseFieldSelector } from "../selectors.ts";
import { type Attributes, type Authorizer, type Decision, NODES } from "./attributes.ts";
import { allows, type PolicyRule } from "./rbac.ts";

const NODE_PREFIX = "system:node:";
const LEASE_NAMESPACE = "kube-node-lease";
const READ = ["get", "list", "watch"];

const rule = (group: string, resources: readonly string[], verbs: readonly string[]): PolicyRule => ({
  apiGroups: [group],
  resources,
  verbs,
});

/** What needs no look at the objects. */
const RULES: readonly PolicyRule[] = [
  rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
  rule("authentication.k8s.io", ["selfsubjectreviews"], ["create"]),
  rule(
    "authorization.k8s.io",
    ["subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews"],
    ["create"],
  ),
  rule("", ["services"], READ),
  // Admission narrows these down to the node itself and its pods.
  rule("", ["nodes"], ["create", "update", "patch"]),
  rule("", ["nodes/status"], ["update", "patch"]),
  rule("", ["pods"], ["create", "delete"]),
  rule("", ["pods/status"], ["update", "patch"]),
  rule("", ["pods/eviction"], ["create"]),
  rule("", ["events"], ["create", "update", "patch"]),
  rule("events.k8s.io", ["events"], ["create", "update", "patch"]),
  rule("certificates.k8s.io", ["certificatesigningrequests"], ["create", ...READ]),
  rule("node.k8s.io", ["runtimeclasses"], READ),
  rule("storage.k8s.io", ["csidrivers", "storageclasses"], READ),
];

/** The node that a user is; undefined: he is none. */
export function nodeOf({
  name,
  groups,
}: {
  readonly name: string;
  readonly groups: readonly string[];
}): string | undefined {
  return groups.includes(NODES) && name.startsWith(NODE_PREFIX) ? name.slice(NODE_PREFIX.length) : undefined;
}

type ResourceAttributes = Attributes & { readonly kind: "resource" };

const ALLOWED: Decision = { kind: "allowed" };
const refuse = (reason: string): Decision => ({ kind: "no-opinion", reason });

export class NodeAuthorizer implements Authorizer {
  readonly #lookup: ObjectLookup;

  constructor(lookup: ObjectLookup) {
    this.#lookup = lookup;
  }

  authorize(attributes: Attributes): Decision {
    const node = nodeOf(attributes.user);
    if (node === undefined || attributes.kind === "path") return refuse("");
    if (RULES.some((each) => allows(each, attributes))) return ALLOWED;
    const { group, plural } = attributes;
    if (group === "coordination.k8s.io" && plural === "leases") return ownLease(attributes, node);
    if (group !== "") return refuse("");
    switch (plural) {
      case "nodes":
        return this.#ownNode(attributes, node);
      case "pods":
        return this.#ownPods(attributes, node);
      case "secrets":
      case "configmaps":
      case "persistentvolumeclaims":
        return this.#named(attributes, node);
      case "persistentvolumes":
        return this.#volume(attributes, node);
      case "serviceaccounts":
        return this.#account(attributes, node);
      default:
        return refuse("");
    }
  }

  #ownNode({ verb, name, subresource, fieldSelector = "" }: ResourceAttributes, node: string): Decision {
    if (subresource !== "" || !READ.includes(verb)) return refuse("");
    const isOwn = name === node || (name === "" && isSelected(fieldSelector, "metadata.name", node));
    return isOwn ? ALLOWED : refuse(`node '${node}' cannot read '${name}', only its own Node object`);
  }

  #ownPods({ verb, name, namespace, subresource, fieldSelector = "" }: ResourceAttributes, node: string): Decision {
    if (subresource !== "" || !READ.includes(verb)) return refuse("");
    if (isSelected(fieldSelector, "spec.nodeName", node)) return ALLOWED;
    const pod = name === "" ? undefined : this.#lookup.get("pods", namespace, name);
    if (pod !== undefined && nodeNameOf(pod) === node) return ALLOWED;
    return refuse("can only list/watch pods with spec.nodeName field selector");
  }

  /** Objects that pods of the node name. */
  #named(
    { verb, plural, name, namespace, subresource, fieldSelector = "" }: ResourceAttributes,
    node: string,
  ): Decision {
    if (subresource !== "" || !READ.includes(verb)) return refuse(`can only read resources of this type`);
    const wanted = name === "" ? selectedName(fieldSelector) : name;
    if (wanted === undefined) return refuse("No Object name found");
    const isNamed = this.#podsOf(node, namespace).some((pod) => referencesOf(pod, plural).has(wanted));
    return isNamed ? ALLOWED : refuse(`no relationship found between node '${node}' and this object`);
  }

  /** One that a claim is bound to which a pod of the node names. */
  #volume({ verb, name, subresource }: ResourceAttributes, node: string): Decision {
    if (verb !== "get" || subresource !== "") return refuse("can only get individual resources of this type");
    const volume = name === "" ? undefined : this.#lookup.get("persistentvolumes", "", name);
    const claim = asFields(specOf(volume).claimRef);
    const isNamed = this.#podsOf(node, String(claim.namespace ?? "")).some((pod) =>
      referencesOf(pod, "persistentvolumeclaims").has(String(claim.name)),
    );
    return isNamed ? ALLOWED : refuse(`no relationship found between node '${node}' and this object`);
  }

  #account({ verb, name, namespace, subresource }: ResourceAttributes, node: string): Decision {
    const isToken = verb === "create" && subresource === "token";
    const isRead = verb === "get" && subresource === "";
    if (!isToken && !isRead) return refuse("");
    const isUsed = this.#podsOf(node, namespace).some((pod) => accountOf(pod) === name);
    return isUsed ? ALLOWED : refuse(`no relationship found between node '${node}' and this object`);
  }

  #podsOf(node: string, namespace: string): readonly ApiObject[] {
    if (namespace === "") return [];
    return this.#lookup.list("pods", namespace).filter((pod) => nodeNameOf(pod) === node);
  }
}

function ownLease({ verb, name, namespace, subresource }: ResourceAttributes, node: string): Decision {
  if (namespace !== LEASE_NAMESPACE)
    return refuse(`can only access leases in the "${LEASE_NAMESPACE}" system namespace`);
  const isVerb = ["get", "create", "update", "patch", "delete"].includes(verb);
  // The name of a new one stands in the body, which admission looks at.
  if (subresource === "" && isVerb && (name === node || (verb === "create" && name === ""))) return ALLOWED;
  return refuse("can only access node lease with the same name as the requesting node");
}

const isSelected = (selector: string, field: string, value: string): boolean => {
  try {
    return parseFieldSelector(selector).some((each) => each.field === field && each.isEqual && each.value === value);
  } catch {
    return false;
  }
};

function selectedName(selector: string): string | undefined {
  try {
    return parseFieldSelector(selector).find(({ field, isEqual }) => field === "metadata.name" && isEqual)?.value;
  } catch {
    return undefined;
  }
}

interface Fields {
  readonly [field: string]: unknown;
}

const asFields = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
const asList = (value: unknown): readonly Fields[] => (Array.isArray(value) ? value.map(asFields) : []);
const specOf = (object: ApiObject | undefined): Fields => asFields(object?.spec);

export const nodeNameOf = (pod: ApiObject): string => String(specOf(pod).nodeName ?? "");

export const accountOf = (pod: ApiObject): string => String(specOf(pod).serviceAccountName || "default");

/** Names of the Secrets, ConfigMaps or claims that a pod needs. */
function referencesOf(pod: ApiObject, plural: string): ReadonlySet<string> {
  const names = new Set<string>();
  const note = (value: unknown): void => {
    if (typeof value === "string" && value !== "") names.add(value);
  };
  const spec = specOf(pod);
  const isSecrets = plural === "secrets";
  for (const volume of asList(spec.volumes)) {
    if (plural === "persistentvolumeclaims") {
      note(asFields(volume.persistentVolumeClaim).claimName);
      if (volume.ephemeral !== undefined) note(`${pod.metadata.name}-${String(volume.name)}`);
    } else noteVolume(volume, isSecrets, note);
  }
  if (plural === "persistentvolumeclaims") return names;
  if (isSecrets) for (const each of asList(spec.imagePullSecrets)) note(each.name);
  for (const list of ["containers", "initContainers", "ephemeralContainers"]) {
    for (const container of asList(spec[list])) {
      for (const source of asList(container.envFrom))
        note(asFields(source[isSecrets ? "secretRef" : "configMapRef"]).name);
      for (const variable of asList(container.env)) {
        note(asFields(asFields(variable.valueFrom)[isSecrets ? "secretKeyRef" : "configMapKeyRef"]).name);
      }
    }
  }
  return names;
}

function noteVolume(volume: Fields, isSecrets: boolean, note: (value: unknown) => void): void {
  const field = isSecrets ? "secret" : "configMap";
  note(asFields(volume[field])[isSecrets ? "secretName" : "name"]);
  for (const source of asList(asFields(volume.projected).sources)) note(asFields(source[field]).name);
  if (!isSecrets) return;
  note(asFields(asFields(volume.csi).nodePublishSecretRef).name);
  for (const kind of ["flexVolume", "iscsi", "cephfs", "rbd"]) note(asFields(asFields(volume[kind]).secretRef).name);
}
