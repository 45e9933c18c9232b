import { pullPolicyOf } from "../fields/field-defaults.ts";
import { defaultedOneOf, object, optional, requiredText } from "../fields/field-schemas.ts";
import { volumeModel } from "./volume-model.ts";

const PULL_POLICIES = ["Always", "IfNotPresent", "Never"] as const;

export const image = volumeModel({
  schema: optional(object({ reference: requiredText, pullPolicy: defaultedOneOf<(typeof PULL_POLICIES)[number]>() })),
  applyDefaults(source) {
    source.pullPolicy ||= pullPolicyOf(source.reference);
  },
  validate({ reference, pullPolicy }, path, problems) {
    if (reference === "") problems.required(`${path}.reference`);
    problems.oneOf(`${path}.pullPolicy`, pullPolicy, PULL_POLICIES);
  },
});
