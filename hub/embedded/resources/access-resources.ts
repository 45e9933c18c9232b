/** Roles and their bindings (rbac.authorization.k8s.io/v1). The server evaluates them. */
import { type FieldError, invalidValue, notSupportedValue, requiredValue } from "../api/field-errors.ts";
import { listAt, sameValue, section, setDefault, textAt } from "../api/object-fields.ts";
import type { ApiObject, PrinterColumn, ResourceDefinition } from "../api/resource-definition.ts";
import { ageColumn, column, nameColumn, wideColumn } from "../printing/columns.ts";

const GROUP = "rbac.authorization.k8s.io";
const SUBJECT_KINDS = ["ServiceAccount", "User", "Group"];

const common = { group: GROUP, version: "v1", nameRule: "path-segment" } as const;

const roleColumns: readonly PrinterColumn[] = [
  nameColumn,
  column("Created At", ({ metadata }) => metadata.creationTimestamp ?? "<unknown>"),
];

const subjects =
  (kind: string) =>
  (binding: ApiObject): string =>
    listAt(binding, "subjects")
      .filter((subject) => textAt(subject, "kind") === kind)
      .map((subject) => {
        const name = textAt(subject, "name");
        return kind === "ServiceAccount" ? `${textAt(subject, "namespace")}/${name}` : name;
      })
      .join(", ");

const bindingColumns: readonly PrinterColumn[] = [
  nameColumn,
  column("Role", (binding) => `${textAt(binding, "roleRef", "kind")}/${textAt(binding, "roleRef", "name")}`),
  ageColumn,
  wideColumn("Users", subjects("User")),
  wideColumn("Groups", subjects("Group")),
  wideColumn("ServiceAccounts", subjects("ServiceAccount")),
];

function validateRules(role: ApiObject): readonly FieldError[] {
  const errors: FieldError[] = [];
  listAt(role, "rules").forEach((rule, index) => {
    const path = `rules[${index}]`;
    if (listAt(rule, "verbs").length === 0)
      errors.push(requiredValue(`${path}.verbs`, "verbs must contain at least one value"));
    if (listAt(rule, "nonResourceURLs").length > 0) {
      if (textAt(role, "kind") === "Role") {
        const detail = "namespaced rules cannot apply to non-resource URLs";
        errors.push(invalidValue(`${path}.nonResourceURLs`, listAt(rule, "nonResourceURLs"), detail));
      }
      return;
    }
    if (listAt(rule, "apiGroups").length === 0) {
      errors.push(requiredValue(`${path}.apiGroups`, "resource rules must supply at least one api group"));
    }
    if (listAt(rule, "resources").length === 0) {
      errors.push(requiredValue(`${path}.resources`, "resource rules must supply at least one resource"));
    }
  });
  return errors;
}

function defaultBinding(binding: ApiObject): void {
  setDefault(section(binding, "roleRef"), "apiGroup", GROUP);
  for (const subject of listAt(binding, "subjects") as Record<string, unknown>[]) {
    if (subject.kind === "User" || subject.kind === "Group") setDefault(subject, "apiGroup", GROUP);
  }
}

function validateBinding(binding: ApiObject): readonly FieldError[] {
  const kinds = binding.kind === "RoleBinding" ? ["Role", "ClusterRole"] : ["ClusterRole"];
  const kind = textAt(binding, "roleRef", "kind");
  const errors: FieldError[] = kinds.includes(kind) ? [] : [notSupportedValue("roleRef.kind", kind, kinds)];
  if (textAt(binding, "roleRef", "name") === "") errors.push(requiredValue("roleRef.name"));
  listAt(binding, "subjects").forEach((subject, index) => {
    const path = `subjects[${index}]`;
    const subjectKind = textAt(subject, "kind");
    if (textAt(subject, "name") === "") errors.push(requiredValue(`${path}.name`));
    if (!SUBJECT_KINDS.includes(subjectKind)) {
      errors.push(notSupportedValue(`${path}.kind`, subjectKind, SUBJECT_KINDS));
    } else if (subjectKind === "ServiceAccount" && textAt(subject, "namespace") === "") {
      errors.push(requiredValue(`${path}.namespace`));
    }
  });
  return errors;
}

const validateRoleRef = (binding: ApiObject, old: ApiObject): readonly FieldError[] =>
  sameValue(binding.roleRef, old.roleRef) ? [] : [invalidValue("roleRef", binding.roleRef, "cannot change roleRef")];

const role = { strategy: { validate: validateRules }, columns: roleColumns };
const binding = {
  strategy: { default: defaultBinding, validate: validateBinding, validateUpdate: validateRoleRef },
  columns: bindingColumns,
};

export const accessResources: readonly ResourceDefinition[] = [
  { ...common, ...role, plural: "roles", singular: "role", kind: "Role", namespaced: true, model: "V1Role" },
  {
    ...common,
    ...role,
    plural: "clusterroles",
    singular: "clusterrole",
    kind: "ClusterRole",
    namespaced: false,
    model: "V1ClusterRole",
  },
  {
    ...common,
    ...binding,
    plural: "rolebindings",
    singular: "rolebinding",
    kind: "RoleBinding",
    namespaced: true,
    model: "V1RoleBinding",
  },
  {
    ...common,
    ...binding,
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    kind: "ClusterRoleBinding",
    namespaced: false,
    model: "V1ClusterRoleBinding",
  },
];
