/**
 * The board's services for components through the whole agent: values that stay, the node's own state, and nothing that
 * was not granted.
 */
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { textOf } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { edgectl, nodeWith, startedAtOf } from "../../support/agent/node-fixtures.ts";
import { testComponent } from "../../support/wasm/components.ts";

const BOARD = "picolet.example/board:1";
const GRANTS = {
  "wasm.picolet.io/interfaces": "keyvalue, config, logging, node-info",
  "wasm.picolet.io/keyvalue": "b=4Ki",
};

let node: AgentNode;

before(async () => {
  const labels = { "topology.kubernetes.io/zone": "roof", secret: "x" };
  node = nodeWith(undefined, { config: { nodeLabels: labels, wasm: { nodeLabels: [] } } });
  await node.start();
  edgectl(node, "image", "import", await testComponent("board.c"), "--name", BOARD);
});

after(async () => await node?.[Symbol.asyncDispose]());

function run(
  name: string,
  args: readonly string[],
  annotations: Readonly<Record<string, string>> = GRANTS,
  spec: Readonly<Record<string, unknown>> = {},
): void {
  const { volumeMounts, ...others } = spec;
  const container = { name: "app", image: BOARD, imagePullPolicy: "IfNotPresent", args, volumeMounts };
  node.writeManifest(`${name}.json`, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, annotations },
    spec: { runtimeClassName: "wasm", restartPolicy: "Never", containers: [container], ...others },
  });
}

const until = async (what: string, name: string, fits: (pod: Pod) => boolean): Promise<Pod> => {
  const pods = await node.waitForPods(what, (found) => {
    const pod = found.get(`${name}-node`);
    return pod !== undefined && fits(pod);
  });
  const pod = pods.get(`${name}-node`);
  assert.ok(pod);
  return pod;
};

/** Returns the lines of a component that has ended well. */
async function said(name: string): Promise<string[]> {
  const pod = await until(`the end of ${name}`, name, ({ status }) => /^(Succeeded|Failed)$/.test(status?.phase ?? ""));
  const path = `/v1/namespaces/default/pods/${name}-node/log?container=app`;
  const lines = (await textOf(await node.request(path))).trimEnd().split("\n");
  assert.equal(pod.status?.phase, "Succeeded", lines.join("\n"));
  return lines;
}

test("values outlive the pod and the agent, and a component goes on while the agent is away", async () => {
  run("survivor", ["open", "b", "set", "mine", "1", "until", "go", "get", "mine"]);
  run("writer", ["open", "b", "set", "k", "v", "add", "n", "41"]);
  assert.deepEqual(await said("writer"), ["open", "set k", "41"]);
  const before = await until("the survivor to run", "survivor", (pod) => startedAtOf(pod) !== undefined);
  await node.kill();
  await node.start();
  const after = await until("the survivor to run on", "survivor", (pod) => startedAtOf(pod) !== undefined);
  assert.equal(startedAtOf(after), startedAtOf(before), "it was not restarted");
  node.removeManifest("writer.json");
  run("reader", ["open", "b", "get", "k", "add", "n", "1", "set", "go", "", "fill", "k", "5000"]);
  assert.deepEqual(await said("reader"), ["open", "v", "42", "set go", "error quota-exceeded"]);
  assert.deepEqual(await said("survivor"), ["open", "set mine", "1"]);
});

test("edgectl shows and sets what components keep", async () => {
  assert.match(edgectl(node, "kv", "list"), /\ndefault +b +\d+ +.* keys, 4\.0 KiB +\d{4}-\d\d-\d\d\n/);
  edgectl(node, "kv", "set", "b", "by hand", "\u2713");
  assert.equal(edgectl(node, "kv", "get", "b", "by hand"), "\u2713");
  run("asker", ["open", "b", "get", "by hand", "set", "answer", "yes"]);
  assert.deepEqual(await said("asker"), ["open", "\u2713", "set answer"]);
  assert.equal(edgectl(node, "kv", "get", "b", "answer"), "yes");
  edgectl(node, "kv", "rm", "b", "by hand");
  await node.kill();
  await node.start();
  assert.equal(edgectl(node, "kv", "get", "b", "answer"), "yes", "before any component has asked");
  assert.throws(() => edgectl(node, "kv", "get", "b", "by hand"), /there is no such key/);
});

test("a component is told of its node and its configuration, and what it logs is in the pod's log", async () => {
  const folder = join(node.directory, "settings");
  mkdirSync(folder);
  writeFileSync(join(folder, "colour"), "red");
  const annotations = { ...GRANTS, "wasm.picolet.io/config": "settings" };
  run("told", ["node", "pod", "config", "colour", "config", "none", "log", "3", "main", "warned"], annotations, {
    volumes: [{ name: "settings", hostPath: { path: folder, type: "Directory" } }],
    volumeMounts: [{ name: "settings", mountPath: "/etc/settings", readOnly: true }],
  });
  const [about = "", pod = "", ...others] = await said("told");
  assert.match(about, /^node labels 1 pressure \d+ clock 1 hub standalone$/);
  assert.match(pod, /^told-node default \S+ app $/);
  assert.deepEqual(others, ["red", "nothing", "WARN [main] warned"]);
});

test("a component whose pod does not name what it imports waits with the reason", async () => {
  run("unnamed", ["open", "b"], { "wasm.picolet.io/interfaces": "config" });
  const pod = await until("the refusal", "unnamed", ({ status }) => {
    return status?.containerStatuses?.[0]?.state.waiting?.reason === "CreateContainerConfigError";
  });
  assert.match(
    pod.status?.containerStatuses?.[0]?.state.waiting?.message ?? "",
    /name keyvalue, logging, node-info in the pod's annotation wasm\.picolet\.io\/interfaces/,
  );
});

test("a file that is damaged is told of, and components go on with an empty one", async () => {
  await node.stop();
  const path = join(node.directory, "root", "wasm", "keyvalue.db");
  const bytes = readFileSync(path);
  assert.ok(bytes.length > 4096);
  for (let at = 0; at < bytes.length; at += 512) bytes.write("damaged!", at);
  writeFileSync(path, bytes);
  await node.start();
  run("after-damage", ["open", "b", "open", "b", "get", "k", "set", "k", "new", "get", "k"]);
  const lines = await said("after-damage");
  assert.match(lines[0] ?? "", /^error storage: /);
  assert.deepEqual(lines.slice(1), ["open", "nothing", "set k", "new"]);
  await node.waitForEvent("KeyvalueStoreRebuilt", ({ reason }) => reason === "KeyvalueStoreRebuilt");
});
