import type { ResourceDefinition } from "../api/resource-definition.ts";

/** An empty, read-only list. kubectl reads it before it reports an unknown kind. */
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
