/** Small bodies that cost much: what freezes the hub for others, fills it, or ends it. */
import assert from "node:assert/strict";
import type { AttackCase } from "../attack-case.ts";
import type { ApiAnswer, ApiClient, ApiRequest, AttackGround } from "../attack-ground.ts";

/** The longest delay that one request may cause for another. */
const MAX_WAIT_MS = 100;

const STRATEGIC = "application/strategic-merge-patch+json";
const JSON_PATCH = "application/json-patch+json";
const APPLY = "application/apply-patch+yaml";
const YAML = "application/yaml";
/** Every authenticated client may ask it. */
const REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

type Fields = Record<string, unknown>;

const many = <T>(count: number, make: (index: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));
const conditions = (count: number, status = "True"): Fields[] => many(count, (i) => ({ type: `T${i}`, status }));

/** A board, and how it patches the status of its own node. */
async function ownStatus(
  ground: AttackGround,
): Promise<{ name: string; patch: (init: ApiRequest, query?: string) => Promise<ApiAnswer> }> {
  const { api, name } = await ground.board();
  const made = await api.create("/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name } });
  assert.equal(made.status, 201);
  const patch = (init: ApiRequest, query = "") =>
    api.ask(`/api/v1/nodes/${name}/status${query}`, { method: "PATCH", ...init });
  return { name, patch };
}

/** The limits themselves have tests beside them; what these add is how long others wait. */
const freeze = (name: string, attacker: AttackCase["attacker"], run: AttackCase["run"]): AttackCase => ({
  ...{ name, attacker, run, maxWaitMs: MAX_WAIT_MS },
  inTest: false,
});

const refusedAs = (answer: ApiAnswer, ...statuses: readonly number[]): void =>
  assert.ok(statuses.includes(answer.status), `${answer.status} ${JSON.stringify(answer.body).slice(0, 200)}`);

/** A service account that has the role `admin` in a namespace of its own. */
async function tenant(ground: AttackGround): Promise<{ account: ApiClient; namespace: string; roles: string }> {
  const namespace = await ground.namespace();
  const name = ground.unique("tenant");
  const account = await ground.serviceAccount(namespace, name);
  const rbac = `/apis/rbac.authorization.k8s.io/v1/namespaces/${namespace}`;
  await ground.make(`${rbac}/rolebindings`, {
    metadata: { name },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "admin" },
    subjects: [{ kind: "ServiceAccount", name, namespace }],
  });
  return { account, namespace, roles: `${rbac}/roles` };
}

async function review(account: ApiClient, body: string): Promise<ApiAnswer> {
  return await account.ask(REVIEWS, { method: "POST", contentType: YAML, body });
}

export const cases: readonly AttackCase[] = [
  freeze("a service account sends 239 KB of YAML with 24,000 keys", "service account", async (ground) => {
    const account = await ground.serviceAccount();
    const body = `spec:\n${many(24_000, (i) => ` k${i}: "1"\n`).join("")}`;
    refusedAs(await review(account, body), 413);
  }),
  freeze("a service account sends 2.9 MB of YAML, ten at one time", "service account", async (ground) => {
    const account = await ground.serviceAccount();
    const body = `spec: [${"a,".repeat(1_450_000)}b]\n`;
    for (const answer of await Promise.all(many(10, () => review(account, body)))) refusedAs(answer, 413, 429);
  }),
  freeze(
    "a service account sends 90 KB of YAML of nothing but tokens, ten at one time",
    "service account",
    async (ground) => {
      const account = await ground.serviceAccount();
      const body = `a: [${",".repeat(90_000)}]\n`;
      for (const answer of await Promise.all(many(10, () => review(account, body)))) refusedAs(answer, 400, 429);
    },
  ),
  freeze("a service account sends YAML whose aliases stand for gigabytes", "service account", async (ground) => {
    const account = await ground.serviceAccount();
    const body = `a0: &a0 [x]\n${many(40, (i) => `a${i + 1}: &a${i + 1} [*a${i}, *a${i}]\n`).join("")}`;
    refusedAs(await review(account, body), 400);
  }),
  freeze("a service account sends 3 MB of protobuf fields that no message has", "service account", async (ground) => {
    const account = await ground.serviceAccount();
    const fields = Buffer.alloc(2_900_000).fill(Buffer.from([0x78, 1]));
    const length = [
      0x12,
      0xa0 | 0x80,
      ((fields.length >> 7) & 0x7f) | 0x80,
      ((fields.length >> 14) & 0x7f) | 0x80,
      fields.length >> 21,
    ];
    const body = Buffer.concat([Buffer.from("k8s\0"), Buffer.from(length), fields]);
    const type = "application/vnd.kubernetes.protobuf";
    refusedAs(await account.ask(REVIEWS, { method: "POST", contentType: type, body }), 400, 413);
  }),
  freeze("a board merges 60,000 conditions into its node", "board", async (ground) => {
    const { patch } = await ownStatus(ground);
    refusedAs(await patch({ contentType: STRATEGIC, body: { status: { conditions: conditions(60_000) } } }), 413);
  }),
  freeze("a board merges the most conditions there may be, again and again", "board", async (ground) => {
    const { patch } = await ownStatus(ground);
    for (const status of ["a", "b", "c"]) {
      const body = { status: { conditions: conditions(1000, status) } };
      assert.equal((await patch({ contentType: STRATEGIC, body })).status, 200);
    }
  }),
  freeze(
    "a board applies 30,000 conditions to its node, then 1,000 over another manager's",
    "board",
    async (ground) => {
      const { name, patch } = await ownStatus(ground);
      const apply = (count: number, manager: string): Promise<ApiAnswer> => {
        const node = {
          apiVersion: "v1",
          kind: "Node",
          metadata: { name },
          status: { conditions: conditions(count, manager) },
        };
        return patch({ contentType: APPLY, body: node }, `?fieldManager=${manager}&force=true`);
      };
      refusedAs(await apply(30_000, "one"), 413);
      refusedAs(await apply(1000, "one"), 200);
      refusedAs(await apply(1000, "two"), 200, 413);
      refusedAs(await apply(1, "one"), 200);
    },
  ),
  freeze("a board tests a list of its node against another one", "board", async (ground) => {
    const { patch } = await ownStatus(ground);
    const body = [
      { op: "add", path: "/status", value: { x: many(10_000, (i) => i) } },
      { op: "test", path: "/status/x", value: many(10_000, (i) => -i) },
    ];
    refusedAs(await patch({ contentType: JSON_PATCH, body }), 422);
  }),
  freeze("a board inserts 10,000 times at the head of a list", "board", async (ground) => {
    const { patch } = await ownStatus(ground);
    const list = { op: "add", path: "/status", value: { x: many(10_000, () => 0) } };
    const body = [list, ...many(9_999, () => ({ op: "add", path: "/status/x/0", value: 0 }))];
    refusedAs(await patch({ contentType: JSON_PATCH, body }), 413);
  }),
  freeze("a tenant writes a role of 630,000 combinations of what it may do", "service account", async (ground) => {
    const { account, roles } = await tenant(ground);
    const names = (count: number): string[] => many(count, (i) => `n${i}`);
    const verbs = ["get", "list", "watch", "create", "delete", "patch", "update"];
    const held = { apiGroups: [""], resources: ["pods", "services", "configmaps"], verbs };
    const bomb = { metadata: { name: "bomb" }, rules: many(30, () => ({ ...held, resourceNames: names(1000) })) };
    refusedAs(await account.create(roles, bomb), 413);
    const repeat = (text: string): string[] => many(1000, () => text);
    const rule = { verbs: repeat("get"), apiGroups: repeat(""), resources: repeat("pods"), resourceNames: repeat("x") };
    refusedAs(await account.create(roles, { metadata: { name: "repeated" }, rules: [rule] }), 201);
  }),
  freeze("a board asks for Secrets among 900 mirror pods that it has made", "board", async (ground) => {
    const { api, name } = await ground.board();
    const made = await api.create("/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name } });
    const { uid } = (made.body as { metadata: { uid: string } }).metadata;
    const annotations = { "kubernetes.io/config.mirror": "x", text: "x".repeat(14_000) };
    const ownerReferences = [{ apiVersion: "v1", kind: "Node", name, uid, controller: true }];
    const spec = {
      nodeName: name,
      containers: [{ name: "c", image: "busybox" }],
      tolerations: [{ operator: "Exists" }],
    };
    for (let n = 0; n < 900; n += 1) {
      const pod = { metadata: { name: `m-${n}`, annotations, ownerReferences }, spec };
      refusedAs(await api.create("/api/v1/namespaces/default/pods", pod), 201);
    }
    for (let n = 0; n < 20; n += 1) refusedAs(await api.ask("/api/v1/namespaces/default/secrets/x"), 403);
    for (const answer of await Promise.all(many(100, () => api.ask("/api/v1/namespaces/default/secrets/x")))) {
      refusedAs(answer, 403);
    }
  }),
  freeze("a tenant's apply conflicts in 3,000 fields below one name of 100 KB", "service account", async (ground) => {
    const { account, namespace } = await tenant(ground);
    const path = `/api/v1/namespaces/${namespace}/pods`;
    const spec = { containers: [{ name: "c", image: "busybox" }] };
    refusedAs(await account.create(path, { apiVersion: "v1", kind: "Pod", metadata: { name: "a" }, spec }), 201);
    const name = "n".repeat(100_000);
    const ports = many(1000, (i) => ({ containerPort: i + 1, protocol: "TCP" }));
    const fields = { "f:name": {}, "f:hostPort": {}, "f:hostIP": {} };
    const owned = Object.fromEntries(ports.map((port) => [`k:${JSON.stringify(port)}`, fields]));
    const fieldsV1 = { "f:spec": { "f:containers": { [`k:${JSON.stringify({ name })}`]: { "f:ports": owned } } } };
    const entry = { manager: "x", operation: "Update", apiVersion: "v1", fieldsType: "FieldsV1", fieldsV1 };
    const managed = JSON.stringify({ metadata: { managedFields: [entry] } });
    const patch: ApiRequest = { method: "PATCH", contentType: "application/merge-patch+json", body: managed };
    refusedAs(await account.ask(`${path}/a`, patch), 200);
    const wanted = ports.map((port) => ({ ...port, name: "p", hostPort: 1, hostIP: "x" }));
    const containers = [{ name, image: "x", ports: wanted }];
    const body = JSON.stringify({ apiVersion: "v1", kind: "Pod", metadata: { name: "a" }, spec: { containers } });
    const answer = await account.ask(`${path}/a?fieldManager=m`, { method: "PATCH", contentType: APPLY, body });
    refusedAs(answer, 409);
    assert.ok(JSON.stringify(answer.body).length < 1_000_000);
  }),
  {
    name: "a board grows its node past what an object may have",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const { patch } = await ownStatus(ground);
      const body = { status: { config: { error: "x".repeat(400_000) } } };
      assert.equal((await patch({ contentType: STRATEGIC, body })).status, 200);
      const more = { status: { volumesInUse: many(400, (i) => `${i}${"y".repeat(1000)}`) } };
      refusedAs(await patch({ contentType: STRATEGIC, body: more }), 413);
    },
  },
];
