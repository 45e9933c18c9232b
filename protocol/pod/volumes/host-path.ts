import { defaultedOneOf, object, optional, requiredText } from "../fields/field-schemas.ts";
import { backstepProblems } from "../fields/path-validation.ts";
import { volumeModel } from "./volume-model.ts";

const TYPES = [
  "",
  "BlockDevice",
  "CharDevice",
  "Directory",
  "DirectoryOrCreate",
  "File",
  "FileOrCreate",
  "Socket",
] as const;

export type HostPathType = (typeof TYPES)[number];

export const hostPath = volumeModel({
  schema: optional(object({ path: requiredText, type: defaultedOneOf<HostPathType>() })),
  isRestricted: true,
  applyDefaults(source) {
    source.type ??= "";
  },
  validate(source, path, problems) {
    if (source.path === "") problems.required(`${path}.path`);
    else problems.invalidAll(`${path}.path`, source.path, backstepProblems(source.path));
    if (!TYPES.includes(source.type)) problems.unsupported(`${path}.type`, source.type, TYPES);
  },
});
