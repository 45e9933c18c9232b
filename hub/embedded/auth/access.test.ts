/** Who may do what, over TLS with certificates and tokens. */
import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign, X509Certificate } from "node:crypto";
import { request } from "node:https";
import { test } from "node:test";
import { createLocalJWKSet, type JSONWebKeySet, jwtVerify } from "jose";
import { encodeCertificateRequest } from "../../../protocol/pki/certificate-request.ts";
import { encodePem } from "../../../protocol/pki/pem.ts";
import { seconds } from "../../../protocol/ports.ts";
import { type Answer, type AskInit, ISSUER, type Json, TestApiServer } from "../../../test/support/api-server.ts";
import { TlsAuthority } from "../../../test/support/tls-authority.ts";
import { VirtualClock } from "../../../test/support/virtual-clock.ts";

const meta = (object: Json): Json => object.metadata as Json;
const POD_PATH = "/api/v1/namespaces/default/pods";
const NODE = { token: "node-a" };

const podOn = (name: string, node: string, spec: Json = {}): Json => ({
  metadata: { name },
  spec: { nodeName: node, serviceAccountName: "default", containers: [{ name: "c", image: "busybox" }], ...spec },
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
    ],
    containers: [{ name: "c", image: "busybox", envFrom: [{ configMapRef: { name: "named" } }] }],
  };
  await server.expect(201, "POST", POD_PATH, { body: podOn("mine", "a", spec) });
  await server.expect(201, "POST", POD_PATH, { body: podOn("theirs", "b") });
}

test("a node reads and writes what is its own, and nothing else", async () => {
  await using server = await TestApiServer.start();
  await furnished(server);
  const lease = (name: string): AskInit => ({ ...NODE, body: { metadata: { name }, spec: { holderIdentity: name } } });
  const merge = (body: Json): AskInit => ({ ...NODE, body, type: "application/merge-patch+json" });
  const mirror = (node: string): Json => ({
    metadata: { name: `static-${node}`, annotations: { "kubernetes.io/config.mirror": "x" } },
    spec: { nodeName: node, containers: [{ name: "c", image: "busybox" }], tolerations: [{ operator: "Exists" }] },
  });
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
  assert.equal((await server.ask("POST", path, { ...NODE, body: wrongUid })).status, 409);
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

test("nobody grants what he does not have", async () => {
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

test("certificates are approved and signed with the signer's consent, and make nobody a master", async () => {
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

test("only who may impersonate acts as somebody else", async () => {
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
  await using server = await TestApiServer.start({
    isRevoked: (keyHash) => revoked.has(keyHash),
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
  const good = await ask(authority.issueClient(subject));
  assert.equal(good.status, 201);
  assert.deepEqual((JSON.parse(good.body) as { status: Json }).status.userInfo, {
    username: "ann",
    groups: ["system:masters", "system:authenticated"],
  });
  const lost = authority.issueClient(subject);
  assert.equal((await ask(lost)).status, 201);
  const spki = new X509Certificate(lost.certificate).publicKey.export({ type: "spki", format: "der" });
  revoked.add(createHash("sha256").update(spki).digest("hex"));
  assert.equal((await ask(lost)).status, 401);
  assert.equal((await ask(stranger.issueClient(subject))).status, 401);
  assert.equal((await ask(undefined, "admin")).status, 201);
  assert.equal((await ask()).status, 403, "nobody may not ask who he is");
});
