/** Leases, runtime classes, priority classes, disruption budgets. */
import { dnsLabelProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { type FieldError, forbiddenValue, invalidValue, requiredValue } from "../api/field-errors.ts";
import { fieldAt, immutableFields, listAt, section, setDefault, textAt } from "../api/object-fields.ts";
import type { ApiObject, ResourceDefinition } from "../api/resource-definition.ts";
import { forbidden } from "../api/status-error.ts";
import { ageColumn, column, field, nameColumn } from "../printing/columns.ts";

export const NAMESPACE_FINALIZER = "kubernetes";

/** NamespaceLifecycle: a cluster is none without them. */
const LASTING: ReadonlySet<string> = new Set(["default", "kube-system", "kube-public"]);

export const namespaceResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "namespaces",
  singular: "namespace",
  kind: "Namespace",
  namespaced: false,
  shortNames: ["ns"],
  verbs: ["create", "delete", "get", "list", "patch", "update", "watch"],
  subresources: [
    { name: "finalize", verbs: ["update"] },
    { name: "status", verbs: ["get", "patch", "update"] },
  ],
  model: "V1Namespace",
  columns: [nameColumn, column("Status", field("", "status", "phase")), ageColumn],
  selectableFields: { "status.phase": (namespace) => textAt(namespace, "status", "phase") },
  nameRule: "label",
  strategy: {
    default(namespace) {
      namespace.metadata.labels = {
        ...namespace.metadata.labels,
        "kubernetes.io/metadata.name": namespace.metadata.name,
      };
    },
    prepareForCreate(namespace) {
      setDefault(section(namespace, "spec"), "finalizers", [NAMESPACE_FINALIZER]);
      namespace.status = { phase: "Active" };
    },
    prepareForUpdate(namespace, old) {
      section(namespace, "spec").finalizers = section(old, "spec").finalizers;
      namespace.status = old.status;
    },
    prepareForDelete(namespace) {
      const { name } = namespace.metadata;
      if (LASTING.has(name)) throw forbidden(namespaceResource, name, "this namespace may not be deleted");
      section(namespace, "status").phase = "Terminating";
    },
    blocksDeletion: (namespace) => listAt(namespace, "spec", "finalizers").length > 0,
    prepareForSubresource(namespace, old, { subresource }) {
      if (subresource === "finalize") {
        const { finalizers } = section(namespace, "spec");
        namespace.spec = { ...section(old, "spec"), finalizers: finalizers ?? [] };
        namespace.status = old.status;
      } else {
        namespace.spec = old.spec;
      }
    },
  },
};

export const leaseResource: ResourceDefinition = {
  group: "coordination.k8s.io",
  version: "v1",
  plural: "leases",
  singular: "lease",
  kind: "Lease",
  namespaced: true,
  model: "V1Lease",
  columns: [nameColumn, column("Holder", field("", "spec", "holderIdentity")), ageColumn],
  strategy: {
    createOnUpdate: true,
    validate(lease) {
      const seconds = fieldAt(lease, "spec", "leaseDurationSeconds");
      return typeof seconds === "number" && seconds <= 0
        ? [invalidValue("spec.leaseDurationSeconds", seconds, "must be greater than 0")]
        : [];
    },
  },
};

export const runtimeClassResource: ResourceDefinition = {
  group: "node.k8s.io",
  version: "v1",
  plural: "runtimeclasses",
  singular: "runtimeclass",
  kind: "RuntimeClass",
  namespaced: false,
  model: "V1RuntimeClass",
  columns: [nameColumn, column("Handler", field("", "handler")), ageColumn],
  strategy: {
    validate(runtimeClass) {
      const handler = textAt(runtimeClass, "handler");
      if (handler === "") return [requiredValue("handler")];
      return dnsLabelProblems(handler).map((problem) => invalidValue("handler", handler, problem));
    },
    validateUpdate: (runtimeClass, old) => immutableFields(runtimeClass, old, "handler"),
  },
};

/** Values above are Kubernetes' own. */
const HIGHEST_USER_PRIORITY = 1_000_000_000;
/** `system-node-critical` and `system-cluster-critical`, and nothing else with that prefix. */
export const SYSTEM_PRIORITIES: Readonly<Record<string, number>> = {
  "system-node-critical": 2_000_001_000,
  "system-cluster-critical": 2_000_000_000,
};

function validatePriorityClass(priorityClass: ApiObject): readonly FieldError[] {
  const { name } = priorityClass.metadata;
  const value = Number(priorityClass.value ?? 0);
  if (name.startsWith("system-")) {
    return SYSTEM_PRIORITIES[name] === value
      ? []
      : [
          forbiddenValue(
            "metadata.name",
            "priority class names with 'system-' prefix are reserved for system use only. error: " +
              `${name} is not a known system priority class`,
          ),
        ];
  }
  return value > HIGHEST_USER_PRIORITY
    ? [forbiddenValue("value", `maximum allowed value of a user defined priority is ${HIGHEST_USER_PRIORITY}`)]
    : [];
}

export const priorityClassResource: ResourceDefinition = {
  group: "scheduling.k8s.io",
  version: "v1",
  plural: "priorityclasses",
  singular: "priorityclass",
  kind: "PriorityClass",
  namespaced: false,
  shortNames: ["pc"],
  model: "V1PriorityClass",
  columns: [
    nameColumn,
    column("Value", (each) => Number(each.value ?? 0), "integer"),
    column("Global-Default", (each) => each.globalDefault === true, "boolean"),
    ageColumn,
    column("PreemptionPolicy", field("", "preemptionPolicy")),
  ],
  strategy: {
    default: (each) => setDefault(each, "preemptionPolicy", "PreemptLowerPriority"),
    validate: validatePriorityClass,
    validateUpdate: (each, old) => immutableFields(each, old, "value", "preemptionPolicy"),
    prepareForCreate(each, { lookup }) {
      const others = lookup.list("priorityclasses.scheduling.k8s.io", "");
      const other = others.find((one) => one.globalDefault === true && one.metadata.name !== each.metadata.name);
      if (each.globalDefault === true && other !== undefined) {
        const why = `PriorityClass ${other.metadata.name} is already marked as default. Only one default can exist`;
        throw forbidden({ group: "scheduling.k8s.io", plural: "priorityclasses" }, each.metadata.name, why);
      }
    },
  },
};

const amount = (value: unknown): string => (value === undefined || value === null ? "N/A" : String(value));

function validateBudget(budget: ApiObject): readonly FieldError[] {
  const errors: FieldError[] = [];
  const minAvailable = fieldAt(budget, "spec", "minAvailable");
  const maxUnavailable = fieldAt(budget, "spec", "maxUnavailable");
  if (minAvailable !== undefined && maxUnavailable !== undefined) {
    errors.push(invalidValue("spec", budget.spec, "minAvailable and maxUnavailable cannot be both set"));
  }
  for (const [name, value] of Object.entries({ minAvailable, maxUnavailable })) {
    const isValid =
      value === undefined || (typeof value === "number" ? value >= 0 : /^(100|[0-9]{1,2})%$/.test(String(value)));
    if (!isValid)
      errors.push(
        invalidValue(`spec.${name}`, value, "must be greater than or equal to 0, or a percentage up to 100%"),
      );
  }
  return errors;
}

export const podDisruptionBudgetResource: ResourceDefinition = {
  group: "policy",
  version: "v1",
  plural: "poddisruptionbudgets",
  singular: "poddisruptionbudget",
  kind: "PodDisruptionBudget",
  namespaced: true,
  shortNames: ["pdb"],
  model: "V1PodDisruptionBudget",
  subresources: [{ name: "status", verbs: ["get", "patch", "update"] }],
  columns: [
    nameColumn,
    column("Min Available", (budget) => amount(fieldAt(budget, "spec", "minAvailable"))),
    column("Max Unavailable", (budget) => amount(fieldAt(budget, "spec", "maxUnavailable"))),
    column("Allowed Disruptions", (budget) => Number(fieldAt(budget, "status", "disruptionsAllowed") ?? 0), "integer"),
    ageColumn,
  ],
  strategy: {
    hasGeneration: true,
    prepareForCreate(budget) {
      budget.status = { disruptionsAllowed: 0, currentHealthy: 0, desiredHealthy: 0, expectedPods: 0 };
    },
    validate: validateBudget,
  },
};
