import type { ResourceDefinition } from "./api/resource-definition.ts";
import { CachingSelectorCompiler } from "./expressions/selector-compiler.ts";
import { accessResources } from "./resources/access-resources.ts";
import { certificateSigningRequestResource } from "./resources/certificate-resource.ts";
import {
  leaseResource,
  namespaceResource,
  podDisruptionBudgetResource,
  priorityClassResource,
  runtimeClassResource,
} from "./resources/cluster-resources.ts";
import { configMapResource, secretResource, serviceAccountResource } from "./resources/configuration-resources.ts";
import {
  csiDriverResource,
  csiNodeResource,
  csiStorageCapacityResource,
  volumeAttachmentResource,
} from "./resources/csi-resources.ts";
import { deviceResources } from "./resources/device-resources.ts";
import { eventResource } from "./resources/event-resource.ts";
import { ingressClassResource, ingressResource } from "./resources/ingress-resources.ts";
import { networkPolicyResource } from "./resources/network-policy-resource.ts";
import { endpointSliceResource, endpointsResource, serviceResource } from "./resources/network-resources.ts";
import { nodeResource } from "./resources/node-resource.ts";
import { limitRangeResource } from "./resources/pods/limit-ranges.ts";
import type { PodAdmissionInit } from "./resources/pods/pod-admission.ts";
import { podResource } from "./resources/pods/pod-resource.ts";
import {
  persistentVolumeClaimResource,
  persistentVolumeResource,
  storageClassResource,
} from "./resources/storage-resources.ts";
import { controllerRevisionResource, daemonSetResource, podTemplateResource } from "./resources/workload-resources.ts";

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
  ingressResource,
  ingressClassResource,
  networkPolicyResource,
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
  ...deviceResources(new CachingSelectorCompiler()),
  ...accessResources,
];
