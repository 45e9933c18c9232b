/** Environment, command and arguments: ConfigMaps, Secrets, the downward API, expansion. */
import assert from "node:assert/strict";
import type { V1Container, V1EnvVar } from "@kubernetes/client-node";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import { ApiError } from "../framework/kube-api.ts";
import type { TestContext } from "../framework/test-context.ts";
import { statusOf } from "../framework/test-pod.ts";

const printsEnv = (t: TestContext, more: Partial<V1Container>) => ({
  // Not through a shell: it would leave out what is no name of a shell's variable.
  containers: [t.sh("", { command: ["/bin/env"], ...more })],
});

/** As lines of what `env` printed. */
function hasLines(output: string, ...lines: readonly string[]): void {
  const printed = output.split("\n");
  for (const line of lines) assert.ok(printed.includes(line), `no ${line} in:\n${output}`);
}

const field = (name: string, fieldPath: string): V1EnvVar => ({ name, valueFrom: { fieldRef: { fieldPath } } });
const resource = (name: string, path: string): V1EnvVar => ({
  name,
  valueFrom: { resourceFieldRef: { resource: path } },
});

async function isRefused(code: number, call: Promise<unknown>): Promise<void> {
  await assert.rejects(call, (error) => error instanceof ApiError && error.code === code);
}

const configMaps = area("[sig-node] ConfigMap", (should) => {
  should("be consumable via environment variable", async (t) => {
    const name = await t.configMap({ "data-1": "value-1" });
    const env = [{ name: "CONFIG_DATA_1", valueFrom: { configMapKeyRef: { name, key: "data-1" } } }];
    hasLines(await t.output(printsEnv(t, { env })), "CONFIG_DATA_1=value-1");
  });

  should("be consumable via the environment", async (t) => {
    const name = await t.configMap({ data_1: "value-1", data_2: "value-2", data_3: "value-3" });
    const envFrom = [{ configMapRef: { name } }, { prefix: "p_", configMapRef: { name } }];
    hasLines(await t.output(printsEnv(t, { envFrom })), "data_1=value-1", "data_3=value-3", "p_data_2=value-2");
  });

  should("be consumable as environment variable names with various prefixes", async (t) => {
    const name = await t.configMap({ "1-data": "one", "a.b": "two" });
    const envFrom = ["", "p-config-map.", "#-"].map((prefix) => ({ prefix, configMapRef: { name } }));
    hasLines(await t.output(printsEnv(t, { envFrom })), "1-data=one", "p-config-map.1-data=one", "#-a.b=two");
  });

  should("fail to create ConfigMap with empty key", async (t) => {
    await isRefused(422, t.configMap({ "": "value" }));
  });

  should("run through a ConfigMap lifecycle", async (t) => {
    const name = await t.configMap({ valueName: "value" });
    await t.patch("configmaps", name, { metadata: { labels: { test: "patched" } }, data: { valueName: "value1" } });
    type List = { items: { metadata: { name: string }; data: Record<string, string> }[] };
    const list = () => t.api.get<List>(t.path("configmaps"), { labelSelector: "test=patched" });
    assert.deepEqual(
      (await list()).items.map(({ data }) => data),
      [{ valueName: "value1" }],
    );
    await t.api.call("DELETE", t.path("configmaps"), undefined, { query: { labelSelector: "test=patched" } });
    assert.deepEqual((await list()).items, []);
  });

  should("be waited for by a pod that names it, which starts once it is there", async (t) => {
    const env = [{ name: "A", valueFrom: { configMapKeyRef: { name: "late", key: "a" } } }];
    const pod = await t.start(printsEnv(t, { env }));
    const waiting = await pod.until("CreateContainerConfigError", (each) => {
      return statusOf(each)?.state?.waiting?.reason === "CreateContainerConfigError";
    });
    assert.equal(statusOf(waiting)?.state?.waiting?.message, 'configmap "late" not found');
    await t.configMap({ a: "came" }, { metadata: { name: "late" } });
    await pod.succeeded();
    hasLines(await pod.logs(), "A=came");
  });

  should("leave out optional keys and maps that are not there", async (t) => {
    const name = await t.configMap({ a: "1" });
    const env = [
      { name: "NO_KEY", valueFrom: { configMapKeyRef: { name, key: "b", optional: true } } },
      { name: "NO_MAP", valueFrom: { configMapKeyRef: { name: "none", key: "b", optional: true } } },
    ];
    const output = await t.output(printsEnv(t, { env, envFrom: [{ configMapRef: { name: "none", optional: true } }] }));
    assert.doesNotMatch(output, /NO_/);
  });
});

const secrets = area("[sig-node] Secrets", (should) => {
  should("be consumable from pods in env vars", async (t) => {
    const name = await t.secret({ "data-1": "value-1" });
    const env = [{ name: "SECRET_DATA", valueFrom: { secretKeyRef: { name, key: "data-1" } } }];
    hasLines(await t.output(printsEnv(t, { env })), "SECRET_DATA=value-1");
  });

  should("be consumable via the environment", async (t) => {
    const name = await t.secret({ data_1: "value-1", data_2: "value-2" });
    const envFrom = [{ secretRef: { name } }, { prefix: "p_", secretRef: { name } }];
    hasLines(await t.output(printsEnv(t, { envFrom })), "data_1=value-1", "p_data_2=value-2");
  });

  should("be consumable as environment variable names variable names with various prefixes", async (t) => {
    const name = await t.secret({ "1-data": "one" });
    const envFrom = ["", "p-secret."].map((prefix) => ({ prefix, secretRef: { name } }));
    hasLines(await t.output(printsEnv(t, { envFrom })), "1-data=one", "p-secret.1-data=one");
  });

  should("fail to create secret due to empty secret key", async (t) => {
    await isRefused(422, t.secret({ "": "value" }));
  });

  should("patch a secret", async (t) => {
    const name = await t.secret({ key: "value" });
    const data = { key: Buffer.from("value1").toString("base64") };
    await t.patch("secrets", name, { metadata: { labels: { test: "patched" } }, data }, "strategic-merge");
    const list = await t.api.get<{ items: { data: unknown }[] }>(t.path("secrets"), { labelSelector: "test=patched" });
    assert.deepEqual(
      list.items.map((each) => each.data),
      [data],
    );
    await t.delete("secrets", name);
    await isRefused(404, t.api.get(t.path("secrets", name)));
  });

  should("be several in the environment of one pod", async (t) => {
    const names = [await t.secret({ a: "1" }), await t.secret({ b: "2" }), await t.secret({ c: "3" })];
    const output = await t.output(printsEnv(t, { envFrom: names.map((name) => ({ secretRef: { name } })) }));
    hasLines(output, "a=1", "b=2", "c=3");
  });
});

const downward = area("[sig-node] Downward API", (should) => {
  should("provide pod name, namespace and IP address as env vars", async (t) => {
    const env = [field("NAME", "metadata.name"), field("NS", "metadata.namespace"), field("IP", "status.podIP")];
    const pod = await t.start(printsEnv(t, { env }));
    const ip = (await pod.succeeded()).status?.podIP ?? "";
    assert.match(ip, /^[0-9a-f.:]+$/);
    hasLines(await pod.logs(), `NAME=${pod.name}`, `NS=${t.namespace}`, `IP=${ip}`);
  });

  should("provide host IP as an env var", async (t) => {
    const pod = await t.start(printsEnv(t, { env: [field("HOST_IP", "status.hostIP")] }));
    const ip = (await pod.succeeded()).status?.hostIP ?? "none";
    hasLines(await pod.logs(), `HOST_IP=${ip}`);
  });

  should("provide hostIPs as an env var", async (t) => {
    const pod = await t.start(printsEnv(t, { env: [field("HOST_IPS", "status.hostIPs")] }));
    const ips = (await pod.succeeded()).status?.hostIPs ?? [];
    assert.ok(ips.length > 0, "no hostIPs in the status");
    hasLines(await pod.logs(), `HOST_IPS=${ips.map(({ ip }) => ip).join(",")}`);
  });

  should("provide container's limits.cpu/memory and requests.cpu/memory as env vars", async (t) => {
    const env = [
      resource("CPU_LIMIT", "limits.cpu"),
      resource("MEMORY_LIMIT", "limits.memory"),
      resource("CPU_REQUEST", "requests.cpu"),
      resource("MEMORY_REQUEST", "requests.memory"),
    ];
    const resources = { requests: { cpu: "250m", memory: "32Mi" }, limits: { cpu: "1250m", memory: "64Mi" } };
    const output = await t.output(printsEnv(t, { env, resources }));
    hasLines(output, "CPU_LIMIT=2", "MEMORY_LIMIT=67108864", "CPU_REQUEST=1", "MEMORY_REQUEST=33554432");
  });

  should("provide default limits.cpu/memory from node allocatable", async (t) => {
    const env = [resource("CPU_LIMIT", "limits.cpu"), resource("MEMORY_LIMIT", "limits.memory")];
    const output = await t.output(printsEnv(t, { env }));
    assert.match(output, /^CPU_LIMIT=[1-9]\d*$/m);
    assert.match(output, /^MEMORY_LIMIT=[1-9]\d{6,}$/m);
  });

  should("provide pod UID as env vars", async (t) => {
    const pod = await t.start(printsEnv(t, { env: [field("POD_UID", "metadata.uid")] }));
    await pod.succeeded();
    hasLines(await pod.logs(), `POD_UID=${pod.uid}`);
  });

  should("provide labels, annotations, node name and service account as env vars", async (t) => {
    const env = [
      field("LABEL", "metadata.labels['tier']"),
      field("NOTE", "metadata.annotations['example.org/note']"),
      field("NODE", "spec.nodeName"),
      field("ACCOUNT", "spec.serviceAccountName"),
    ];
    const metadata = { labels: { tier: "edge" }, annotations: { "example.org/note": "hello there" } };
    const output = await t.output(printsEnv(t, { env }), metadata);
    hasLines(output, "LABEL=edge", "NOTE=hello there", `NODE=${t.node}`, "ACCOUNT=default");
  });

  should("provide container's limits.ephemeral-storage and requests.ephemeral-storage as env vars", async (t) => {
    const env = [resource("LIMIT", "limits.ephemeral-storage"), resource("REQUEST", "requests.ephemeral-storage")];
    const resources = { requests: { "ephemeral-storage": "32Mi" }, limits: { "ephemeral-storage": "64Mi" } };
    hasLines(await t.output(printsEnv(t, { env, resources })), "LIMIT=67108864", "REQUEST=33554432");
  });
});

const commands = area("[sig-node] Containers", (should) => {
  const cases: readonly [string, Partial<V1Container>, string][] = [
    ["use the image defaults if command and args are blank", {}, "default arguments\n"],
    [
      "be able to override the image's default arguments (container cmd)",
      { args: ["override", "arguments"] },
      "override arguments\n",
    ],
    [
      "be able to override the image's default command (container entrypoint)",
      { command: ["/tool", "argv", "other", "entrypoint"] },
      "other entrypoint\n",
    ],
    [
      "be able to override the image's default command and arguments",
      { command: ["/tool", "argv", "other"], args: ["override", "arguments"] },
      "other override arguments\n",
    ],
  ];
  for (const [name, more, expected] of cases) {
    should(name, async (t) => {
      const image = t.image("tool");
      assert.equal(await t.output({ containers: [{ name: "test", image, ...more }] }), expected);
    });
  }

  should("run in the container's workingDir, which is made when it is not there", async (t) => {
    assert.equal(await t.output({ containers: [t.sh("pwd", { workingDir: "/made/for/it" })] }), "/made/for/it\n");
  });
});

const expansion = area("[sig-node] Variable Expansion", (should) => {
  should("allow composing env vars into new env vars", async (t) => {
    const env = [
      { name: "FOO", value: "foo-value" },
      { name: "BAR", value: "bar-value" },
      { name: "FOOBAR", value: "$(FOO);;$(BAR)" },
      { name: "ESCAPED", value: "$$(FOO) $(MISSING)" },
    ];
    hasLines(await t.output(printsEnv(t, { env })), "FOOBAR=foo-value;;bar-value", "ESCAPED=$(FOO) $(MISSING)");
  });

  should("allow substituting values in a container's command", async (t) => {
    const env = [{ name: "TEST_VAR", value: "test-value" }];
    const container = t.sh('TEST_VAR=wrong echo "$(TEST_VAR)"', { env });
    assert.equal(await t.output({ containers: [container] }), "test-value\n");
  });

  should("allow substituting values in a container's args", async (t) => {
    const env = [{ name: "TEST_VAR", value: "test-value" }];
    const container = t.sh("", { env, command: ["/bin/sh", "-c"], args: ['TEST_VAR=wrong echo "$(TEST_VAR)"'] });
    assert.equal(await t.output({ containers: [container] }), "test-value\n");
  });

  const withSubPath = (t: TestContext, subPathExpr: string, script: string, value = "made") => ({
    containers: [
      t.sh(script, {
        env: [field("POD_NAME", "metadata.name"), { name: "VALUE", value }],
        volumeMounts: [
          { name: "work", mountPath: "/logs", subPathExpr },
          { name: "work", mountPath: "/all" },
        ],
      }),
    ],
    volumes: [{ name: "work", emptyDir: {} }],
  });

  should("allow substituting values in a volume subpath", async (t) => {
    const pod = await t.start(withSubPath(t, "$(POD_NAME)/$(VALUE)", 'touch /logs/x; ls /all/"$POD_NAME"/made'));
    await pod.succeeded();
    assert.equal(await pod.logs(), "x\n");
  });

  for (const [what, value] of [
    ["backticks", ".."],
    ["absolute path", "/tmp"],
    ["a path that climbs out further down", "made/../../out"],
  ] as const) {
    should(`fail substituting values in a volume subpath with ${what}`, async (t) => {
      const pod = await t.start(withSubPath(t, "$(VALUE)", "true", value));
      await pod.until("CreateContainerConfigError", (each) => {
        return statusOf(each)?.state?.waiting?.reason === "CreateContainerConfigError";
      });
    });
  }

  should("verify that a failing subpath expansion can be modified during the lifecycle of a container", async (t) => {
    const spec = withSubPath(t, "$(NOTE)", "trap 'exit 0' TERM; touch /logs/x; sleep 1000 & wait");
    spec.containers[0]?.env?.push(field("NOTE", "metadata.annotations['path']"));
    const pod = await t.start(spec, { annotations: { path: "/absolute" } });
    await pod.until("an error", (each) => statusOf(each)?.state?.waiting?.reason === "CreateContainerConfigError");
    await pod.patch({ metadata: { annotations: { path: "relative" } } });
    await pod.running();
    assert.equal(await pod.shell("ls /all/relative"), "x\n");
  });

  should("succeed in writing subpaths in container", async (t) => {
    const pod = await t.start(withSubPath(t, "$(VALUE)", "trap 'exit 0' TERM; sleep 1000 & wait"));
    await pod.running();
    await pod.shell("echo content > /logs/test.log");
    assert.equal(await pod.shell("cat /all/made/test.log"), "content\n");
  });
});

export const environmentTests: readonly ConformanceTest[] = [
  ...configMaps,
  ...secrets,
  ...downward,
  ...commands,
  ...expansion,
];
