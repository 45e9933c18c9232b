import type { ResourceDefinition } from "../api/resource-definition.ts";
import { reviewModels } from "../auth/review-resources.ts";
import { BODY_MODELS } from "../schema/body-models.ts";
import { customResourceDefinitions } from "./custom-resource-definitions.ts";

/** The models that an API server with these resources reads: the content of a `FileModelSource`'s file. */
export const modelRoots = (definitions: readonly ResourceDefinition[]): readonly string[] => [
  ...new Set([
    ...definitions.map(({ model }) => model),
    ...reviewModels(),
    customResourceDefinitions.model,
    ...Object.values(BODY_MODELS),
  ]),
];
