/**
 * Some thousands of requests, made of the resources that are served: every verb, every subresource, every way to name
 * an object. The requests are the same for a real kube-apiserver, whose decisions are in
 * test/golden/authorization-1.34.json, and for the embedded server. All writes are dry runs, so that the order does not
 * count.
 */
import { generateKeyPairSync, sign } from "node:crypto";
import { reviewResources } from "@picolet/hub-embedded/auth/review-resources.ts";
import { embeddedResources } from "@picolet/hub-embedded/embedded-resources.ts";
import { encodeCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { encodePem } from "@picolet/protocol/pki/pem.ts";
import { FIXTURES, type Json, MIRROR, RBAC_PATH } from "./access-fixtures.ts";

export interface MatrixRequest {
  /** Unique; as it stands in the golden file. */
  readonly key: string;
  readonly method: string;
  readonly path: string;
  readonly body?: Json;
  readonly contentType?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface MatrixResource {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  readonly namespaced: boolean;
  /** Reviews are created alone. */
  readonly isReview: boolean;
  readonly subresources: readonly string[];
}

/** The resources of the embedded server that the matrix covers. */
export const MATRIX_RESOURCES: readonly MatrixResource[] = [
  ...embeddedResources({ serviceAccountTokens: false }),
  ...reviewResources(() => {
    throw new TypeError("nothing is asked while requests are made");
  }),
].map(({ group, version, plural, kind, namespaced, answer, subresources = [] }) => ({
  ...{ group, version, plural, kind, namespaced, isReview: answer !== undefined },
  subresources: subresources.map(({ name }) => name),
}));

/** UIDs of the fixtures, by `pods/mine`. */
export type Uids = ReadonlyMap<string, string>;

const MERGE = "application/merge-patch+json";
const DRY = "dryRun=All";
/** Until the first bookmark: then all that the watch shows at first has been seen. */
const WATCH =
  "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5";

class Requests {
  readonly all: MatrixRequest[] = [];

  add(
    method: string,
    path: string,
    more: Omit<MatrixRequest, "key" | "method" | "path"> & { readonly note?: string } = {},
  ): void {
    const { note, ...rest } = more;
    this.all.push({
      key: `${method} ${path.replaceAll(WATCH, "watch")}${note === undefined ? "" : ` ${note}`}`,
      method,
      path,
      ...rest,
    });
  }

  get(path: string, headers?: Readonly<Record<string, string>>): void {
    this.add("GET", path, headers === undefined ? {} : { headers, note: JSON.stringify(headers) });
  }

  post(path: string, note: string, body: Json): void {
    this.add("POST", `${path}?${DRY}`, { body, note });
  }

  patch(path: string, note: string, body: Json): void {
    this.add("PATCH", `${path}?${DRY}`, { body, contentType: MERGE, note });
  }
}

export function accessMatrix(uids: Uids): readonly MatrixRequest[] {
  const requests = new Requests();
  for (const resource of MATRIX_RESOURCES) {
    if (resource.isReview) askReview(requests, resource);
    else askResource(requests, resource);
  }
  selectPods(requests);
  selectSlices(requests);
  makeMirrors(requests, uids);
  requestTokens(requests, uids);
  writeNodes(requests);
  writeStatuses(requests);
  writeLeases(requests);
  requestCertificates(requests);
  grant(requests);
  impersonate(requests);
  askPaths(requests);
  // The same request may be made twice for different reasons.
  return [...new Map(requests.all.map((each) => [each.key, each])).values()];
}

/** Names in the fixtures, and one that is not there. */
function namesOf(path: string): readonly string[] {
  const names = FIXTURES.filter((each) => each.path === path).map(({ object }) => nameOf(object));
  return [...names.slice(0, 5), "none"];
}

const nameOf = (object: Json): string => (object.metadata as { name: string }).name;

const rootOf = ({ group, version }: MatrixResource): string =>
  group === "" ? `/api/${version}` : `/apis/${group}/${version}`;

function collectionOf(resource: MatrixResource, namespace = "tenant"): string {
  return `${rootOf(resource)}${resource.namespaced ? `/namespaces/${namespace}` : ""}/${resource.plural}`;
}

function sampleOf(resource: MatrixResource, path: string, name: string): Json {
  const { group, version, kind } = resource;
  const fixture = FIXTURES.find((each) => each.path === path)?.object;
  const object: Json = fixture ?? { apiVersion: group === "" ? version : `${group}/${version}`, kind };
  return { ...object, metadata: { ...(object.metadata as Json | undefined), name } };
}

function askResource(requests: Requests, resource: MatrixResource): void {
  const path = collectionOf(resource);
  const names = namesOf(path);
  const [first = "none"] = names;
  const named = (name: string): string => `fieldSelector=metadata.name%3D${name}`;
  for (const collection of resource.namespaced ? [path, `${rootOf(resource)}/${resource.plural}`] : [path]) {
    requests.get(collection);
    requests.get(`${collection}?${named(first)}`);
    requests.get(`${collection}?fieldSelector=metadata.name!%3D${first}`);
    requests.get(`${collection}?labelSelector=fixture%3Dyes`);
    requests.get(`${collection}?${WATCH}`);
    requests.get(`${collection}?${WATCH}&${named(first)}`);
    requests.get(collection.replace(rootOf(resource), `${rootOf(resource)}/watch`));
  }
  requests.post(path, "", sampleOf(resource, path, "new"));
  requests.add("DELETE", `${path}?${DRY}`);
  requests.add("DELETE", `${path}?${DRY}&${named(first)}`);
  if (resource.namespaced) requests.get(`${collectionOf(resource, "other")}/mounted`);
  for (const name of names) {
    requests.get(`${path}/${name}`);
    requests.add("PUT", `${path}/${name}?${DRY}`, { body: sampleOf(resource, path, name) });
    requests.patch(`${path}/${name}`, "", { metadata: { annotations: { x: "y" } } });
    requests.add("DELETE", `${path}/${name}?${DRY}`);
  }
  for (const name of names.slice(0, 2)) {
    requests.get(`${path}/${name}?watch=1`);
    requests.get(`${path}/${name}?${named("none")}`);
    requests.get(`${path.replace(rootOf(resource), `${rootOf(resource)}/watch`)}/${name}`);
    for (const subresource of resource.subresources)
      askSubresource(requests, `${path}/${name}/${subresource}`, resource);
  }
}

const SUBRESOURCE_BODIES: Readonly<Record<string, Json>> = {
  binding: { apiVersion: "v1", kind: "Binding", target: { kind: "Node", name: "a" } },
  eviction: { apiVersion: "policy/v1", kind: "Eviction" },
  token: { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: { audiences: [] } },
};
/** These go on to a kubelet, which the clusters of the matrix have not. */
const STREAMS = ["attach", "exec", "log", "portforward", "proxy"];

function askSubresource(requests: Requests, path: string, resource: MatrixResource): void {
  const [name = "", subresource = ""] = path.split("/").slice(-2);
  requests.get(path);
  const own = SUBRESOURCE_BODIES[subresource];
  const body =
    own === undefined
      ? sampleOf(resource, path.split("/").slice(0, -2).join("/"), name)
      : { ...own, metadata: { name } };
  requests.add("POST", `${path}?${DRY}`, { body });
  if (STREAMS.includes(subresource)) return;
  requests.add("PUT", `${path}?${DRY}`, { body });
  requests.patch(path, "", { metadata: { annotations: { x: "y" } } });
  requests.add("DELETE", `${path}?${DRY}`);
}

function askReview(requests: Requests, resource: MatrixResource): void {
  const path = collectionOf(resource);
  const apiVersion = `${resource.group}/${resource.version}`;
  const spec = {
    user: "x",
    groups: ["y"],
    token: "z",
    namespace: "tenant",
    resourceAttributes: { verb: "get", resource: "pods", namespace: "tenant" },
  };
  requests.post(path, "", { apiVersion, kind: resource.kind, metadata: {}, spec });
  requests.get(path);
}

const PODS = "/api/v1/namespaces/tenant/pods";

function selectPods(requests: Requests): void {
  const on = (node: string): string => `spec.nodeName%3D${node}`;
  for (const selector of [
    on("a"),
    on("b"),
    `${on("a")},${on("b")}`,
    `${on("b")},${on("a")}`,
    `spec.nodeName!%3Db`,
    `${on("a")},metadata.name%3Dtheirs`,
    `metadata.name%3Dtheirs`,
    `metadata.name%3Dmine,metadata.name%3Dtheirs`,
    on(""),
  ]) {
    for (const path of [PODS, "/api/v1/pods"]) {
      requests.get(`${path}?fieldSelector=${selector}`);
      requests.get(`${path}?${WATCH}&fieldSelector=${selector}`);
    }
    for (const name of ["mine", "theirs"]) {
      requests.get(`${PODS}/${name}?fieldSelector=${selector}`);
      requests.get(`${PODS}/${name}?fieldSelector=${selector}&watch=1`);
      requests.get(`/api/v1/watch/namespaces/tenant/pods/${name}?fieldSelector=${selector}`);
    }
    requests.add("DELETE", `${PODS}?${DRY}&fieldSelector=${selector}`);
    requests.get(`/api/v1/watch/pods?fieldSelector=${selector}`);
  }
  for (const name of ["pulled", "in-variable", "mounted", "projected", "for-driver", "chap", "for-volume", "unnamed"]) {
    const path = "/api/v1/namespaces/tenant/secrets";
    requests.get(`${path}/${name}?why=1`);
    requests.get(`${path}?fieldSelector=metadata.name%3D${name}&why=1`);
    requests.get(`${path}?${WATCH}&fieldSelector=metadata.name%3D${name}&why=1`);
    requests.get(`${path}/unnamed?fieldSelector=metadata.name%3D${name}`);
  }
}

/** Selects slices as a driver of devices on a board does. */
function selectSlices(requests: Requests): void {
  const path = "/apis/resource.k8s.io/v1/resourceslices";
  for (const selector of [
    "spec.nodeName%3Da",
    "spec.nodeName%3Db",
    "spec.nodeName!%3Da",
    "spec.nodeName%3Da,spec.driver%3Dx.example.com",
    "spec.driver%3Dx.example.com",
  ]) {
    requests.get(`${path}?fieldSelector=${selector}`);
    requests.get(`${path}?${WATCH}&fieldSelector=${selector}`);
    requests.add("DELETE", `${path}?${DRY}&fieldSelector=${selector}`);
  }
}

/** The references that a mirror pod may have: none. */
const NAMING: Readonly<Record<string, Json>> = {
  nothing: {},
  "a pull secret": { imagePullSecrets: [{ name: "unnamed" }] },
  "a secret in a variable": {
    containers: [
      { name: "c", image: "b", env: [{ name: "A", valueFrom: { secretKeyRef: { name: "unnamed", key: "k" } } }] },
    ],
  },
  "a config map in a variable": {
    containers: [
      { name: "c", image: "b", env: [{ name: "A", valueFrom: { configMapKeyRef: { name: "unnamed", key: "k" } } }] },
    ],
  },
  "a secret in an environment": {
    containers: [{ name: "c", image: "b", envFrom: [{ secretRef: { name: "unnamed" } }] }],
  },
  "a config map in an environment": {
    containers: [{ name: "c", image: "b", envFrom: [{ configMapRef: { name: "unnamed" } }] }],
  },
  "a secret in an init container": {
    initContainers: [{ name: "i", image: "b", envFrom: [{ secretRef: { name: "unnamed" } }] }],
  },
  "an account": { serviceAccountName: "unused" },
  "an account by its old name": { serviceAccount: "unused" },
  "a resource claim": { resourceClaims: [{ name: "r", resourceClaimName: "x" }] },
};

const VOLUMES: Readonly<Record<string, Json>> = {
  emptyDir: { emptyDir: {} },
  hostPath: { hostPath: { path: "/x" } },
  downwardAPI: { downwardAPI: { items: [] } },
  secret: { secret: { secretName: "unnamed" } },
  configMap: { configMap: { name: "unnamed" } },
  persistentVolumeClaim: { persistentVolumeClaim: { claimName: "unclaimed" } },
  ephemeral: {
    ephemeral: {
      volumeClaimTemplate: { spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } } },
    },
  },
  csi: { csi: { driver: "x.example.com" } },
  "csi with a secret": { csi: { driver: "x.example.com", nodePublishSecretRef: { name: "unnamed" } } },
  azureFile: { azureFile: { secretName: "unnamed", shareName: "s" } },
  cephfs: { cephfs: { monitors: ["m"], secretRef: { name: "unnamed" } } },
  cinder: { cinder: { volumeID: "v", secretRef: { name: "unnamed" } } },
  flexVolume: { flexVolume: { driver: "x/y", secretRef: { name: "unnamed" } } },
  "flexVolume without a secret": { flexVolume: { driver: "x/y" } },
  glusterfs: { glusterfs: { endpoints: "front", path: "/x" } },
  iscsi: {
    iscsi: { targetPortal: "10.0.0.1", iqn: "iqn.2001-04.com.example:x", lun: 0, secretRef: { name: "unnamed" } },
  },
  nfs: { nfs: { server: "s", path: "/x" } },
  rbd: { rbd: { monitors: ["m"], image: "i", secretRef: { name: "unnamed" } } },
  scaleIO: { scaleIO: { gateway: "g", system: "s", volumeName: "v", secretRef: { name: "unnamed" } } },
  storageos: { storageos: { volumeName: "v", secretRef: { name: "unnamed" } } },
  "projected secret": { projected: { sources: [{ secret: { name: "unnamed" } }] } },
  "projected configMap": { projected: { sources: [{ configMap: { name: "unnamed" } }] } },
  "projected downwardAPI": { projected: { sources: [{ downwardAPI: { items: [] } }] } },
  "projected token": { projected: { sources: [{ serviceAccountToken: { path: "t" } }] } },
  "projected bundle": { projected: { sources: [{ clusterTrustBundle: { name: "unnamed", path: "p" } }] } },
};

function makeMirrors(requests: Requests, uids: Uids): void {
  const owner = { apiVersion: "v1", kind: "Node", name: "a", uid: uids.get("nodes/a"), controller: true };
  const make = (note: string, spec: Json, metadata: Json = {}): void =>
    requests.post(PODS, `a mirror pod: ${note}`, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "new", annotations: MIRROR, ownerReferences: [owner], ...metadata },
      spec: { nodeName: "a", containers: [{ name: "c", image: "b" }], ...spec },
    });
  for (const [way, spec] of Object.entries(NAMING)) make(`that names ${way}`, spec);
  for (const [kind, source] of Object.entries(VOLUMES))
    make(`with a volume ${kind}`, { volumes: [{ name: "v", ...source }] });
  make("on another board", { nodeName: "b" });
  make("on no board", { nodeName: undefined });
  make("without the annotation", {}, { annotations: {} });
  make("of a class", { runtimeClassName: "class" });
  make("without an owner", {}, { ownerReferences: [] });
  make("with two owners", {}, { ownerReferences: [owner, { ...owner, name: "b", controller: false }] });
  make("of another board", {}, { ownerReferences: [{ ...owner, name: "b", uid: uids.get("nodes/b") }] });
  make("with an owner that is no node", {}, { ownerReferences: [{ ...owner, kind: "Pod" }] });
  make("with an owner of another UID", {}, { ownerReferences: [{ ...owner, uid: "another" }] });
  make("with an owner that does not control", {}, { ownerReferences: [{ ...owner, controller: false }] });
  make("with an owner whose deletion it blocks", {}, { ownerReferences: [{ ...owner, blockOwnerDeletion: true }] });
}

function requestTokens(requests: Requests, uids: Uids): void {
  const pod = (name: string): Json => ({ apiVersion: "v1", kind: "Pod", name, uid: uids.get(`pods/${name}`) });
  const ask = (account: string, note: string, spec: Json): void =>
    requests.post(`/api/v1/namespaces/tenant/serviceaccounts/${account}/token`, note, {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenRequest",
      spec: { audiences: [], expirationSeconds: 600, ...spec },
    });
  for (const account of ["used", "unused", "default"]) {
    ask(account, "bound to nothing", {});
    for (const name of ["mine", "theirs", "loose", "static-a", "static-b"]) {
      ask(account, `bound to the pod ${name}`, { boundObjectRef: pod(name) });
    }
  }
  ask("used", "without a UID", { boundObjectRef: { ...pod("mine"), uid: undefined } });
  ask("used", "with another UID", { boundObjectRef: { ...pod("mine"), uid: "another" } });
  ask("used", "bound to a secret", { boundObjectRef: { apiVersion: "v1", kind: "Secret", name: "mounted" } });
  ask("used", "bound to a node", {
    boundObjectRef: { apiVersion: "v1", kind: "Node", name: "a", uid: uids.get("nodes/a") },
  });
  for (const audiences of [["vault"], ["driver"], ["unknown"], ["vault", "driver"]]) {
    ask("used", `for ${audiences.join(" and ")}`, { boundObjectRef: pod("mine"), audiences });
  }
}

const OWN_LABELS = [
  "x",
  "example.com/x",
  "kubernetes.io/hostname",
  "node.kubernetes.io/x",
  "sub.kubelet.kubernetes.io/x",
];
const FOREIGN_LABELS = [
  "node-role.kubernetes.io/control-plane",
  "node-restriction.kubernetes.io/x",
  "x.node-restriction.kubernetes.io/y",
  "kubernetes.io/x",
  "a.k8s.io/b",
];

function writeNodes(requests: Requests): void {
  const path = "/api/v1/nodes";
  const make = (name: string, note: string, more: Json = {}): void =>
    requests.post(path, `${name}, ${note}`, { apiVersion: "v1", kind: "Node", metadata: { name, ...more } });
  for (const name of ["a", "b", "new"]) {
    make(name, "plain");
    for (const key of [...OWN_LABELS, ...FOREIGN_LABELS]) make(name, `labelled ${key}`, { labels: { [key]: "" } });
  }
  for (const name of ["a", "b", "c"]) {
    for (const key of [...OWN_LABELS, ...FOREIGN_LABELS]) {
      requests.patch(`${path}/${name}`, `labels ${key}`, { metadata: { labels: { [key]: "y" } } });
      requests.patch(`${path}/${name}/status`, `labels ${key}`, { metadata: { labels: { [key]: "y" } } });
    }
    requests.patch(`${path}/${name}`, "taints", { spec: { taints: [{ key: "x", effect: "NoSchedule" }] } });
    requests.patch(`${path}/${name}`, "taints away", { spec: { taints: null } });
    requests.patch(`${path}/${name}`, "cordons", { spec: { unschedulable: true } });
    const owners = [{ apiVersion: "v1", kind: "Node", name: "b", uid: "x" }];
    requests.patch(`${path}/${name}`, "owners", { metadata: { ownerReferences: owners } });
    requests.patch(`${path}/${name}/status`, "conditions", {
      status: { conditions: [{ type: "Ready", status: "True" }] },
    });
  }
}

function writeStatuses(requests: Requests): void {
  for (const name of ["mine", "theirs", "loose", "static-a", "static-b"]) {
    const path = `${PODS}/${name}/status`;
    requests.patch(path, "a message", { status: { message: "x" } });
    requests.patch(path, "labels", { metadata: { labels: { x: "y" } } });
    requests.patch(path, "the mirror annotation", {
      metadata: { annotations: { "kubernetes.io/config.mirror": "other" } },
    });
    requests.patch(path, "no mirror annotation", {
      metadata: { annotations: { "kubernetes.io/config.mirror": null } },
    });
    requests.patch(path, "resource claims", {
      status: { resourceClaimStatuses: [{ name: "x", resourceClaimName: "y" }] },
    });
    requests.post(`${PODS}/${name}/eviction`, "with options", {
      apiVersion: "policy/v1",
      kind: "Eviction",
      metadata: { name },
      deleteOptions: { gracePeriodSeconds: 0 },
    });
  }
  for (const name of ["claimed", "unclaimed"]) {
    const path = `/api/v1/namespaces/tenant/persistentvolumeclaims/${name}/status`;
    requests.patch(path, "capacity", { status: { capacity: { storage: "2Gi" } } });
    requests.patch(path, "phase", { status: { phase: "Lost" } });
    requests.patch(path, "labels", { metadata: { labels: { x: "y" } } });
  }
}

function writeLeases(requests: Requests): void {
  for (const namespace of ["kube-node-lease", "tenant"]) {
    const path = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`;
    for (const name of ["a", "b", "c", "new"]) {
      const body = {
        apiVersion: "coordination.k8s.io/v1",
        kind: "Lease",
        metadata: { name },
        spec: { holderIdentity: name },
      };
      requests.get(`${path}/${name}?why=1`);
      requests.post(path, name, body);
      requests.add("PUT", `${path}/${name}?${DRY}`, { body, note: "holder" });
      requests.patch(`${path}/${name}`, "holder", { spec: { holderIdentity: "x" } });
      requests.add("DELETE", `${path}/${name}?${DRY}&why=1`);
    }
    requests.get(path);
    requests.get(`${path}?fieldSelector=metadata.name%3Da`);
  }
}

function requestCertificates(requests: Requests): void {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const spki = publicKey.export({ type: "spki", format: "der" });
  const pem = (name: string, group: string): string => {
    const subject = [{ type: "O", value: group } as const, { type: "CN", value: name } as const];
    const der = encodeCertificateRequest(subject, spki, (bytes) => sign("sha256", bytes, privateKey));
    return Buffer.from(encodePem("CERTIFICATE REQUEST", der)).toString("base64");
  };
  const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
  const signers = ["kube-apiserver-client-kubelet", "kubelet-serving", "kube-apiserver-client", "legacy-unknown"];
  for (const signer of signers) {
    for (const name of ["system:node:a", "system:node:b", "system:node:", "alice"]) {
      for (const group of ["system:nodes", "system:masters"]) {
        requests.post(path, `${name} of ${group} by ${signer}`, {
          apiVersion: "certificates.k8s.io/v1",
          kind: "CertificateSigningRequest",
          metadata: { name: "new" },
          spec: {
            request: pem(name, group),
            signerName: `kubernetes.io/${signer}`,
            usages:
              signer === "kubelet-serving"
                ? ["digital signature", "server auth"]
                : ["digital signature", "client auth"],
          },
        });
      }
    }
  }
}

function grant(requests: Requests): void {
  const api = { apiVersion: "rbac.authorization.k8s.io/v1" };
  const apiGroup = "rbac.authorization.k8s.io";
  const subjects = [{ kind: "User", name: "alice", apiGroup }];
  for (const [kind, name] of [
    ["ClusterRole", "everything"],
    ["ClusterRole", "missing"],
    ["Role", "granter"],
    ["Role", "operator"],
    ["Role", "missing"],
  ] as const) {
    const body = (made: string): Json => ({
      ...api,
      kind: made,
      metadata: { name: "new" },
      subjects,
      roleRef: { apiGroup, kind, name },
    });
    requests.post(`${RBAC_PATH}/namespaces/tenant/rolebindings`, `to ${kind} ${name}`, body("RoleBinding"));
    if (kind === "ClusterRole")
      requests.post(`${RBAC_PATH}/clusterrolebindings`, `to ${name}`, body("ClusterRoleBinding"));
  }
  for (const [note, rule] of [
    ["held", { apiGroups: [""], resources: ["configmaps"], verbs: ["get"] }],
    ["not held", { apiGroups: [""], resources: ["secrets"], verbs: ["get"] }],
    ["partly held", { apiGroups: [""], resources: ["configmaps"], verbs: ["get", "delete"] }],
    ["of all verbs", { apiGroups: [""], resources: ["configmaps"], verbs: ["*"] }],
    ["of one name", { apiGroups: [""], resources: ["configmaps"], verbs: ["get"], resourceNames: ["x"] }],
    ["of subresources", { apiGroups: [""], resources: ["configmaps/x"], verbs: ["get"] }],
  ] as const) {
    const body = { ...api, metadata: { name: "new" }, rules: [rule] };
    requests.post(`${RBAC_PATH}/namespaces/tenant/roles`, `of a right ${note}`, { ...body, kind: "Role" });
    requests.post(`${RBAC_PATH}/clusterroles`, `of a right ${note}`, { ...body, kind: "ClusterRole" });
    requests.patch(`${RBAC_PATH}/namespaces/tenant/roles/granter`, `of a right ${note}`, { rules: [rule] });
  }
}

function impersonate(requests: Requests): void {
  const as = (
    user: string,
    groups: string,
    more: Readonly<Record<string, string>> = {},
  ): Readonly<Record<string, string>> => ({
    ...(user === "" ? {} : { "impersonate-user": user }),
    ...(groups === "" ? {} : { "impersonate-group": groups }),
    ...more,
  });
  for (const headers of [
    as("alice", ""),
    as("alice", "team"),
    as("alice", "system:masters"),
    as("bob", ""),
    as("", "team"),
    as("system:node:a", ""),
    as("system:node:a", "system:nodes"),
    as("system:serviceaccount:tenant:operator", ""),
    as("system:serviceaccount:tenant:granter", ""),
    as("system:serviceaccount:tenant:operator", "system:masters"),
    as("alice", "", { "impersonate-uid": "1" }),
    as("alice", "", { "impersonate-extra-scope": "x" }),
    as("system:anonymous", ""),
    as("system:picolet-hub", ""),
  ]) {
    requests.get(`${PODS}/mine`, headers);
    requests.get("/api/v1/namespaces/tenant/secrets", headers);
    requests.get("/version", headers);
  }
}

function askPaths(requests: Requests): void {
  const paths = [
    "/healthz",
    "/livez",
    "/readyz",
    "/version",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/apps/v1",
    "/openapi/v2",
  ];
  for (const path of [...paths, "/metrics", "/logs/x", "/debug/pprof/", "/configz", "/", "/nothing"])
    requests.get(path);
  for (const method of ["POST", "PUT", "DELETE"]) requests.add(method, "/version");
}
