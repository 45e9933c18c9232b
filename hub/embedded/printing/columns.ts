/** The building blocks of the tables that kubectl prints. */

import { textAt } from "../api/object-fields.ts";
import type { ApiObject, PrinterColumn } from "../api/resource-definition.ts";
import { ageOf } from "./age.ts";

type Cell = PrinterColumn["value"];

export const NONE = "<none>";

export const nameColumn: PrinterColumn = {
  name: "Name",
  type: "string",
  format: "name",
  value: ({ metadata }) => metadata.name,
};

export const ageColumn: PrinterColumn = {
  name: "Age",
  type: "string",
  value: ({ metadata }, now) => ageOf(metadata.creationTimestamp, now),
};

/** Always shown. */
export const column = (name: string, value: Cell, type: PrinterColumn["type"] = "string"): PrinterColumn => ({
  name,
  type,
  value,
});

/** Shown with `-o wide`. */
export const wideColumn = (name: string, value: Cell, type: PrinterColumn["type"] = "string"): PrinterColumn => ({
  name,
  type,
  priority: 1,
  value,
});

/** The field at `path`, or `missing`. */
export const field =
  (missing: string, ...path: readonly string[]): Cell =>
  (object: ApiObject) =>
    textAt(object, ...path) || missing;

export const orNone = (text: string): string => (text === "" ? NONE : text);

/** `a=b,c=d` in order of the keys. */
export const labelsText = (labels: Readonly<Record<string, unknown>>): string =>
  orNone(
    Object.entries(labels)
      .map(([key, value]) => `${key}=${String(value)}`)
      .sort()
      .join(","),
  );
