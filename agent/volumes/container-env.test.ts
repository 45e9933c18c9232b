import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { PodManifest } from "@picolet/protocol/pod/pod.ts";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { desired, firstContainer, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { containerEnv, type EnvContext } from "./container-env.ts";
import { fieldValue } from "./values/field-values.ts";

type ManifestContainer = NonNullable<NonNullable<PodManifest["spec"]>["containers"]>[number];

function contextOf(own: Partial<ManifestContainer>, others: readonly ManifestContainer[] = []): EnvContext {
  const containers = [{ name: "app", image: "example/app:1", ...own }, ...others];
  const pod = podOf(
    { containers, serviceAccountName: "runner" },
    { labels: { app: "web", "example.org/tier": "front" }, annotations: { note: "it's" } },
  );
  return {
    pod: desired(pod, "uid-1"),
    nodeName: "board",
    hostIPs: ["192.0.2.1", "2001:db8::1"],
    podIPs: ["10.1.2.3", "fd00::3"],
    allocatable: { cpu: "4", memory: "512Mi", "ephemeral-storage": "10Gi" },
    objects: new TestClusterObjects(new VirtualClock()),
  };
}

function envOf(own: Partial<ManifestContainer>, context = contextOf(own)): Record<string, string> {
  return Object.fromEntries(containerEnv(firstContainer(context.pod), context).map(({ name, value }) => [name, value]));
}

const fieldRef = (fieldPath: string): { valueFrom: { fieldRef: { fieldPath: string } } } => ({
  valueFrom: { fieldRef: { fieldPath } },
});

test("values see the variables before them, the last of a name counts and keeps the first's place", () => {
  const context = contextOf({
    env: [
      { name: "A", value: "1" },
      { name: "B", value: "$(A)-$(C)-$$(A)" },
      { name: "C", value: "3" },
      { name: "A", value: "$(C)$(A)" },
      { name: "EMPTY" },
    ],
  });
  assert.deepEqual(containerEnv(firstContainer(context.pod), context), [
    { name: "A", value: "31" },
    { name: "B", value: "1-$(C)-$(A)" },
    { name: "C", value: "3" },
    { name: "EMPTY", value: "" },
  ]);
});

test("every field a pod can ask for", () => {
  const fields: readonly (readonly [string, string])[] = [
    ["metadata.name", "web"],
    ["metadata.namespace", "default"],
    ["metadata.uid", "uid-1"],
    ["metadata.labels['app']", "web"],
    ["metadata.labels['example.org/tier']", "front"],
    ["metadata.labels['constructor']", ""],
    ["metadata.annotations['note']", "it's"],
    ["metadata.annotations['none']", ""],
    ["spec.nodeName", "board"],
    ["spec.serviceAccountName", "runner"],
    ["status.hostIP", "192.0.2.1"],
    ["status.hostIPs", "192.0.2.1,2001:db8::1"],
    ["status.podIP", "10.1.2.3"],
    ["status.podIPs", "10.1.2.3,fd00::3"],
  ];
  const context = contextOf({});
  for (const [path, value] of fields) assert.equal(fieldValue(path, context), value, path);
  const env = envOf({
    env: [
      { name: "IP", ...fieldRef("status.podIP") },
      { name: "URL", value: "http://$(IP)" },
    ],
  });
  assert.deepEqual(env, { IP: "10.1.2.3", URL: "http://10.1.2.3" });
});

test("a field that no variable may have, and a node without an address, are errors of the container's configuration", () => {
  const isConfigError = (error: unknown): boolean =>
    isPicoletError(error) && error.reason === "CreateContainerConfigError";
  assert.throws(() => fieldValue("spec.priority", contextOf({})), isConfigError);
  assert.throws(() => fieldValue("status.hostIP", { ...contextOf({}), hostIPs: [] }), isConfigError);
  assert.equal(fieldValue("status.podIP", { ...contextOf({}), podIPs: [] }), "");
});

test("resources in units of the divisor, rounded up; a limit that is not set is the node's", () => {
  const own: Partial<ManifestContainer> = {
    resources: { limits: { cpu: "1500m", "hugepages-2Mi": "4Mi" }, requests: { memory: "100000", cpu: "1500m" } },
  };
  const other = { name: "other", image: "example/other:1", resources: { limits: { memory: "64Mi" } } };
  const cases: readonly (readonly [{ resource: string; divisor?: string; containerName?: string }, string])[] = [
    [{ resource: "limits.cpu" }, "2"],
    [{ resource: "limits.cpu", divisor: "1m" }, "1500"],
    [{ resource: "requests.cpu", divisor: "1m" }, "1500"],
    [{ resource: "limits.memory" }, String(512 * 2 ** 20)],
    [{ resource: "limits.memory", divisor: "1Mi" }, "512"],
    [{ resource: "requests.memory", divisor: "1Ki" }, "98"],
    [{ resource: "limits.memory", containerName: "other", divisor: "1Mi" }, "64"],
    [{ resource: "requests.ephemeral-storage" }, "0"],
    [{ resource: "limits.ephemeral-storage", divisor: "1Gi" }, "10"],
    [{ resource: "limits.hugepages-2Mi" }, "4194304"],
    [{ resource: "limits.hugepages-1Gi" }, "0"],
  ];
  for (const [resourceFieldRef, value] of cases) {
    const env = { env: [{ name: "R", valueFrom: { resourceFieldRef } }] };
    const context = contextOf({ ...own, ...env }, [other]);
    assert.deepEqual(envOf({}, context), { R: value }, JSON.stringify(resourceFieldRef));
  }
});

test("a limit that is not set is the pod's, but for disk and for another init container", () => {
  const limitOf = (selector: { resource: string; containerName?: string }): string => {
    const env = [{ name: "R", valueFrom: { resourceFieldRef: selector } }];
    const pod = podOf({
      resources: { limits: { cpu: "2", memory: "1Gi" } },
      containers: [{ name: "app", image: "example/app:1", env }],
      initContainers: [{ name: "before", image: "example/app:1" }],
    });
    return envOf({}, { ...contextOf({}), pod: desired(pod, "uid-1") }).R ?? "";
  };
  assert.equal(limitOf({ resource: "limits.cpu" }), "2");
  assert.equal(limitOf({ resource: "limits.memory" }), String(2 ** 30));
  assert.equal(limitOf({ resource: "limits.ephemeral-storage" }), String(10 * 2 ** 30));
  assert.equal(limitOf({ resource: "limits.memory", containerName: "before" }), "0");
});

test("what a ConfigMap or a Secret would bring is not found, unless it is optional", () => {
  const messages: readonly (readonly [Partial<ManifestContainer>, string])[] = [
    [{ env: [{ name: "X", valueFrom: { configMapKeyRef: { name: "cm", key: "k" } } }] }, 'configmap "cm" not found'],
    [{ env: [{ name: "X", valueFrom: { secretKeyRef: { name: "s", key: "k" } } }] }, 'secret "s" not found'],
    [{ envFrom: [{ configMapRef: { name: "cm" } }] }, 'configmap "cm" not found'],
    [{ envFrom: [{ secretRef: { name: "s" } }] }, 'secret "s" not found'],
  ];
  for (const [own, message] of messages)
    assert.throws(
      () => envOf(own),
      (error) => {
        assert.ok(isPicoletError(error, "not_found"));
        assert.equal(error.reason, "CreateContainerConfigError");
        assert.equal(error.message, message);
        return true;
      },
    );
  assert.deepEqual(
    envOf({
      envFrom: [{ configMapRef: { name: "cm", optional: true } }, { secretRef: { name: "s", optional: true } }],
      env: [
        { name: "X", value: "before" },
        { name: "X", valueFrom: { configMapKeyRef: { name: "cm", key: "k", optional: true } } },
        { name: "Y", valueFrom: { secretKeyRef: { name: "s", key: "k", optional: true } } },
      ],
    }),
    { X: "before" },
  );
});

test("texts of ConfigMaps and Secrets of the pod's namespace, whole and by key, in the order of their naming", () => {
  const own = {
    envFrom: [
      { configMapRef: { name: "cm" } },
      { prefix: "S_", secretRef: { name: "s" } },
      { configMapRef: { name: "absent", optional: true } },
    ],
    env: [
      { name: "COLOUR", value: "$(colour)!" },
      { name: "ONE", valueFrom: { configMapKeyRef: { name: "cm", key: "colour" } } },
      { name: "TWO", valueFrom: { secretKeyRef: { name: "s", key: "pass" } } },
      { name: "NONE", valueFrom: { secretKeyRef: { name: "s", key: "absent", optional: true } } },
    ],
  };
  const objects = new TestClusterObjects(new VirtualClock());
  objects.set("ConfigMap/default/cm", { data: { colour: "blue", "not=a name": "x" }, binaryData: { raw: "aGk=" } });
  objects.set("Secret/default/s", { data: { pass: Buffer.from("word").toString("base64") } });
  objects.set("Secret/other/s", { data: { pass: "" } });
  assert.deepEqual(envOf(own, { ...contextOf(own), objects }), {
    colour: "blue",
    S_pass: "word",
    COLOUR: "blue!",
    ONE: "blue",
    TWO: "word",
  });
});

test("a key that is not there is said as the kubelet says it, and is tried again", () => {
  const own = { env: [{ name: "X", valueFrom: { configMapKeyRef: { name: "cm", key: "k" } } }] };
  const objects = new TestClusterObjects(new VirtualClock());
  objects.set("ConfigMap/default/cm", { data: {} });
  assert.throws(
    () => envOf(own, { ...contextOf(own), objects }),
    (error) =>
      isPicoletError(error, "not_found") &&
      error.retryable &&
      error.reason === "CreateContainerConfigError" &&
      error.message === "couldn't find key k in ConfigMap default/cm",
  );
});
