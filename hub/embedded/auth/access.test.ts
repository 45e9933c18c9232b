/** Rights over TLS with certificates and tokens. */
import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign, X509Certificate } from "node:crypto";
import { request } from "node:https";
import { test } from "node:test";
import { encodeCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { encodePem } from "@picolet/protocol/pki/pem.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import {
  type Answer,
  type AskInit,
  ISSUER,
  type Json,
  TestApiServer,
} from "@picolet/test/support/unit/embedded/api-server.ts";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { createLocalJWKSet, type JSONWebKeySet, jwtVerify } from "jose";

const meta = (object: Json): Json => object.metadata as Json;
const POD_PATH = "/api/v1/namespaces/default/pods";
const NODE = { token: "node-a" };

const podOn = (name: string, node: string, spec: Json = {}): Json => ({
  metadata: { name },
  spec: { nodeName: node, serviceAccountName: "default", containers: [{ name: "c", image: "busybox" }], ...spec },
});

/** The owner of mirror pods on a node. */
async function ownerOf(server: TestApiServer, node: string): Promise<Json> {
  const { uid } = meta(await server.expect(200, "GET", `/api/v1/nodes/${node}`));
  return { apiVersion: "v1", kind: "Node", name: node, uid, controller: true };
}

const mirrorOn = (node: string, owner: Json, spec: Json = {}, name = `static-${node}`): Json => ({
  metadata: { name, annotations: { "kubernetes.io/config.mirror": "x" }, ownerReferences: [owner] },
  spec: {
    nodeName: node,
    containers: [{ name: "c", image: "busybox" }],
    tolerations: [{ operator: "Exists" }],
    ...spec,
  },
});

async function furnished(server: TestApiServer): Promise<void> {
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: "kube-system" } } });
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: "kube-node-lease" } } });
  for (const name of ["default", "other"]) {
    await server.expect(201, "POST", "/api/v1/namespaces/default/serviceaccounts", { body: { metadata: { name } } });
  }
  for (const name of ["named", "unnamed"]) {
    await server.expect(201, "POST", "/api/v1/namespaces/default/secrets", { body: { metadata: { name } } });
    await server.expect(201, "POST", "/api/v1/namespaces/default/configmaps", { body: { metadata: { name } } });
  }
  for (const name of ["a", "b"]) await server.expect(201, "POST", "/api/v1/nodes", { body: { metadata: { name } } });
  const spec = {
    imagePullSecrets: [{ name: "pull" }],
    volumes: [
      { name: "v", secret: { secretName: "named" } },
      { name: "w", projected: { sources: [{ configMap: { name: "projected" } }] } },
      { name: "t", projected: { sources: [{ serviceAccountToken: { path: "token", expirationSeconds: 7200 } }] } },
    ],
    containers: [{ name: "c", image: "busybox", envFrom: [{ configMapRef: { name: "named" } }] }],
  };
  await server.expect(201, "POST", POD_PATH, { body: podOn("mine", "a", spec) });
  await server.expect(201, "POST", POD_PATH, { body: podOn("theirs", "b") });
}

test("a node reads and writes what is its own, and nothing else", async () => {
  await using server = await TestApiServer.start();
  await furnished(server);
  const ownerA = await ownerOf(server, "a");
  const lease = (name: string): AskInit => ({ ...NODE, body: { metadata: { name }, spec: { holderIdentity: name } } });
  const merge = (body: Json): AskInit => ({ ...NODE, body, type: "application/merge-patch+json" });
  const mirror = (node: string): Json => mirrorOn(node, ownerA);
  const cases: readonly (readonly [number, string, string, AskInit?])[] = [
    [200, "GET", "/api/v1/nodes/a"],
    [403, "GET", "/api/v1/nodes/b"],
    [403, "GET", "/api/v1/nodes"],
    [200, "GET", "/api/v1/nodes?fieldSelector=metadata.name%3Da"],
    [403, "GET", "/api/v1/nodes?fieldSelector=metadata.name!%3Da"],
    [200, "PATCH", "/api/v1/nodes/a/status", merge({ status: { phase: "x" } })],
    [403, "PATCH", "/api/v1/nodes/b/status", merge({ status: { phase: "x" } })],
    [403, "PATCH", "/api/v1/nodes/a", merge({ metadata: { labels: { "node-restriction.kubernetes.io/x": "1" } } })],
    [403, "DELETE", "/api/v1/nodes/a"],
    [200, "GET", `${POD_PATH}/mine`],
    [403, "GET", `${POD_PATH}/theirs`],
    [403, "GET", POD_PATH],
    [200, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Da"],
    [403, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Db"],
    [200, "PATCH", `${POD_PATH}/mine/status`, merge({ status: { phase: "Running" } })],
    [403, "PATCH", `${POD_PATH}/theirs/status`, merge({ status: { phase: "Running" } })],
    [403, "PATCH", `${POD_PATH}/mine`, merge({ metadata: { labels: { x: "1" } } })],
    [403, "POST", POD_PATH, { ...NODE, body: podOn("new", "a") }],
    [201, "POST", POD_PATH, { ...NODE, body: mirror("a") }],
    [403, "POST", POD_PATH, { ...NODE, body: mirror("b") }],
    [200, "GET", "/api/v1/namespaces/default/secrets/named"],
    [404, "GET", "/api/v1/namespaces/default/secrets/pull"],
    [403, "GET", "/api/v1/namespaces/default/secrets/unnamed"],
    [403, "GET", "/api/v1/namespaces/default/secrets"],
    [200, "GET", "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dnamed"],
    [200, "GET", "/api/v1/namespaces/default/configmaps/named"],
    [404, "GET", "/api/v1/namespaces/default/configmaps/projected"],
    [403, "GET", "/api/v1/namespaces/default/configmaps/unnamed"],
    [403, "PUT", "/api/v1/namespaces/default/secrets/named", { ...NODE, body: { metadata: { name: "named" } } }],
    [201, "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease("a")],
    [403, "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease("b")],
    [403, "PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/b", lease("b")],
    [403, "PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/a", lease("a")],
    [
      201,
      "POST",
      "/api/v1/namespaces/default/events",
      {
        ...NODE,
        body: { metadata: { name: "e" }, involvedObject: { namespace: "default" }, reason: "R", message: "m" },
      },
    ],
    [403, "GET", "/api/v1/namespaces"],
    [403, "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles"],
    [403, "DELETE", `${POD_PATH}/theirs`],
    [200, "DELETE", `${POD_PATH}/mine?gracePeriodSeconds=0`],
    [403, "GET", "/api/v1/namespaces/default/secrets/named"],
  ];
  for (const [status, method, path, init = {}] of cases) {
    const answer = await server.ask(method, path, { ...NODE, ...init });
    assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
  }
});

const CONTAINER = { name: "c", image: "busybox" };
const ISCSI = { targetPortal: "10.0.0.1:3260", iqn: "iqn.2001-04.com.example:x", lun: 0 };
const BUNDLE = { name: "unnamed", path: "ca.pem" };

function inContainer(fields: Json): { containers: Json[] } {
  return { containers: [{ ...CONTAINER, ...fields }] };
}

function fromKey(field: string): Json {
  return { name: "A", valueFrom: { [field]: { name: "unnamed", key: "k" } } };
}

function volume(source: Json): Json {
  return { volumes: [{ name: "v", ...source }] };
}

/** A pod's spec for each way to name an object, and what is named. */
const NAMING: readonly (readonly [way: string, resource: string, spec: Json])[] = [
  ["a pull secret", "secrets", { imagePullSecrets: [{ name: "unnamed" }] }],
  ["a variable", "secrets", inContainer({ env: [fromKey("secretKeyRef")] })],
  ["an environment", "secrets", inContainer({ envFrom: [{ secretRef: { name: "unnamed" } }] })],
  ["a variable", "configmaps", inContainer({ env: [fromKey("configMapKeyRef")] })],
  ["an environment", "configmaps", inContainer({ envFrom: [{ configMapRef: { name: "unnamed" } }] })],
  ["an init container", "secrets", { initContainers: inContainer({ env: [fromKey("secretKeyRef")] }).containers }],
  ["a volume", "secrets", volume({ secret: { secretName: "unnamed" } })],
  ["a volume", "configmaps", volume({ configMap: { name: "unnamed" } })],
  ["a projection", "secrets", volume({ projected: { sources: [{ secret: { name: "unnamed" } }] } })],
  ["a projection", "configmaps", volume({ projected: { sources: [{ configMap: { name: "unnamed" } }] } })],
  ["a CSI volume", "secrets", volume({ csi: { driver: "x.y", nodePublishSecretRef: { name: "unnamed" } } })],
  ["a flex volume", "secrets", volume({ flexVolume: { driver: "x/y", secretRef: { name: "unnamed" } } })],
  ["an iSCSI volume", "secrets", volume({ iscsi: { ...ISCSI, secretRef: { name: "unnamed" } } })],
  ["a claim", "persistentvolumeclaims", volume({ persistentVolumeClaim: { claimName: "unnamed" } })],
  ["an account", "serviceaccounts", { serviceAccountName: "other" }],
  ["an account by its old name", "serviceaccounts", { serviceAccount: "other" }],
  ["a token", "serviceaccounts", volume({ projected: { sources: [{ serviceAccountToken: { path: "t" } }] } })],
  ["a bundle", "clustertrustbundles", volume({ projected: { sources: [{ clusterTrustBundle: BUNDLE }] } })],
  ["a resource claim", "resourceclaims", { resourceClaims: [{ name: "r", resourceClaimName: "unnamed" }] }],
];

test("a mirror pod with any references grants nothing to the board that makes it", async () => {
  await using server = await TestApiServer.start();
  await furnished(server);
  const owner = await ownerOf(server, "a");
  const claim = { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } };
  await server.expect(201, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", {
    body: { metadata: { name: "unnamed" }, spec: claim },
  });
  const account = "/api/v1/namespaces/default/serviceaccounts/other";
  for (const [index, [way, resource, spec]] of NAMING.entries()) {
    const pod = mirrorOn("a", owner, spec, `static-${index}`);
    const refused = await server.ask("POST", POD_PATH, { ...NODE, body: pod });
    assert.equal(refused.status, 403, `${resource} by ${way}: ${refused.text}`);
    assert.match(refused.text, /can not create pods that reference|a mirror pod may not/, way);
    // Pods that the administrator makes, or a hub of an earlier version accepted, grant nothing either.
    await server.ask("POST", POD_PATH, { body: pod });
    const path = `/api/v1/namespaces/default/${resource}/${resource === "serviceaccounts" ? "other" : "unnamed"}`;
    assert.equal((await server.ask("GET", path, NODE)).status, 403, `${resource} by ${way}`);
  }
  const plain = await server.expect(201, "POST", POD_PATH, { ...NODE, body: mirrorOn("a", owner) });
  const bound = { apiVersion: "v1", kind: "Pod", name: "static-a", uid: meta(plain).uid };
  for (const path of [account, account.replace("other", "default")]) {
    const asked = { ...NODE, body: { spec: { boundObjectRef: bound } } };
    const answer = await server.ask("POST", `${path}/token`, asked);
    assert.equal(answer.status, 403, answer.text);
  }
  // A token of a hub of an earlier version, which signed such ones.
  const { uid } = meta(await server.expect(200, "GET", account));
  const { token } = await server.server.core.serviceAccounts.sign({
    namespace: "default",
    serviceAccount: { name: "other", uid: String(uid) },
    audiences: [ISSUER],
    expirationSeconds: 3600,
    binding: { kind: "Pod", name: "static-a", uid: String(meta(plain).uid) },
    node: undefined,
  });
  assert.equal((await server.ask("GET", "/version", { token })).status, 401);
});

test("a mirror pod stays one, and a board makes none that another owns", async () => {
  await using server = await TestApiServer.start();
  await furnished(server);
  const owner = await ownerOf(server, "a");
  const path = `${POD_PATH}/static-a`;
  const merge = (metadata: Json): AskInit => ({ body: { metadata }, type: "application/merge-patch+json" });
  await server.expect(201, "POST", POD_PATH, { ...NODE, body: mirrorOn("a", owner) });
  const unmask = merge({ annotations: { "kubernetes.io/config.mirror": null } });
  for (const token of ["node-a", "admin"]) {
    const answer = await server.ask("PATCH", `${path}/status`, { ...unmask, token });
    assert.equal(answer.status, 422, answer.text);
    assert.match(answer.text, /may not remove or update mirror pod annotation/);
  }
  assert.equal((await server.ask("PATCH", path, unmask)).status, 422);
  const mask = merge({ annotations: { "kubernetes.io/config.mirror": "x" } });
  assert.equal((await server.ask("PATCH", `${POD_PATH}/mine/status`, { ...NODE, ...mask })).status, 422);
  const relabelled = await server.ask("PATCH", `${path}/status`, { ...NODE, ...merge({ labels: { app: "db" } }) });
  assert.match(relabelled.text, /cannot update labels through pod status/);
  for (const [owners, why] of [
    [[], "an owner reference set to itself"],
    [[owner, owner], "a single owner reference"],
    [[{ ...owner, uid: "another" }], "UID mismatch"],
    [[{ ...owner, controller: false }], "a controller owner reference"],
    [[{ ...owner, blockOwnerDeletion: true }], "must not set blockOwnerDeletion"],
  ] as const) {
    const pod = mirrorOn("a", owner, {}, "owned");
    const body = { ...pod, metadata: { ...meta(pod), ownerReferences: owners } };
    const answer = await server.ask("POST", POD_PATH, { ...NODE, body });
    assert.equal(answer.status, 403, why);
    assert.match(answer.text, new RegExp(why));
  }
});

test("a selector ties nothing to a board but lists and watches", async () => {
  await using server = await TestApiServer.start();
  await furnished(server);
  const selector = "fieldSelector=spec.nodeName%3Da";
  const cases: readonly (readonly [number, string])[] = [
    [403, `${POD_PATH}/theirs?${selector}`],
    [403, `${POD_PATH}/theirs?${selector}&watch=1`],
    [403, `/api/v1/watch/namespaces/default/pods/theirs?${selector}`],
    [403, `/api/v1/watch/pods?${selector}`],
    [403, `${POD_PATH}?fieldSelector=spec.nodeName!%3Db`],
    [403, `${POD_PATH}?fieldSelector=metadata.name%3Dtheirs`],
    [200, `${POD_PATH}?fieldSelector=metadata.name%3Dmine`],
    [200, `${POD_PATH}?${selector},spec.nodeName%3Db`],
    [403, `/api/v1/nodes/b?fieldSelector=metadata.name%3Da`],
    [403, `/api/v1/namespaces/default/secrets/unnamed?fieldSelector=metadata.name%3Dnamed`],
    [403, `/api/v1/namespaces/default/secrets?fieldSelector=metadata.name!%3Dnamed`],
    [403, `/api/v1/secrets?fieldSelector=metadata.name%3Dnamed`],
  ];
  for (const [status, path] of cases) {
    const answer = await server.ask("GET", path, NODE);
    assert.equal(answer.status, status, `${path}: ${answer.text}`);
  }
  const both = await server.ask("GET", `${POD_PATH}?${selector},spec.nodeName%3Db`, NODE);
  assert.deepEqual(both.body.items, [], "requirements are joined by and");
});

test("a token lives as long as its pod asks for a board, and a year at most for anyone", async () => {
  const clock = new VirtualClock(Date.now());
  await using server = await TestApiServer.start({ clock });
  await furnished(server);
  const path = "/api/v1/namespaces/default/serviceaccounts/default/token";
  const { uid } = meta(await server.expect(200, "GET", `${POD_PATH}/mine`));
  const boundObjectRef = { kind: "Pod", apiVersion: "v1", name: "mine", uid };
  const lifeOf = async (init: AskInit): Promise<number> => {
    const { status } = await server.expect(201, "POST", path, init);
    const { expirationTimestamp } = status as { expirationTimestamp: string };
    return Date.parse(expirationTimestamp) - Math.floor(clock.wall().getTime() / 1000) * 1000;
  };
  const longest = { spec: { boundObjectRef, expirationSeconds: 2 ** 32 } };
  assert.equal(await lifeOf({ ...NODE, body: longest }), 7_200_000, "as the volume asks");
  assert.equal(await lifeOf({ body: longest }), 365 * 86_400_000);
  const shortened = await server.ask("POST", path, { body: longest });
  assert.match(shortened.headers.get("warning") ?? "", /shortened to 31536000 seconds/);
  const beyond = await server.ask("POST", path, { body: { spec: { expirationSeconds: 2 ** 32 + 1 } } });
  assert.equal(beyond.status, 422);
});

test("an eviction that is refused, or tried out, has written nothing", async () => {
  await using server = await TestApiServer.start();
  await furnished(server);
  const budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
  const budget = await server.expect(201, "POST", budgets, {
    body: { metadata: { name: "b" }, spec: { minAvailable: 1, selector: {} } },
  });
  const allowance = { observedGeneration: meta(budget).generation, disruptionsAllowed: 3 };
  const merge = (body: Json): AskInit => ({ body, type: "application/merge-patch+json" });
  await server.expect(200, "PATCH", `${budgets}/b/status`, merge({ status: allowance }));
  const conditions = [{ type: "Ready", status: "True" }];
  for (const name of ["mine", "theirs"]) {
    const status = { phase: "Running", conditions };
    await server.expect(200, "PATCH", `${POD_PATH}/${name}/status`, merge({ status }));
  }
  const eviction = (name: string, deleteOptions: Json = {}): Json => ({
    apiVersion: "policy/v1",
    kind: "Eviction",
    metadata: { name },
    deleteOptions,
  });
  const { store } = server.server.core;
  const before = store.headRevision;
  const path = (name: string): string => `${POD_PATH}/${name}/eviction`;
  const cases: readonly (readonly [number, string, AskInit])[] = [
    [403, path("theirs"), { ...NODE, body: eviction("theirs") }],
    [404, path("none"), { ...NODE, body: eviction("none") }],
    [403, `${path("theirs")}?dryRun=All`, { ...NODE, body: eviction("theirs") }],
    [403, path("mine"), { token: "joe", body: eviction("mine") }],
    [403, `${POD_PATH}/mine/binding`, { ...NODE, body: { target: { kind: "Node", name: "a" } } }],
    [409, path("theirs"), { body: eviction("theirs", { preconditions: { uid: "another" } }) }],
    [409, path("theirs"), { body: eviction("theirs", { preconditions: { resourceVersion: "1" } }) }],
    [201, `${path("theirs")}?dryRun=All`, { body: eviction("theirs") }],
    [201, path("theirs"), { body: eviction("theirs", { dryRun: ["All"] }) }],
  ];
  for (const [status, where, init] of cases) {
    const answer = await server.ask("POST", where, init);
    assert.equal(answer.status, status, `${where}: ${answer.text}`);
    assert.equal(store.headRevision, before, where);
  }
  await server.expect(201, "POST", path("mine"), { ...NODE, body: eviction("mine") });
  assert.ok(store.headRevision > before);
});

test("a node gets tokens for its own pods alone, and they end with the pod", async () => {
  const clock = new VirtualClock(Date.now());
  await using server = await TestApiServer.start({ clock });
  await furnished(server);
  const path = "/api/v1/namespaces/default/serviceaccounts/default/token";
  const pod = async (name: string): Promise<Json> => {
    const { uid } = meta(await server.expect(200, "GET", `${POD_PATH}/${name}`));
    return { kind: "Pod", apiVersion: "v1", name, uid };
  };
  const mine = { spec: { boundObjectRef: await pod("mine"), expirationSeconds: 600 } };
  for (const body of [{ spec: {} }, { spec: { boundObjectRef: await pod("theirs") } }]) {
    assert.equal((await server.ask("POST", path, { ...NODE, body })).status, 403);
  }
  assert.equal(
    (await server.ask("POST", path.replace("accounts/default", "accounts/other"), { ...NODE, body: mine })).status,
    403,
  );
  const wrongUid = { spec: { boundObjectRef: { ...(await pod("mine")), uid: "other" } } };
  assert.equal((await server.ask("POST", path, { ...NODE, body: wrongUid })).status, 403);
  assert.equal((await server.ask("POST", path, { body: wrongUid })).status, 409);
  const vault = { spec: { ...mine.spec, audiences: ["vault"] } };
  const elsewhere = await server.ask("POST", path, { ...NODE, body: vault });
  assert.match(elsewhere.text, /audience \\"vault\\" not found in pod spec volume/);
  const short = await server.ask("POST", path, { body: { spec: { expirationSeconds: 10 } } });
  assert.match(String(short.body.message), /may not specify a duration less than 10 minutes/);

  const granted = await server.expect(201, "POST", path, { ...NODE, body: mine });
  const { token, expirationTimestamp } = granted.status as { token: string; expirationTimestamp: string };
  assert.equal(Date.parse(expirationTimestamp), Math.floor(clock.wall().getTime() / 1000) * 1000 + 600_000);
  const keys = (await server.expect(200, "GET", "/openid/v1/jwks")) as unknown as JSONWebKeySet;
  const { payload } = await jwtVerify(token, createLocalJWKSet(keys), {
    issuer: ISSUER,
    audience: ISSUER,
    currentDate: clock.wall(),
  });
  assert.equal(payload.sub, "system:serviceaccount:default:default");
  assert.equal((payload["kubernetes.io"] as Json).namespace, "default");

  const review = async (): Promise<Json> => {
    const answer = await server.expect(201, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {
      body: { spec: { token } },
    });
    return answer.status as Json;
  };
  const { user, authenticated } = (await review()) as { user: Json; authenticated: boolean };
  assert.equal(authenticated, true);
  assert.deepEqual(user.groups, ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
  assert.deepEqual((user.extra as Json)["authentication.kubernetes.io/pod-name"], ["mine"]);
  const other = await server.expect(201, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {
    body: { spec: { token, audiences: ["vault"] } },
  });
  assert.equal((other.status as Json).authenticated, false);
  await clock.advance(seconds(660));
  assert.equal((await review()).authenticated, false, "its time is over");
  clock.setWall(clock.wall().getTime() - 660_000);
  assert.equal((await review()).authenticated, true);
  await server.expect(200, "DELETE", `${POD_PATH}/mine?gracePeriodSeconds=0`);
  assert.equal((await review()).authenticated, false, "its pod is gone");
});

test("bootstrap tokens work while they are whole, right and in time", async () => {
  const clock = new VirtualClock(Date.now());
  await using server = await TestApiServer.start({ clock });
  await furnished(server);
  const encode = (data: Readonly<Record<string, string>>): Json =>
    Object.fromEntries(Object.entries(data).map(([key, value]) => [key, Buffer.from(value).toString("base64")]));
  const good = {
    "token-id": "abcdef",
    "token-secret": "0123456789abcdef",
    "usage-bootstrap-authentication": "true",
    expiration: new Date(clock.wall().getTime() + 60_000).toISOString(),
    "auth-extra-groups": "system:bootstrappers:worker,system:masters",
  };
  const secret = (data: Readonly<Record<string, string>>): Json => ({
    metadata: { name: "bootstrap-token-abcdef" },
    type: "bootstrap.kubernetes.io/token",
    data: encode(data),
  });
  const path = "/api/v1/namespaces/kube-system/secrets";
  const whoami = (token: string): Promise<Answer> =>
    server.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", { body: { spec: { token } } });
  const isGood = async (token = "abcdef.0123456789abcdef"): Promise<unknown> =>
    ((await whoami(token)).body.status as Json).authenticated;
  assert.equal(await isGood(), false);
  await server.expect(201, "POST", path, { body: secret(good) });
  assert.equal(await isGood(), true);
  const { user } = (await whoami("abcdef.0123456789abcdef")).body.status as { user: Json };
  assert.equal(user.username, "system:bootstrap:abcdef");
  assert.deepEqual(user.groups, ["system:bootstrappers", "system:bootstrappers:worker", "system:authenticated"]);
  assert.equal(await isGood("abcdef.0123456789abcdee"), false);
  for (const wrong of [
    { "usage-bootstrap-authentication": "false" },
    { "token-id": "abcdeg" },
    { expiration: "never" },
  ]) {
    await server.expect(200, "PUT", `${path}/bootstrap-token-abcdef`, { body: secret({ ...good, ...wrong }) });
    assert.equal(await isGood(), false, JSON.stringify(wrong));
  }
  await server.expect(200, "PUT", `${path}/bootstrap-token-abcdef`, { body: secret(good) });
  await clock.advance(seconds(120));
  assert.equal(await isGood(), false);
});

const RBAC = "/apis/rbac.authorization.k8s.io/v1";
const rule = (resources: readonly string[], verbs: readonly string[], more: Json = {}): Json => ({
  apiGroups: [""],
  resources,
  verbs,
  ...more,
});

test("roles and bindings are followed at once, in their namespace or everywhere", async () => {
  await using server = await TestApiServer.start();
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: "other" } } });
  const joe = { token: "joe" };
  const may = async (status: number, path: string, method = "GET"): Promise<void> => {
    const answer = await server.ask(method, path, joe);
    assert.equal(answer.status, status, `${path}: ${answer.text}`);
  };
  await may(403, "/api/v1/namespaces/default/configmaps");
  await server.expect(201, "POST", `${RBAC}/namespaces/default/roles`, {
    body: {
      metadata: { name: "reader" },
      rules: [
        rule(["configmaps"], ["get", "list"]),
        rule(["secrets"], ["get"], { resourceNames: ["one"] }),
        rule(["pods/*", "*/status"], ["get"]),
      ],
    },
  });
  const subject = { kind: "Group", name: "team", apiGroup: "rbac.authorization.k8s.io" };
  const roleRef = { kind: "Role", name: "reader", apiGroup: "rbac.authorization.k8s.io" };
  await server.expect(201, "POST", `${RBAC}/namespaces/default/rolebindings`, {
    body: { metadata: { name: "b" }, subjects: [subject], roleRef },
  });
  await may(200, "/api/v1/namespaces/default/configmaps");
  await may(403, "/api/v1/namespaces/default/configmaps?watch=1");
  await may(403, "/api/v1/namespaces/other/configmaps");
  await may(403, "/api/v1/configmaps");
  await may(404, "/api/v1/namespaces/default/secrets/one");
  await may(403, "/api/v1/namespaces/default/secrets/two");
  await may(404, "/api/v1/namespaces/default/services/x/status");
  await may(403, "/api/v1/namespaces/default/pods");
  await server.expect(201, "POST", `${RBAC}/clusterroles`, {
    body: {
      metadata: { name: "sum" },
      aggregationRule: { clusterRoleSelectors: [{ matchLabels: { part: "yes" } }] },
      rules: [],
    },
  });
  await server.expect(201, "POST", `${RBAC}/clusterrolebindings`, {
    body: { metadata: { name: "c" }, subjects: [subject], roleRef: { ...roleRef, kind: "ClusterRole", name: "sum" } },
  });
  await may(403, "/api/v1/pods");
  await server.expect(201, "POST", `${RBAC}/clusterroles`, {
    body: {
      metadata: { name: "part", labels: { part: "yes" } },
      rules: [rule(["pods"], ["list"]), { nonResourceURLs: ["/metrics/*"], verbs: ["get"] }],
    },
  });
  await may(200, "/api/v1/pods");
  await may(404, "/metrics/x");
  await server.expect(200, "DELETE", `${RBAC}/clusterrolebindings/c`);
  await may(403, "/api/v1/pods");
});

test("no user grants a right that it does not have", async () => {
  await using server = await TestApiServer.start();
  const all = ["create", "update", "patch", "get", "list"];
  await server.expect(201, "POST", `${RBAC}/clusterroles`, {
    body: {
      metadata: { name: "delegate" },
      rules: [
        { apiGroups: ["rbac.authorization.k8s.io"], resources: ["roles", "rolebindings"], verbs: all },
        rule(["configmaps"], ["get", "list"]),
      ],
    },
  });
  const subjects = [{ kind: "User", name: "joe", apiGroup: "rbac.authorization.k8s.io" }];
  const ref = (kind: string, name: string): Json => ({ kind, name, apiGroup: "rbac.authorization.k8s.io" });
  await server.expect(201, "POST", `${RBAC}/namespaces/default/rolebindings`, {
    body: { metadata: { name: "d" }, subjects, roleRef: ref("ClusterRole", "delegate") },
  });
  await server.expect(201, "POST", `${RBAC}/clusterroles`, {
    body: { metadata: { name: "root" }, rules: [{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }] },
  });
  const post = async (kind: string, body: Json): Promise<Answer> =>
    server.ask("POST", `${RBAC}/namespaces/default/${kind}`, { body, token: "joe" });
  assert.equal((await post("roles", { metadata: { name: "ok" }, rules: [rule(["configmaps"], ["get"])] })).status, 201);
  for (const rules of [
    [rule(["secrets"], ["get"])],
    [rule(["configmaps"], ["*"])],
    [rule(["*"], ["get"])],
    [{ apiGroups: ["*"], resources: ["configmaps"], verbs: ["get"] }],
  ]) {
    const { status, body } = await post("roles", { metadata: { name: "more" }, rules });
    assert.equal(status, 403);
    assert.match(
      String(body.message),
      /^roles\.rbac\.authorization\.k8s\.io "more" is forbidden: user "joe" .* is attempting to grant RBAC permissions not currently held/,
    );
  }
  const empty = { metadata: { name: "empty" }, rules: [null] };
  assert.match(String((await post("roles", empty)).body.message), /rules\[0\]\.verbs: Required value/);
  const unnamed = { metadata: { name: "unnamed" }, subjects: [null], roleRef: ref("Role", "ok") };
  assert.match(String((await post("rolebindings", unnamed)).body.message), /subjects\[0\]\.name: Required value/);
  await server.expect(201, "POST", `${RBAC}/clusterroles`, {
    body: {
      metadata: { name: "roles" },
      rules: [{ apiGroups: ["rbac.authorization.k8s.io"], resources: ["clusterroles"], verbs: ["create"] }],
    },
  });
  await server.expect(201, "POST", `${RBAC}/clusterrolebindings`, {
    body: { metadata: { name: "roles" }, subjects, roleRef: ref("ClusterRole", "roles") },
  });
  const sum = { metadata: { name: "sum" }, aggregationRule: { clusterRoleSelectors: [{ matchLabels: { a: "b" } }] } };
  assert.equal((await server.ask("POST", `${RBAC}/clusterroles`, { body: sum, token: "joe" })).status, 403);
  const bind = (name: string, roleRef: Json): Promise<Answer> =>
    post("rolebindings", { metadata: { name }, subjects, roleRef });
  assert.equal((await bind("x", ref("ClusterRole", "root"))).status, 403);
  assert.equal((await bind("x", ref("Role", "not-there-yet"))).status, 403);
  assert.equal((await bind("x", ref("Role", "ok"))).status, 201);
});

test("new rules are compared with their writer's within a bound, however many combinations they name", async () => {
  await using server = await TestApiServer.start();
  const subjects = [{ kind: "User", name: "joe", apiGroup: "rbac.authorization.k8s.io" }];
  const names = (prefix: string): string[] => Array.from({ length: 500 }, (_, index) => `${prefix}${index}`);
  const everything = { apiGroups: ["*"], resources: ["*"], verbs: ["create", "get", ...names("v")] };
  const roles = `${RBAC}/namespaces/default/roles`;
  await server.expect(201, "POST", roles, { body: { metadata: { name: "all" }, rules: [everything] } });
  const roleRef = { kind: "Role", name: "all", apiGroup: "rbac.authorization.k8s.io" };
  for (const name of ["all", "all-again"]) {
    await server.expect(201, "POST", `${RBAC}/namespaces/default/rolebindings`, {
      body: { metadata: { name }, subjects, roleRef },
    });
  }
  const post = (name: string, one: Json): Promise<Answer> =>
    server.ask("POST", roles, { body: { metadata: { name }, rules: [one] }, token: "joe" });
  // One rule of 30 KB, 62.5 billion combinations.
  const bomb = { verbs: names("v"), apiGroups: names("g"), resources: names("r"), resourceNames: names("n") };
  const { status, body } = await post("bomb", bomb);
  assert.equal(status, 413);
  assert.match(String(body.message), /comparing the rules with those of the user takes more than 8000000 steps/);
  const repeated = { ...everything, verbs: Array(1000).fill("get"), resources: Array(1000).fill("pods") };
  assert.equal((await post("repeated", { ...repeated, resourceNames: Array(1000).fill("x") })).status, 201);
  const review = { apiGroups: ["authorization.k8s.io"], resources: ["selfsubjectrulesreviews"], verbs: ["create"] };
  await server.expect(201, "POST", `${RBAC}/clusterroles`, { body: { metadata: { name: "r" }, rules: [review] } });
  await server.expect(201, "POST", `${RBAC}/clusterrolebindings`, {
    body: { metadata: { name: "r" }, subjects, roleRef: { ...roleRef, kind: "ClusterRole", name: "r" } },
  });
  const rulesOf = async (): Promise<Json> => {
    const path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    const init = { body: { spec: { namespace: "default" } }, token: "joe" };
    return (await server.expect(201, "POST", path, init)).status as Json;
  };
  assert.deepEqual(await rulesOf(), { resourceRules: [review, everything], nonResourceRules: [], incomplete: false });
  const wide = Array.from({ length: 32 }, () => ({ ...everything, resourceNames: names("n") }));
  for (const name of ["wide-1", "wide-2", "wide-3"]) {
    await server.expect(201, "POST", roles, { body: { metadata: { name }, rules: wide } });
    for (const binding of [`${name}-a`, `${name}-b`]) {
      const reference = { ...roleRef, name };
      await server.expect(201, "POST", `${RBAC}/namespaces/default/rolebindings`, {
        body: { metadata: { name: binding }, subjects, roleRef: reference },
      });
    }
  }
  const { incomplete, resourceRules } = await rulesOf();
  assert.deepEqual([incomplete, (resourceRules as Json[]).length], [true, 34]);
});

test("requests do not read all pods, roles or services again", async (t) => {
  await using server = await TestApiServer.start();
  const reads = t.mock.method(server.server.core.store, "list").mock;
  await furnished(server);
  const secret = "/api/v1/namespaces/default/secrets";
  await server.expect(403, "GET", `${secret}/unnamed`, NODE);
  // What is written is followed all the same, from the first request after it on.
  const spec = { volumes: [{ name: "v", secret: { secretName: "unnamed" } }] };
  await server.expect(201, "POST", POD_PATH, { body: podOn("more", "a", spec) });
  await server.expect(200, "GET", `${secret}/unnamed`, NODE);
  await server.expect(200, "DELETE", `${POD_PATH}/more?gracePeriodSeconds=0`);
  await server.expect(403, "GET", `${secret}/unnamed`, NODE);
  const roleRef = { kind: "ClusterRole", name: "reader", apiGroup: "rbac.authorization.k8s.io" };
  const subjects = [{ kind: "User", name: "joe", apiGroup: "rbac.authorization.k8s.io" }];
  await server.expect(201, "POST", `${RBAC}/namespaces/default/rolebindings`, {
    body: { metadata: { name: "b" }, subjects, roleRef },
  });
  await server.expect(403, "GET", `${POD_PATH}/mine`, { token: "joe" });
  const rules = [rule(["pods"], ["get"])];
  await server.expect(201, "POST", `${RBAC}/clusterroles`, { body: { metadata: { name: "reader" }, rules } });
  await server.expect(200, "GET", `${POD_PATH}/mine`, { token: "joe" });
  for (const name of ["one", "two"]) {
    const spec = { ports: [{ port: 80 }] };
    await server.expect(201, "POST", "/api/v1/namespaces/default/services", { body: { metadata: { name }, spec } });
  }
  const read = reads.calls.map(({ arguments: [resource] }) => resource);
  assert.deepEqual(read.toSorted(), [...new Set(read)].toSorted(), "each is read once");
  const isNeverRead = /^pods|^persistentvolumes|rbac/;
  assert.deepEqual(
    read.filter((each) => isNeverRead.test(each)),
    [],
  );
});

test("certificates are approved and signed with the signer's consent, and make no user a master", async () => {
  await using server = await TestApiServer.start();
  const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
  const pem = (organization: string): string => {
    const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const subject = [
      { type: "O", value: organization },
      { type: "CN", value: "ann" },
    ] as const;
    const spki = publicKey.export({ type: "spki", format: "der" });
    const der = encodeCertificateRequest(subject, spki, (signed) => sign("sha256", signed, privateKey));
    return Buffer.from(encodePem("CERTIFICATE REQUEST", der)).toString("base64");
  };
  const csr = (name: string, signerName: string, organization: string): Json => ({
    metadata: { name },
    spec: { request: pem(organization), signerName, usages: ["client auth"] },
  });
  const refused = await server.ask("POST", path, {
    body: csr("m", "kubernetes.io/kube-apiserver-client", "system:masters"),
  });
  assert.equal(refused.status, 403, refused.text);
  await server.expect(201, "POST", path, { body: csr("t", "kubernetes.io/kube-apiserver-client", "team") });
  await server.expect(201, "POST", path, { body: csr("c", "example.com/own", "team") });
  await server.expect(201, "POST", `${RBAC}/clusterroles`, {
    body: {
      metadata: { name: "approver" },
      rules: [
        {
          apiGroups: ["certificates.k8s.io"],
          resources: ["certificatesigningrequests/approval"],
          verbs: ["update", "patch"],
        },
      ],
    },
  });
  const subjects = [{ kind: "User", name: "joe", apiGroup: "rbac.authorization.k8s.io" }];
  const bind = (name: string): Promise<Json> =>
    server.expect(201, "POST", `${RBAC}/clusterrolebindings`, {
      body: {
        metadata: { name },
        subjects,
        roleRef: { kind: "ClusterRole", name, apiGroup: "rbac.authorization.k8s.io" },
      },
    });
  await bind("approver");
  const approve = (): Promise<Answer> =>
    server.ask("PATCH", `${path}/c/approval`, {
      token: "joe",
      type: "application/merge-patch+json",
      body: { status: { conditions: [{ type: "Approved", status: "True", reason: "r", message: "m" }] } },
    });
  const without = await approve();
  assert.equal(without.status, 403);
  assert.match(
    String(without.body.message),
    /user not permitted to approve requests with signerName "example\.com\/own"/,
  );
  await server.expect(201, "POST", `${RBAC}/clusterroles`, {
    body: {
      metadata: { name: "consent" },
      rules: [
        {
          apiGroups: ["certificates.k8s.io"],
          resources: ["signers"],
          resourceNames: ["example.com/*"],
          verbs: ["approve"],
        },
      ],
    },
  });
  await bind("consent");
  assert.equal((await approve()).status, 200);
});

test("only a user with the right to impersonate acts as another", async () => {
  await using server = await TestApiServer.start();
  const review = async (token: string, headers: Readonly<Record<string, string>>): Promise<Answer> =>
    server.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", { body: {}, token, headers });
  const headers = {
    "impersonate-user": "ann",
    "impersonate-group": "system:masters",
    "impersonate-extra-scopes": "view",
  };
  const answer = await review("admin", headers);
  assert.deepEqual((answer.body.status as Json).userInfo, {
    username: "ann",
    groups: ["system:masters", "system:authenticated"],
    extra: { scopes: ["view"] },
  });
  const refused = await review("joe", headers);
  assert.equal(refused.status, 403);
  assert.equal(
    refused.body.message,
    'users "ann" is forbidden: User "joe" cannot impersonate resource "users" in API group "" at the cluster scope',
  );
  assert.equal((await review("admin", { "impersonate-group": "x" })).status, 400);
  await server.expect(201, "POST", `${RBAC}/clusterroles`, {
    body: { metadata: { name: "i" }, rules: [rule(["users"], ["impersonate"], { resourceNames: ["ann"] })] },
  });
  await server.expect(201, "POST", `${RBAC}/clusterrolebindings`, {
    body: {
      metadata: { name: "i" },
      subjects: [{ kind: "User", name: "joe", apiGroup: "rbac.authorization.k8s.io" }],
      roleRef: { kind: "ClusterRole", name: "i", apiGroup: "rbac.authorization.k8s.io" },
    },
  });
  const withGroup = { "impersonate-user": "ann", "impersonate-group": "system:masters" };
  const group = await review("joe", withGroup);
  assert.equal(group.status, 403, "the group is not granted with the user");
  assert.match(group.text, /groups \\"system:masters\\" is forbidden/);
  // ann herself may not ask who she is here: there are no roles but ours.
  assert.match((await review("joe", { "impersonate-user": "ann" })).text, /User \\"ann\\" cannot create/);
});

test("a certificate of the cluster's CA is a user, another one is refused", async () => {
  const authority = new TlsAuthority();
  const stranger = new TlsAuthority("a stranger");
  const pair = authority.issueServer();
  const revoked = new Set<string>();
  let isKnown = true;
  await using server = await TestApiServer.start({
    isRevoked: ({ spkiHash }) => (isKnown ? revoked.has(spkiHash) : undefined),
    tls: { certificate: pair.certificate, privateKey: pair.privateKey, clientCa: authority.ca },
  });
  const subject = [
    { type: "O", value: "system:masters" },
    { type: "CN", value: "ann" },
  ] as const;
  const ask = (
    key?: { privateKey: string; certificate: string },
    token?: string,
  ): Promise<{ status: number; body: string }> =>
    new Promise((resolve, reject) => {
      const sent = request(
        `${server.url}/apis/authentication.k8s.io/v1/selfsubjectreviews`,
        {
          method: "POST",
          agent: false,
          ca: authority.ca,
          ...(key === undefined ? {} : { key: key.privateKey, cert: key.certificate }),
          headers: {
            "content-type": "application/json",
            ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          },
        },
        (response) => {
          let body = "";
          response.on("data", (chunk: Buffer) => {
            body += chunk.toString();
          });
          response.on("end", () => resolve({ status: response.statusCode ?? 0, body }));
        },
      );
      sent.on("error", reject);
      sent.end("{}");
    });
  const pairOfAnn = authority.issueClient(subject);
  const good = await ask(pairOfAnn);
  assert.equal(good.status, 201);
  const fingerprint = new X509Certificate(pairOfAnn.certificate).fingerprint256.replaceAll(":", "").toLowerCase();
  assert.deepEqual((JSON.parse(good.body) as { status: Json }).status.userInfo, {
    username: "ann",
    groups: ["system:masters", "system:authenticated"],
    extra: { "authentication.kubernetes.io/credential-id": [`X509SHA256=${fingerprint}`] },
  });
  const lost = authority.issueClient(subject);
  assert.equal((await ask(lost)).status, 201);
  const spki = new X509Certificate(lost.certificate).publicKey.export({ type: "spki", format: "der" });
  revoked.add(createHash("sha256").update(spki).digest("hex"));
  assert.equal((await ask(lost)).status, 401);
  isKnown = false;
  assert.equal((await ask(pairOfAnn)).status, 503, "no certificate is accepted before the revoked ones are known");
  isKnown = true;
  assert.equal((await ask(stranger.issueClient(subject))).status, 401);
  assert.equal((await ask(pair)).status, 401, "a serving certificate is no client's credential");
  const node = (name: string) =>
    authority.issueClient([
      { type: "O", value: "system:nodes" },
      { type: "CN", value: `system:node:${name}` },
    ]);
  for (const name of ["", "Board", "a b", "a..b", "-a", "a".repeat(254)]) {
    assert.equal((await ask(node(name))).status, 401, JSON.stringify(name));
  }
  const board = node("board-1");
  // As the bootstrap roles grant every user.
  const admin = server.server.client({ name: "admin", uid: "", groups: ["system:masters"], extra: {} });
  const make = (kind: "ClusterRole" | "ClusterRoleBinding", plural: string, object: object): Promise<unknown> => {
    const type = { group: "rbac.authorization.k8s.io", version: "v1", plural, kind, namespaced: false };
    const ref = { namespace: "", name: "who" };
    return admin.create(type, ref, { metadata: { name: "who" }, ...object }, {}, new AbortController().signal);
  };
  await make("ClusterRole", "clusterroles", {
    rules: [{ apiGroups: ["authentication.k8s.io"], resources: ["selfsubjectreviews"], verbs: ["create"] }],
  });
  await make("ClusterRoleBinding", "clusterrolebindings", {
    subjects: [{ kind: "Group", name: "system:nodes", apiGroup: "rbac.authorization.k8s.io" }],
    roleRef: { kind: "ClusterRole", name: "who", apiGroup: "rbac.authorization.k8s.io" },
  });
  const { extra } = (JSON.parse((await ask(board)).body) as { status: { userInfo: { extra: Json } } }).status.userInfo;
  const { publicKey } = new X509Certificate(board.certificate);
  const keyOfBoard = publicKey.export({ type: "spki", format: "der" });
  assert.deepEqual(extra["picolet.io/certificate-key"], [createHash("sha256").update(keyOfBoard).digest("hex")]);
  assert.equal((await ask(undefined, "admin")).status, 201);
  assert.equal((await ask()).status, 403, "an anonymous client may not ask for its identity");
});

test("a user of the group of nodes whose name is none owns no pod that has no node", async () => {
  const groups = ["system:nodes"];
  const tokens = ["system:node:", "system:node:A", "system:node:a b", "system:nodes", "a"].map((user, index) => {
    return { token: `odd-${index}`, user, groups };
  });
  const admin = { token: "admin", user: "admin", groups: ["system:masters"] };
  await using server = await TestApiServer.start({ tokens: [admin, ...tokens] });
  const pods = "/api/v1/namespaces/default/pods";
  const containers = [{ name: "c", image: "i", envFrom: [{ secretRef: { name: "s" } }] }];
  await server.expect(201, "POST", "/api/v1/namespaces/default/serviceaccounts", {
    body: { metadata: { name: "default" } },
  });
  await server.expect(201, "POST", "/api/v1/namespaces/default/secrets", { body: { metadata: { name: "s" } } });
  await server.expect(201, "POST", pods, { body: { metadata: { name: "unbound" }, spec: { containers } } });
  for (const { token } of tokens) {
    for (const path of [
      `${pods}/unbound`,
      `${pods}?fieldSelector=spec.nodeName%3D`,
      "/api/v1/namespaces/default/secrets/s",
      "/api/v1/services",
    ]) {
      assert.equal((await server.ask("GET", path, { token })).status, 403, `${token} ${path}`);
    }
    const status = { body: { status: { phase: "Failed" } }, type: "application/merge-patch+json", token };
    assert.equal((await server.ask("PATCH", `${pods}/unbound/status`, status)).status, 403);
    assert.equal((await server.ask("DELETE", `${pods}/unbound`, { token })).status, 403);
  }
});
