/** A user who may create pods in a namespace with Pod Security labels gets only what the labels allow. */
import assert from "node:assert/strict";
import type { AttackCase } from "../attack-case.ts";
import type { ApiAnswer, ApiClient, AttackGround } from "../attack-ground.ts";

const MERGE = "application/merge-patch+json";
const DEVICES = { "wasm.picolet.io/devices": "serial:/dev/ttyS0" };

const pod = (name: string, spec: object = {}, annotations: object = {}): Readonly<Record<string, unknown>> => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, annotations },
  spec: {
    securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
    containers: [container("app")],
    ...spec,
  },
});

const container = (name: string, more: object = {}): object => ({
  name,
  image: "registry.example/app:1",
  securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
  ...more,
});

interface Tenant {
  readonly namespace: string;
  readonly pods: string;
  readonly api: ApiClient;
}

/** A service account with Kubernetes' role `admin` in a namespace of its own. */
async function tenant(ground: AttackGround, level: string): Promise<Tenant> {
  const namespace = ground.unique("tenant");
  const labels = { "pod-security.kubernetes.io/enforce": level };
  await ground.make("/api/v1/namespaces", {
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name: namespace, labels },
  });
  const api = await ground.serviceAccount(namespace, "attacker");
  await ground.make(`/apis/rbac.authorization.k8s.io/v1/namespaces/${namespace}/rolebindings`, {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "RoleBinding",
    metadata: { name: "attacker" },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "admin" },
    subjects: [{ kind: "ServiceAccount", name: "attacker", namespace }],
  });
  return { namespace, pods: `/api/v1/namespaces/${namespace}/pods`, api };
}

function refused({ status, body }: ApiAnswer, what: string): void {
  const { message = "" } = body as { readonly message?: string };
  assert.equal(status, 403, `${what}: ${message}`);
  assert.match(message, /violates PodSecurity/, what);
}

const ROOT: Readonly<Record<string, object>> = {
  "host network": { hostNetwork: true },
  "host processes": { hostPID: true },
  "the host's files": { volumes: [{ name: "root", hostPath: { path: "/" } }] },
  "a host port": { containers: [container("app", { ports: [{ containerPort: 80, hostPort: 80 }] })] },
  "a probe of the node itself": {
    containers: [container("app", { livenessProbe: { httpGet: { host: "127.0.0.1", port: 10248 } } })],
  },
  "privileged, in an init container": {
    initContainers: [container("init", { securityContext: { privileged: true } })],
  },
  capabilities: {
    containers: [container("app", { securityContext: { capabilities: { add: ["SYS_ADMIN"] } } })],
  },
  "no seccomp filter": { securityContext: { runAsNonRoot: true, seccompProfile: { type: "Unconfined" } } },
};

export const cases: readonly AttackCase[] = [
  {
    name: "a tenant who may make pods becomes root on a board",
    attacker: "service account",
    inTest: true,
    run: async (ground) => {
      const { pods, api } = await tenant(ground, "baseline");
      for (const [what, spec] of Object.entries(ROOT)) refused(await api.create(pods, pod("p", spec)), what);
      assert.equal((await api.create(pods, pod("p"))).status, 201);
    },
  },
  {
    name: "a tenant opens devices of a board by an annotation, at once or later",
    attacker: "service account",
    inTest: true,
    run: async (ground) => {
      const { pods, api } = await tenant(ground, "baseline");
      refused(await api.create(pods, pod("p", {}, DEVICES)), "create");
      const reached = { "wasm.picolet.io/network": "tcp://127.0.0.1:10250" };
      refused(await api.create(pods, pod("p", {}, reached)), "network");
      assert.equal((await api.create(pods, pod("p"))).status, 201);
      const body = { metadata: { annotations: DEVICES } };
      refused(await api.ask(`${pods}/p`, { method: "PATCH", contentType: MERGE, body }), "patch");
      // With rights that no role gives.
      const { admin } = ground;
      refused(await admin.ask(`${pods}/p/status`, { method: "PATCH", contentType: MERGE, body }), "status");
      const binding = { metadata: { name: "p", annotations: DEVICES }, target: { kind: "Node", name: "n" } };
      refused(await admin.create(`${pods}/p/binding`, binding), "binding");
    },
  },
  {
    name: "a tenant swaps a pod's container for a privileged one, to debug it",
    attacker: "service account",
    inTest: true,
    run: async (ground) => {
      const { pods, api } = await tenant(ground, "restricted");
      assert.equal((await api.create(pods, pod("p"))).status, 201);
      const ephemeralContainers = [{ name: "debug", image: "i:1", securityContext: { privileged: true } }];
      const body = { spec: { ephemeralContainers } };
      const path = `${pods}/p/ephemeralcontainers`;
      assert.equal((await api.ask(path, { method: "PATCH", contentType: MERGE, body })).status, 403);
      refused(await ground.admin.ask(path, { method: "PATCH", contentType: MERGE, body }), "debug");
    },
  },
  {
    name: "a tenant takes the labels off his namespace",
    attacker: "service account",
    inTest: true,
    run: async (ground) => {
      const { namespace, api } = await tenant(ground, "restricted");
      const body = { metadata: { labels: { "pod-security.kubernetes.io/enforce": null } } };
      for (const part of ["", "/status", "/finalize"]) {
        const method = part === "/finalize" ? "PUT" : "PATCH";
        const answer = await api.ask(`/api/v1/namespaces/${namespace}${part}`, { method, contentType: MERGE, body });
        assert.equal(answer.status, 403, part);
      }
    },
  },
  {
    name: "a board makes a mirror pod with the host's network in a restricted namespace",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const { pods } = await tenant(ground, "restricted");
      const board = await ground.board();
      await ground.make("/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name: board.name } });
      const { body } = await ground.admin.ask(`/api/v1/nodes/${board.name}`);
      const { uid } = (body as { readonly metadata: { readonly uid: string } }).metadata;
      const mirror = pod("p", { hostNetwork: true, nodeName: board.name }, { "kubernetes.io/config.mirror": "x" });
      const owner = { apiVersion: "v1", kind: "Node", name: board.name, uid, controller: true };
      const metadata = { ...(mirror.metadata as object), ownerReferences: [owner] };
      refused(await board.api.create(pods, { ...mirror, metadata }), "mirror");
    },
  },
];
