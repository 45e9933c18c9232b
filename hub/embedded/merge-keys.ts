/**
 * How strategic merge patch and server-side apply treat lists: Kubernetes' own `x-kubernetes-*` extensions, by model and
 * field. What is not named here is atomic.
 */
export interface ListRule {
  /** `map`: items are told apart by `keys`; `set`: primitives, each once. */
  readonly type: "map" | "set";
  /** For strategic merge the first alone counts. */
  readonly keys: readonly string[];
  /** `retainKeys` besides merge: a oneof, where a patch that sets one member drops the others. */
  readonly retainKeys?: boolean;
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

const LISTS: Readonly<Record<string, Readonly<Record<string, ListRule>>>> = {
  V1ObjectMeta: { finalizers: SET, ownerReferences: by("uid") },
  V1PodSpec: {
    containers: by("name"),
    initContainers: by("name"),
    ephemeralContainers: by("name"),
    volumes: { ...by("name"), retainKeys: true },
    imagePullSecrets: by("name"),
    hostAliases: by("ip"),
    topologySpreadConstraints: by("topologyKey", "whenUnsatisfiable"),
    schedulingGates: by("name"),
    resourceClaims: { ...by("name"), retainKeys: true },
  },
  V1Container: CONTAINER,
  V1EphemeralContainer: CONTAINER,
  V1ResourceRequirements: { claims: { ...by("name"), only: "apply" } },
  V1ProjectedVolumeSource: {},
  V1PodStatus: {
    conditions: by("type"),
    podIPs: by("ip"),
    hostIPs: { ...by("ip"), only: "strategic" },
    resourceClaimStatuses: { ...by("name"), retainKeys: true },
  },
  V1NodeSpec: { taints: { ...by("key"), only: "strategic" }, podCIDRs: SET },
  V1NodeStatus: { conditions: by("type"), addresses: { ...by("type"), only: "strategic" } },
  V1NamespaceStatus: { conditions: by("type") },
  V1ServiceAccount: { secrets: by("name"), imagePullSecrets: { ...by("name"), only: "strategic" } },
  V1ServiceSpec: { ports: by("port", "protocol"), loadBalancerSourceRanges: { ...SET, only: "strategic" } },
  V1ServiceStatus: { conditions: by("type") },
  V1DaemonSetStatus: { conditions: by("type") },
  V1DeploymentStatus: { conditions: by("type") },
  V1ReplicaSetStatus: { conditions: by("type") },
  V1StatefulSetStatus: { conditions: by("type") },
  V1JobStatus: { conditions: by("type") },
  V1PersistentVolumeClaimStatus: { conditions: by("type") },
  V1CertificateSigningRequestStatus: { conditions: { ...by("type"), only: "apply" } },
  V1PodDisruptionBudgetStatus: { conditions: by("type") },
  V1LabelSelector: {},
  V1TopologySelectorTerm: {},
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
]);

export const isAtomicObject = (model: string): boolean => ATOMIC_OBJECTS.has(model);
