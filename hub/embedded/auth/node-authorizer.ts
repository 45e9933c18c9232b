/**
 * Kubernetes' Node authorizer: the rights of a board as far as a request itself shows them. Rights are the rows of the
 * access table; the relations that tie a board to objects are checked here, against the objects as they are now.
 */

import { type AccessRow, type Relation, rowsOf } from "@picolet/hub-core/access-table.ts";
import { grantedReferences, type ReferencedKind, type ReferringPod } from "@picolet/hub-core/pod-references.ts";
import { NODE_USER_PREFIX, NODES_GROUP, nodeOfUser } from "@picolet/protocol/pki/node-subject.ts";
import { type ApiObject, type ObjectLookup, resourceName, type UserInfo } from "../api/resource-definition.ts";
import type { Derived, DerivedObjects } from "../store/derived-objects.ts";
import type { ObjectStore } from "../store/object-store.ts";
import type { Attributes, AuthorizationDecision, Authorizer } from "./attributes.ts";

/** True when a user has a node's rights alone, even if the name is none that a node can have. */
export const isNodeUser = ({ name, groups }: Pick<UserInfo, "name" | "groups">): boolean =>
  groups.includes(NODES_GROUP) && name.startsWith(NODE_USER_PREFIX);

/** The node that a user is; undefined: none, also where its name is none that a node can have. */
export const nodeOf = nodeOfUser;

type ResourceAttributes = Attributes & { readonly kind: "resource" };

const ALLOWED: AuthorizationDecision = { kind: "allowed" };
const refuse = (reason: string): AuthorizationDecision => ({ kind: "no-opinion", reason });

/** Resources whose objects pods name, and the kind by which they do. */
const NAMED_KINDS: Readonly<Record<string, ReferencedKind>> = {
  secrets: "Secret",
  configmaps: "ConfigMap",
  persistentvolumeclaims: "PersistentVolumeClaim",
  serviceaccounts: "ServiceAccount",
  resourceclaims: "ResourceClaim",
};

/**
 * Secrets with which a node opens a volume, as fields of its spec; those of its provisioner are no business of nodes.
 */
const VOLUME_SECRETS: readonly (readonly string[])[] = [
  ...["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"].map((kind) => [kind, "secretRef"]),
  ...["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"].map((field) => ["csi", field]),
];

/** A volume whose opening takes Secrets, as `NAMESPACE/NAME`. */
interface SecretVolume {
  readonly claim: string;
  readonly claimNamespace: string;
  readonly secrets: readonly string[];
}

export class NodeAuthorizer implements Authorizer {
  readonly #lookup: ObjectLookup;
  /** References of each pod, as `referenceText`, in the group of its node and namespace. */
  readonly #references: DerivedObjects<ReadonlySet<string>>;
  readonly #volumes: DerivedObjects<SecretVolume>;
  /** By `RESOURCE[/SUBRESOURCE] VERB`. */
  readonly #rows = new Map<string, readonly AccessRow[]>();

  constructor(lookup: ObjectLookup, store: Pick<ObjectStore, "derive">) {
    this.#lookup = lookup;
    this.#references = store.derive("pods", referencesOf);
    this.#volumes = store.derive("persistentvolumes", secretVolumeOf);
    for (const row of rowsOf("board")) {
      for (const resource of row.resources) {
        for (const verb of row.verbs) {
          const key = keyOf(row.group, resource, verb);
          this.#rows.set(key, [...(this.#rows.get(key) ?? []), row]);
        }
      }
    }
  }

  authorize(attributes: Attributes): AuthorizationDecision {
    const { user } = attributes;
    if (!isNodeUser(user) || attributes.kind === "path") return refuse("");
    const node = nodeOf(user);
    if (node === undefined) return refuse(`unknown node for user ${JSON.stringify(user.name)}`);
    const { group, plural, subresource, verb } = attributes;
    const wanted = subresource === "" ? plural : `${plural}/${subresource}`;
    let reason = "";
    for (const row of this.#rows.get(keyOf(group, wanted, verb)) ?? []) {
      const decision = this.#decide(row, attributes, node);
      if (decision.kind === "allowed") return decision;
      reason = decision.reason;
    }
    return refuse(reason);
  }

  #decide({ relation, namespace }: AccessRow, attributes: ResourceAttributes, node: string): AuthorizationDecision {
    if (namespace !== undefined && attributes.namespace !== namespace) {
      return refuse(`can only access ${attributes.plural} in the "${namespace}" system namespace`);
    }
    return this.#has(relation, attributes, node) ? ALLOWED : refuse(refusalOf(relation, attributes, node));
  }

  #has(
    relation: Relation,
    { group, plural, namespace, name, selected = [] }: ResourceAttributes,
    node: string,
  ): boolean {
    switch (relation) {
      case "any":
        return true;
      case "self":
        return name === node;
      case "bound":
        return this.#isBound(namespace, name, node);
      case "selected":
        return (
          selected.some(({ field, value, isEqual }) => field === "spec.nodeName" && isEqual && value === node) ||
          (plural === "pods" && this.#isBound(namespace, name, node))
        );
      case "named":
        return name !== "" && this.#isNamed(plural, namespace, name, node);
      case "attached": {
        const object = this.#lookup.get(resourceName({ group, plural }), "", name);
        return object !== undefined && textAt(object, "spec", "nodeName") === node;
      }
      // Relations of other subjects.
      case "listed":
      case "a board":
        return false;
    }
  }

  #isBound(namespace: string, name: string, node: string): boolean {
    const pod = name === "" ? undefined : this.#lookup.get("pods", namespace, name);
    return pod !== undefined && nodeNameOf(pod) === node;
  }

  #isNamed(plural: string, namespace: string, name: string, node: string): boolean {
    if (plural === "persistentvolumes") {
      const volume = this.#lookup.get("persistentvolumes", "", name);
      return volume !== undefined && this.#isClaimNamed(...claimOf(volume), node);
    }
    const kind = NAMED_KINDS[plural];
    if (kind === undefined || namespace === "") return false;
    if (this.#isNamedByPod(kind, namespace, name, node)) return true;
    return kind === "Secret" && this.#isNamedByVolume(namespace, name, node);
  }

  #isNamedByPod(kind: ReferencedKind, namespace: string, name: string, node: string): boolean {
    const wanted = referenceText(kind, name);
    return Iterator.from(this.#references.in(podGroup(node, namespace))).some((named) => named.has(wanted));
  }

  /** True when a pod of the node references the claim that the volume is for. */
  #isClaimNamed(claim: string, namespace: string, node: string): boolean {
    return claim !== "" && namespace !== "" && this.#isNamedByPod("PersistentVolumeClaim", namespace, claim, node);
  }

  #isNamedByVolume(namespace: string, name: string, node: string): boolean {
    const wanted = `${namespace}/${name}`;
    return Iterator.from(this.#volumes.in("")).some(
      ({ claim, claimNamespace, secrets }) =>
        secrets.includes(wanted) && this.#isClaimNamed(claim, claimNamespace, node),
    );
  }
}

const referenceText = (kind: ReferencedKind, name: string): string => `${kind} ${name}`;
const podGroup = (node: string, namespace: string): string => `${node}/${namespace}`;

function referencesOf(pod: ApiObject): Derived<ReadonlySet<string>> | undefined {
  const node = nodeNameOf(pod);
  const named = new Set(grantedReferences(pod).map(({ kind, name }) => referenceText(kind, name)));
  if (node === "" || named.size === 0) return undefined;
  return { group: podGroup(node, pod.metadata.namespace ?? ""), value: named };
}

function secretVolumeOf(volume: ApiObject): Derived<SecretVolume> | undefined {
  const secrets = volumeSecrets(volume).map(({ namespace, name }) => `${namespace}/${name}`);
  if (secrets.length === 0) return undefined;
  const [claim, claimNamespace] = claimOf(volume);
  return { group: "", value: { claim, claimNamespace, secrets } };
}

const claimOf = (volume: ApiObject): readonly [name: string, namespace: string] => [
  textAt(volume, "spec", "claimRef", "name"),
  textAt(volume, "spec", "claimRef", "namespace"),
];

/** A Secret without a namespace is looked for in the claim's. */
function volumeSecrets(volume: ApiObject): readonly { readonly name: string; readonly namespace: string }[] {
  const own = textAt(volume, "spec", "claimRef", "namespace");
  const found = VOLUME_SECRETS.map((path) => ({
    name: textAt(volume, "spec", ...path, "name"),
    namespace: textAt(volume, "spec", ...path, "namespace") || own,
  }));
  const azure = {
    name: textAt(volume, "spec", "azureFile", "secretName"),
    namespace: textAt(volume, "spec", "azureFile", "secretNamespace") || own,
  };
  return [...found, azure].filter(({ name }) => name !== "");
}

/** In Kubernetes' words. */
function refusalOf(relation: Relation, { plural, name, group }: ResourceAttributes, node: string): string {
  if (relation === "self" && plural === "nodes") {
    return name === ""
      ? `node '${node}' cannot read all nodes, only its own Node object`
      : `node '${node}' cannot read '${name}', only its own Node object`;
  }
  if (relation === "self") {
    return `can only access ${resourceName({ group, plural })} with the same name as the requesting node`;
  }
  if (relation === "selected" && plural === "resourceslices")
    return "can only list/watch/deletecollection resourceslices with nodeName field selector";
  if (relation === "selected" && name === "") return "can only list/watch pods with spec.nodeName field selector";
  if (relation === "named" && name === "") return "No Object name found";
  return `no relationship found between node '${node}' and this object`;
}

const keyOf = (group: string, resource: string, verb: string): string => `${group}/${resource} ${verb}`;

function textAt(object: unknown, ...path: readonly string[]): string {
  const value = path.reduce<unknown>(
    (parent, field) => (typeof parent === "object" && parent !== null ? Reflect.get(parent, field) : undefined),
    object,
  );
  return typeof value === "string" ? value : "";
}

export const nodeNameOf = (pod: ReferringPod): string => textAt(pod, "spec", "nodeName");
