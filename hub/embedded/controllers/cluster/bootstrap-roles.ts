/**
 * Roles that every Kubernetes cluster has (plugin/pkg/auth/authorizer/rbac/bootstrappolicy), for what is served here.
 */
import { rowsOf, type Subject } from "@picolet/hub-core/access-table.ts";
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { METRICS_GROUP } from "@picolet/hub-core/usage-objects.ts";

const GROUP = "rbac.authorization.k8s.io";
export const AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate";

interface Rule {
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly verbs: readonly string[];
  readonly nonResourceURLs?: readonly string[];
}

const READ = ["get", "list", "watch"];
const WRITE = ["create", "delete", "deletecollection", "patch", "update"];

const rule = (apiGroup: string, resources: readonly string[], verbs: readonly string[]): Rule => ({
  apiGroups: [apiGroup],
  resources,
  verbs,
});
const rulesOf = (subject: Subject): Rule[] =>
  rowsOf(subject).map(({ group, resources, verbs }) => rule(group, resources, verbs));
const paths = (nonResourceURLs: readonly string[]): Rule => ({ nonResourceURLs, verbs: ["get"] });

const metadata = (name: string): KubeObject["metadata"] => ({
  name,
  labels: { "kubernetes.io/bootstrapping": "rbac-defaults" },
  annotations: { [AUTO_UPDATE]: "true" },
});

const clusterRole = (name: string, rules: readonly Rule[]): KubeObject => ({
  apiVersion: `${GROUP}/v1`,
  kind: "ClusterRole",
  metadata: metadata(name),
  rules,
});

const binding = (name: string, role: string, ...groups: readonly string[]): KubeObject => ({
  apiVersion: `${GROUP}/v1`,
  kind: "ClusterRoleBinding",
  metadata: metadata(name),
  roleRef: { apiGroup: GROUP, kind: "ClusterRole", name: role },
  subjects: groups.map((group) => ({ apiGroup: GROUP, kind: "Group", name: group })),
});

const CLAIMS = ["resourceclaims", "resourceclaimtemplates"];
const WORKLOADS = ["daemonsets", "daemonsets/status", "controllerrevisions"];
const NAMESPACED = [
  "configmaps",
  "endpoints",
  "events",
  "persistentvolumeclaims",
  "pods",
  "pods/log",
  "pods/status",
  "serviceaccounts",
  "services",
];
const BUDGETS = ["poddisruptionbudgets", "poddisruptionbudgets/status"];

const viewRules: readonly Rule[] = [
  rule("", [...NAMESPACED, "namespaces"], READ),
  rule("apps", WORKLOADS, READ),
  rule("networking.k8s.io", ["ingresses", "ingresses/status", "networkpolicies"], READ),
  rule("policy", BUDGETS, READ),
  rule("resource.k8s.io", [...CLAIMS, "resourceclaims/status"], READ),
  // As metrics-server's manifests grant it.
  rule(METRICS_GROUP, ["nodes", "pods"], READ),
];
const editRules: readonly Rule[] = [
  ...viewRules,
  rule("", ["secrets", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"], READ),
  rule("", ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "pods/eviction"], ["create"]),
  rule(
    "",
    ["configmaps", "endpoints", "events", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services"],
    WRITE,
  ),
  rule("", ["serviceaccounts/token"], ["create"]),
  rule("", ["serviceaccounts"], ["impersonate"]),
  rule("apps", ["daemonsets"], WRITE),
  rule("networking.k8s.io", ["ingresses", "networkpolicies"], WRITE),
  rule("policy", ["poddisruptionbudgets"], WRITE),
  rule("resource.k8s.io", CLAIMS, WRITE),
];
const adminRules: readonly Rule[] = [
  ...editRules,
  rule("authorization.k8s.io", ["localsubjectaccessreviews"], ["create"]),
  rule(GROUP, ["roles", "rolebindings"], [...READ, ...WRITE]),
];

const CERTIFICATES = "certificates.k8s.io";
const DISCOVERY = [
  "/api",
  "/api/*",
  "/apis",
  "/apis/*",
  "/healthz",
  "/livez",
  "/openapi",
  "/openapi/*",
  "/readyz",
  "/version",
  "/version/",
];
const PUBLIC_INFO = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
/** The name in the certificate that the API server shows to kubelets, as kubeadm has it. */
export const KUBELET_CLIENT_USER = "kube-apiserver-kubelet-client";
const NODE_CLIENT = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
const SELF_NODE_CLIENT = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient";

export const BOOTSTRAP_ROLES: readonly KubeObject[] = [
  clusterRole("cluster-admin", [rule("*", ["*"], ["*"]), { nonResourceURLs: ["*"], verbs: ["*"] }]),
  clusterRole("admin", adminRules),
  clusterRole("edit", editRules),
  clusterRole("view", viewRules),
  clusterRole("system:discovery", [paths(DISCOVERY)]),
  clusterRole("system:public-info-viewer", [paths(PUBLIC_INFO)]),
  clusterRole("system:basic-user", rulesOf("anyone")),
  clusterRole("system:auth-delegator", [
    rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
    rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
  ]),
  clusterRole("system:kubelet-api-admin", [
    rule("", ["nodes"], READ),
    rule("", ["nodes/log", "nodes/metrics", "nodes/proxy", "nodes/stats"], ["*"]),
  ]),
  clusterRole("system:node-bootstrapper", rulesOf("join token")),
  clusterRole(NODE_CLIENT, [rule(CERTIFICATES, ["certificatesigningrequests/nodeclient"], ["create"])]),
  clusterRole(SELF_NODE_CLIENT, [rule(CERTIFICATES, ["certificatesigningrequests/selfnodeclient"], ["create"])]),
  {
    ...binding("picolet:kubelet-api-admin", "system:kubelet-api-admin"),
    subjects: [{ apiGroup: GROUP, kind: "User", name: KUBELET_CLIENT_USER }],
  },
  binding("cluster-admin", "cluster-admin", "system:masters"),
  binding("system:discovery", "system:discovery", "system:authenticated"),
  binding("system:basic-user", "system:basic-user", "system:authenticated"),
  binding("system:public-info-viewer", "system:public-info-viewer", "system:authenticated", "system:unauthenticated"),
  binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", "system:bootstrappers"),
  binding("kubeadm:node-autoapprove-bootstrap", NODE_CLIENT, "system:bootstrappers"),
  binding("kubeadm:node-autoapprove-certificate-rotation", SELF_NODE_CLIENT, "system:nodes"),
];
