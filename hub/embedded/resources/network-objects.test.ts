/** Ingresses, their classes and NetworkPolicies, over HTTP as kubectl meets them. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type Json, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";

const server = await TestApiServer.start();
after(() => server[Symbol.asyncDispose]());

const GROUP = "/apis/networking.k8s.io/v1";
const NAMESPACED = `${GROUP}/namespaces/default`;
const TABLE = { accept: "application/json;as=Table;v=v1;g=meta.k8s.io" };
const backend = { service: { name: "web", port: { number: 80 } } };
const ruleOf = (path: Json, host?: string): Json => ({ host, http: { paths: [{ backend, ...path }] } });
const PREFIX = { path: "/", pathType: "Prefix" };

const ingress = (name: string, spec: Json): Json => ({
  ...{ apiVersion: "networking.k8s.io/v1", kind: "Ingress", metadata: { name }, spec },
});
const policy = (spec: Json, name = "p"): Json => ({
  ...{ apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy", metadata: { name }, spec },
});

async function cellsOf(path: string): Promise<readonly unknown[]> {
  const { body } = await server.ask("GET", path, { headers: TABLE });
  const [row] = body.rows as readonly { readonly cells: readonly unknown[] }[];
  return row?.cells.slice(0, -1) ?? [];
}

test("an Ingress is stored with a default class, shown as kubectl shows it, and warns that nothing serves it", async () => {
  const annotations = { "ingressclass.kubernetes.io/is-default-class": "true" };
  const ingressClass = {
    ...{ apiVersion: "networking.k8s.io/v1", kind: "IngressClass", metadata: { name: "edge", annotations } },
    spec: { controller: "example.com/edge", parameters: { apiGroup: "example.com", kind: "Lights", name: "low" } },
  };
  const classes = `${GROUP}/ingressclasses`;
  const made = await server.expect(201, "POST", classes, { body: ingressClass });
  assert.equal(((made.spec as Json).parameters as Json).scope, "Cluster");
  assert.deepEqual(await cellsOf(classes), ["edge", "example.com/edge", "Lights.example.com/low"]);
  const other = { ...made, spec: { controller: "example.com/other" } };
  const changed = await server.ask("PUT", `${classes}/edge`, { body: other });
  assert.match(changed.text, /spec\.controller: Invalid value: .*field is immutable/);

  const hosts = ["a.example", "b.example", "*.c.example", "d.example"];
  const spec = { rules: hosts.map((host) => ruleOf(PREFIX, host)), tls: [{ hosts: ["a.example"], secretName: "tls" }] };
  const { status, headers, body } = await server.ask("POST", `${NAMESPACED}/ingresses`, { body: ingress("web", spec) });
  assert.equal(status, 201);
  assert.match(headers.get("warning") ?? "", /^299 - ".*nothing serves this Ingress/);
  assert.equal((body.spec as Json).ingressClassName, "edge");
  const shown = ["web", "edge", "a.example,b.example,*.c.example + 1 more...", "203.0.113.7", "80, 443"];
  const served = { ...body, status: { loadBalancer: { ingress: [{ ip: "203.0.113.7" }] } } };
  const reported = await server.ask("PUT", `${NAMESPACED}/ingresses/web/status`, { body: served });
  assert.deepEqual([reported.status, reported.headers.get("warning")], [200, null]);
  assert.deepEqual(await cellsOf(`${NAMESPACED}/ingresses`), shown);
});

for (const [what, spec, message] of [
  ["no rule", {}, /spec: Invalid value: null: either `defaultBackend` or `rules` must be specified/],
  ["an address as host", { rules: [ruleOf(PREFIX, "10.0.0.1")] }, /rules\[0\]\.host: .*must be a DNS name, not an IP/],
  ["a wildcard within", { rules: [ruleOf(PREFIX, "a.*.b")] }, /rules\[0\]\.host: .*wildcard DNS-1123 subdomain/],
  [
    "no path type",
    { rules: [ruleOf({ path: "/" })] },
    /paths\[0\]\.pathType: Required value: pathType must be specified/,
  ],
  [
    "a relative path",
    { rules: [ruleOf({ path: "a", pathType: "Exact" })] },
    /paths\[0\]\.path: .*must be an absolute path/,
  ],
  ["a path with //", { rules: [ruleOf({ path: "/a//b", pathType: "Prefix" })] }, /must not contain '\/\/'/],
  ["no paths", { rules: [{ http: { paths: [] } }] }, /rules\[0\]\.http\.paths: Required value/],
  [
    "no port",
    { defaultBackend: { service: { name: "a", port: {} } } },
    /defaultBackend: Required value: port name or num/,
  ],
  ["no backend", { defaultBackend: {} }, /defaultBackend: Invalid value: "": resource or service backend is required/],
  [
    "two backends",
    { defaultBackend: { ...backend, resource: { kind: "A", name: "b" } } },
    /spec\.defaultBackend: Invalid value: "": cannot set both resource and service backends/,
  ],
  ["a wrong class", { ingressClassName: "A", defaultBackend: backend }, /spec\.ingressClassName: Invalid value: "A"/],
] as const) {
  test(`an Ingress with ${what} is refused in Kubernetes' words`, async () => {
    const { status, body, headers } = await server.ask("POST", `${NAMESPACED}/ingresses`, {
      body: ingress("no", spec),
    });
    assert.equal(status, 422);
    assert.match(String(body.message), message);
    assert.equal(headers.get("warning"), null);
  });
}

test("a NetworkPolicy is stored with Kubernetes' defaults, and warns that boards do not enforce it", async () => {
  const matchExpressions = [{ key: "tier", operator: "In", values: ["db", "cache"] }];
  const egress = [{ ports: [{ port: 53 }], to: [{ ipBlock: { cidr: "10.0.0.0/8", except: ["10.1.0.0/16"] } }] }];
  const spec = { podSelector: { matchLabels: { app: "a" }, matchExpressions }, egress };
  const { status, headers, body } = await server.ask("POST", `${NAMESPACED}/networkpolicies`, { body: policy(spec) });
  assert.equal(status, 201);
  assert.match(headers.get("warning") ?? "", /boards enforce no NetworkPolicy/);
  const made = body.spec as { policyTypes: unknown; egress: { ports: unknown }[] };
  assert.deepEqual(made.policyTypes, ["Ingress", "Egress"]);
  assert.deepEqual(made.egress[0]?.ports, [{ port: 53, protocol: "TCP" }]);
  assert.deepEqual(await cellsOf(`${NAMESPACED}/networkpolicies`), ["p", "app=a,tier in (cache,db)"]);
});

const from = (peer: Json): Json => ({ ingress: [{ from: [peer] }] });
const portsOf = (port: Json): Json => ({ ingress: [{ ports: [port] }] });
for (const [what, spec, message] of [
  ["an empty peer", from({}), /ingress\[0\]\.from\[0\]: Required value: must specify a peer/],
  [
    "two kinds of peers",
    from({ podSelector: {}, ipBlock: { cidr: "10.0.0.0/8" } }),
    /may not specify both ipBlock and/,
  ],
  ["no network", from({ ipBlock: { cidr: "10.0.0.0/33" } }), /ipBlock\.cidr: Invalid value: .*must be a valid CIDR/],
  [
    "an exception outside",
    from({ ipBlock: { cidr: "2001:db8::/32", except: ["2001:db9::/48"] } }),
    /ipBlock\.except\[0\]: Invalid value: "2001:db9::\/48": must be a strict subset of `cidr`/,
  ],
  ["ports the wrong way round", portsOf({ port: 90, endPort: 80 }), /endPort: .*greater than or equal to `port`/],
  ["a range from a name", portsOf({ port: "http", endPort: 80 }), /endPort: .*when `port` is non-numeric/],
  ["another protocol", portsOf({ protocol: "ICMP" }), /ports\[0\]\.protocol: Unsupported value: "ICMP"/],
  ["another type", { policyTypes: ["Both"] }, /policyTypes\[0\]: Unsupported value: "Both"/],
] as const) {
  test(`a NetworkPolicy with ${what} is refused in Kubernetes' words`, async () => {
    const { status, body } = await server.ask("POST", `${NAMESPACED}/networkpolicies`, { body: policy(spec, "no") });
    assert.equal(status, 422);
    assert.match(String(body.message), message);
  });
}
