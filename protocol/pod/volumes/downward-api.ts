import type * as z from "zod/mini";
import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import { applyDivisorDefaults } from "../fields/field-defaults.ts";
import {
  defaultedInt32,
  object,
  optional,
  optionalInt32,
  optionalList,
  type Parsed,
  requiredText,
} from "../fields/field-schemas.ts";
import { validateVolumeFile } from "../fields/path-validation.ts";
import { objectFieldSelectorSchema, resourceFieldSelectorSchema } from "../fields/reference-schemas.ts";
import { VOLUME_FIELDS, validateFieldReference, validateResourceReference } from "../fields/reference-validation.ts";
import { DEFAULT_FILE_MODE, validateMode, volumeModel } from "./volume-model.ts";

const downwardFile = object({
  path: requiredText,
  fieldRef: optional(objectFieldSelectorSchema),
  resourceFieldRef: optional(resourceFieldSelectorSchema),
  mode: optionalInt32,
});
export const downwardFiles = optionalList(downwardFile);

export const downwardAPI = volumeModel({
  schema: optional(object({ items: downwardFiles, defaultMode: defaultedInt32 })),
  applyDefaults(source) {
    source.defaultMode ??= DEFAULT_FILE_MODE;
    applyDownwardDefaults(source.items);
  },
  validate({ defaultMode, items }, path, problems) {
    validateMode(defaultMode, `${path}.defaultMode`, problems);
    validateDownwardFiles(items, `${path}.items`, problems);
  },
});

export function applyDownwardDefaults(items: z.output<typeof downwardFiles>): void {
  for (const { fieldRef, resourceFieldRef } of items ?? []) {
    if (fieldRef !== undefined) fieldRef.apiVersion ||= "v1";
    if (resourceFieldRef !== undefined) applyDivisorDefaults(resourceFieldRef);
  }
}

export function validateDownwardFiles(
  items: Parsed<typeof downwardFiles>,
  path: string,
  problems: FieldProblems,
): void {
  items?.forEach((item, index) => {
    const each = `${path}[${index}]`;
    validateVolumeFile(item.path, `${each}.path`, problems);
    if (item.fieldRef && item.resourceFieldRef) {
      problems.invalid(each, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
    }
    if (item.fieldRef) validateFieldReference(item.fieldRef, VOLUME_FIELDS, `${each}.fieldRef`, problems);
    else if (item.resourceFieldRef) {
      validateResourceReference(item.resourceFieldRef, true, `${each}.resourceFieldRef`, problems);
    } else problems.required(each, "one of fieldRef and resourceFieldRef is required");
    validateMode(item.mode, `${each}.mode`, problems);
  });
}
