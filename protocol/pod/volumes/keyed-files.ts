/** ConfigMaps and Secrets as volumes: a file for each key, or for those that `items` names. */
import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import {
  defaultedInt32,
  object,
  optional,
  optionalFlag,
  optionalInt32,
  optionalList,
  type Parsed,
  requiredText,
} from "../fields/field-schemas.ts";
import { validateVolumeFile } from "../fields/path-validation.ts";
import { DEFAULT_FILE_MODE, validateMode, volumeModel } from "./volume-model.ts";

/** One key of a ConfigMap or Secret as a file. `mode` is decimal, or octal with YAML's `0o`. */
const keyToPath = object({ key: requiredText, path: requiredText, mode: optionalInt32 });
export const keysToPaths = optionalList(keyToPath);

export const secret = volumeModel({
  schema: optional(
    object({ secretName: requiredText, items: keysToPaths, defaultMode: defaultedInt32, optional: optionalFlag }),
  ),
  references: [["Secret", "secretName"]],
  applyDefaults(source) {
    source.defaultMode ??= DEFAULT_FILE_MODE;
  },
  validate({ secretName, defaultMode, items }, path, problems) {
    if (secretName === "") problems.required(`${path}.secretName`);
    validateMode(defaultMode, `${path}.defaultMode`, problems);
    validateKeysToPaths(items, `${path}.items`, problems);
  },
});

export const configMap = volumeModel({
  schema: optional(
    object({ name: requiredText, items: keysToPaths, defaultMode: defaultedInt32, optional: optionalFlag }),
  ),
  references: [["ConfigMap", "name"]],
  applyDefaults(source) {
    source.defaultMode ??= DEFAULT_FILE_MODE;
  },
  validate({ name, defaultMode, items }, path, problems) {
    if (name === "") problems.required(`${path}.name`);
    validateMode(defaultMode, `${path}.defaultMode`, problems);
    validateKeysToPaths(items, `${path}.items`, problems);
  },
});

export function validateKeysToPaths(items: Parsed<typeof keysToPaths>, path: string, problems: FieldProblems): void {
  items?.forEach((item, index) => {
    const each = `${path}[${index}]`;
    if (item.key === "") problems.required(`${each}.key`);
    validateVolumeFile(item.path, `${each}.path`, problems);
    validateMode(item.mode, `${each}.mode`, problems);
  });
}
