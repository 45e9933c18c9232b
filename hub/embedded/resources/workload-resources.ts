/** `daemonsets` and `controllerrevisions` of apps/v1, `podtemplates`. */

import {
  type FieldError,
  forbiddenValue,
  invalidValue,
  notSupportedValue,
  requiredValue,
} from "../api/field-errors.ts";
import { selects } from "../api/label-selector.ts";
import {
  fieldAt,
  immutableFields,
  listAt,
  mappingAt,
  sameValue,
  section,
  setDefault,
  textAt,
} from "../api/object-fields.ts";
import type { ApiObject, PrinterColumn, ResourceDefinition } from "../api/resource-definition.ts";
import type { LabelSelector } from "../api/typed-objects.ts";
import { ageColumn, column, labelsText, NONE, nameColumn, wideColumn } from "../printing/columns.ts";
import { defaultPodTemplate, validatePodTemplate } from "./pods/pod-template.ts";

/** As `metav1.FormatLabelSelector` shows it: `a=b,c in (d,e),!f`. A missing or empty one: `<none>`. */
function selectorColumnText(selector: LabelSelector | undefined): string {
  const equal = Object.entries(selector?.matchLabels ?? {}).map(([key, value]) => ({ key, text: `${key}=${value}` }));
  const others = (selector?.matchExpressions ?? []).map(({ key, operator, values = [] }) => {
    if (operator === "Exists") return { key, text: key };
    if (operator === "DoesNotExist") return { key, text: `!${key}` };
    return { key, text: `${key} ${operator === "In" ? "in" : "notin"} (${[...values].sort().join(",")})` };
  });
  const all = [...equal, ...others].sort((left, right) => (left.key < right.key ? -1 : left.key > right.key ? 1 : 0));
  return all.length === 0 ? NONE : all.map(({ text }) => text).join(",");
}

const DEFAULT_REVISION_LIMIT = 10;
/** The counter from before `metadata.generation`; the pods' label `pod-template-generation` still shows it. */
export const TEMPLATE_GENERATION = "deprecated.daemonset.template.generation";

const counter = (name: string, fieldName: string): PrinterColumn =>
  column(name, (set) => Number(fieldAt(set, "status", fieldName) ?? 0), "integer");
const templateContainers = (set: ApiObject): readonly unknown[] =>
  listAt(set, "spec", "template", "spec", "containers");
const joined = (values: readonly unknown[], name: string): string => values.map((each) => textAt(each, name)).join(",");

const DAEMON_SET_COLUMNS: readonly PrinterColumn[] = [
  nameColumn,
  counter("Desired", "desiredNumberScheduled"),
  counter("Current", "currentNumberScheduled"),
  counter("Ready", "numberReady"),
  counter("Up-to-date", "updatedNumberScheduled"),
  counter("Available", "numberAvailable"),
  column("Node Selector", (set) => labelsText(mappingAt(set, "spec", "template", "spec", "nodeSelector"))),
  ageColumn,
  wideColumn("Containers", (set) => joined(templateContainers(set), "name")),
  wideColumn("Images", (set) => joined(templateContainers(set), "image")),
  wideColumn("Selector", (set) => selectorColumnText(fieldAt(set, "spec", "selector") as LabelSelector | undefined)),
];

function defaultDaemonSet(set: ApiObject): void {
  const spec = section(set, "spec");
  const strategy = section(spec, "updateStrategy");
  setDefault(strategy, "type", "RollingUpdate");
  if (strategy.type === "RollingUpdate") {
    const rolling = section(strategy, "rollingUpdate");
    setDefault(rolling, "maxUnavailable", 1);
    setDefault(rolling, "maxSurge", 0);
  }
  setDefault(spec, "revisionHistoryLimit", DEFAULT_REVISION_LIMIT);
  defaultPodTemplate(section(spec, "template"));
}

function validateDaemonSet(set: ApiObject): readonly FieldError[] {
  const errors: FieldError[] = [];
  const selector = fieldAt(set, "spec", "selector") as LabelSelector | undefined;
  const template = mappingAt(set, "spec", "template");
  const labels = mappingAt(template, "metadata", "labels") as Record<string, string>;
  const isEmpty = (selector?.matchExpressions ?? []).length + Object.keys(selector?.matchLabels ?? {}).length === 0;
  if (selector === undefined) errors.push(requiredValue("spec.selector"));
  else if (isEmpty) errors.push(invalidValue("spec.selector", selector, "empty selector is invalid for daemonset"));
  else if (!selects(selector, labels)) {
    errors.push(invalidValue("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"));
  }
  errors.push(...validatePodTemplate(template, set.metadata.namespace ?? "", "spec.template"));
  const policy = textAt(template, "spec", "restartPolicy");
  if (policy !== "Always") {
    errors.push(notSupportedValue("spec.template.spec.restartPolicy", policy, ["Always"]));
  }
  if (fieldAt(template, "spec", "activeDeadlineSeconds") !== undefined) {
    errors.push(
      forbiddenValue("spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds in DaemonSet is not Supported"),
    );
  }
  const minReady = Number(fieldAt(set, "spec", "minReadySeconds") ?? 0);
  if (minReady < 0) errors.push(invalidValue("spec.minReadySeconds", minReady, "must be greater than or equal to 0"));
  return [...errors, ...validateUpdateStrategy(mappingAt(set, "spec", "updateStrategy"))];
}

const isZero = (value: unknown): boolean => value === 0 || value === "0%";

function validateUpdateStrategy(strategy: Readonly<Record<string, unknown>>): readonly FieldError[] {
  const path = "spec.updateStrategy";
  const type = textAt(strategy, "type");
  if (type === "OnDelete") return [];
  if (type !== "RollingUpdate") return [notSupportedValue(path, strategy, ["RollingUpdate", "OnDelete"])];
  const errors: FieldError[] = [];
  const rolling = mappingAt(strategy, "rollingUpdate");
  for (const name of ["maxUnavailable", "maxSurge"]) {
    const value = rolling[name];
    const isValid =
      typeof value === "number" ? Number.isInteger(value) && value >= 0 : /^(100|[0-9]{1,2})%$/.test(String(value));
    if (!isValid) {
      const detail = "must be either the string or integer value (e.g. '10%' or 5), at most 100%";
      errors.push(invalidValue(`${path}.rollingUpdate.${name}`, value, detail));
    }
  }
  const { maxUnavailable, maxSurge } = rolling;
  if (!isZero(maxUnavailable) && !isZero(maxSurge)) {
    errors.push(
      invalidValue(`${path}.rollingUpdate.maxSurge`, maxSurge, "may not be set when maxUnavailable is non-zero"),
    );
  } else if (isZero(maxUnavailable) && isZero(maxSurge)) {
    errors.push(requiredValue(`${path}.rollingUpdate.maxUnavailable`, "cannot be 0 when maxSurge is 0"));
  }
  return errors;
}

const templateGeneration = (set: ApiObject): number => Number(set.metadata.annotations?.[TEMPLATE_GENERATION] ?? 0);

export const daemonSetResource: ResourceDefinition = {
  group: "apps",
  version: "v1",
  plural: "daemonsets",
  singular: "daemonset",
  kind: "DaemonSet",
  namespaced: true,
  shortNames: ["ds"],
  categories: ["all"],
  subresources: [{ name: "status", verbs: ["get", "patch", "update"] }],
  model: "V1DaemonSet",
  columns: DAEMON_SET_COLUMNS,
  strategy: {
    hasGeneration: true,
    default: defaultDaemonSet,
    prepareForCreate(set) {
      set.metadata.annotations = { ...set.metadata.annotations, [TEMPLATE_GENERATION]: "1" };
      set.status = {
        currentNumberScheduled: 0,
        numberMisscheduled: 0,
        desiredNumberScheduled: 0,
        numberReady: 0,
      };
    },
    prepareForUpdate(set, old) {
      set.status = old.status;
      const isSame = sameValue(fieldAt(set, "spec", "template"), fieldAt(old, "spec", "template"));
      const generation = String(templateGeneration(old) + (isSame ? 0 : 1));
      set.metadata.annotations = { ...set.metadata.annotations, [TEMPLATE_GENERATION]: generation };
    },
    validate: validateDaemonSet,
    validateUpdate: (set, old) => immutableFields(set, old, "spec.selector"),
  },
};

function controllerText({ metadata }: ApiObject): string {
  const owner = metadata.ownerReferences?.find(({ controller }) => controller === true);
  if (owner === undefined) return NONE;
  const group = owner.apiVersion.includes("/") ? `.${owner.apiVersion.split("/")[0]}` : "";
  return `${owner.kind.toLowerCase()}${group}/${owner.name}`;
}

export const controllerRevisionResource: ResourceDefinition = {
  group: "apps",
  version: "v1",
  plural: "controllerrevisions",
  singular: "controllerrevision",
  kind: "ControllerRevision",
  namespaced: true,
  model: "V1ControllerRevision",
  columns: [
    nameColumn,
    column("Controller", controllerText),
    column("Revision", (revision) => Number(revision.revision ?? 0), "integer"),
    ageColumn,
  ],
  strategy: {
    validate: (revision) =>
      Number(revision.revision ?? 0) < 0
        ? [invalidValue("revision", revision.revision, "must be greater than or equal to 0")]
        : [],
    validateUpdate: (revision, old) => immutableFields(revision, old, "data"),
  },
};

const templateOf = (object: ApiObject): readonly unknown[] => listAt(object, "template", "spec", "containers");

/** Stored for clients that make pods of it. */
export const podTemplateResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "podtemplates",
  singular: "podtemplate",
  kind: "PodTemplate",
  namespaced: true,
  model: "V1PodTemplate",
  columns: [
    nameColumn,
    column("Containers", (object) => joined(templateOf(object), "name")),
    column("Images", (object) => joined(templateOf(object), "image")),
    column("Pod Labels", (object) => labelsText(mappingAt(object, "template", "metadata", "labels"))),
  ],
  strategy: {
    hasGeneration: true,
    default: (object) => defaultPodTemplate(section(object, "template")),
    validate: (object) => validatePodTemplate(object.template, object.metadata.namespace ?? "", "template"),
  },
};
