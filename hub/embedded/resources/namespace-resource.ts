import { listAt, section, setDefault, textAt } from "../api/object-fields.ts";
import type { ResourceDefinition } from "../api/resource-definition.ts";
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
