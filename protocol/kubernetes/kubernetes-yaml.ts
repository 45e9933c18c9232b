import type { DocumentOptions, ParseOptions, SchemaOptions } from "yaml";

/** YAML 1.1 has these too; Kubernetes' parser reads their texts as strings (`port: 12:30`, `2024-01-31`). */
const STRINGS_TO_KUBERNETES: ReadonlySet<string> = new Set([
  "tag:yaml.org,2002:timestamp",
  "tag:yaml.org,2002:binary",
  "tag:yaml.org,2002:omap",
  "tag:yaml.org,2002:pairs",
  "tag:yaml.org,2002:set",
]);

/**
 * How Kubernetes reads YAML (sigs.k8s.io/yaml): version 1.1, so that `0644` is octal and `yes` is true, without dates
 * and base-60 numbers, a key at most once. For `parseDocument` and `parseAllDocuments` of the package `yaml`.
 */
export const KUBERNETES_YAML: DocumentOptions & ParseOptions & SchemaOptions = {
  version: "1.1",
  merge: true,
  uniqueKeys: true,
  prettyErrors: false,
  customTags: (tags) =>
    tags.filter((tag) => typeof tag === "string" || (!STRINGS_TO_KUBERNETES.has(tag.tag) && tag.format !== "TIME")),
};
