import type { ResourceDefinition } from "../resource-definition.ts";
import { accessResources } from "./access-resources.ts";
import { certificateSigningRequestResource } from "./certificate-resource.ts";
import {
  leaseResource,
  podDisruptionBudgetResource,
  priorityClassResource,
  runtimeClassResource,
} from "./cluster-resources.ts";
import { configMapResource, secretResource, serviceAccountResource } from "./configuration-resources.ts";
import {
  csiDriverResource,
  csiNodeResource,
  csiStorageCapacityResource,
  volumeAttachmentResource,
} from "./csi-resources.ts";
import { eventResource } from "./event-resource.ts";
import { limitRangeResource } from "./limit-ranges.ts";
import { namespaceResource } from "./namespace-resource.ts";
import { endpointSliceResource, endpointsResource, serviceResource } from "./network-resources.ts";
import { nodeResource } from "./node-resource.ts";
import type { PodAdmissionInit } from "./pod-admission.ts";
import { podResource } from "./pod-resource.ts";
import { persistentVolumeClaimResource, persistentVolumeResource, storageClassResource } from "./storage-resources.ts";
import { controllerRevisionResource, daemonSetResource, podTemplateResource } from "./workload-resources.ts";

/** Everything that the embedded API server stores, in the order of its discovery. */
export const embeddedResources = (init: PodAdmissionInit): readonly ResourceDefinition[] => [
  namespaceResource,
  nodeResource,
  podResource(init),
  configMapResource,
  secretResource,
  serviceAccountResource,
  limitRangeResource,
  podTemplateResource,
  serviceResource,
  endpointsResource,
  endpointSliceResource,
  eventResource,
  persistentVolumeResource,
  persistentVolumeClaimResource,
  daemonSetResource,
  controllerRevisionResource,
  leaseResource,
  certificateSigningRequestResource,
  podDisruptionBudgetResource,
  runtimeClassResource,
  priorityClassResource,
  storageClassResource,
  csiDriverResource,
  csiNodeResource,
  csiStorageCapacityResource,
  volumeAttachmentResource,
  ...accessResources,
];
