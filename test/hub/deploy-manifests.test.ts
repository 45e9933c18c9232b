/**
 * hub/deploy: that its parts belong together, and to what the hub says of itself, and that the Helm chart has the same
 * objects. What the role allows is tried in bridge.test.ts.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { test } from "node:test";
import { type Fields, fieldsAt } from "@picolet/hub/bridge/remote-object.ts";
import { parseHubArguments } from "@picolet/hub/main/arguments.ts";
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { KUBECTL_VERSIONS, kubectlPath } from "@picolet/scripts/test/install-kubectl.ts";
import { parse, parseAllDocuments, stringify } from "yaml";
import { KubectlCluster } from "../support/hub/kubectl-cluster.ts";
import { kubectlMissing } from "../support/hub/test-fleet.ts";
import { deployedObjects } from "../support/unit/kubernetes/bridged-cluster.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

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
  const config = readFileSync("hub/deploy/config.yaml", "utf8");
  const args = container().args as readonly string[];
  const given = new Map((container().env as readonly Fields[]).map(({ name, value }) => [name, value ?? "10.0.0.9"]));
  const expanded = args.map((each) => each.replace(/\$\((\w+)\)/, (_, name: string) => String(given.get(name))));
  const parsed = parseHubArguments(expanded, (path) => (path === "/etc/picolet-hub/config.yaml" ? config : undefined));
  assert.equal(parsed.command, "serve");
  assert.deepEqual(parsed.command === "serve" && [parsed.serverNames, parsed.advertiseAddress], [
    ["picolet-hub.picolet-system.svc"],
    "10.0.0.9",
  ]);
  // The ports that the policy leaves open are those that the hub listens on.
  const [boards, kubelets, metrics] = fieldsAt(found("NetworkPolicy"), "spec").ingress as { ports: [Fields] }[];
  assert.equal(parsed.command === "serve" && parsed.tunnel.port, boards?.ports[0].port);
  assert.equal(parsed.command === "serve" && parsed.metrics.address !== "off" && parsed.metrics.address?.port, 9184);
  assert.equal(metrics?.ports[0].port, 9184);
  const { port, endPort } = kubelets?.ports[0] ?? {};
  assert.deepEqual(parsed.command === "serve" && parsed.kubeletPorts, [port, endPort]);
});

test("a replica has time to send its boards away before it is killed", () => {
  const { drainTime } = parse(readFileSync("hub/deploy/config.yaml", "utf8")) as { drainTime: string };
  const grace = Number(fieldsAt(template(), "spec").terminationGracePeriodSeconds) * 1000;
  assert.ok(grace >= Number(parseDuration(drainTime)) + 10_000);
});

for (const version of KUBECTL_VERSIONS) {
  test(`kubectl ${version} apply -k hub/deploy on a fresh cluster`, { skip: kubectlMissing(version) }, async () => {
    await using cluster = await KubectlCluster.startFor(version);
    const applied = await cluster.kubectl(["apply", "-k", "hub/deploy"]);
    const created = applied.stdout.split("\n").filter((line) => / (created|configured)$/.test(line));
    // The embedded API server has no Deployments, and nothing else is wrong.
    const missing = ["Deployment"];
    const names = deployedObjects().filter(({ kind }) => !missing.includes(kind));
    assert.equal(created.length, names.length + 1, applied.stderr);
    const errors = applied.stderr.split("\n").filter((line) => /no matches for kind/.test(line));
    assert.deepEqual(
      errors.map((line) => /no matches for kind "(\w+)"/.exec(line)?.[1]).sort(),
      missing,
      applied.stderr,
    );
    assert.match(applied.stderr, /Warning: boards enforce no NetworkPolicy of their own/);
    assert.match((await cluster.kubectl(["apply", "-k", "hub/deploy"])).stdout, /service\/picolet-hub unchanged/);
    const dry = await cluster.kubectl(["apply", "-k", "hub/deploy", "--dry-run=server"]);
    const dryRuns = dry.stdout.match(/(?:unchanged|configured) \(server dry run\)/g) ?? [];
    assert.equal(dryRuns.length, names.length + 1, dry.stdout);
    // Its pods are what the namespace's Pod Security allows.
    const spec = { ...fieldsAt(template(), "spec"), affinity: undefined };
    const metadata = { ...fieldsAt(template(), "metadata"), name: "hub", namespace: "picolet-system" };
    await cluster.apply({ apiVersion: "v1", kind: "Pod", metadata, spec });
  });

  test(`the Helm chart renders to the objects of kubectl ${version} kustomize`, {
    skip: kubectlMissing(version),
  }, () => {
    const built = execFileSync(kubectlPath(version), ["kustomize", "hub/deploy"], { encoding: "utf8" });
    const base = parseAllDocuments(built.replaceAll(/picolet-hub-config-[a-z0-9]{10}/g, "picolet-hub-config"));
    const chart = renderChart({ createNamespace: true });
    assert.deepEqual(byName(chart), byName(base.map((each) => each.toJS() as KubeObject)));
  });
}

test("the components for monitoring and the metrics API add to the objects", { skip: kubectlMissing("1.32") }, () => {
  using folder = new TempFolder();
  const components = ["monitoring", "metrics-api"].map((name) => resolve("hub/deploy", name));
  const overlay = { resources: [resolve("hub/deploy")], components };
  writeFileSync(join(folder.path, "kustomization.yaml"), stringify(relativeIn(folder.path, overlay)));
  const args = ["kustomize", "--load-restrictor=LoadRestrictionsNone", folder.path];
  const built = parseAllDocuments(execFileSync(kubectlPath("1.32"), args, { encoding: "utf8" }));
  const objects = built.map((each) => each.toJS() as KubeObject);
  const base = new Set(deployedObjects().map(({ kind, metadata }) => `${kind}/${metadata.name}`));
  assert.deepEqual(
    objects
      .map(({ kind, metadata }) => `${kind}/${metadata.name}`)
      .filter((name) => !base.has(name) && !name.startsWith("ConfigMap/picolet-hub-config"))
      .sort(),
    [
      ...["APIService/v1beta1.metrics.k8s.io", "ClusterRole/picolet-hub-aggregated-metrics-reader"],
      ...["ClusterRole/picolet-hub-metrics-api", "ClusterRole/picolet-hub-metrics-reader"],
      ...["ClusterRoleBinding/picolet-hub-metrics-api", "ConfigMap/picolet-dashboards"],
      ...["PrometheusRule/picolet-hub", "ServiceMonitor/picolet-hub"],
    ],
  );
  const service = objects.find(({ metadata }) => metadata.name === "picolet-hub-metrics");
  const monitor = objects.find(({ kind }) => kind === "ServiceMonitor") as unknown as Fields;
  const { matchLabels } = fieldsAt(fieldsAt(monitor, "spec"), "selector") as { matchLabels: Record<string, string> };
  for (const [label, value] of Object.entries(matchLabels)) assert.equal(service?.metadata.labels?.[label], value);
  const dashboards = objects.find(({ metadata }) => metadata.name === "picolet-dashboards");
  assert.deepEqual(Object.keys(dashboards?.data as object).sort(), ["fleet.json", "node.json", "tunnel.json"]);
});

const relativeIn = (folder: string, lists: Readonly<Record<string, readonly string[]>>): object =>
  Object.fromEntries(Object.entries(lists).map(([name, paths]) => [name, paths.map((path) => relative(folder, path))]));

test("values of the chart reach the objects", () => {
  const values = {
    ...{ image: { repository: "registry.example/hub", tag: "" }, replicas: 3, createNamespace: false },
    ...{ networkPolicy: { enabled: false }, service: { type: "NodePort", annotations: { a: "b" } } },
    config: { serverName: ["hub.example"], embedded: true },
  };
  const objects = renderChart(values);
  const of = (kind: string): Fields =>
    objects.find((each) => each.kind === kind && each.metadata.name !== "picolet-hub-metrics") as unknown as Fields;
  assert.deepEqual(
    ["Namespace", "NetworkPolicy"].map((kind) => of(kind)),
    [undefined, undefined],
  );
  const { replicas, template: pod } = fieldsAt(of("Deployment"), "spec") as { replicas: number; template: Fields };
  assert.equal(replicas, 3);
  assert.equal((fieldsAt(pod, "spec").containers as [Fields])[0].image, `registry.example/hub:${VERSION}`);
  assert.equal(fieldsAt(of("Service"), "spec").type, "NodePort");
  assert.deepEqual(fieldsAt(of("Service"), "metadata").annotations, { a: "b" });
  assert.deepEqual(parse(String(fieldsAt(of("ConfigMap"), "data")["config.yaml"])), values.config);
  assert.deepEqual(
    ["ServiceMonitor", "APIService"].map((kind) => of(kind)),
    [undefined, undefined],
  );
  const added = renderChart({ serviceMonitor: { enabled: true }, metricsApi: { enabled: true } });
  assert.ok(["ServiceMonitor", "APIService"].every((kind) => added.some((object) => object.kind === kind)));
  // A changed configuration replaces the pods.
  const sum = (changed: object): unknown => {
    const [deployment] = renderChart(changed).filter(({ kind }) => kind === "Deployment");
    const metadata = fieldsAt(fieldsAt(fieldsAt(deployment as unknown as Fields, "spec"), "template"), "metadata");
    return fieldsAt(metadata, "annotations")["checksum/config"];
  };
  assert.notEqual(sum({ config: {} }), sum({}));
});

/** Comparable: without what only one of the two ways has, and with the configuration as it is read. */
const byName = (objects: readonly KubeObject[]): ReadonlyMap<string, unknown> =>
  new Map(
    objects
      .map((object) => {
        const copy = structuredClone(object) as unknown as Record<string, Record<string, Record<string, unknown>>>;
        if (object.kind === "ConfigMap" && copy.data)
          copy.data["config.yaml"] = parse(String(copy.data["config.yaml"]));
        const { metadata: ofPods } = fieldsAt(fieldsAt(copy, "spec"), "template");
        if (object.kind === "Deployment") delete (ofPods as { annotations?: unknown }).annotations;
        if (object.kind === "Service" && Object.keys(copy.metadata?.annotations ?? {}).length === 0)
          delete copy.metadata?.annotations;
        return [`${object.kind} ${object.metadata.namespace ?? ""}/${object.metadata.name}`, copy] as const;
      })
      .sort(([one], [other]) => (one < other ? -1 : 1)),
  );

const CHART = "hub/deploy/chart";

/** Renders the templates as Helm does. @param changes of the values of the chart */
function renderChart(changes: object): readonly KubeObject[] {
  const values = { ...(parse(readFileSync(`${CHART}/values.yaml`, "utf8")) as object), ...changes };
  const { appVersion } = parse(readFileSync(`${CHART}/Chart.yaml`, "utf8")) as { appVersion: string };
  return readdirSync(`${CHART}/templates`).flatMap((name) => {
    const text = renderTemplate(readFileSync(`${CHART}/templates/${name}`, "utf8"), {
      Values: values,
      Chart: { AppVersion: appVersion },
    });
    return parseAllDocuments(text).flatMap((each) => (each.contents === null ? [] : [each.toJS() as KubeObject]));
  });
}

/**
 * The part of Go's templates and Sprig's functions that the chart uses: values by path, pipelines of the functions
 * below, `if` without `else`, and `{{-`. @throws for anything else
 */
function renderTemplate(text: string, scope: object): string {
  let output = "";
  const conditions: boolean[] = [];
  for (const [index, piece] of text.split(/(\{\{-? .*? \}\})/).entries()) {
    const isOn = conditions.every(Boolean);
    if (index % 2 === 0) {
      if (isOn) output += piece;
      continue;
    }
    if (piece.startsWith("{{-")) output = output.trimEnd();
    const action = piece.replace(/^\{\{-? | \}\}$/g, "");
    if (action === "end") assert.ok(conditions.pop() !== undefined, "an end without an if");
    else if (action.startsWith("if ")) conditions.push(evaluate(action.slice(3), scope) === true);
    else if (isOn) output += String(evaluate(action, scope));
  }
  assert.deepEqual(conditions, []);
  return output;
}

const FUNCTIONS: Readonly<Record<string, (...args: readonly unknown[]) => unknown>> = {
  toYaml: (value) => stringify(value, { sortMapEntries: true }).trimEnd(),
  nindent: (width, value) => `\n${String(value).replaceAll(/^/gm, " ".repeat(Number(width)))}`,
  default: (other, value) => (value === "" || value === undefined ? other : value),
  quote: (value) => JSON.stringify(String(value)),
  sha256sum: (value) => createHash("sha256").update(String(value)).digest("hex"),
};

/** The result of each call is the last argument of the next. */
function evaluate(pipeline: string, scope: object): unknown {
  const operand = (word: string): unknown => {
    if (/^\d+$/.test(word)) return Number(word);
    assert.match(word, /^\.[A-Z]/, pipeline);
    return word
      .slice(1)
      .split(".")
      .reduce<unknown>((value, name) => (value as Record<string, unknown> | undefined)?.[name], scope);
  };
  let last: readonly unknown[] = [];
  for (const call of pipeline.split(" | ")) {
    const [name = "", ...words] = call.trim().split(" ");
    const known = FUNCTIONS[name];
    last = [known === undefined ? operand(name) : known(...words.map(operand), ...last)];
  }
  return last[0];
}
