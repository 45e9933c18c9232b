/**
 * Component pods of an API server: which objects they receive, and what kubectl shows. A real hub, no container
 * runtime.
 */
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerIdOf, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { testComponent } from "../../support/wasm/components.ts";

const skip = kubectlMissing("1.32");
const SCRIPT = "picolet.example/script:1";

type Fields = Readonly<Record<string, unknown>>;

let fleet: Fleet;
let admin: FleetAdmin;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  fleet = await Fleet.start();
  node = nodeWith(undefined, { config: { nodeName: "node-a", hub: await fleet.joinConfig() } });
  await node.start();
  edgectl(node, "image", "import", await testComponent("script.c"), "--name", SCRIPT);
  admin = await FleetAdmin.of(fleet);
  await admin.untilCondition("node-a", "Ready", "True");
  await makeGreedyPods();
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [fleet, node, admin]) if (each !== undefined) all.use(each);
  all.defer(() => admin?.clear());
});

const script = (name: string, args: readonly string[], more: Fields = {}): Fields => ({
  ...{ name, image: SCRIPT, imagePullPolicy: "IfNotPresent", args },
  ...more,
});

const podWith = (name: string, containers: readonly unknown[], spec: Fields = {}, metadata: Fields = {}): Fields => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, ...metadata },
  spec: { nodeName: "node-a", runtimeClassName: "wasm", terminationGracePeriodSeconds: 1, containers, ...spec },
});

const make = (pod: Fields): Promise<unknown> => admin.create(PODS, pod);

const ready = (name: string): Promise<Pod> => admin.untilPod(name, "ready", isReady);

const over = (name: string, phase: string): Promise<Pod> =>
  admin.untilPod(name, phase, ({ status }) => status?.phase === phase);

const logsOf = (...args: readonly string[]): Promise<string> => fleet.kubectl(["logs", ...args]);

/** A pod is ready when its components begin: until one has said it. */
const said = (fits: (text: string) => boolean, ...args: readonly string[]): Promise<string> =>
  fleet.seen(["logs", "-f", ...args], fits);

const told = (pod: string, reason: string, text: string): Promise<unknown> =>
  admin.untilEvent(pod, text, (event) => event.reason === reason && event.message.includes(text));

/** The disk usage of pods is sampled every ten seconds; other tests run meanwhile. */
async function makeGreedyPods(): Promise<void> {
  const volumeMounts = [{ name: "disk", mountPath: "/disk" }];
  const volumes = [{ name: "disk", emptyDir: { sizeLimit: "1Ki" } }];
  const steps = ["write", "/disk/a", "x".repeat(5000), "hold"];
  await make(podWith("full", [script("app", steps, { volumeMounts })], { volumes }));
  const limits = { resources: { limits: { "ephemeral-storage": "8Ki" } } };
  await make(podWith("wordy", [script("app", ["say", "x".repeat(20_000), "hold"], limits)]));
}

const configMap = (name: string, data: Fields): Fields => ({
  apiVersion: "v1",
  kind: "ConfigMap",
  metadata: { name },
  data,
});
const secret = (name: string, stringData: Fields): Fields => ({
  ...{ apiVersion: "v1", kind: "Secret", metadata: { name }, stringData },
});

/** Most of the time goes by in waiting. */
describe("component pods of an API server", { skip, concurrency: 3 }, () => {
  test("a running component sees changes of ConfigMaps, Secrets and labels in its files, and its token", async () => {
    await fleet.apply(configMap("settings", { "key.txt": "config 1" }));
    await fleet.apply(secret("keys", { word: "secret 1" }));
    const about = { items: [{ path: "labels", fieldRef: { fieldPath: "metadata.labels" } }] };
    const sources = [
      { configMap: { name: "settings", items: [{ key: "key.txt", path: "deep/er/key" }] } },
      { secret: { name: "keys" } },
      { downwardAPI: about },
      { serviceAccountToken: { path: "token", expirationSeconds: 3600 } },
    ];
    const volumes = [
      { name: "config", configMap: { name: "settings" } },
      { name: "secret", secret: { secretName: "keys", defaultMode: 0o400 } },
      { name: "about", downwardAPI: about },
      { name: "all", projected: { sources } },
    ];
    const volumeMounts = volumes.map(({ name }) => ({ name, mountPath: `/${name}` }));
    const files = {
      config: "/config/key.txt",
      secret: "/secret/word",
      about: "/about/labels",
      deep: "/all/deep/er/key",
    };
    const watching = Object.entries(files).map(([name, path]) => script(name, ["watch", path], { volumeMounts }));
    const token = script("token", ["list", "/all", "cat", "/all/token", "say", "", "hold"], { volumeMounts });
    const api = script("api", ["list", "/var/run/secrets/kubernetes.io/serviceaccount", "hold"]);
    // Without its group the component, which is not root, could not read what is for the owner alone.
    const spec = { volumes, securityContext: { fsGroup: 4242 } };
    await make(podWith("payloads", [...watching, token, api], spec, { labels: { tier: "one" } }));
    await ready("payloads");
    const listed = await said((text) => /^[\w-]+\.[\w-]+\.[\w-]+\n/m.test(text), "payloads", "-c", "token");
    assert.match(listed, /^deep$/m);
    const given = ["ca.crt", "namespace", "token"];
    const isListed = (text: string): boolean => given.every((name) => text.includes(`${name}\n`));
    const account = (await said(isListed, "payloads", "-c", "api")).split("\n").filter((line) => /^\w/.test(line));
    assert.deepEqual(account.sort(), given);
    await fleet.apply(configMap("settings", { "key.txt": "config 2" }));
    await fleet.apply(secret("keys", { word: "secret 2" }));
    await fleet.kubectl(["label", "--overwrite", "pod/payloads", "tier=two"]);
    const changed = { config: "config 2", secret: "secret 2", about: 'tier="two"', deep: "config 2" };
    for (const [name, text] of Object.entries(changed)) {
      const log = await fleet.seen(["logs", "-f", "payloads", "-c", name], (printed) => printed.includes(text));
      assert.equal(log.trim().split("\n").length, 2, `what it was and what it is, nothing between: ${log}`);
    }
    const { status } = await admin.pod("payloads");
    assert.ok(status?.containerStatuses?.every(({ restartCount }) => restartCount === 0));
  });

  test("a file that is for its group alone is read by who is in it, and by nobody else", async () => {
    await fleet.apply(secret("closed", { word: "open sesame" }));
    const volumes = [{ name: "secret", secret: { secretName: "closed", defaultMode: 0o400 } }];
    const volumeMounts = [{ name: "secret", mountPath: "/secret" }];
    const spec = { volumes, restartPolicy: "Never" };
    const container = script("app", ["cat", "/secret/word"], { volumeMounts });
    const member = { runAsUser: 1234, runAsGroup: 1235, fsGroup: 1236 };
    await make(podWith("member", [container], { ...spec, securityContext: member }));
    await make(podWith("stranger", [container], { ...spec, securityContext: { runAsUser: 1234, runAsGroup: 1235 } }));
    await over("member", "Succeeded");
    assert.equal(await logsOf("member"), "open sesame");
    await over("stranger", "Failed");
    assert.match(await logsOf("stranger"), /Permission denied/);
  });

  test("environment from ConfigMaps, Secrets and Services; what is missing holds the container up until it comes", async () => {
    await fleet.apply(configMap("words", { ONE: "1", TWO: "2" }));
    await fleet.kubectl(["create", "service", "clusterip", "front-door", "--tcp=80:8080"]);
    const env = [
      { name: "KEY", valueFrom: { configMapKeyRef: { name: "words", key: "ONE" } } },
      { name: "WORD", valueFrom: { secretKeyRef: { name: "late", key: "word" } } },
      { name: "NONE", valueFrom: { configMapKeyRef: { name: "words", key: "none", optional: true } } },
    ];
    const names = ["KEY", "WORD", "NONE", "P_TWO", "FRONT_DOOR_SERVICE_PORT", "KUBERNETES_SERVICE_HOST"];
    const args = [...names.flatMap((name) => ["env", name]), "hold"];
    const container = script("app", args, { env, envFrom: [{ prefix: "P_", configMapRef: { name: "words" } }] });
    await make(podWith("environment", [container]));
    await told("environment", "Failed", 'Error: secret "late" not found');
    await fleet.apply(secret("late", { word: "here" }));
    await ready("environment");
    const all = await said((text) => text.split("\n").length > names.length, "environment");
    const lines = all.trim().split("\n");
    assert.deepEqual(lines, [
      ...["KEY=1", "WORD=here", "NONE=(not set)", "P_TWO=2", "FRONT_DOOR_SERVICE_PORT=80"],
      "KUBERNETES_SERVICE_HOST=10.96.0.1",
    ]);
  });

  test("a claim is written to, a readiness gate is waited for", async () => {
    using folder = new TempFolder();
    const path = folder.at("disk");
    mkdirSync(path);
    // No volume changes the owner of a folder of the node, not even with fsGroup.
    chmodSync(path, 0o777);
    const accessModes = ["ReadWriteOnce"];
    const spec = { accessModes, resources: { requests: { storage: "1Mi" } }, storageClassName: "" };
    const disk = { capacity: { storage: "1Mi" }, accessModes, hostPath: { path, type: "Directory" } };
    await fleet.apply({ apiVersion: "v1", kind: "PersistentVolume", metadata: { name: "disk" }, spec: disk });
    await fleet.apply({ apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name: "data" }, spec });
    const volumes = [{ name: "data", persistentVolumeClaim: { claimName: "data" } }];
    const volumeMounts = [{ name: "data", mountPath: "/data" }];
    const container = script("app", ["write", "/data/kept", "kept", "hold"], { volumeMounts });
    const gate = "example.org/gate";
    await make(podWith("claims", [container], { volumes, readinessGates: [{ conditionType: gate }] }));
    await admin.untilPod("claims", "ready but for its gate", ({ status }) =>
      Boolean(status?.conditions?.some((each) => each.type === "ContainersReady" && each.status === "True")),
    );
    const condition = JSON.stringify({ status: { conditions: [{ type: gate, status: "True" }] } });
    await fleet.kubectl(["patch", "pod", "claims", "--subresource=status", "-p", condition]);
    await ready("claims");
    await fleet.kubectl(["delete", "pod", "claims"]);
    assert.equal(readFileSync(`${path}/kept`, "utf8"), "kept\n");
  });

  test("CPU and memory change while it runs", async () => {
    const sized = (cpu: string, memory: string): Fields => {
      return { resources: { requests: { cpu: "50m", memory: "32Mi" }, limits: { cpu, memory } } };
    };
    await make(podWith("sized", [script("app", ["hold"], sized("100m", "32Mi"))]));
    await ready("sized");
    const patch = JSON.stringify({ spec: { containers: [{ name: "app", ...sized("200m", "48Mi") }] } });
    await fleet.kubectl(["patch", "pod", "sized", "--subresource=resize", "-p", patch]);
    const pod = await admin.untilPod("sized", "its new size", ({ status }) => {
      const { cpu, memory } = status?.containerStatuses?.[0]?.resources?.limits ?? {};
      return cpu === "200m" && memory === "48Mi";
    });
    assert.equal(pod.status?.containerStatuses?.[0]?.restartCount, 0);
    const [pid] = node.runnerPids(containerIdOf(pod));
    const cgroup = /:memory:(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, "utf8"))?.[1];
    const limit = readFileSync(`/sys/fs/cgroup/memory${cgroup}/memory.limit_in_bytes`, "utf8");
    assert.equal(Number(limit), 48 * 1024 * 1024);
  });

  test("kubectl is told why it cannot exec, give input, forward, or debug with a container's image; logs and figures it gets", async () => {
    await make(podWith("asked", [script("app", ["say", "one", "exit", "1"])]));
    await admin.untilPod("asked", "a restart", ({ status }) => (status?.containerStatuses?.[0]?.restartCount ?? 0) > 0);
    assert.equal(await logsOf("asked", "--previous"), "one\n");
    await make(podWith("rests", [script("app", ["hold"])]));
    await ready("rests");
    const refused = async (...args: readonly string[]): Promise<string> => {
      const { code, stderr } = await fleet.tryKubectl(args, { input: "x" });
      assert.notEqual(code, 0, args.join(" "));
      return stderr;
    };
    assert.match(
      await refused("exec", "rests", "--", "sh"),
      /cannot exec into a WebAssembly component: it has no shell/,
    );
    assert.match(await refused("attach", "-i", "rests"), /takes no standard input/);
    assert.match(
      await refused("port-forward", "pod/rests", ":80"),
      /none of the pod's WebAssembly components is served/,
    );
    await fleet.kubectl([
      "debug",
      "rests",
      "--image=127.0.0.1:1/busybox:1",
      "--image-pull-policy=IfNotPresent",
      "-c",
      "shell",
    ]);
    await told("rests", "Failed", "cannot reach 127.0.0.1:1: connection refused");
    await fleet.kubectl([
      "debug",
      "rests",
      `--image=${SCRIPT}`,
      "--image-pull-policy=IfNotPresent",
      "-c",
      "look",
      "--arguments-only",
      "--",
      "say",
      "looking",
    ]);
    const ended = ({ status }: Pod): boolean =>
      status?.ephemeralContainerStatuses?.find(({ name }) => name === "look")?.state.terminated?.exitCode === 0;
    await admin.untilPod("rests", "the end of look", ended);
    assert.equal(await logsOf("rests", "-c", "look"), "looking\n");
    const summary = JSON.parse(await fleet.kubectl(["get", "--raw", "/api/v1/nodes/node-a/proxy/stats/summary"])) as {
      readonly pods: readonly {
        readonly podRef: { readonly name: string };
        readonly network?: unknown;
        readonly containers: readonly {
          readonly name: string;
          readonly memory: { readonly workingSetBytes: number };
        }[];
      }[];
    };
    const figures = summary.pods.find(({ podRef }) => podRef.name === "rests");
    assert.equal(figures?.network, undefined, "the node's figures are not the pod's");
    assert.ok((figures?.containers.find(({ name }) => name === "app")?.memory.workingSetBytes ?? 0) > 1_000_000);
  });

  test("what grows beyond its limit of disk is evicted: an emptyDir, and a log", async () => {
    for (const [name, message] of [
      ["full", 'Usage of EmptyDir volume "disk" exceeds the limit "1Ki". '],
      ["wordy", "Pod ephemeral local storage usage exceeds the total limit of containers 8Ki. "],
    ] as const) {
      const codeOf = ({ status }: Pod): number | undefined =>
        status?.containerStatuses?.[0]?.state.terminated?.exitCode;
      const pod = await admin.untilPod(
        name,
        "its end",
        (each) => each.status?.phase === "Failed" && codeOf(each) !== undefined,
      );
      assert.deepEqual([pod.status?.reason, pod.status?.message, codeOf(pod)], ["Evicted", message, 143]);
    }
  });
});
