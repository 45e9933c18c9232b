/**
 * The Kubernetes side of the hub as it is deployed: two replicas with the rights of hub/deploy and nothing else, in
 * front of an API server that they reach over HTTPS with a service account's token. That it is the embedded one they
 * cannot know.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { HubProcess } from "@picolet/scripts/start/hub-process.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerPod, edgectl, HELLO_COMPONENT, HELLO_IMAGE, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { endProcess, Fleet, kubectlMissing, untilPrinted } from "../../support/hub/test-fleet.ts";
import { fixedPorts } from "../../support/unit/machine/fixed-port.ts";

const skip = containerdMissing() ?? kubectlMissing("1.32");

let containerd: Containerd;
/** The API server; its own hub has no boards. */
let fleet: Fleet;
let replicas: HubProcess[] = [];
let node: AgentNode;
const logs: string[] = [];

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  fleet = await Fleet.start();
  await fleet.kubectl(["apply", "-f", "hub/deploy/namespace.yaml", "-f", "hub/deploy/rbac.yaml"]);
  const kubeconfig = await accountKubeconfig();
  const start = async (tunnelPort: number): Promise<HubProcess> =>
    await HubProcess.start({
      kubeconfig,
      tunnelPort,
      flags: ["--drain-time", "1s"],
      onLog: (line) => void logs.push(line),
    });
  const port = await fixedPorts(2);
  replicas = [await start(port), await start(port + 1)];
  await trustReplicas();
  const [first, second] = replicas;
  assert.ok(first && second);
  assert.equal(first.ready.caHash, second.ready.caHash, "replicas share their CA");
  const { token } = (await fleet.joinConfig()) as { readonly token: string };
  const hub = {
    server: [first.ready.tunnel, second.ready.tunnel],
    token,
    caHash: [first.ready.caHash],
    reconnectBackoff: { initial: "100ms", max: "1s" },
  };
  node = nodeWith(containerd, { config: { nodeName: "edge", hub } });
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  await node.waitForStatus("a connected board", ({ tunnel }) => tunnel.state === "connected");
});

after(async () => {
  if (skip !== false) return;
  await fleet?.tryKubectl(["delete", "pods", "--all", "--wait=true", "--timeout=60s"]);
  // One that cannot be disposed of does not keep the others, which would keep the tests from ending.
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, fleet]) if (each !== undefined) all.use(each);
  for (const replica of replicas) all.defer(() => replica.end("SIGKILL"));
  if (node !== undefined) all.use(node);
});

/** As a pod of the Deployment has it. */
async function accountKubeconfig(): Promise<string> {
  const admin = JSON.parse(await fleet.kubectl(["config", "view", "--raw", "-o", "json"])) as { clusters: unknown };
  const token = (await fleet.kubectl(["create", "token", "picolet-hub", "-n", "picolet-system"])).trim();
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: admin.clusters,
    users: [{ name: "hub", user: { token } }],
    contexts: [{ name: "hub", context: { cluster: "picolet", user: "hub" } }],
    "current-context": "hub",
  };
  const path = fleet.folder.at("account.kubeconfig");
  writeFileSync(path, JSON.stringify(config));
  return path;
}

/** Trusts the replicas, as `--kubelet-certificate-authority` of kube-apiserver does. */
async function trustReplicas(): Promise<void> {
  const get = ["get", "secret", "picolet-hub-ca", "-n", "picolet-system", "-o", "jsonpath={.data.ca\\.crt}"];
  const path = fleet.folder.at("replicas-ca.crt");
  writeFileSync(path, Buffer.from(await fleet.kubectl(get), "base64"));
  await fleet.endHub("SIGTERM");
  // The replicas are on the same machine, on loopback.
  await fleet.startHub(["--kubelet-certificate-authority", path, "--kubelet-network", "127.0.0.0/8"]);
}

const startedAt = async (name: string): Promise<string> =>
  await fleet.kubectl(["get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].state.running.startedAt}"]);

test("boards work through a hub that has the rights of its manifests and no others", { skip }, async () => {
  await fleet.apply(containerPod("web", "while :; do date; sleep 0.2; done"));
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/web", "--timeout=90s"]);
  assert.match(await fleet.kubectl(["get", "nodes,pods", "-o", "wide"]), /node\/edge +Ready/);
  assert.equal(await fleet.kubectl(["exec", "web", "--", "echo", "hi"]), "hi\n");
  const follower = fleet.spawnKubectl(["logs", "-f", "web"]);
  await untilPrinted(follower, (text) => text.split("\n").length > 3);
  await endProcess(follower);
  assert.match(await fleet.kubectl(["get", "lease", "edge", "-n", "kube-node-lease"]), /edge/);
  assert.match(await fleet.kubectl(["get", "--raw", "/api/v1/nodes/edge/proxy/stats/summary"]), /"nodeName": ?"edge"/);
});

/** Until the UIDs of those that were ready, as a watch that begins with what there is shows them, are as wanted. */
async function mirrorsSeen(fits: (uids: readonly string[]) => boolean): Promise<readonly string[]> {
  const line = "{.metadata.name} {.metadata.uid} {.status.phase} {.status.containerStatuses[0].ready}";
  const output = `jsonpath=${line}{"\\n"}`;
  const uidsOf = (text: string): readonly string[] =>
    [...text.matchAll(/^st-edge (\S+) Running true$/gm)].map(([, uid = ""]) => uid);
  return uidsOf(await fleet.seen(["get", "pods", "--watch", "-o", output], (text) => fits(uidsOf(text))));
}

test("a static pod has a mirror pod, which comes again when it is deleted, with its status", { skip }, async () => {
  node.writeManifest("st.json", { ...(containerPod("st") as object), metadata: { name: "st" } });
  await node.waitForPods("the static pod", (pods) => pods.get("st-edge")?.status?.phase === "Running");
  const [first = ""] = await mirrorsSeen((uids) => uids.length > 0);
  await fleet.kubectl(["delete", "pod", "st-edge", "--wait=false"]);
  await mirrorsSeen((uids) => uids.some((uid) => uid !== first));
  node.removeManifest("st.json");
  await fleet.kubectl(["wait", "--for=delete", "pod/st-edge", "--timeout=60s"]);
});

test("a board moves to the other replica when its own drains or dies, and nothing restarts", { skip }, async () => {
  const before = await startedAt("web");
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    const { tunnel } = await node.status();
    const [there] = replicas.filter((each) => `${each.ready.tunnel}` === (tunnel as { hub?: string }).hub);
    assert.ok(there, "connected to one of the replicas");
    await there.end(signal);
    replicas = replicas.filter((each) => each !== there);
    if (replicas.length === 0) {
      const port = Number(new URL(there.ready.tunnel).port);
      const kubeconfig = fleet.folder.at("account.kubeconfig");
      replicas = [await HubProcess.start({ kubeconfig, tunnelPort: port, onLog: (line) => void logs.push(line) })];
    }
    const [other] = replicas;
    await node.waitForStatus(`the other replica, ${signal}`, (status) => {
      const { state, hub } = status.tunnel as { readonly state: string; readonly hub?: string };
      return state === "connected" && hub === other?.ready.tunnel;
    });
    await fleet.kubectl(["wait", "--for=condition=Ready", "node/edge", "--timeout=60s"]);
    assert.equal(await untilExec("web"), "hi\n");
  }
  assert.equal(await startedAt("web"), before);
});

/** The Node reports its new kubelet endpoint a moment after the board has moved. */
async function untilExec(name: string): Promise<string> {
  const watch = fleet.spawnKubectl(["get", "node", "edge", "--watch", "-o", "name"]);
  try {
    for (let tries = 0; ; tries += 1) {
      const { code, stdout, stderr } = await fleet.tryKubectl(["exec", name, "--", "echo", "hi"]);
      if (code === 0) return stdout;
      if (tries > 5) throw new Error(`${stderr}\n${logs.slice(-20).join("\n")}`);
      await untilPrinted(watch, (text) => text.includes("\n"));
    }
  } finally {
    await endProcess(watch);
  }
}
