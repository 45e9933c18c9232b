import { object, opaque, optional, optionalFlag, requiredText } from "../fields/field-schemas.ts";
import { volumeModel } from "./volume-model.ts";

export const persistentVolumeClaim = volumeModel({
  schema: optional(object({ claimName: requiredText, readOnly: optionalFlag })),
  isDeviceSource: true,
  references: [["PersistentVolumeClaim", "claimName"]],
  validate({ claimName }, path, problems) {
    if (claimName === "") problems.required(`${path}.claimName`);
  },
});

/** A claim that is made for the pod; its name is the pod's and the volume's. */
export const ephemeral = volumeModel({
  schema: optional(object({ volumeClaimTemplate: opaque })),
  isDeviceSource: true,
});
