/**
 * Pod v1 as Kubernetes 1.34 has it, with Kubernetes' own field names. `Pod` is a parsed and defaulted pod, the result
 * of `parsePod`: fields that Kubernetes requires or defaults are never missing. `PodManifest` is a pod as a user may
 * write it. Unknown fields pass through unchanged.
 */
import type * as z from "zod/mini";
import {
  commonSecurityFields,
  containerSchema,
  ephemeralContainerSchema,
  type probeSchema,
  type securityContextSchema,
} from "./container-schema.ts";
import {
  defaultedFlag,
  defaultedInt64,
  defaultedObject,
  defaultedOneOf,
  defaultedText,
  type Immutable,
  object,
  opaque,
  optional,
  optionalFlag,
  optionalInt32,
  optionalInt64,
  optionalInt64s,
  optionalList,
  optionalOneOf,
  optionalQuantities,
  optionalText,
  optionalTextMap,
  optionalTexts,
  type Parsed,
  requiredInt32,
  requiredList,
  requiredObject,
  requiredOneOf,
  requiredText,
} from "./fields/field-schemas.ts";
import { labelSelectorSchema, localReferenceSchema } from "./fields/reference-schemas.ts";
import type { PodStatus } from "./pod-status.ts";
import { resourceRequirementsSchema, type volumeMountSchema, volumeSchema } from "./volume-schema.ts";

const objectMeta = object({
  /** Never missing after defaulting; validation refuses "". */
  name: requiredText,
  generateName: optionalText,
  /** `parsePod` fills it in. */
  namespace: defaultedText,
  uid: optionalText,
  resourceVersion: optionalText,
  generation: optionalInt64,
  /** Times are RFC 3339, as the API server writes them. */
  creationTimestamp: optionalText,
  deletionTimestamp: optionalText,
  deletionGracePeriodSeconds: optionalInt64,
  labels: optionalTextMap,
  annotations: optionalTextMap,
  ownerReferences: optionalList(
    object({
      apiVersion: requiredText,
      kind: requiredText,
      name: requiredText,
      uid: requiredText,
      controller: optionalFlag,
      blockOwnerDeletion: optionalFlag,
    }),
  ),
  finalizers: optionalTexts,
  selfLink: optionalText,
  managedFields: opaque,
});

const podSecurityContext = object({
  ...commonSecurityFields,
  supplementalGroups: optionalInt64s,
  supplementalGroupsPolicy: optionalOneOf<"Merge" | "Strict">(),
  fsGroup: optionalInt64,
  fsGroupChangePolicy: optionalOneOf<"OnRootMismatch" | "Always">(),
  sysctls: optionalList(object({ name: requiredText, value: requiredText })),
  seLinuxChangePolicy: optionalOneOf<"Recursive" | "MountOption">(),
});

const nodeSelectorRequirement = object({ key: requiredText, operator: requiredText, values: optionalTexts });
const nodeSelectorTerm = object({
  matchExpressions: optionalList(nodeSelectorRequirement),
  matchFields: optionalList(nodeSelectorRequirement),
});
const podAffinityTerm = object({
  labelSelector: optional(labelSelectorSchema),
  namespaces: optionalTexts,
  topologyKey: requiredText,
  namespaceSelector: optional(labelSelectorSchema),
  matchLabelKeys: optionalTexts,
  mismatchLabelKeys: optionalTexts,
});
const podAffinity = object({
  requiredDuringSchedulingIgnoredDuringExecution: optionalList(podAffinityTerm),
  preferredDuringSchedulingIgnoredDuringExecution: optionalList(
    object({ weight: requiredInt32, podAffinityTerm: requiredObject(podAffinityTerm) }),
  ),
});
const affinity = object({
  nodeAffinity: optional(
    object({
      requiredDuringSchedulingIgnoredDuringExecution: optional(
        object({ nodeSelectorTerms: requiredList(nodeSelectorTerm) }),
      ),
      preferredDuringSchedulingIgnoredDuringExecution: optionalList(
        object({ weight: requiredInt32, preference: requiredObject(nodeSelectorTerm) }),
      ),
    }),
  ),
  podAffinity: optional(podAffinity),
  podAntiAffinity: optional(podAffinity),
});

const toleration = object({
  key: optionalText,
  operator: optionalOneOf<"Exists" | "Equal">(),
  value: optionalText,
  effect: optionalOneOf<"NoSchedule" | "PreferNoSchedule" | "NoExecute">(),
  tolerationSeconds: optionalInt64,
});

const topologySpreadConstraint = object({
  maxSkew: requiredInt32,
  topologyKey: requiredText,
  whenUnsatisfiable: requiredOneOf<"DoNotSchedule" | "ScheduleAnyway">(),
  labelSelector: optional(labelSelectorSchema),
  minDomains: optionalInt32,
  nodeAffinityPolicy: optionalOneOf<"Honor" | "Ignore">(),
  nodeTaintsPolicy: optionalOneOf<"Honor" | "Ignore">(),
  matchLabelKeys: optionalTexts,
});

export type RestartPolicy = "Always" | "OnFailure" | "Never";
export type DnsPolicy = "ClusterFirst" | "ClusterFirstWithHostNet" | "Default" | "None";

const podSpec = object({
  volumes: optionalList(volumeSchema),
  initContainers: optionalList(containerSchema),
  containers: requiredList(containerSchema),
  ephemeralContainers: optionalList(ephemeralContainerSchema),
  restartPolicy: defaultedOneOf<RestartPolicy>(),
  terminationGracePeriodSeconds: defaultedInt64,
  activeDeadlineSeconds: optionalInt64,
  dnsPolicy: defaultedOneOf<DnsPolicy>(),
  dnsConfig: optional(
    object({
      nameservers: optionalTexts,
      searches: optionalTexts,
      options: optionalList(object({ name: optionalText, value: optionalText })),
    }),
  ),
  nodeSelector: optionalTextMap,
  serviceAccountName: optionalText,
  serviceAccount: optionalText,
  automountServiceAccountToken: optionalFlag,
  nodeName: optionalText,
  hostNetwork: optionalFlag,
  hostPID: optionalFlag,
  hostIPC: optionalFlag,
  hostUsers: optionalFlag,
  shareProcessNamespace: optionalFlag,
  securityContext: defaultedObject(podSecurityContext),
  imagePullSecrets: optionalList(localReferenceSchema),
  hostname: optionalText,
  hostnameOverride: optionalText,
  subdomain: optionalText,
  setHostnameAsFQDN: optionalFlag,
  hostAliases: optionalList(object({ ip: requiredText, hostnames: optionalTexts })),
  affinity: optional(affinity),
  schedulerName: defaultedText,
  tolerations: optionalList(toleration),
  priorityClassName: optionalText,
  priority: optionalInt32,
  preemptionPolicy: optionalOneOf<"PreemptLowerPriority" | "Never">(),
  readinessGates: optionalList(object({ conditionType: requiredText })),
  /** `wasm` for components. Missing: the CRI runtime's default handler. */
  runtimeClassName: optionalText,
  enableServiceLinks: defaultedFlag,
  overhead: optionalQuantities,
  topologySpreadConstraints: optionalList(topologySpreadConstraint),
  os: optional(object({ name: requiredOneOf<"linux" | "windows">() })),
  schedulingGates: optionalList(object({ name: requiredText })),
  /** Fields of later versions. */
  schedulingGroup: opaque,
  resourceClaims: optionalList(
    object({ name: requiredText, resourceClaimName: optionalText, resourceClaimTemplateName: optionalText }),
  ),
  /** The resources of the pod as a whole (KEP 2837). */
  resources: optional(resourceRequirementsSchema),
});

const podFields = {
  apiVersion: defaultedOneOf<"v1">(),
  kind: defaultedOneOf<"Pod">(),
  metadata: requiredObject(objectMeta),
  spec: requiredObject(podSpec),
};

export const podSchema = object(podFields);

/** A pod while it is being parsed: one's own copy, still to be defaulted in place. */
export type PodDraft = z.output<typeof podSchema>;
/** A manifest as a user may write it. */
export type PodManifest = Immutable<z.input<typeof podSchema>>;

export type Pod = Parsed<typeof podSchema> & {
  /** The status that a node saw; `parsePod` drops it, because no manifest can set it. */
  readonly status?: PodStatus | undefined;
};
export type PodSpec = Parsed<typeof podSpec>;
export type Container = Parsed<typeof containerSchema>;
export type EphemeralContainer = Parsed<typeof ephemeralContainerSchema>;
export type ContainerPort = NonNullable<Container["ports"]>[number];
export type ContainerEnvVar = NonNullable<Container["env"]>[number];
export type Lifecycle = NonNullable<Container["lifecycle"]>;
export type LifecycleHandler = NonNullable<Lifecycle["postStart"]>;
export type Probe = Parsed<typeof probeSchema>;
export type SecurityContext = Parsed<typeof securityContextSchema>;
export type PodSecurityContext = Parsed<typeof podSecurityContext>;
export type ResourceRequirements = Parsed<typeof resourceRequirementsSchema>;
export type Volume = Parsed<typeof volumeSchema>;
export type VolumeMount = Parsed<typeof volumeMountSchema>;
export type PodDnsConfig = NonNullable<PodSpec["dnsConfig"]>;
export type HostAlias = NonNullable<PodSpec["hostAliases"]>[number];
export type Toleration = Parsed<typeof toleration>;

export type { PullPolicy } from "./container-schema.ts";
export type {
  ConditionStatus,
  ContainerStatus,
  ContainerStatusState,
  PodCondition,
  PodConditionType,
  PodPhase,
  PodStatus,
  QosClass,
} from "./pod-status.ts";
export type { HostPathType } from "./volumes/host-path.ts";
