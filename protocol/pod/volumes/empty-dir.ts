import { canonicalQuantity } from "../fields/field-defaults.ts";
import { object, optional, optionalQuantity, optionalText } from "../fields/field-schemas.ts";
import { validateQuantity } from "../fields/quantity-validation.ts";
import { volumeModel } from "./volume-model.ts";

export const emptyDir = volumeModel({
  schema: optional(object({ medium: optionalText, sizeLimit: optionalQuantity })),
  applyDefaults(source) {
    if (source.sizeLimit !== undefined) source.sizeLimit = canonicalQuantity(source.sizeLimit);
  },
  validate({ sizeLimit }, path, problems) {
    if (sizeLimit !== undefined) validateQuantity(sizeLimit, `${path}.sizeLimit`, problems);
  },
});
