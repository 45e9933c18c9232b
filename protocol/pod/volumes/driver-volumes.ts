/** Volume types of other machines and of drivers. A pod whose node lacks what mounts one waits. */
import {
  object,
  opaque,
  optional,
  optionalFlag,
  optionalText,
  optionalTextMap,
  requiredText,
} from "../fields/field-schemas.ts";
import { localReferenceSchema } from "../fields/reference-schemas.ts";
import { type VolumeModel, type VolumeReference, volumeModel } from "./volume-model.ts";

export const nfs = volumeModel({
  schema: optional(object({ server: requiredText, path: requiredText, readOnly: optionalFlag })),
  isRestricted: true,
  validate(source, path, problems) {
    if (source.server === "") problems.required(`${path}.server`);
    if (source.path === "") problems.required(`${path}.path`);
    else if (!source.path.startsWith("/")) problems.invalid(`${path}.path`, source.path, "must be an absolute path");
  },
});

export const csi = volumeModel({
  schema: optional(
    object({
      driver: requiredText,
      readOnly: optionalFlag,
      fsType: optionalText,
      volumeAttributes: optionalTextMap,
      nodePublishSecretRef: optional(localReferenceSchema),
    }),
  ),
  references: [
    ["CSIDriver", "driver"],
    ["Secret", "nodePublishSecretRef", "name"],
  ],
  validate({ driver }, path, problems) {
    if (driver === "") problems.required(`${path}.driver`);
  },
});

/** A type that is passed on unread. */
export const foreign = (...references: VolumeReference[]): VolumeModel<typeof opaque> => ({
  schema: opaque,
  isRestricted: true,
  references,
});
