/** meta.k8s.io Table and PartialObjectMetadata: what `kubectl get` prints and metadata clients read. */

import type { ApiObject, PrinterColumn, ResourceDefinition } from "../api/resource-definition.ts";
import { ageOf } from "./age.ts";

export type TableVersion = "v1" | "v1beta1";
export type IncludeObject = "None" | "Metadata" | "Object";

const NAME_DESCRIPTION =
  "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically.";

const DEFAULT_COLUMNS: readonly PrinterColumn[] = [
  {
    name: "Name",
    type: "string",
    format: "name",
    description: NAME_DESCRIPTION,
    value: ({ metadata }) => metadata.name,
  },
  {
    name: "Age",
    type: "string",
    description: "Time since the object was made.",
    value: ({ metadata }, now) => ageOf(metadata.creationTimestamp, now),
  },
];

const columnsOf = ({ columns = DEFAULT_COLUMNS }: ResourceDefinition): readonly PrinterColumn[] => columns;

export const toPartial = ({ metadata }: ApiObject, version: TableVersion): Record<string, unknown> => ({
  kind: "PartialObjectMetadata",
  apiVersion: `meta.k8s.io/${version}`,
  metadata,
});

export interface TableInit {
  readonly version: TableVersion;
  readonly include: IncludeObject;
  readonly now: Date;
  /** False in a watch after the first event. */
  readonly hasColumns: boolean;
  /** The list's, or the object's own. */
  readonly metadata: Readonly<Record<string, unknown>>;
}

export function toTable(
  definition: ResourceDefinition,
  objects: readonly ApiObject[],
  init: TableInit,
): Record<string, unknown> {
  const columns = columnsOf(definition);
  const rows = objects.map((object) => {
    const cells = columns.map((column) => column.value(object, init.now));
    if (init.include === "None") return { cells, object: null };
    return { cells, object: init.include === "Object" ? object : toPartial(object, init.version) };
  });
  const columnDefinitions = columns.map(({ name, type, format = "", description = "", priority = 0 }) => ({
    name,
    type,
    format,
    description,
    priority,
  }));
  return {
    kind: "Table",
    apiVersion: `meta.k8s.io/${init.version}`,
    metadata: init.metadata,
    columnDefinitions: init.hasColumns ? columnDefinitions : [],
    rows,
  };
}
