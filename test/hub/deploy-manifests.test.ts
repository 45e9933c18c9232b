/**
 * hub/deploy: that its parts belong together, and to what the hub says of itself. What the role allows is tried in
 * bridge.test.ts.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Fields, fieldsAt } from "@picolet/hub/bridge/remote-object.ts";
import { parseHubArguments } from "@picolet/hub/main/arguments.ts";
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { KUBECTL_VERSIONS } from "@picolet/scripts/test/install-kubectl.ts";
import { KubectlCluster } from "../support/hub/kubectl-cluster.ts";
import { kubectlMissing } from "../support/hub/test-fleet.ts";
import { deployedObjects } from "../support/unit/kubernetes/bridged-cluster.ts";

const found = (kind: string): Fields => {
  const object = deployedObjects().find((each) => each.kind === kind);
  assert.ok(object !== undefined, kind);
  return object;
};
const template = (): Fields => fieldsAt(fieldsAt(found("Deployment"), "spec"), "template");
const container = (): Fields => (fieldsAt(template(), "spec").containers as readonly Fields[])[0] ?? {};

test("every object is in the namespace of the hub, or says why not by its kind", () => {
  for (const { kind, metadata } of deployedObjects()) {
    if (["Namespace", "ClusterRole", "ClusterRoleBinding", "RuntimeClass"].includes(kind))
      assert.equal(metadata.namespace, undefined);
    else assert.ok(["picolet-system", "kube-system"].includes(metadata.namespace ?? ""), `${kind} ${metadata.name}`);
  }
});

test("every role is bound to the hub's account and to nobody else", () => {
  const objects = deployedObjects();
  const bindings = objects.filter(({ kind }) => kind.endsWith("RoleBinding"));
  for (const role of objects.filter(({ kind }) => kind === "ClusterRole" || kind === "Role")) {
    const binding = bindings.find(
      ({ kind, metadata }) => kind === `${role.kind}Binding` && metadata.namespace === role.metadata.namespace,
    );
    assert.equal(fieldsAt(binding, "roleRef").name, role.metadata.name);
    assert.deepEqual(binding?.subjects, [{ kind: "ServiceAccount", name: "picolet-hub", namespace: "picolet-system" }]);
  }
});

test("no rule has a wildcard, and groups that may be impersonated are those of a node", () => {
  for (const { rules, metadata } of deployedObjects()) {
    for (const rule of (rules ?? []) as readonly Record<string, readonly string[]>[]) {
      for (const list of Object.values(rule)) assert.ok(!list.includes("*"), metadata.name);
      if (!rule.verbs?.includes("impersonate")) continue;
      if (rule.resources?.includes("groups"))
        assert.deepEqual(rule.resourceNames, ["system:nodes", "system:authenticated"]);
      assert.ok(!rule.resources?.includes("serviceaccounts"));
    }
  }
});

test("selectors find the pods, and the hub understands its arguments", () => {
  const { labels } = fieldsAt(template(), "metadata") as { labels: Record<string, string> };
  assert.deepEqual(fieldsAt(fieldsAt(found("Deployment"), "spec"), "selector").matchLabels, labels);
  assert.deepEqual(fieldsAt(fieldsAt(found("PodDisruptionBudget"), "spec"), "selector").matchLabels, labels);
  assert.deepEqual(fieldsAt(fieldsAt(found("Service"), "spec"), "selector"), labels);
  assert.equal(container().image, `picolet-hub:${VERSION}`);
  const args = container().args as readonly string[];
  const given = new Map((container().env as readonly Fields[]).map(({ name, value }) => [name, value ?? "10.0.0.9"]));
  const expanded = args.map((each) => each.replace(/\$\((\w+)\)/, (_, name: string) => String(given.get(name))));
  const parsed = parseHubArguments(expanded);
  assert.equal(parsed.command, "serve");
  assert.deepEqual(parsed.command === "serve" && [parsed.serverNames, parsed.advertiseAddress], [
    ["picolet-hub.picolet-system.svc"],
    "10.0.0.9",
  ]);
});

test("a replica has time to send its boards away before it is killed", () => {
  const args = container().args as readonly string[];
  const drain = args.find((each) => each.startsWith("--drain-time="))?.slice("--drain-time=".length) ?? "";
  const grace = Number(fieldsAt(template(), "spec").terminationGracePeriodSeconds) * 1000;
  assert.ok(grace >= Number(parseDuration(drain)) + 10_000);
});

for (const version of KUBECTL_VERSIONS) {
  test(`kubectl ${version} apply -f hub/deploy on a fresh cluster`, { skip: kubectlMissing(version) }, async () => {
    await using cluster = await KubectlCluster.startFor(version);
    const applied = await cluster.kubectl(["apply", "-f", "hub/deploy"]);
    const created = applied.stdout.split("\n").filter((line) => / (created|configured)$/.test(line));
    const names = deployedObjects().filter(({ kind }) => kind !== "Deployment");
    assert.equal(created.length, names.length, applied.stderr);
    // The embedded API server has no Deployments, and nothing else is wrong.
    const errors = applied.stderr.split("\n").filter((line) => /error|no matches/i.test(line));
    assert.equal(errors.length, 1, applied.stderr);
    assert.match(errors[0] ?? "", /no matches for kind "Deployment" in version "apps\/v1"/);
    assert.match((await cluster.kubectl(["apply", "-f", "hub/deploy"])).stdout, /service\/picolet-hub unchanged/);
    // Its pods are what the namespace's Pod Security allows.
    const spec = { ...fieldsAt(template(), "spec"), affinity: undefined };
    const metadata = { ...fieldsAt(template(), "metadata"), name: "hub", namespace: "picolet-system" };
    await cluster.apply({ apiVersion: "v1", kind: "Pod", metadata, spec });
  });
}
