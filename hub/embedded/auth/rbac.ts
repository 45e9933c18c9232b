import { selects } from "../api/label-selector.ts";
import type { ApiObject, UserInfo } from "../api/resource-definition.ts";
import type { LabelSelector } from "../api/typed-objects.ts";
import type { Derived, DerivedObjects } from "../store/derived-objects.ts";
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

interface RoleReference {
  readonly kind?: string;
  readonly name?: string;
}

interface Role {
  readonly rules: readonly PolicyRule[];
  readonly labels: Readonly<Record<string, string>> | undefined;
  readonly name: string;
  /** Select other ClusterRoles, whose rules are this one's too. */
  readonly selectors: readonly LabelSelector[];
}

interface Binding {
  readonly subjects: readonly Subject[];
  readonly role: RoleReference;
  readonly namespace: string;
}

const GROUP = "rbac.authorization.k8s.io";

/** RBAC over the stored roles and bindings: a request costs what the bindings of its own namespace do. */
export class RbacAuthorizer implements Authorizer {
  /** In the group of their namespace; those of the cluster in the group "". */
  readonly #roles: DerivedObjects<Role>;
  readonly #clusterRoles: DerivedObjects<Role>;
  readonly #bindings: DerivedObjects<Binding>;
  readonly #clusterBindings: DerivedObjects<Binding>;
  /** Rules of ClusterRoles with selectors, as of `#aggregatedVersion` of the ClusterRoles. */
  readonly #aggregated = new Map<string, readonly PolicyRule[]>();
  #aggregatedVersion = 0;

  constructor(store: ObjectStore) {
    this.#roles = store.derive(`roles.${GROUP}`, roleOf);
    this.#clusterRoles = store.derive(`clusterroles.${GROUP}`, roleOf);
    this.#bindings = store.derive(`rolebindings.${GROUP}`, bindingOf);
    this.#clusterBindings = store.derive(`clusterrolebindings.${GROUP}`, bindingOf);
  }

  authorize(attributes: Attributes): AuthorizationDecision {
    const namespace = attributes.kind === "resource" ? attributes.namespace : "";
    for (const rules of this.#granted(attributes.user, namespace)) {
      if (rules.some((rule) => allows(rule, attributes))) return { kind: "allowed" };
    }
    return { kind: "no-opinion", reason: "" };
  }

  /** A user's rules in a namespace, those of each role once. */
  rulesOf(user: UserInfo, namespace: string): readonly PolicyRule[] {
    return [...new Set(this.#granted(user, namespace))].flat();
  }

  /** The rules of a reference in a binding; undefined: there is no such role. */
  rulesOfRole(kind: string, name: string, namespace: string): readonly PolicyRule[] | undefined {
    const role =
      kind === "ClusterRole" ? this.#clusterRoles.get("", "", name) : this.#roles.get(namespace, namespace, name);
    return role === undefined || role.selectors.length === 0 ? role?.rules : this.#aggregate(role);
  }

  *#granted(user: UserInfo, namespace: string): Iterable<readonly PolicyRule[]> {
    const groups = [this.#clusterBindings.in(""), namespace === "" ? [] : this.#bindings.in(namespace)];
    for (const bindings of groups) {
      for (const { subjects, role, namespace: own } of bindings) {
        if (!subjects.some((subject) => isMeant(subject, user, own))) continue;
        const rules = this.rulesOfRole(role.kind ?? "", role.name ?? "", own);
        if (rules !== undefined) yield rules;
      }
    }
  }

  #aggregate({ name, rules, selectors }: Role): readonly PolicyRule[] {
    const { version } = this.#clusterRoles;
    if (version !== this.#aggregatedVersion) this.#aggregated.clear();
    this.#aggregatedVersion = version;
    const known = this.#aggregated.get(name);
    if (known !== undefined) return known;
    const others = [...this.#clusterRoles.in("")].filter(
      (each) => each.name !== name && selectors.some((selector) => selects(selector, each.labels)),
    );
    const made = [...rules, ...others.flatMap((each) => each.rules)];
    this.#aggregated.set(name, made);
    return made;
  }
}

function roleOf({ metadata, rules, aggregationRule }: ApiObject): Derived<Role> {
  const aggregation = aggregationRule as { clusterRoleSelectors?: readonly LabelSelector[] } | undefined;
  const { name, namespace = "", labels } = metadata;
  const selectors = objectsIn(aggregation?.clusterRoleSelectors);
  return { group: namespace, value: structuredClone({ name, labels, rules: objectsIn(rules), selectors }) as Role };
}

function bindingOf({ metadata, roleRef, subjects }: ApiObject): Derived<Binding> {
  const { namespace = "" } = metadata;
  const binding = { namespace, role: roleRef ?? {}, subjects: objectsIn(subjects) };
  return { group: namespace, value: structuredClone(binding) as Binding };
}

const objectsIn = (list: unknown): readonly unknown[] =>
  Array.isArray(list) ? list.filter((each) => typeof each === "object" && each !== null) : [];

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

/** Texts of the rules: what one access is compared with at most. */
export const textsIn = (rules: readonly PolicyRule[]): number =>
  rules.reduce((sum, rule) => sum + Object.values(rule).reduce((own, texts) => own + (texts?.length ?? 0), 0), 0);

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
