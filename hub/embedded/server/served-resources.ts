import type { ResourceDefinition } from "../api/resource-definition.ts";
import { type ReviewPorts, reviewResources } from "../auth/review-resources.ts";
import { customResourceDefinitions } from "./custom-resource-definitions.ts";

/**
 * The resources of the API: those that are stored, then those that the server itself answers.
 * @param ports called when a review is answered
 */
export const servedResources = (
  stored: readonly ResourceDefinition[],
  ports: () => ReviewPorts,
): readonly ResourceDefinition[] => [...stored, ...reviewResources(ports), customResourceDefinitions];
