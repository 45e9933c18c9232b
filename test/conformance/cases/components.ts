/** Pods whose containers are WebAssembly components: what the API, the logs and the node's files show of them. */
import assert from "node:assert/strict";
import type { V1Container, V1PodSpec } from "@kubernetes/client-node";
import { area, type ConformanceTest, type Should } from "../framework/conformance-test.ts";
import type { TestContext } from "../framework/test-context.ts";
import { conditionOf, restartsOf, statusOf, type TestPod } from "../framework/test-pod.ts";

/** Arguments of the script: its steps, each with its own. */
type Steps = readonly string[];
type Options = { readonly limitSeconds?: number };

/** Components that are served have ports of the node: one for each test. */
const PORT = { ready: 18_081, live: 18_082, tcp: 18_083, hook: 18_084 } as const;
/** In which the component that ends at once has been started again at least twice. */
const LONG = { limitSeconds: 180 };
const UPDATED = { limitSeconds: 240 };
const NO_REST = "restarts, and no error";

/** A container that does what its arguments say: `test/components/script.c`. */
const script = (t: TestContext, args: Steps, more: Partial<V1Container> = {}): V1Container => ({
  ...{ name: "test", image: t.image("component"), imagePullPolicy: "IfNotPresent" },
  args: [...args],
  ...more,
});

/** A container that is served: `test/components/http-server.c`. */
const server = (t: TestContext, containerPort: number, more: Partial<V1Container> = {}): V1Container => ({
  ...{ name: "test", image: t.image("componentServer"), imagePullPolicy: "IfNotPresent" },
  ports: [{ containerPort }],
  ...more,
});

const specOf = (containers: readonly V1Container[], more: Partial<V1PodSpec> = {}): V1PodSpec => ({
  runtimeClassName: "wasm",
  containers: [...containers],
  ...more,
});

const start = (t: TestContext, args: Steps, more: Partial<V1PodSpec> = {}): Promise<TestPod> =>
  t.start(specOf([script(t, args)], more));

const output = (t: TestContext, container: V1Container, more: Partial<V1PodSpec> = {}): Promise<string> =>
  t.output(specOf([container], more));

const endOf = (pod: Parameters<typeof statusOf>[0], container = "") => {
  const { exitCode, reason, message = "" } = statusOf(pod, container)?.state?.terminated ?? {};
  return { exitCode, reason, message };
};

const group = (define: (should: Should) => void, title: string): readonly ConformanceTest[] =>
  area(`[sig-node] Component pods ${title}`, (should) =>
    define((name, run, options: Options = {}) => should(name, run, { ...options, group: "components" })),
  );

const lifecycle = group((should) => {
  should("run to completion and report it", async (t) => {
    const pod = await start(t, ["say", "done"]);
    const ended = await pod.succeeded();
    assert.deepEqual(endOf(ended), { exitCode: 0, reason: "Completed", message: "" });
    assert.match(statusOf(ended)?.containerID ?? "", /^picolet-wasm:\/\/./);
    assert.equal(ended.status?.podIP, ended.status?.hostIP);
  });

  should("fail with the component's failure", async (t) => {
    const failed = await (await start(t, ["exit", "3"])).phase("Failed");
    // The command adapter makes 1 of every code but 0.
    assert.deepEqual(endOf(failed), { exitCode: 1, reason: "Error", message: "" });
  });

  should("fail with a trap, which status and log explain", async (t) => {
    const pod = await start(t, ["say", "before", "trap"]);
    const { exitCode, message } = endOf(await pod.phase("Failed"));
    assert.equal(exitCode, 1);
    assert.match(message, /unreachable/);
    assert.match(await pod.logs(), /^before\n.*wasm trap/s);
  });

  should(
    "be restarted whenever they end under the policy Always",
    async (t) => {
      const pod = await start(t, ["say", "again"], { restartPolicy: "Always" });
      const restarted = await pod.until("two restarts", (each) => restartsOf(each) >= 2);
      assert.equal(statusOf(restarted)?.lastState?.terminated?.exitCode, 0);
      assert.equal(await pod.logs({ previous: true }), "again\n");
    },
    LONG,
  );

  should(
    "be restarted under the policy OnFailure until they succeed",
    async (t) => {
      const volumeMounts = [{ name: "data", mountPath: "/data" }];
      // The first run fails: the other container makes the file a while after it.
      const args = ["add", "/data/runs", "x", "cat", "/data/late"];
      const helps = ["wait", "/data/runs", "pause", "3000", "write", "/data/late", "y"];
      const pod = await t.start(
        specOf([script(t, args, { volumeMounts }), script(t, helps, { name: "helper", volumeMounts })], {
          restartPolicy: "OnFailure",
          volumes: [{ name: "data", emptyDir: {} }],
        }),
      );
      const ended = await pod.succeeded();
      assert.ok(restartsOf(ended, "test") >= 1 && restartsOf(ended, "helper") === 0);
    },
    LONG,
  );

  should("be stopped at once, as they have no signals, and gone within their grace period", async (t) => {
    const pod = await start(t, ["say", "up", "hold"], { terminationGracePeriodSeconds: 600 });
    await pod.running();
    await pod.delete();
    await pod.gone();
    const code = pod.history.map((each) => endOf(each).exitCode).find((each) => each !== undefined);
    assert.ok(code === undefined || code === 143, `it ended with ${code}`);
  });

  should("be ended by their activeDeadlineSeconds", async (t) => {
    const pod = await start(t, ["hold"], { activeDeadlineSeconds: 5 });
    const { status } = await pod.phase("Failed");
    assert.equal(status?.reason, "DeadlineExceeded");
  });

  should("run init containers in their order, and sidecars beside", async (t) => {
    const volumeMounts = [{ name: "data", mountPath: "/data" }];
    const named = (name: string, args: Steps, more: Partial<V1Container> = {}) =>
      script(t, args, { name, volumeMounts, ...more });
    const initContainers = [
      named("first", ["add", "/data/order", "first"]),
      named("beside", ["add", "/data/order", "beside", "write", "/data/beside", "x", "hold"], {
        restartPolicy: "Always",
      }),
      named("second", ["wait", "/data/beside", "add", "/data/order", "second"]),
    ];
    const text = await output(t, named("test", ["cat", "/data/order"]), {
      initContainers,
      volumes: [{ name: "data", emptyDir: {} }],
    });
    assert.equal(text, "first\nbeside\nsecond\n");
  });

  should("leave a termination message", async (t) => {
    const ended = await (await start(t, ["write", "/dev/termination-log", "last words"])).succeeded();
    assert.equal(endOf(ended).message, "last words\n");
  });
}, "and their life");

const environment = group((should) => {
  should("have their environment of values, ConfigMaps, Secrets and the downward API", async (t) => {
    const [map, secret] = [await t.configMap({ key: "of the map" }), await t.secret({ key: "of the secret" })];
    const env = [
      { name: "VALUE", value: "plain" },
      { name: "MAP", valueFrom: { configMapKeyRef: { name: map, key: "key" } } },
      { name: "SECRET", valueFrom: { secretKeyRef: { name: secret, key: "key" } } },
      { name: "POD", valueFrom: { fieldRef: { fieldPath: "metadata.namespace" } } },
      { name: "EXPANDED", value: "$(VALUE) and more" },
    ];
    const names = [...env.map(({ name }) => name), "PATH"];
    const text = await output(
      t,
      script(
        t,
        names.flatMap((name) => ["env", name]),
        { env },
      ),
    );
    const lines = ["VALUE=plain", "MAP=of the map", "SECRET=of the secret", `POD=${t.namespace}`];
    assert.deepEqual(text.trim().split("\n"), [...lines, "EXPANDED=plain and more", "PATH=(not set)"]);
  });

  should(
    "wait for a ConfigMap of their environment, and say so",
    async (t) => {
      const env = [{ name: "LATER", valueFrom: { configMapKeyRef: { name: "later", key: "key" } } }];
      const pod = await t.start(specOf([script(t, ["env", "LATER"], { env })]));
      const waits = await pod.until("its container waits", (each) => statusOf(each)?.state?.waiting !== undefined);
      assert.equal(waits.status?.phase, "Pending");
      await pod.until("the reason", (each) => statusOf(each)?.state?.waiting?.reason === "CreateContainerConfigError");
      await t.configMap({ key: "there" }, { metadata: { name: "later" } });
      await pod.succeeded();
      assert.equal(await pod.logs(), "LATER=there\n");
    },
    LONG,
  );

  should("get arguments, of which the first of the command is their name", async (t) => {
    const env = [{ name: "WORD", value: "expanded" }];
    const container = script(t, ["say", "$(WORD)"], { command: ["name", "say", "one"], env });
    assert.equal(await output(t, container), "one\nexpanded\n");
  });
}, "and their environment");

const volumes = group((should) => {
  should("read ConfigMaps, Secrets and the downward API as files", async (t) => {
    const [map, secret] = [await t.configMap({ key: "of the map" }), await t.secret({ key: "of the secret" })];
    const sources = [
      { configMap: { name: map, items: [{ key: "key", path: "map" }] } },
      { secret: { name: secret, items: [{ key: "key", path: "deep/secret" }] } },
      { downwardAPI: { items: [{ path: "name", fieldRef: { fieldPath: "metadata.namespace" } }] } },
    ];
    const args = ["map", "deep/secret", "name"].flatMap((path) => ["cat", `/all/${path}`, "say", ""]);
    const volumeMounts = [{ name: "all", mountPath: "/all", readOnly: true }];
    const text = await output(t, script(t, args, { volumeMounts }), {
      volumes: [{ name: "all", projected: { sources } }],
    });
    assert.equal(text, `of the map\nof the secret\n${t.namespace}\n`);
  });

  should(
    "see updates of a ConfigMap while they run",
    async (t) => {
      const name = await t.configMap({ key: "before" });
      const volumeMounts = [{ name: "map", mountPath: "/map" }];
      const pod = await t.start(
        specOf([script(t, ["watch", "/map/key"], { volumeMounts })], {
          volumes: [{ name: "map", configMap: { name } }],
        }),
      );
      await pod.logged("/map/key: before");
      await t.patch("configmaps", name, { data: { key: "after" } });
      await pod.logged("/map/key: after");
    },
    UPDATED,
  );

  should("share an emptyDir between containers of one pod", async (t) => {
    const volumeMounts = [{ name: "data", mountPath: "/data" }];
    const pod = await t.start(
      specOf(
        [
          script(t, ["wait", "/data/note", "cat", "/data/note"], { volumeMounts }),
          script(t, ["write", "/data/note", "from the other"], { name: "other", volumeMounts }),
        ],
        { volumes: [{ name: "data", emptyDir: {} }] },
      ),
    );
    await pod.succeeded();
    assert.equal(await pod.logs({ container: "test" }), "from the other\n");
  });

  should("not write to what is mounted read-only, nor read what is not mounted", async (t) => {
    const volumeMounts = [{ name: "data", mountPath: "/data", readOnly: true }];
    const volumes = [{ name: "data", emptyDir: {} }];
    for (const args of [
      ["write", "/data/note", "x"],
      ["cat", "/etc/passwd"],
      ["list", "/proc"],
    ]) {
      const pod = await t.start(specOf([script(t, args, { volumeMounts })], { volumes }));
      await pod.phase("Failed");
      assert.match(await pod.logs(), /^\/\S+: ./, args.join(" "));
    }
  });
}, "and their volumes");

const serving = group((should) => {
  should("be ready when their readiness probe by HTTP is answered", async (t) => {
    const readinessProbe = { httpGet: { path: "/hello", port: PORT.ready }, periodSeconds: 1 };
    const pod = await t.start(specOf([server(t, PORT.ready, { readinessProbe })]));
    await pod.ready();
    assert.equal(restartsOf(pod.latest), 0, NO_REST);
  });

  should(
    "be restarted when their liveness probe by HTTP fails",
    async (t) => {
      const livenessProbe = {
        httpGet: { path: "/trap", port: PORT.live },
        periodSeconds: 2,
        failureThreshold: 1,
        timeoutSeconds: t.atMost(1),
      };
      const pod = await t.start(specOf([server(t, PORT.live, { livenessProbe })], { restartPolicy: "Always" }));
      await pod.until("a restart", (each) => restartsOf(each) >= 1);
      const { message } = await pod.event("Unhealthy", ({ reason }) => reason === "Unhealthy");
      assert.equal(message, "Liveness probe failed: HTTP probe failed with statuscode: 500");
    },
    LONG,
  );

  should("be ready when their readiness probe by TCP connects", async (t) => {
    const readinessProbe = { tcpSocket: { port: PORT.tcp }, periodSeconds: 1 };
    await (await t.start(specOf([server(t, PORT.tcp, { readinessProbe })]))).ready();
  });

  should("never be ready while nothing answers their readiness probe", async (t) => {
    const readinessProbe = { httpGet: { path: "/error", port: PORT.hook }, periodSeconds: 1, failureThreshold: 1 };
    const pod = await t.start(specOf([server(t, PORT.hook, { readinessProbe })]));
    await pod.running();
    await pod.event("Unhealthy", ({ reason }) => reason === "Unhealthy");
    assert.notEqual(conditionOf(pod.latest, "Ready"), "True");
    assert.equal(restartsOf(pod.latest), 0);
  });
}, "that are served");

const limits = group((should) => {
  should("not get more memory than their limit", async (t) => {
    const resources = { limits: { memory: "48Mi" } };
    const within = await output(t, script(t, ["grow", "8", "say", "enough"], { resources }));
    assert.equal(within, "enough\n");
    const pod = await t.start(specOf([script(t, ["grow", "200", "say", "too much"], { resources })]));
    const { exitCode, reason } = endOf(await pod.phase("Failed"));
    assert.ok(exitCode === 1 || (exitCode === 137 && reason === "OOMKilled"), `${exitCode} ${reason}`);
    assert.doesNotMatch(await pod.logs(), /too much/);
  });

  should("not start with fields that a component cannot have, and say which", async (t) => {
    const pod = await t.start(
      specOf([
        script(t, ["hold"], {
          livenessProbe: { exec: { command: ["true"] } },
          securityContext: { privileged: true },
        }),
      ]),
    );
    const { message } = await pod.event("a refusal", ({ reason }) => reason === "FailedCreatePodSandBox");
    assert.match(message ?? "", /livenessProbe: a component has no second program/);
    assert.match(message ?? "", /privileged/);
    assert.equal(pod.latest?.status?.phase, "Pending");
  });

  should("not start from an image that is not there", async (t) => {
    const pod = await t.start(specOf([{ ...script(t, ["hold"]), image: "file:///nowhere/none.wasm" }]));
    const waiting = await pod.until("the reason", (each) =>
      /^(ErrImagePull|ImagePullBackOff)$/.test(statusOf(each)?.state?.waiting?.reason ?? ""),
    );
    assert.match(statusOf(waiting)?.state?.waiting?.message ?? "", /none\.wasm/);
  });

  should("share a process in the mode dense, each with a log and an end of its own", async (t) => {
    const annotations = { "wasm.picolet.io/mode": "dense" };
    const held = await t.start(specOf([script(t, ["say", "held", "hold"])]), { annotations });
    await held.logged("held\n");
    const trapped = await t.start(specOf([script(t, ["say", "other", "trap"])]), { annotations });
    assert.equal(endOf(await trapped.phase("Failed")).exitCode, 1);
    assert.match(await trapped.logs(), /^other\n/);
    assert.equal(restartsOf(await held.running()), 0);
    assert.equal(await held.logs(), "held\n");
  });
}, "and their limits");

export const componentTests: readonly ConformanceTest[] = [
  ...lifecycle,
  ...environment,
  ...volumes,
  ...serving,
  ...limits,
];
