import { selects } from "../api/label-selector.ts";
import type { ApiObject, ObjectLookup, UserInfo } from "../api/resource-definition.ts";
import type { LabelSelector } from "../api/typed-objects.ts";
import type { ObjectStore } from "../store/object-store.ts";
import {
  type Attributes,
  AUTHENTICATED,
  type AuthorizationDecision,
  type Authorizer,
  SERVICE_ACCOUNTS,
} from "./attributes.ts";

export interface PolicyRule {
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly verbs?: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly nonResourceURLs?: readonly string[];
}

interface Subject {
  readonly kind: string;
  readonly name: string;
  readonly namespace?: string;
}

interface Grant {
  readonly subjects: readonly Subject[];
  readonly rules: readonly PolicyRule[];
  /** "" for everywhere. */
  readonly namespace: string;
  readonly binding: string;
}

const ROLES = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES = "clusterroles.rbac.authorization.k8s.io";
const ROLE_BINDINGS = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS = "clusterrolebindings.rbac.authorization.k8s.io";

/** RBAC over the stored roles and bindings, which are read again after they have changed. */
export class RbacAuthorizer implements Authorizer {
  readonly #store: ObjectStore;
  readonly #lookup: ObjectLookup;
  #grants: readonly Grant[] | undefined;
  /** One function, so that the store has it once however often it is handed in. */
  readonly #forget = (): void => {
    this.#grants = undefined;
  };

  constructor({ store, lookup }: { readonly store: ObjectStore; readonly lookup: ObjectLookup }) {
    this.#store = store;
    this.#lookup = lookup;
  }

  authorize(attributes: Attributes): AuthorizationDecision {
    const namespace = attributes.kind === "resource" ? attributes.namespace : "";
    const isAllowed = this.#grantsOf(attributes.user, namespace).some(({ rules }) =>
      rules.some((rule) => allows(rule, attributes)),
    );
    return isAllowed ? { kind: "allowed" } : { kind: "no-opinion", reason: "" };
  }

  /** A user's rules in a namespace, for SelfSubjectRulesReview. */
  rulesOf(user: UserInfo, namespace: string): readonly PolicyRule[] {
    return this.#grantsOf(user, namespace)
      .flatMap(({ rules }) => rules)
      .toArray();
  }

  /** The rules of a reference in a binding; undefined: there is no such role. */
  rulesOfRole(kind: string, name: string, namespace: string): readonly PolicyRule[] | undefined {
    const role =
      kind === "ClusterRole" ? this.#lookup.get(CLUSTER_ROLES, "", name) : this.#lookup.get(ROLES, namespace, name);
    return role === undefined ? undefined : this.#rulesIn(role);
  }

  #grantsOf(user: UserInfo, namespace: string): IteratorObject<Grant, undefined, unknown> {
    const isGranted = (grant: Grant): boolean =>
      (grant.namespace === "" || grant.namespace === namespace) &&
      grant.subjects.some((subject) => isMeant(subject, user, grant.namespace));
    return this.#allGrants().values().filter(isGranted);
  }

  #allGrants(): readonly Grant[] {
    if (this.#grants !== undefined) return this.#grants;
    for (const resource of [ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS]) {
      this.#store.onChange(resource, this.#forget);
    }
    const bindings = [...this.#lookup.list(CLUSTER_ROLE_BINDINGS, ""), ...this.#lookup.list(ROLE_BINDINGS, "")];
    this.#grants = bindings.flatMap((binding) => {
      const { kind, name } = (binding.roleRef ?? {}) as { kind?: string; name?: string };
      const namespace = binding.metadata.namespace ?? "";
      const rules = this.rulesOfRole(kind ?? "", name ?? "", namespace);
      const subjects = (binding.subjects ?? []) as readonly Subject[];
      return rules === undefined ? [] : [{ subjects, rules, namespace, binding: binding.metadata.name }];
    });
    return this.#grants;
  }

  #rulesIn(role: ApiObject): readonly PolicyRule[] {
    const own = (role.rules ?? []) as readonly PolicyRule[];
    const aggregation = role.aggregationRule as { clusterRoleSelectors?: readonly LabelSelector[] } | undefined;
    const selectors = aggregation?.clusterRoleSelectors ?? [];
    if (selectors.length === 0) return own;
    const others = this.#lookup
      .list(CLUSTER_ROLES, "")
      .filter(
        ({ metadata }) =>
          metadata.name !== role.metadata.name && selectors.some((selector) => selects(selector, metadata.labels)),
      );
    return [...own, ...others.flatMap((each) => (each.rules ?? []) as readonly PolicyRule[])];
  }
}

function isMeant(subject: Subject, user: UserInfo, namespace: string): boolean {
  switch (subject.kind) {
    case "User":
      return subject.name === user.name;
    case "Group":
      return user.groups.includes(subject.name);
    case "ServiceAccount":
      return (
        user.name === `system:serviceaccount:${subject.namespace ?? namespace}:${subject.name}` &&
        user.groups.includes(SERVICE_ACCOUNTS) &&
        user.groups.includes(AUTHENTICATED)
      );
    default:
      return false;
  }
}

const has = (list: readonly string[] | undefined, value: string): boolean =>
  list?.includes("*") === true || list?.includes(value) === true;

/** True when the rule allows the access. A wanted `*` is allowed by a `*` alone. */
export function allows(rule: PolicyRule, attributes: Attributes): boolean {
  if (!has(rule.verbs, attributes.verb)) return false;
  if (attributes.kind === "path") {
    const { path } = attributes;
    return (rule.nonResourceURLs ?? []).some(
      (each) => each === "*" || each === path || (each.endsWith("*") && path.startsWith(each.slice(0, -1))),
    );
  }
  const { group, plural, subresource, name } = attributes;
  if (!has(rule.apiGroups, group)) return false;
  const { resources = [], resourceNames = [] } = rule;
  const wanted = subresource === "" ? plural : `${plural}/${subresource}`;
  const isNamed =
    resources.includes("*") ||
    resources.includes(wanted) ||
    (subresource !== "" && resources.includes(`*/${subresource}`));
  return isNamed && (resourceNames.length === 0 || resourceNames.includes(name));
}
