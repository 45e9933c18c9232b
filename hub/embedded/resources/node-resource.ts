/** `nodes`. */
import { labelValueProblems, qualifiedNameProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import {
  duplicateValue,
  type FieldError,
  invalidValue,
  notSupportedValue,
  requiredValue,
} from "../api/field-errors.ts";
import { fieldAt, immutableFields, listAt, section, setDefault, textAt } from "../api/object-fields.ts";
import type { ApiObject, PrinterColumn, ResourceDefinition } from "../api/resource-definition.ts";
import { ageColumn, column, field, NONE, nameColumn, orNone, wideColumn } from "../printing/columns.ts";

function statusOf(node: ApiObject): string {
  const ready = listAt(node, "status", "conditions").find((each) => textAt(each, "type") === "Ready");
  const states = [ready === undefined ? "Unknown" : textAt(ready, "status") === "True" ? "Ready" : "NotReady"];
  if (fieldAt(node, "spec", "unschedulable") === true) states.push("SchedulingDisabled");
  return states.join(",");
}

const ROLE_PREFIX = "node-role.kubernetes.io/";
const ROLE_LABEL = "kubernetes.io/role";

function rolesOf({ metadata }: ApiObject): string {
  const roles = Object.entries(metadata.labels ?? {}).flatMap(([key, value]) => {
    if (key.startsWith(ROLE_PREFIX)) return key === ROLE_PREFIX ? [] : [key.slice(ROLE_PREFIX.length)];
    return key === ROLE_LABEL && value !== "" ? [value] : [];
  });
  return orNone([...new Set(roles)].sort().join(","));
}

const addressOf =
  (type: string) =>
  (node: ApiObject): string =>
    textAt(
      listAt(node, "status", "addresses").find((each) => textAt(each, "type") === type),
      "address",
    ) || NONE;

const NODE_COLUMNS: readonly PrinterColumn[] = [
  nameColumn,
  column("Status", statusOf),
  column("Roles", rolesOf),
  ageColumn,
  column("Version", field("", "status", "nodeInfo", "kubeletVersion")),
  wideColumn("Internal-IP", addressOf("InternalIP")),
  wideColumn("External-IP", addressOf("ExternalIP")),
  wideColumn("OS-Image", field("<unknown>", "status", "nodeInfo", "osImage")),
  wideColumn("Kernel-Version", field("<unknown>", "status", "nodeInfo", "kernelVersion")),
  wideColumn("Container-Runtime", field("<unknown>", "status", "nodeInfo", "containerRuntimeVersion")),
];

const EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const NOT_READY = { key: "node.kubernetes.io/not-ready", effect: "NoSchedule" };

function validateTaints(node: ApiObject): readonly FieldError[] {
  const errors: FieldError[] = [];
  const seen = new Set<string>();
  listAt(node, "spec", "taints").forEach((taint, index) => {
    const path = `spec.taints[${index}]`;
    const [key, value, effect] = [textAt(taint, "key"), textAt(taint, "value"), textAt(taint, "effect")];
    errors.push(...qualifiedNameProblems(key).map((problem) => invalidValue(`${path}.key`, key, problem)));
    errors.push(...labelValueProblems(value).map((problem) => invalidValue(`${path}.value`, value, problem)));
    if (effect === "") errors.push(requiredValue(`${path}.effect`));
    else if (!EFFECTS.includes(effect)) errors.push(notSupportedValue(`${path}.effect`, effect, EFFECTS));
    if (seen.has(`${effect}/${key}`)) {
      errors.push({
        ...duplicateValue(path, taint),
        message: "Duplicate value: taints must be unique by key and effect pair",
      });
    }
    seen.add(`${effect}/${key}`);
  });
  return errors;
}

export const nodeResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "nodes",
  singular: "node",
  kind: "Node",
  namespaced: false,
  shortNames: ["no"],
  model: "V1Node",
  columns: NODE_COLUMNS,
  subresources: [
    {
      name: "proxy",
      kind: { group: "", version: "v1", kind: "NodeProxyOptions" },
      verbs: ["get", "create", "update", "patch", "delete"],
    },
    { name: "status", verbs: ["get", "patch", "update"] },
  ],
  selectableFields: {
    "spec.unschedulable": (node) => String(fieldAt(node, "spec", "unschedulable") === true),
  },
  strategy: {
    default(node) {
      const status = fieldAt(node, "status");
      if (typeof status === "object" && status !== null) {
        const { capacity } = status as { capacity?: unknown };
        if (capacity !== undefined) setDefault(section(node, "status"), "allocatable", structuredClone(capacity));
      }
      section(node, "spec");
    },
    prepareForCreate(node) {
      // TaintNodesByCondition: nothing is put on a node that has not said that it is ready.
      const spec = section(node, "spec");
      const taints = listAt(spec, "taints");
      const isTainted = taints.some(
        (each) => textAt(each, "key") === NOT_READY.key && textAt(each, "effect") === NOT_READY.effect,
      );
      if (!isTainted) spec.taints = [...taints, { ...NOT_READY }];
    },
    prepareForUpdate(node, old) {
      node.status = old.status;
    },
    prepareForSubresource(node, old) {
      node.spec = structuredClone(old.spec);
    },
    validate: validateTaints,
    validateUpdate: (node, old) => {
      const path = "spec.providerID";
      const before = textAt(old, "spec", "providerID");
      const isChanged = before !== "" && before !== textAt(node, "spec", "providerID");
      const podCidr = textAt(old, "spec", "podCIDR") === "" ? [] : immutableFields(node, old, "spec.podCIDR");
      return isChanged
        ? [
            ...podCidr,
            {
              type: "FieldValueForbidden",
              field: path,
              message: 'Forbidden: node updates may not change providerID except from "" to valid',
            },
          ]
        : podCidr;
    },
  },
};
