/**
 * What is in the cluster of which the authorization matrix asks: boards `a`, `b` and `c`, pods of theirs, what these
 * name and what they do not, and roles. The same objects stood in the kube-apiserver whose decisions are in
 * test/golden.
 */

export type Json = Record<string, unknown>;

export interface Fixture {
  /** The path of the collection. */
  readonly path: string;
  readonly object: Json;
}

export interface MatrixSubject {
  /** The bearer token; "" for none. */
  readonly token: string;
  readonly user: string;
  readonly groups: readonly string[];
}

const account = (name: string): MatrixSubject => ({
  token: name,
  user: `system:serviceaccount:tenant:${name}`,
  groups: ["system:serviceaccounts", "system:serviceaccounts:tenant"],
});

/** In the order of the decisions in the golden file. */
export const MATRIX_SUBJECTS: readonly MatrixSubject[] = [
  { token: "board-a", user: "system:node:a", groups: ["system:nodes"] },
  /** Bound to cluster-admin: NodeRestriction alone is in its way. */
  { token: "board-c", user: "system:node:c", groups: ["system:nodes"] },
  { token: "board-new", user: "system:node:new", groups: ["system:nodes"] },
  { token: "nameless", user: "system:node:", groups: ["system:nodes"] },
  { token: "groupless", user: "system:node:a", groups: [] },
  { token: "join", user: "system:bootstrap:abcdef", groups: ["system:bootstrappers"] },
  account("powerless"),
  account("reader"),
  account("operator"),
  account("granter"),
  { token: "impersonator", user: "impersonator", groups: [] },
  { token: "", user: "system:anonymous", groups: [] },
];

const ANY_RULE = { apiGroups: ["*"], resources: ["*"], verbs: ["*"] };
const READ = ["get", "list", "watch"];
const RBAC = "rbac.authorization.k8s.io";
export const RBAC_PATH = `/apis/${RBAC}/v1`;

const CONTAINER = { name: "c", image: "busybox" };
export const MIRROR = { "kubernetes.io/config.mirror": "hash" };

const core = (plural: string, kind: string, name: string, more: Json = {}, namespace = "tenant"): Fixture => ({
  path: `/api/v1/namespaces/${namespace}/${plural}`,
  object: { apiVersion: "v1", kind, metadata: { name, labels: { fixture: "yes" } }, ...more },
});
const wide = (path: string, apiVersion: string, kind: string, name: string, more: Json = {}): Fixture => ({
  path,
  object: { apiVersion, kind, metadata: { name, labels: { fixture: "yes" } }, ...more },
});

const pod = (name: string, nodeName: string | undefined, spec: Json = {}): Fixture =>
  core("pods", "Pod", name, {
    spec: {
      ...(nodeName === undefined ? { schedulingGates: [{ name: "example.com/wait" }] } : { nodeName }),
      serviceAccountName: "unused",
      automountServiceAccountToken: false,
      containers: [CONTAINER],
      ...spec,
    },
  });

function mirror(name: string, nodeName: string, spec: Json): Fixture {
  const { path, object } = core("pods", "Pod", name, { spec: { nodeName, containers: [CONTAINER], ...spec } });
  return { path, object: { ...object, metadata: { ...(object.metadata as Json), annotations: MIRROR } } };
}

const NAMING = {
  serviceAccountName: "used",
  resourceClaims: [{ name: "device", resourceClaimName: "allotted" }],
  imagePullSecrets: [{ name: "pulled" }],
  containers: [
    {
      ...CONTAINER,
      env: [{ name: "A", valueFrom: { secretKeyRef: { name: "in-variable", key: "k" } } }],
      envFrom: [{ configMapRef: { name: "in-environment" } }],
    },
  ],
  volumes: [
    { name: "a", secret: { secretName: "mounted" } },
    { name: "b", configMap: { name: "mounted" } },
    {
      name: "c",
      projected: {
        sources: [
          { secret: { name: "projected" } },
          { serviceAccountToken: { path: "token", expirationSeconds: 7200 } },
          { serviceAccountToken: { path: "vault", audience: "vault" } },
        ],
      },
    },
    { name: "d", csi: { driver: "x.example.com", nodePublishSecretRef: { name: "for-driver" } } },
    { name: "e", persistentVolumeClaim: { claimName: "claimed" } },
    {
      name: "f",
      iscsi: { targetPortal: "10.0.0.1", iqn: "iqn.2001-04.com.example:x", lun: 0, secretRef: { name: "chap" } },
    },
  ],
};

const claim = (name: string): Fixture =>
  core("persistentvolumeclaims", "PersistentVolumeClaim", name, {
    spec: {
      accessModes: ["ReadWriteOnce"],
      storageClassName: "none",
      resources: { requests: { storage: "1Gi" } },
      ...(name === "claimed" ? { volumeName: "bound" } : {}),
    },
  });

const volume = (name: string, spec: Json): Fixture =>
  wide("/api/v1/persistentvolumes", "v1", "PersistentVolume", name, {
    spec: { accessModes: ["ReadWriteOnce"], capacity: { storage: "1Gi" }, storageClassName: "none", ...spec },
  });

const DEVICES = "resource.k8s.io/v1";
const DEVICE_REQUEST = { devices: { requests: [{ name: "device", exactly: { deviceClassName: "class" } }] } };

/** In the order in which they can be made. */
const DEVICE_FIXTURES: readonly Fixture[] = [
  wide(`/apis/${DEVICES}/deviceclasses`, DEVICES, "DeviceClass", "class", { spec: {} }),
  ...["allotted", "theirs", "unnamed"].map((name) =>
    wide(`/apis/${DEVICES}/namespaces/tenant/resourceclaims`, DEVICES, "ResourceClaim", name, { spec: DEVICE_REQUEST }),
  ),
  wide(`/apis/${DEVICES}/namespaces/tenant/resourceclaimtemplates`, DEVICES, "ResourceClaimTemplate", "template", {
    spec: { spec: DEVICE_REQUEST },
  }),
  ...["a", "b"].map((nodeName) =>
    wide(`/apis/${DEVICES}/resourceslices`, DEVICES, "ResourceSlice", `of-${nodeName}`, {
      spec: {
        ...{ nodeName, driver: "x.example.com", pool: { name: nodeName, generation: 1, resourceSliceCount: 1 } },
        devices: [{ name: "device" }],
      },
    }),
  ),
];

const role = (name: string, rules: readonly Json[]): Fixture =>
  wide(`${RBAC_PATH}/namespaces/tenant/roles`, `${RBAC}/v1`, "Role", name, { rules });

const binding = (name: string, kind: "Role" | "ClusterRole", subject: Json): Fixture => {
  const isWide = kind === "ClusterRole";
  const path = isWide ? `${RBAC_PATH}/clusterrolebindings` : `${RBAC_PATH}/namespaces/tenant/rolebindings`;
  return wide(path, `${RBAC}/v1`, `${isWide ? "Cluster" : ""}RoleBinding`, `for-${name}`, {
    roleRef: { apiGroup: RBAC, kind, name },
    subjects: [subject],
  });
};
const ofAccount = (name: string): Json => ({ kind: "ServiceAccount", namespace: "tenant", name });

const ROLES: readonly Fixture[] = [
  role("reader", [
    { apiGroups: [""], resources: ["pods", "configmaps", "services"], verbs: READ },
    { apiGroups: [""], resources: ["secrets"], resourceNames: ["mounted"], verbs: READ },
  ]),
  role("operator", [
    { apiGroups: [""], resources: ["pods", "configmaps", "secrets"], verbs: ["*"] },
    { apiGroups: [""], resources: ["pods/eviction", "pods/binding"], verbs: ["create"] },
    { apiGroups: [""], resources: ["*/status"], verbs: ["update", "patch"] },
    { apiGroups: ["apps"], resources: ["*"], verbs: ["*"] },
  ]),
  role("granter", [
    {
      apiGroups: [RBAC],
      resources: ["roles", "rolebindings"],
      verbs: [...READ, "create", "update", "patch", "delete"],
    },
    { apiGroups: [""], resources: ["configmaps"], verbs: READ },
  ]),
  wide(`${RBAC_PATH}/clusterroles`, `${RBAC}/v1`, "ClusterRole", "impersonator", {
    rules: [
      { apiGroups: [""], resources: ["users"], resourceNames: ["alice", "system:node:a"], verbs: ["impersonate"] },
      { apiGroups: [""], resources: ["groups"], resourceNames: ["team"], verbs: ["impersonate"] },
      { apiGroups: [""], resources: ["serviceaccounts"], resourceNames: ["operator"], verbs: ["impersonate"] },
    ],
  }),
  wide(`${RBAC_PATH}/clusterroles`, `${RBAC}/v1`, "ClusterRole", "everything", { rules: [ANY_RULE] }),
  binding("reader", "Role", ofAccount("reader")),
  binding("operator", "Role", ofAccount("operator")),
  binding("granter", "Role", ofAccount("granter")),
  binding("impersonator", "ClusterRole", { kind: "User", name: "impersonator", apiGroup: RBAC }),
  binding("everything", "ClusterRole", { kind: "User", name: "system:node:c", apiGroup: RBAC }),
  binding("system:node-bootstrapper", "ClusterRole", { kind: "Group", name: "system:bootstrappers", apiGroup: RBAC }),
];

const lease = (name: string, namespace: string): Fixture =>
  wide(`/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`, "coordination.k8s.io/v1", "Lease", name, {
    spec: { holderIdentity: name },
  });

const TEMPLATE = { metadata: { labels: { app: "x" } }, spec: { containers: [CONTAINER] } };

/** In the order in which they can be made. */
export const FIXTURES: readonly Fixture[] = [
  ...["tenant", "other", "kube-system", "kube-node-lease"].map((name) =>
    wide("/api/v1/namespaces", "v1", "Namespace", name),
  ),
  ...["a", "b", "c"].map((name) => wide("/api/v1/nodes", "v1", "Node", name)),
  ...["used", "unused", "powerless", "reader", "operator", "granter", "default"].map((name) =>
    core("serviceaccounts", "ServiceAccount", name),
  ),
  ...["pulled", "in-variable", "mounted", "projected", "for-driver", "chap", "for-volume", "unnamed"].map((name) =>
    core("secrets", "Secret", name),
  ),
  core("secrets", "Secret", "mounted", {}, "other"),
  ...["in-environment", "mounted", "in-mirror", "unnamed"].map((name) => core("configmaps", "ConfigMap", name)),
  claim("claimed"),
  claim("unclaimed"),
  volume("bound", {
    claimRef: { apiVersion: "v1", kind: "PersistentVolumeClaim", namespace: "tenant", name: "claimed" },
    csi: {
      driver: "y.example.com",
      volumeHandle: "1",
      nodePublishSecretRef: { namespace: "tenant", name: "for-volume" },
    },
  }),
  volume("unbound", { hostPath: { path: "/x" } }),
  ...DEVICE_FIXTURES,
  pod("mine", "a", NAMING),
  pod("theirs", "b", {
    imagePullSecrets: [{ name: "theirs" }],
    resourceClaims: [{ name: "device", resourceClaimName: "theirs" }],
  }),
  pod("loose", undefined),
  mirror("static-a", "a", {
    volumes: [
      { name: "a", configMap: { name: "in-mirror" } },
      { name: "b", persistentVolumeClaim: { claimName: "unclaimed" } },
    ],
  }),
  mirror("static-b", "b", {}),
  ...["a", "b"].map((name) => lease(name, "kube-node-lease")),
  lease("a", "tenant"),
  core("services", "Service", "front", { spec: { ports: [{ port: 80 }], selector: { app: "x" } } }),
  core("endpoints", "Endpoints", "front"),
  core("events", "Event", "event", {
    involvedObject: { kind: "Pod", namespace: "tenant", name: "mine" },
    reason: "R",
    message: "m",
  }),
  core("limitranges", "LimitRange", "limits", { spec: { limits: [] } }),
  core("podtemplates", "PodTemplate", "template", { template: TEMPLATE }),
  wide("/apis/apps/v1/namespaces/tenant/daemonsets", "apps/v1", "DaemonSet", "set", {
    spec: { selector: { matchLabels: { app: "x" } }, template: TEMPLATE },
  }),
  wide("/apis/apps/v1/namespaces/tenant/controllerrevisions", "apps/v1", "ControllerRevision", "first", {
    revision: 1,
    data: {},
  }),
  wide("/apis/policy/v1/namespaces/tenant/poddisruptionbudgets", "policy/v1", "PodDisruptionBudget", "budget", {
    spec: { minAvailable: 1, selector: { matchLabels: { app: "x" } } },
  }),
  wide("/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices", "discovery.k8s.io/v1", "EndpointSlice", "front", {
    addressType: "IPv4",
    endpoints: [],
    ports: [],
  }),
  wide("/apis/networking.k8s.io/v1/namespaces/tenant/ingresses", "networking.k8s.io/v1", "Ingress", "door", {
    spec: { defaultBackend: { service: { name: "front", port: { number: 80 } } } },
  }),
  wide("/apis/networking.k8s.io/v1/ingressclasses", "networking.k8s.io/v1", "IngressClass", "class", {
    spec: { controller: "example.com/x" },
  }),
  wide(
    "/apis/networking.k8s.io/v1/namespaces/tenant/networkpolicies",
    "networking.k8s.io/v1",
    "NetworkPolicy",
    "wall",
    {
      spec: { podSelector: {} },
    },
  ),
  wide("/apis/node.k8s.io/v1/runtimeclasses", "node.k8s.io/v1", "RuntimeClass", "class", { handler: "h" }),
  wide("/apis/scheduling.k8s.io/v1/priorityclasses", "scheduling.k8s.io/v1", "PriorityClass", "class", { value: 1 }),
  wide("/apis/storage.k8s.io/v1/storageclasses", "storage.k8s.io/v1", "StorageClass", "class", {
    provisioner: "example.com/x",
  }),
  ...["x.example.com", "y.example.com"].map((name) =>
    wide("/apis/storage.k8s.io/v1/csidrivers", "storage.k8s.io/v1", "CSIDriver", name, {
      spec: name.startsWith("x") ? { tokenRequests: [{ audience: "driver" }], requiresRepublish: true } : {},
    }),
  ),
  ...["a", "b"].map((name) =>
    wide("/apis/storage.k8s.io/v1/csinodes", "storage.k8s.io/v1", "CSINode", name, { spec: { drivers: [] } }),
  ),
  ...["a", "b"].map((nodeName) =>
    wide("/apis/storage.k8s.io/v1/volumeattachments", "storage.k8s.io/v1", "VolumeAttachment", `to-${nodeName}`, {
      spec: { attacher: "x.example.com", nodeName, source: { persistentVolumeName: "bound" } },
    }),
  ),
  wide(
    "/apis/storage.k8s.io/v1/namespaces/tenant/csistoragecapacities",
    "storage.k8s.io/v1",
    "CSIStorageCapacity",
    "room",
    {
      storageClassName: "class",
    },
  ),
  ...ROLES,
];
