import type { ResourceDefinition } from "../api/resource-definition.ts";

/** There are none and none can be made. kubectl looks here before it says that it knows no such kind. */
export const customResourceDefinitions: ResourceDefinition = {
  group: "apiextensions.k8s.io",
  version: "v1",
  plural: "customresourcedefinitions",
  singular: "customresourcedefinition",
  kind: "CustomResourceDefinition",
  namespaced: false,
  shortNames: ["crd", "crds"],
  verbs: ["get", "list", "watch"],
  model: "V1CustomResourceDefinition",
  strategy: {},
};
