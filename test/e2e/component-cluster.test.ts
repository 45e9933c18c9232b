/** Component pods of an API server: what they get of its objects, and what kubectl is told. A real hub, no container runtime. */
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import type { AgentNode } from "../support/agent-process.ts";
import { testComponent } from "../support/components.ts";
import { Fleet, kubectlMissing } from "../support/fleet.ts";
import { edgectl, nodeWith } from "../support/node-fixtures.ts";
import { TempFolder } from "../support/temp-folder.ts";

const skip = kubectlMissing("1.32");
const SCRIPT = "picolet.example/script:1";

type Fields = Readonly<Record<string, unknown>>;

let fleet: Fleet;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  fleet = await Fleet.start();
  node = nodeWith(undefined, { config: { nodeName: "node-a", hub: await fleet.joinConfig() } });
  await node.start();
  edgectl(node, "image", "import", await testComponent("script.c"), "--name", SCRIPT);
  await fleet.untilNodeReady("node-a");
});

after(async () => {
  if (skip !== false) return;
  await fleet?.tryKubectl(["delete", "pods", "--all", "--wait=true", "--timeout=60s"]);
  await using all = new AsyncDisposableStack();
  for (const each of [fleet, node]) if (each !== undefined) all.use(each);
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

const ready = (name: string): Promise<string> =>
  fleet.kubectl(["wait", "--for=condition=Ready", `pod/${name}`, "--timeout=90s"]);

const over = (name: string, phase: string): Promise<string> =>
  fleet.kubectl(["wait", `--for=jsonpath={.status.phase}=${phase}`, `pod/${name}`, "--timeout=90s"]);

const logsOf = (...args: readonly string[]): Promise<string> => fleet.kubectl(["logs", ...args]);

const told = (pod: string, reason: string, text: string): Promise<string> =>
  fleet.seen(
    [
      ...["get", "events", "--watch", `--field-selector=involvedObject.name=${pod},reason=${reason}`],
      ...["-o", 'jsonpath={.message}{"\\n"}'],
    ],
    (printed) => printed.includes(text),
  );

const configMap = (name: string, data: Fields): Fields => ({
  apiVersion: "v1",
  kind: "ConfigMap",
  metadata: { name },
  data,
});
const secret = (name: string, stringData: Fields): Fields => ({
  ...{ apiVersion: "v1", kind: "Secret", metadata: { name }, stringData },
});

test("a running component sees changes of ConfigMaps, Secrets and labels in its files, and its token", {
  skip,
}, async () => {
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
  const files = { config: "/config/key.txt", secret: "/secret/word", about: "/about/labels", deep: "/all/deep/er/key" };
  const watching = Object.entries(files).map(([name, path]) => script(name, ["watch", path], { volumeMounts }));
  const token = script("token", ["list", "/all", "cat", "/all/token", "hold"], { volumeMounts });
  const api = script("api", ["list", "/var/run/secrets/kubernetes.io/serviceaccount", "hold"]);
  // Without its group the component, which is not root, could not read what is for the owner alone.
  const spec = { volumes, securityContext: { fsGroup: 4242 } };
  await fleet.apply(podWith("payloads", [...watching, token, api], spec, { labels: { tier: "one" } }));
  await ready("payloads");
  const listed = await logsOf("payloads", "-c", "token");
  assert.match(listed, /^deep$/m);
  assert.match(listed, /^[\w-]+\.[\w-]+\.[\w-]+$/m);
  const account = (await logsOf("payloads", "-c", "api")).split("\n").filter((line) => /^\w/.test(line));
  assert.deepEqual(account.sort(), ["ca.crt", "namespace", "token"]);
  await fleet.apply(configMap("settings", { "key.txt": "config 2" }));
  await fleet.apply(secret("keys", { word: "secret 2" }));
  await fleet.kubectl(["label", "--overwrite", "pod/payloads", "tier=two"]);
  const changed = { config: "config 2", secret: "secret 2", about: 'tier="two"', deep: "config 2" };
  for (const [name, text] of Object.entries(changed)) {
    const log = await fleet.seen(["logs", "-f", "payloads", "-c", name], (printed) => printed.includes(text));
    assert.equal(log.trim().split("\n").length, 2, `what it was and what it is, nothing between: ${log}`);
  }
  const restarts = await fleet.kubectl([
    "get",
    "pod",
    "payloads",
    "-o",
    "jsonpath={.status.containerStatuses[*].restartCount}",
  ]);
  assert.match(restarts, /^[0 ]+$/);
});

test("a file that is for its group alone is read by who is in it, and by nobody else", { skip }, async () => {
  await fleet.apply(secret("closed", { word: "open sesame" }));
  const volumes = [{ name: "secret", secret: { secretName: "closed", defaultMode: 0o400 } }];
  const volumeMounts = [{ name: "secret", mountPath: "/secret" }];
  const spec = { volumes, restartPolicy: "Never" };
  const container = script("app", ["cat", "/secret/word"], { volumeMounts });
  const member = { runAsUser: 1234, runAsGroup: 1235, fsGroup: 1236 };
  await fleet.apply(podWith("member", [container], { ...spec, securityContext: member }));
  await fleet.apply(
    podWith("stranger", [container], { ...spec, securityContext: { runAsUser: 1234, runAsGroup: 1235 } }),
  );
  await over("member", "Succeeded");
  assert.equal(await logsOf("member"), "open sesame");
  await over("stranger", "Failed");
  assert.match(await logsOf("stranger"), /Permission denied/);
});

test("environment from ConfigMaps, Secrets and Services; what is missing holds the container up until it comes", {
  skip,
}, async () => {
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
  await fleet.apply(podWith("environment", [container]));
  await told("environment", "Failed", 'Error: secret "late" not found');
  await fleet.apply(secret("late", { word: "here" }));
  await ready("environment");
  const lines = (await logsOf("environment")).trim().split("\n");
  assert.deepEqual(lines, [
    ...["KEY=1", "WORD=here", "NONE=(not set)", "P_TWO=2", "FRONT_DOOR_SERVICE_PORT=80"],
    "KUBERNETES_SERVICE_HOST=10.96.0.1",
  ]);
});

test("a claim is written to, a readiness gate is waited for", { skip }, async () => {
  using folder = new TempFolder();
  const path = folder.at("disk");
  mkdirSync(path);
  // Nobody changes the owner of a folder of the node, fsGroup neither.
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
  await fleet.apply(podWith("claims", [container], { volumes, readinessGates: [{ conditionType: gate }] }));
  await fleet.kubectl(["wait", "--for=condition=ContainersReady", "pod/claims", "--timeout=90s"]);
  const condition = JSON.stringify({ status: { conditions: [{ type: gate, status: "True" }] } });
  await fleet.kubectl(["patch", "pod", "claims", "--subresource=status", "-p", condition]);
  await ready("claims");
  await fleet.kubectl(["delete", "pod", "claims"]);
  assert.equal(readFileSync(`${path}/kept`, "utf8"), "kept\n");
});

test("what grows beyond its limit of disk is evicted: an emptyDir, and a log", { skip }, async () => {
  const volumeMounts = [{ name: "disk", mountPath: "/disk" }];
  const volumes = [{ name: "disk", emptyDir: { sizeLimit: "1Ki" } }];
  await fleet.apply(
    podWith("full", [script("app", ["write", "/disk/a", "x".repeat(5000), "hold"], { volumeMounts })], { volumes }),
  );
  const limits = { resources: { limits: { "ephemeral-storage": "8Ki" } } };
  await fleet.apply(podWith("wordy", [script("app", ["say", "x".repeat(20_000), "hold"], limits)]));
  const reasonOf = (pod: string): readonly string[] => [
    ...["get", "pod", pod, "--watch", "-o"],
    'jsonpath={.status.phase}|{.status.reason}|{.status.message}|{.status.containerStatuses[0].state.terminated.exitCode}|{"\\n"}',
  ];
  await fleet.seen(reasonOf("full"), (text) =>
    text.includes('Failed|Evicted|Usage of EmptyDir volume "disk" exceeds the limit "1Ki". |143|'),
  );
  await fleet.seen(reasonOf("wordy"), (text) =>
    text.includes("Failed|Evicted|Pod ephemeral local storage usage exceeds the total limit of containers 8Ki. |143|"),
  );
});

test("CPU and memory change while it runs", { skip }, async () => {
  const sized = (cpu: string, memory: string): Fields => {
    return { resources: { requests: { cpu: "50m", memory: "32Mi" }, limits: { cpu, memory } } };
  };
  await fleet.apply(podWith("sized", [script("app", ["hold"], sized("100m", "32Mi"))]));
  await ready("sized");
  const patch = JSON.stringify({ spec: { containers: [{ name: "app", ...sized("200m", "48Mi") }] } });
  await fleet.kubectl(["patch", "pod", "sized", "--subresource=resize", "-p", patch]);
  const shown =
    'jsonpath={.status.containerStatuses[0].resources.limits}|{.status.containerStatuses[0].restartCount}{"\\n"}';
  await fleet.seen(["get", "pod", "sized", "--watch", "-o", shown], (text) =>
    text.includes('{"cpu":"200m","memory":"48Mi"}|0'),
  );
  const id = await fleet.kubectl(["get", "pod", "sized", "-o", "jsonpath={.status.containerStatuses[0].containerID}"]);
  const [pid] = node.runnerPids(id.replace(/^.*:\/\//, ""));
  const cgroup = /:memory:(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, "utf8"))?.[1];
  const limit = readFileSync(`/sys/fs/cgroup/memory${cgroup}/memory.limit_in_bytes`, "utf8");
  assert.equal(Number(limit), 48 * 1024 * 1024);
});

test("kubectl is told why it cannot exec, give input, forward, or debug with a container's image; logs and figures it gets", {
  skip,
}, async () => {
  await fleet.apply(podWith("asked", [script("app", ["say", "one", "exit", "1"])]));
  await fleet.seen(
    ["get", "pod", "asked", "--watch", "-o", 'jsonpath={.status.containerStatuses[0].restartCount}{"\\n"}'],
    (text) => /^[1-9]/m.test(text),
  );
  assert.equal(await logsOf("asked", "--previous"), "one\n");
  await fleet.apply(podWith("rests", [script("app", ["hold"])]));
  await ready("rests");
  const refused = async (...args: readonly string[]): Promise<string> => {
    const { code, stderr } = await fleet.tryKubectl(args, { input: "x" });
    assert.notEqual(code, 0, args.join(" "));
    return stderr;
  };
  assert.match(await refused("exec", "rests", "--", "sh"), /cannot exec into a WebAssembly component: it has no shell/);
  assert.match(await refused("attach", "-i", "rests"), /takes no standard input/);
  assert.match(await refused("port-forward", "pod/rests", ":80"), /no network address of its own/);
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
  const exitOf = 'jsonpath={.status.ephemeralContainerStatuses[?(@.name=="look")].state.terminated.exitCode}{"\\n"}';
  await fleet.seen(["get", "pod", "rests", "--watch", "-o", exitOf], (text) => /^0$/m.test(text));
  assert.equal(await logsOf("rests", "-c", "look"), "looking\n");
  const summary = JSON.parse(await fleet.kubectl(["get", "--raw", "/api/v1/nodes/node-a/proxy/stats/summary"])) as {
    readonly pods: readonly {
      readonly podRef: { readonly name: string };
      readonly network?: unknown;
      readonly containers: readonly { readonly name: string; readonly memory: { readonly workingSetBytes: number } }[];
    }[];
  };
  const figures = summary.pods.find(({ podRef }) => podRef.name === "rests");
  assert.equal(figures?.network, undefined, "the node's figures are not the pod's");
  assert.ok((figures?.containers.find(({ name }) => name === "app")?.memory.workingSetBytes ?? 0) > 1_000_000);
});
