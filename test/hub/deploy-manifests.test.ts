/** hub/deploy: that its parts belong together, and to what the hub says of itself. What the role allows is tried in bridge.test.ts. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Fields, fieldsAt } from "@picolet/hub/bridge/remote-object.ts";
import { parseHubArguments } from "@picolet/hub/main/arguments.ts";
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { VERSION } from "@picolet/protocol/version.ts";
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
    if (["Namespace", "ClusterRole", "ClusterRoleBinding"].includes(kind)) assert.equal(metadata.namespace, undefined);
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
  const parsed = parseHubArguments(args.map((each) => each.replace("$(POD_IP)", "10.0.0.9")));
  assert.equal(parsed.command, "serve");
});

test("a replica has time to send its boards away before it is killed", () => {
  const args = container().args as readonly string[];
  const drain = args.find((each) => each.startsWith("--drain-time="))?.slice("--drain-time=".length) ?? "";
  const grace = Number(fieldsAt(template(), "spec").terminationGracePeriodSeconds) * 1000;
  assert.ok(grace >= Number(parseDuration(drain)) + 10_000);
});
