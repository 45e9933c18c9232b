/** The part of a made-up volume type that the pod model has: a folder with one file. */
import { defaultedInt32, object, optional, requiredText } from "@picolet/protocol/pod/fields/field-schemas.ts";
import { DEFAULT_FILE_MODE, validateMode, volumeModel } from "@picolet/protocol/pod/volumes/volume-model.ts";

export const note = volumeModel({
  schema: optional(object({ text: requiredText, mode: defaultedInt32 })),
  isRestricted: true,
  references: [["Secret", "text"]],
  applyDefaults(source) {
    source.mode ??= DEFAULT_FILE_MODE;
  },
  validate({ text, mode }, path, problems) {
    if (text === "") problems.required(`${path}.text`);
    validateMode(mode, `${path}.mode`, problems);
  },
});
