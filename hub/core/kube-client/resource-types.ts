/** The resources that controllers read and write, besides those of `hub/core`. */
import type { ResourceType } from "./kube-client.ts";

const type = (group: string, plural: string, kind: string, namespaced: boolean): ResourceType => ({
  group,
  version: "v1",
  plural,
  kind,
  namespaced,
});

export const NAMESPACES = type("", "namespaces", "Namespace", false);
export const SERVICE_ACCOUNTS = type("", "serviceaccounts", "ServiceAccount", true);
export const STORAGE_CLASSES = type("storage.k8s.io", "storageclasses", "StorageClass", false);
export const ENDPOINTS = type("", "endpoints", "Endpoints", true);
export const ENDPOINT_SLICES = type("discovery.k8s.io", "endpointslices", "EndpointSlice", true);
export const DAEMON_SETS = type("apps", "daemonsets", "DaemonSet", true);
export const CONTROLLER_REVISIONS = type("apps", "controllerrevisions", "ControllerRevision", true);
export const LEASES = type("coordination.k8s.io", "leases", "Lease", true);
export const POD_DISRUPTION_BUDGETS = type("policy", "poddisruptionbudgets", "PodDisruptionBudget", true);
export const RESOURCE_CLAIM_TEMPLATES = type(
  "resource.k8s.io",
  "resourceclaimtemplates",
  "ResourceClaimTemplate",
  true,
);
export const DEVICE_CLASSES = type("resource.k8s.io", "deviceclasses", "DeviceClass", false);
export const RESOURCE_SLICES = type("resource.k8s.io", "resourceslices", "ResourceSlice", false);
export const CERTIFICATE_SIGNING_REQUESTS = type(
  "certificates.k8s.io",
  "certificatesigningrequests",
  "CertificateSigningRequest",
  false,
);
export const SUBJECT_ACCESS_REVIEWS = type(
  "authorization.k8s.io",
  "subjectaccessreviews",
  "SubjectAccessReview",
  false,
);
export const PRIORITY_CLASSES = type("scheduling.k8s.io", "priorityclasses", "PriorityClass", false);
export const CLUSTER_ROLES = type("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", false);
export const CLUSTER_ROLE_BINDINGS = type(
  "rbac.authorization.k8s.io",
  "clusterrolebindings",
  "ClusterRoleBinding",
  false,
);
