/** References to fields, resources and objects, as containers and volumes have them. */
import {
  defaultedText,
  object,
  optionalList,
  optionalQuantity,
  optionalText,
  optionalTextMap,
  optionalTexts,
  requiredText,
} from "./field-schemas.ts";

export const localReferenceSchema = object({ name: requiredText });

export const objectFieldSelectorSchema = object({ apiVersion: defaultedText, fieldPath: requiredText });

export const resourceFieldSelectorSchema = object({
  containerName: optionalText,
  resource: requiredText,
  /** "0" (the unit of one) when missing. */
  divisor: optionalQuantity,
});

const labelSelectorRequirement = object({ key: requiredText, operator: requiredText, values: optionalTexts });
export const labelSelectorSchema = object({
  matchLabels: optionalTextMap,
  matchExpressions: optionalList(labelSelectorRequirement),
});
