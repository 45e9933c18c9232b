/**
 * Persistent volumes, claims and storage classes. Claims are bound to volumes that are there; nothing is provisioned.
 */
import { type FieldError, forbiddenValue, requiredValue } from "../api/field-errors.ts";
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
import type { ApiObject, ResourceDefinition, StrategyContext } from "../api/resource-definition.ts";
import { ageColumn, column, field, nameColumn, wideColumn } from "../printing/columns.ts";
import { validateClaim, validateSourceUpdate, validateVolume } from "./storage-validation.ts";

const SHORT_MODES: Readonly<Record<string, string>> = {
  ReadWriteOnce: "RWO",
  ReadOnlyMany: "ROX",
  ReadWriteMany: "RWX",
  ReadWriteOncePod: "RWOP",
};

/** In Kubernetes' order, independent of the order in the object. */
const modesText = (modes: readonly unknown[]): string =>
  Object.keys(SHORT_MODES)
    .filter((mode) => modes.includes(mode))
    .map((mode) => SHORT_MODES[mode])
    .join(",");

function phaseOf(object: ApiObject): string {
  return object.metadata.deletionTimestamp === undefined ? textAt(object, "status", "phase") : "Terminating";
}

function claimText(volume: ApiObject): string {
  const name = textAt(volume, "spec", "claimRef", "name");
  return name === "" ? "" : `${textAt(volume, "spec", "claimRef", "namespace")}/${name}`;
}

export const persistentVolumeResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "persistentvolumes",
  singular: "persistentvolume",
  kind: "PersistentVolume",
  namespaced: false,
  shortNames: ["pv"],
  model: "V1PersistentVolume",
  subresources: [{ name: "status", verbs: ["get", "patch", "update"] }],
  columns: [
    nameColumn,
    column("Capacity", field("", "spec", "capacity", "storage")),
    column("Access Modes", (volume) => modesText(listAt(volume, "spec", "accessModes"))),
    column("Reclaim Policy", field("", "spec", "persistentVolumeReclaimPolicy")),
    column("Status", phaseOf),
    column("Claim", claimText),
    column("StorageClass", field("", "spec", "storageClassName")),
    column("VolumeAttributesClass", field("<unset>", "spec", "volumeAttributesClassName")),
    column("Reason", field("", "status", "reason")),
    ageColumn,
    wideColumn("VolumeMode", field("<unset>", "spec", "volumeMode")),
  ],
  strategy: {
    default(volume) {
      const spec = section(volume, "spec");
      setDefault(spec, "persistentVolumeReclaimPolicy", "Retain");
      setDefault(spec, "volumeMode", "Filesystem");
      const hostPath = fieldAt(spec, "hostPath") as Record<string, unknown> | undefined;
      if (hostPath !== undefined) setDefault(hostPath, "type", "");
    },
    prepareForCreate(volume) {
      volume.status = { phase: "Pending" };
      protect(volume, "kubernetes.io/pv-protection");
    },
    validate: (volume, { subresource }) => (subresource === "" ? validateVolume(volume) : []),
    validateUpdate: validateSourceUpdate,
  },
};

const UNBOUND =
  "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

function validateClaimUpdate(
  claim: ApiObject,
  old: ApiObject,
  { subresource }: StrategyContext,
): readonly FieldError[] {
  if (subresource !== "") return [];
  const mutable = (object: ApiObject): object => {
    const spec = structuredClone(section(object, "spec"));
    const isBound = textAt(old, "status", "phase") === "Bound";
    const resources = { ...mappingAt(spec, "resources"), ...(isBound ? { requests: undefined } : {}) };
    // Binding sets it once; a class may be added where there was none.
    const volumeName = textAt(old, "spec", "volumeName") === "" ? undefined : spec.volumeName;
    const isClassless = fieldAt(old, "spec", "storageClassName") === undefined;
    const storageClassName = isClassless ? undefined : spec.storageClassName;
    return { ...spec, resources, volumeName, storageClassName, volumeAttributesClassName: undefined };
  };
  return sameValue(mutable(claim), mutable(old)) ? [] : [forbiddenValue("spec", UNBOUND)];
}

/** Protects an object in use: its controller removes the finalizer when it has no user left. */
function protect({ metadata }: ApiObject, finalizer: string): void {
  metadata.finalizers = [...new Set([...(metadata.finalizers ?? []), finalizer])];
}

export const persistentVolumeClaimResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "persistentvolumeclaims",
  singular: "persistentvolumeclaim",
  kind: "PersistentVolumeClaim",
  namespaced: true,
  shortNames: ["pvc"],
  model: "V1PersistentVolumeClaim",
  subresources: [{ name: "status", verbs: ["get", "patch", "update"] }],
  columns: [
    nameColumn,
    column("Status", phaseOf),
    column("Volume", field("", "spec", "volumeName")),
    column("Capacity", field("", "status", "capacity", "storage")),
    column("Access Modes", (claim) => modesText(listAt(claim, "status", "accessModes"))),
    column("StorageClass", field("", "spec", "storageClassName")),
    column("VolumeAttributesClass", field("<unset>", "spec", "volumeAttributesClassName")),
    ageColumn,
    wideColumn("VolumeMode", field("<unset>", "spec", "volumeMode")),
  ],
  strategy: {
    default: (claim) => setDefault(section(claim, "spec"), "volumeMode", "Filesystem"),
    prepareForCreate(claim, { lookup }) {
      claim.status = { phase: "Pending" };
      protect(claim, "kubernetes.io/pvc-protection");
      const spec = section(claim, "spec");
      if (spec.storageClassName !== undefined) return;
      const standard = lookup
        .list("storageclasses.storage.k8s.io", "")
        .find(({ metadata }) => metadata.annotations?.[DEFAULT_CLASS] === "true");
      if (standard !== undefined) spec.storageClassName = standard.metadata.name;
    },
    validate: (claim, { subresource }) => (subresource === "" ? validateClaim(claim) : []),
    validateUpdate: validateClaimUpdate,
  },
};

const DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class";

export const storageClassResource: ResourceDefinition = {
  group: "storage.k8s.io",
  version: "v1",
  plural: "storageclasses",
  singular: "storageclass",
  kind: "StorageClass",
  namespaced: false,
  shortNames: ["sc"],
  model: "V1StorageClass",
  columns: [
    {
      ...nameColumn,
      value: ({ metadata }) =>
        `${metadata.name}${metadata.annotations?.[DEFAULT_CLASS] === "true" ? " (default)" : ""}`,
    },
    column("Provisioner", field("", "provisioner")),
    column("ReclaimPolicy", field("Delete", "reclaimPolicy")),
    column("VolumeBindingMode", field("<unset>", "volumeBindingMode")),
    column("AllowVolumeExpansion", (each) => each.allowVolumeExpansion === true, "string"),
    ageColumn,
  ],
  strategy: {
    default(each) {
      setDefault(each, "reclaimPolicy", "Delete");
      setDefault(each, "volumeBindingMode", "Immediate");
    },
    validate: (each) => (textAt(each, "provisioner") === "" ? [requiredValue("provisioner")] : []),
    validateUpdate: (each, old) => [
      ...["provisioner", "parameters", "reclaimPolicy"]
        .filter((name) => !sameValue(each[name], old[name]))
        .map((name) => forbiddenValue(name, `updates to ${name} are forbidden.`)),
      ...immutableFields(each, old, "volumeBindingMode"),
    ],
  },
};
