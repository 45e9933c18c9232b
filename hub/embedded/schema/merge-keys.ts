/**
 * How strategic merge patch and server-side apply treat lists: Kubernetes' own `x-kubernetes-*` extensions, by model
 * and field. What is not named here is atomic.
 */
export interface ListRule {
  /** `map`: `keys` identify items; `set`: primitives, each once. */
  readonly type: "map" | "set";
  /** For strategic merge the first alone counts. */
  readonly keys: readonly string[];
  /** Only strategic merge merges it (apply treats it as one value), or the other way round. */
  readonly only?: "strategic" | "apply";
}

const by = (...keys: string[]): ListRule => ({ type: "map", keys });
const SET: ListRule = { type: "set", keys: [] };

const CONTAINER: Readonly<Record<string, ListRule>> = {
  env: by("name"),
  ports: by("containerPort", "protocol"),
  volumeMounts: by("mountPath"),
  volumeDevices: by("devicePath"),
};

const CONDITIONS: Readonly<Record<string, ListRule>> = { conditions: by("type") };

const LISTS: Readonly<Record<string, Readonly<Record<string, ListRule>>>> = {
  V1ObjectMeta: { finalizers: SET, ownerReferences: by("uid") },
  V1PodSpec: {
    containers: by("name"),
    initContainers: by("name"),
    ephemeralContainers: by("name"),
    volumes: by("name"),
    imagePullSecrets: by("name"),
    hostAliases: by("ip"),
    topologySpreadConstraints: by("topologyKey", "whenUnsatisfiable"),
    schedulingGates: by("name"),
    resourceClaims: by("name"),
  },
  V1Container: CONTAINER,
  V1EphemeralContainer: CONTAINER,
  V1ContainerStatus: { volumeMounts: by("mountPath"), allocatedResourcesStatus: by("name") },
  V1ResourceRequirements: { claims: { ...by("name"), only: "apply" } },
  V1PodStatus: {
    ...CONDITIONS,
    podIPs: by("ip"),
    hostIPs: { ...by("ip"), only: "strategic" },
    resourceClaimStatuses: by("name"),
  },
  V1NodeSpec: { podCIDRs: SET },
  V1NodeStatus: { ...CONDITIONS, addresses: by("type") },
  V1NamespaceStatus: CONDITIONS,
  V1ServiceAccount: { secrets: by("name") },
  V1ServiceSpec: { ports: by("port", "protocol") },
  V1ServiceStatus: CONDITIONS,
  V1DaemonSetStatus: CONDITIONS,
  V1DeploymentStatus: CONDITIONS,
  V1ReplicaSetStatus: CONDITIONS,
  V1StatefulSetStatus: CONDITIONS,
  V1PersistentVolumeClaimStatus: CONDITIONS,
  V1PodDisruptionBudgetStatus: CONDITIONS,
  V1CertificateSigningRequestStatus: { conditions: { ...by("type"), only: "apply" } },
};

export const listRuleOf = (model: string, field: string): ListRule | undefined => LISTS[model]?.[field];

/** Objects that are one value to server-side apply. */
const ATOMIC_OBJECTS: ReadonlySet<string> = new Set([
  "V1ObjectReference",
  "V1LocalObjectReference",
  "V1LabelSelector",
  "V1SecretReference",
  "V1NodeSelector",
  "V1NodeSelectorTerm",
  "V1ObjectFieldSelector",
  "V1ResourceFieldSelector",
  "V1SecretKeySelector",
  "V1ConfigMapKeySelector",
  "V1FileKeySelector",
  "V1TypedLocalObjectReference",
  "RbacV1Subject",
  "V1RoleRef",
  "V1OwnerReference",
  "V1EndpointAddress",
  "CoreV1EndpointPort",
  "V1ScopeSelector",
  "V1TopologySelectorTerm",
]);

export const isAtomicObject = (model: string): boolean => ATOMIC_OBJECTS.has(model);
