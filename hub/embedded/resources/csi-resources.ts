/** Objects of CSI drivers, stored for them, for the scheduler and for the attach/detach controller. */
import { requiredValue } from "../api/field-errors.ts";
import { fieldAt, immutableFields, listAt, section, setDefault, textAt } from "../api/object-fields.ts";
import type { ApiObject, ResourceDefinition } from "../api/resource-definition.ts";
import { ageColumn, column, field, nameColumn } from "../printing/columns.ts";

const STORAGE = { group: "storage.k8s.io", version: "v1" } as const;

const flag = (object: ApiObject, name: string): boolean => fieldAt(object, "spec", name) === true;

const required = (object: ApiObject, ...names: readonly string[]) =>
  names.filter((name) => textAt(object, "spec", name) === "").map((name) => requiredValue(`spec.${name}`));

export const csiDriverResource: ResourceDefinition = {
  ...STORAGE,
  plural: "csidrivers",
  singular: "csidriver",
  kind: "CSIDriver",
  namespaced: false,
  model: "V1CSIDriver",
  columns: [
    nameColumn,
    column("AttachRequired", (driver) => flag(driver, "attachRequired"), "boolean"),
    column("PodInfoOnMount", (driver) => flag(driver, "podInfoOnMount"), "boolean"),
    column("StorageCapacity", (driver) => flag(driver, "storageCapacity"), "boolean"),
    column("TokenRequests", (driver) => {
      const audiences = listAt(driver, "spec", "tokenRequests").map((each) => textAt(each, "audience"));
      return audiences.length === 0 ? "<unset>" : audiences.join(",");
    }),
    column("RequiresRepublish", (driver) => flag(driver, "requiresRepublish"), "boolean"),
    column("Modes", (driver) => listAt(driver, "spec", "volumeLifecycleModes").join(",")),
    ageColumn,
  ],
  strategy: {
    default(driver) {
      const spec = section(driver, "spec");
      setDefault(spec, "attachRequired", true);
      for (const name of ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"]) {
        setDefault(spec, name, false);
      }
      setDefault(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
      if (listAt(spec, "volumeLifecycleModes").length === 0) spec.volumeLifecycleModes = ["Persistent"];
    },
    validateUpdate: (driver, old) => immutableFields(driver, old, "spec.attachRequired", "spec.volumeLifecycleModes"),
  },
};

export const csiNodeResource: ResourceDefinition = {
  ...STORAGE,
  plural: "csinodes",
  singular: "csinode",
  kind: "CSINode",
  namespaced: false,
  model: "V1CSINode",
  columns: [nameColumn, column("Drivers", (node) => listAt(node, "spec", "drivers").length, "integer"), ageColumn],
  strategy: {
    validate: (node) =>
      listAt(node, "spec", "drivers").flatMap((driver, index) =>
        ["name", "nodeID"]
          .filter((name) => textAt(driver, name) === "")
          .map((name) => requiredValue(`spec.drivers[${index}].${name}`)),
      ),
  },
};

export const csiStorageCapacityResource: ResourceDefinition = {
  ...STORAGE,
  plural: "csistoragecapacities",
  singular: "csistoragecapacity",
  kind: "CSIStorageCapacity",
  namespaced: true,
  model: "V1CSIStorageCapacity",
  columns: [
    nameColumn,
    column("StorageClassName", field("", "storageClassName")),
    column("Capacity", field("<unset>", "capacity")),
    ageColumn,
  ],
  strategy: {
    validate: (capacity) => (textAt(capacity, "storageClassName") === "" ? [requiredValue("storageClassName")] : []),
    validateUpdate: (capacity, old) => immutableFields(capacity, old, "nodeTopology", "storageClassName"),
  },
};

export const volumeAttachmentResource: ResourceDefinition = {
  ...STORAGE,
  plural: "volumeattachments",
  singular: "volumeattachment",
  kind: "VolumeAttachment",
  namespaced: false,
  model: "V1VolumeAttachment",
  subresources: [{ name: "status", verbs: ["get", "patch", "update"] }],
  columns: [
    nameColumn,
    column("Attacher", field("", "spec", "attacher")),
    column("PV", field("", "spec", "source", "persistentVolumeName")),
    column("Node", field("", "spec", "nodeName")),
    column("Attached", (attachment) => fieldAt(attachment, "status", "attached") === true, "boolean"),
    ageColumn,
  ],
  strategy: {
    prepareForCreate(attachment) {
      attachment.status = { attached: false };
    },
    validate: (attachment) => required(attachment, "attacher", "nodeName"),
    validateUpdate: (attachment, old) => immutableFields(attachment, old, "spec"),
  },
};
