/** Pod Security beyond Kubernetes' answers: picolet's own grants, the log, bounds, controllers, configuration. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { DAEMON_SETS, NAMESPACES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { ADMIN_USER, type Answer, MODELS, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import { EmbeddedCluster } from "@picolet/test/support/unit/embedded/in-process-cluster.ts";
import { safeContainer, safeSpec } from "@picolet/test/support/unit/embedded/pod-security-cases.ts";
import { CONFIGURED } from "@picolet/test/support/unit/embedded/pod-security-flows.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { ApiObject, ResourceDefinition } from "../api/resource-definition.ts";
import { EVENTS } from "../controllers/event-recorder.ts";
import { embeddedResources } from "../embedded-resources.ts";
import type { AdmissionRequest } from "../service/resource-request.ts";
import { POD_TEMPLATES, podSecurity } from "./pod-security.ts";
import { DEFAULT_POD_SECURITY, parsePodSecurity } from "./pod-security-configuration.ts";
import { describeViolations, LATEST_MINOR, PodSecurityEvaluator, policyOf } from "./pod-security-standards.ts";

const { signal } = new AbortController();
const label = (name: string): string => `pod-security.kubernetes.io/${name}`;

const evaluator = new PodSecurityEvaluator({ relaxesUserNamespaces: false });
const grants = (annotations: Readonly<Record<string, string>>): string =>
  describeViolations(evaluator.evaluate({ annotations, spec: safeSpec() }, { level: "baseline", version: "v1.0" }));

test("annotations that open devices, bind ports of the node or reach the node itself are forbidden from baseline on", () => {
  const cases: readonly (readonly [Readonly<Record<string, string>>, RegExp | ""])[] = [
    [{ "wasm.picolet.io/devices": "" }, ""],
    [{ "wasm.picolet.io/devices": " ;\n; " }, ""],
    [{ "wasm.picolet.io/log-level": "debug", "wasm.picolet.io/keyvalue": "a=1Ki" }, ""],
    [
      { "wasm.picolet.io/devices": "serial:/dev/ttyS0" },
      /^picolet host access \(annotation wasm.picolet.io\/devices opens device "serial:\/dev\/ttyS0" of the board\)$/,
    ],
    [
      { "picolet.io/devices": "/dev/ttyUSB0:rw" },
      /^picolet host access \(annotation picolet.io\/devices opens device "\/dev\/ttyUSB0:rw" of the board\)$/,
    ],
    [{ "wasm.picolet.io/devices": "anything else\ni2c:/dev/i2c-1:0x48" }, /opens devices "anything else", "i2c:/],
    [
      { "wasm.picolet.io/devices": Array.from({ length: 20 }, (_, index) => `gpio:/dev/x:${index}`).join(";") },
      /"gpio:\/dev\/x:7" and 12 more of the board/,
    ],
  ];
  for (const [annotations, expected] of cases) {
    if (expected === "") assert.equal(grants(annotations), "");
    else assert.match(grants(annotations), expected);
  }
});

test("entries of a component's network are distinguished by their targets", () => {
  const allowed = [
    ...["tcp://db.example.com:5432", "GET,HEAD https://*.example.com", "udp://*:53", "tcp://192.0.2.1:123"],
    ...["tcp://10.0.0.0/8:*", "tcp://0.0.0.0/0:443", "tcp://[2001:db8::1]:1", "tcp://[fd00::/8]:1", "tcp://[::/0]:1"],
  ];
  for (const entry of allowed) assert.equal(grants({ "wasm.picolet.io/network": entry }), "", entry);
  const local = [
    ...["tcp://127.0.0.1:22", "http://localhost", "tcp://LOCALHOST.:1", "tcp://a.localhost:1", "tcp://127.0.0.0/8:*"],
    ...[
      "tcp://[::1]:1",
      "tcp://[::ffff:127.0.0.1]:1",
      "tcp://[64:ff9b::7f00:1]:1",
      "tcp://[fe80::1]:1",
      "tcp://[::]:1",
    ],
    ...["http://169.254.169.254", "udp://224.0.0.251:5353", "udp://255.255.255.255:67", "tcp://0.0.0.0:1"],
    ...["http://168.63.129.16", "http://100.100.100.200", "http://[fd00:ec2::254]", "http://192.0.0.0/24"],
    ...["tcp://[2002:7f00:1::1]:1", "http://[64:ff9b:1::7f00:1]"],
    // Not what the agent takes, but what other readers of addresses do.
    ...["tcp://127.1:1", "tcp://2130706433:1", "tcp://0x7f000001:1", "tcp://0177.0.0.1:1", "tcp://127.0.0.1/x:1"],
    ...["tcp://user@127.0.0.1:1@x", "nothing", "tcp:127.0.0.1", "tcp://[::1%lo]:1"],
  ];
  for (const entry of local) {
    assert.match(
      grants({ "wasm.picolet.io/network": `tcp://db.example.com:1; ${entry}` }),
      /reaches the node itself or its metadata service by "/,
      entry,
    );
  }
  assert.match(
    grants({ "wasm.picolet.io/network": "LISTEN tcp:8080\nlisten udp:*" }),
    /binds ports of the node by "LISTEN tcp:8080", "listen udp:\*"\)/,
  );
});

const DEVICES = { "wasm.picolet.io/devices": "serial:/dev/ttyS0" };
const PATCH = "application/merge-patch+json";

test("no way of writing a pod adds a grant that its namespace forbids", async () => {
  await using server = await TestApiServer.start();
  const labels = { [label("enforce")]: "baseline" };
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: "n", labels } } });
  const pods = "/api/v1/namespaces/n/pods";
  const pod = (name: string, annotations = {}) => ({
    metadata: { name, annotations },
    spec: { ...safeSpec(), runtimeClassName: undefined },
  });
  await server.expect(201, "POST", pods, { body: pod("a") });
  const change = { metadata: { annotations: DEVICES } };
  const stored = await server.expect(200, "GET", `${pods}/a`);
  const target = { target: { kind: "Node", name: "n" } };
  const apply = { apiVersion: "v1", kind: "Pod", ...change };
  const attempts: readonly (readonly [string, Promise<Answer>])[] = [
    ["create", server.ask("POST", pods, { body: pod("b", DEVICES) })],
    ["patch", server.ask("PATCH", `${pods}/a`, { type: PATCH, body: change })],
    ["status", server.ask("PATCH", `${pods}/a/status`, { type: PATCH, body: change })],
    ["resize", server.ask("PATCH", `${pods}/a/resize`, { type: PATCH, body: change })],
    ["ephemeral", server.ask("PATCH", `${pods}/a/ephemeralcontainers`, { type: PATCH, body: change })],
    ["apply", server.ask("PATCH", `${pods}/a?fieldManager=x`, { type: "application/apply-patch+yaml", body: apply })],
    [
      "put",
      server.ask("PUT", `${pods}/a`, {
        body: { ...stored, metadata: { ...(stored.metadata as object), annotations: DEVICES } },
      }),
    ],
    [
      "binding",
      server.ask("POST", `${pods}/a/binding`, { body: { metadata: { name: "a", annotations: DEVICES }, ...target } }),
    ],
    [
      "apparmor",
      server.ask("PATCH", `${pods}/a/status`, {
        type: PATCH,
        body: { metadata: { annotations: { "container.apparmor.security.beta.kubernetes.io/app": "unconfined" } } },
      }),
    ],
  ];
  for (const [how, attempt] of attempts) {
    const { status, body } = await attempt;
    assert.equal(status, 403, `${how}: ${String(body.message)}`);
    assert.match(
      String(body.message),
      /violates PodSecurity "baseline:latest": (picolet host access|forbidden AppArmor)/,
      how,
    );
  }
  // Nothing of it was kept, and what is harmless goes through.
  const after = await server.expect(200, "GET", `${pods}/a`);
  assert.deepEqual((after.metadata as { annotations?: object }).annotations ?? {}, {});
  await server.expect(200, "PATCH", `${pods}/a`, {
    type: PATCH,
    body: { metadata: { annotations: { "wasm.picolet.io/log-level": "debug" } } },
  });
  await server.expect(201, "POST", `${pods}/a/binding`, { body: { metadata: { name: "a" }, ...target } });
});

test("a grant from before may be taken away, and not be changed for another", async () => {
  await using server = await TestApiServer.start();
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: "n" } } });
  const pods = "/api/v1/namespaces/n/pods";
  await server.expect(201, "POST", pods, { body: { metadata: { name: "a", annotations: DEVICES }, spec: safeSpec() } });
  const labels = { [label("enforce")]: "restricted" };
  const relabelled = await server.ask("PATCH", "/api/v1/namespaces/n", { type: PATCH, body: { metadata: { labels } } });
  assert.match(relabelled.headers.get("warning") ?? "", /a: picolet host access/);
  const annotate = (value: string | null): Promise<Answer> =>
    server.ask("PATCH", `${pods}/a`, {
      type: PATCH,
      body: { metadata: { annotations: { "wasm.picolet.io/devices": value } } },
    });
  assert.equal((await annotate("serial:/dev/ttyS1")).status, 403);
  assert.equal((await annotate(null)).status, 200);
  assert.equal((await annotate("serial:/dev/ttyS0")).status, 403);
});

test("violations are written into the log where a namespace asks for it, also of pods that are refused", async () => {
  await using server = await TestApiServer.start();
  const labels = { [label("audit")]: "baseline", [label("enforce")]: "restricted", [label("enforce-version")]: "v1.0" };
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: "n", labels } } });
  const body = { metadata: { name: "a" }, spec: { ...safeSpec(), hostPID: true } };
  await server.expect(403, "POST", "/api/v1/namespaces/n/pods", { body });
  const audits = server.log.entries.filter(({ message }) => message === "pod security audit");
  assert.deepEqual(audits, [
    {
      level: "info",
      message: "pod security audit",
      fields: {
        ...{ user: "admin", operation: "CREATE", resource: "pods", subresource: "", namespace: "n", name: "a" },
        auditViolations: 'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)',
      },
    },
  ]);
});

test("many long warnings are cut as Kubernetes cuts them", async () => {
  await using server = await TestApiServer.start();
  const labels = { [label("warn")]: "restricted" };
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: "n", labels } } });
  const containers = Array.from({ length: 40 }, (_, index) =>
    safeContainer(`c-${"x".repeat(56)}-${index}`, { securityContext: {} }),
  );
  const { status, headers } = await server.ask("POST", "/api/v1/namespaces/n/pods", {
    body: { metadata: { name: "a" }, spec: { containers } },
  });
  assert.equal(status, 201);
  const warning = headers.get("warning") ?? "";
  assert.match(warning, /^299 - "would violate PodSecurity \\"restricted:latest\\": allowPrivilegeEscalation/);
  assert.ok(warning.length < 400, String(warning.length));
});

const requestFor = (
  plural: string,
  object: ApiObject,
  old?: ApiObject,
): AdmissionRequest & { readonly warnings: string[] } => {
  const definition = embeddedResources({ serviceAccountTokens: false }).find((each) => each.plural === plural);
  assert.ok(definition);
  const warnings: string[] = [];
  const request = {
    ...{ user: ADMIN_USER, definition, subresource: "", namespace: "n", name: object.metadata.name },
    ...{ warnings, authorizeCreate: () => undefined },
  };
  return { operation: old === undefined ? "CREATE" : "UPDATE", request, object, old, warnings };
};

test("nothing of a pod is read where the namespace has no labels", () => {
  const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a" } } as ApiObject;
  Object.defineProperty(pod, "spec", { get: () => assert.fail("the spec is read") });
  for (const labels of [undefined, {}, { "kubernetes.io/metadata.name": "n" }]) {
    const components = {
      clock: new VirtualClock(),
      log: new RecordedLog(),
      podBodies: () => [],
      namespaceLabels: () => labels,
    };
    podSecurity(components, DEFAULT_POD_SECURITY)(requestFor("pods", pod));
  }
});

test("3000 pods and one second are spent at most on a namespace whose labels change", () => {
  const clock = new VirtualClock();
  let read = 0;
  let costMs = 0;
  function* podBodies(): Iterable<{ readonly body: string }> {
    for (let index = 0; index < 3500; index += 1) {
      const metadata = { name: `p-${index}` };
      const body = JSON.stringify({ metadata, spec: index % 2 === 0 ? { hostPID: true } : {} });
      yield {
        get body() {
          read += 1;
          return body;
        },
      };
    }
  }
  const slow = {
    monotonic: () => {
      costMs += step;
      return costMs as ReturnType<VirtualClock["monotonic"]>;
    },
  };
  let step = 0;
  const components = {
    clock: Object.assign(Object.create(clock), slow) as VirtualClock,
    log: new RecordedLog(),
    podBodies,
    namespaceLabels: () => undefined,
  };
  const judge = (): readonly string[] => {
    const namespace = (labels: Readonly<Record<string, string>>): ApiObject => ({
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name: "n", labels },
    });
    const request = requestFor("namespaces", namespace({ [label("enforce")]: "baseline" }), namespace({}));
    podSecurity(components, DEFAULT_POD_SECURITY)(request);
    return request.warnings;
  };
  assert.deepEqual(judge(), [
    "new PodSecurity enforce level only checked against the first 3000 of 3500 existing pods",
    'existing pods in namespace "n" violate the new PodSecurity enforce level "baseline:latest"',
    "p-0 (and 1499 other pods): host namespaces",
  ]);
  assert.equal(read, 3000);
  step = 100;
  assert.match(judge()[0] ?? "", /the first 10 of 3500 existing pods/);
});

test("a daemon set that its namespace refuses tries one pod at a time, and goes on when it may", async () => {
  const clock = new VirtualClock();
  await using cluster = await EmbeddedCluster.start({ clock });
  const { client } = cluster;
  for (let index = 0; index < 12; index += 1) await cluster.addNode(`node-${index}`);
  const labels = { [label("enforce")]: "baseline" };
  await client.create(NAMESPACES, { namespace: "", name: "n" }, { metadata: { name: "n", labels } }, {}, signal);
  const ref = { namespace: "n", name: "d" };
  const template = {
    metadata: { labels: { app: "d" } },
    spec: { hostNetwork: true, containers: [{ name: "c", image: "i:1" }] },
  };
  await client.create(
    DAEMON_SETS,
    ref,
    { metadata: ref, spec: { selector: { matchLabels: { app: "d" } }, template } },
    {},
    signal,
  );
  const isRefusal = ({ reason }: object & { reason?: unknown }): boolean => reason === "FailedCreate";
  await cluster.until(EVENTS, (events) => events.some(isRefusal));
  const advance = async (): Promise<void> => {
    for (let index = 0; index < 12; index += 1) await cluster.heartbeat(`node-${index}`);
    await clock.advance(seconds(10));
  };
  for (let round = 0; round < 6; round += 1) await advance();
  const refusals = (await client.list(EVENTS, { namespace: "n" }, signal)).items.filter(isRefusal);
  assert.match(
    String(refusals[0]?.message),
    /^Error creating: pods "d-\w{5}" is forbidden: violates PodSecurity "baseline:latest": host namespaces \(hostNetwork=true\)$/,
  );
  // The back-off allows about a dozen rounds; all twelve nodes tried in each would make some hundred and fifty.
  const tries = refusals.reduce((sum, { count }) => sum + Number(count), 0);
  assert.ok(tries < 40, `tried ${tries} times in a minute`);
  await client.patch(
    NAMESPACES,
    { namespace: "", name: "n" },
    "merge",
    { metadata: { labels: { [label("enforce")]: null } } },
    {},
    signal,
  );
  const podsMade = async (): Promise<number> => (await client.list(PODS, { namespace: "n" }, signal)).items.length;
  for (let round = 0; round < 12 && (await podsMade()) < 12; round += 1) await advance();
  assert.equal(await podsMade(), 12);
});

test("every resource that holds a pod or a template of one is judged", () => {
  /** Paths of pod templates within a type, as far as resources have them. */
  const templatesIn = (model: string, path: readonly string[] = []): readonly (readonly string[])[] => {
    if (path.length > 3) return [];
    return [...MODELS.get(model).fields.values()].flatMap(({ name, type }) => {
      if (type.kind !== "object") return [];
      return type.model === "V1PodTemplateSpec" ? [[...path, name]] : templatesIn(type.model, [...path, name]);
    });
  };
  const found = embeddedResources({ serviceAccountTokens: false }).flatMap(
    ({ group, plural, model }: ResourceDefinition) =>
      templatesIn(model).map((path) => [group === "" ? plural : `${plural}.${group}`, path] as const),
  );
  assert.deepEqual(Object.fromEntries(found), POD_TEMPLATES);
});

test("labels that cannot be read enforce the strictest level", () => {
  const { defaults } = DEFAULT_POD_SECURITY;
  const { policy, errors } = policyOf(
    { [label("enforce")]: "Baseline", [label("warn")]: "no", [label("audit-version")]: "v1" },
    defaults,
  );
  assert.deepEqual(policy, {
    enforce: { level: "restricted", version: "latest" },
    audit: { level: "privileged", version: "latest" },
    warn: { level: "privileged", version: "latest" },
  });
  assert.equal(errors.length, 3);
  const far = policyOf({ [label("enforce-version")]: "v1.9223372036854775808" }, defaults);
  assert.equal(far.errors.length, 1);
  assert.equal(policyOf({ [label("enforce-version")]: `v1.${LATEST_MINOR + 1}` }, defaults).errors.length, 0);
});

test("a configuration is read strictly, with all its problems at once", () => {
  const noFile = (path: string): string => assert.fail(`${path} is read`);
  const [plugin] = CONFIGURED.plugins;
  const inner = plugin?.configuration ?? {};
  assert.deepEqual(
    parsePodSecurity(JSON.stringify(CONFIGURED), noFile),
    parsePodSecurity(JSON.stringify(inner), noFile),
  );
  const byPath = { ...CONFIGURED, plugins: [{ name: "Other" }, { name: "PodSecurity", path: "other.yaml" }] };
  const read = parsePodSecurity(JSON.stringify(byPath), (path) => (path === "other.yaml" ? JSON.stringify(inner) : ""));
  assert.deepEqual(read.exemptions, { usernames: ["exempt"], namespaces: ["exempt"], runtimeClasses: ["trusted"] });
  assert.deepEqual(read.defaults.enforce, { level: "baseline", version: "v1.30" });
  const others = { ...CONFIGURED, plugins: [{ name: "Other" }] };
  assert.deepEqual(parsePodSecurity(JSON.stringify(others), noFile).defaults, DEFAULT_POD_SECURITY.defaults);
  const wrong = `
apiVersion: pod-security.admission.config.k8s.io/v2
kind: PodSecurityConfiguration
defaults: {enforce: Baseline, warn-version: "1.2", enforced: baseline}
exemptions: {usernames: [a, a, ""], namespaces: [Kube], runtimeClasses: wasm}
`;
  assert.throws(
    () => parsePodSecurity(wrong, noFile),
    (error) => {
      assert.ok(isPicoletError(error, "invalid"));
      for (const text of [
        "/v2",
        'enforce: Invalid value: "Baseline"',
        "warn-version",
        "enforced: unknown",
        "Duplicate",
        "usernames[2]",
        '"Kube"',
        "runtimeClasses",
      ]) {
        assert.ok(error.message.includes(text), `${text} in ${error.message}`);
      }
      return true;
    },
  );
  assert.throws(
    () => parsePodSecurity("[", noFile),
    (error) => isPicoletError(error, "invalid"),
  );
});
