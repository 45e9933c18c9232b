/** A real agent that is short of something, as kubectl, edgectl and new pods see it. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";
import type { ConfigAnswer } from "@picolet/protocol/local-api/status.ts";
import { parseReport } from "@picolet/protocol/updates/node-updates.ts";
import { KUBECTL_VERSIONS } from "@picolet/scripts/test/install-kubectl.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { componentPod, edgectl, HELLO_COMPONENT, HELLO_IMAGE, nodeWith } from "../../support/agent/node-fixtures.ts";
import { endProcess, Fleet, kubectlMissing, untilPrinted } from "../../support/hub/test-fleet.ts";

const skip = KUBECTL_VERSIONS.map(kubectlMissing).find((each) => each !== false) ?? false;

let fleet: Fleet;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  fleet = await Fleet.start();
  // More than any machine has free: it is short of memory from the first look on.
  const config = { evictionHard: { "memory.available": "99.9%" }, kubeReserved: {} };
  node = nodeWith(undefined, { config: { nodeName: "short", hub: await fleet.joinConfig(), ...config } });
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  const watch = fleet.spawnKubectl([
    "get",
    "nodes",
    "--watch",
    "-o",
    "jsonpath={.metadata.name} {.spec.taints}{'\\n'}",
  ]);
  await untilPrinted(watch, (text) => text.includes("memory-pressure"));
  await endProcess(watch);
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [fleet, node]) if (each !== undefined) all.use(each);
});

test("kubectl shows the condition, the taint and the event", { skip }, async () => {
  // Events and statuses come by ways of their own.
  await fleet.seen(["get", "events", "--watch"], (printed) => printed.includes("NodeHasInsufficientMemory"));
  const text = await fleet.kubectl(["describe", "node", "short"]);
  assert.match(text, /MemoryPressure\s+True.*KubeletHasInsufficientMemory\s+kubelet has insufficient memory available/);
  assert.match(text, /Taints:\s+node.kubernetes.io\/memory-pressure:NoSchedule/);
  assert.match(text, /NodeHasInsufficientMemory/);
  assert.match(text, /DiskPressure\s+False.*KubeletHasNoDiskPressure/);
});

test("edgectl says so first, and leaves with 1", { skip }, () => {
  const { status, stdout } = spawnSync("dist/board/bin/edgectl", ["--socket", node.socketPath, "status"], {
    encoding: "utf8",
  });
  assert.equal(status, 1);
  assert.match(stdout, /^short is degraded: it is short of memory/);
  assert.match(stdout, /MemoryPressure is True: KubeletHasInsufficientMemory/);
});

test("an update that the board cannot carry out is reported to the Node, with the reason", { skip }, async () => {
  const image = "registry.example/fleet/os:2";
  await fleet.kubectl(["annotate", "node", "short", `picolet.io/os-image=${image}`]);
  const path = "jsonpath={.metadata.annotations.picolet\\.io/update-status}{'\\n'}";
  const seen = await fleet.seen(["get", "node", "short", "--watch", "-o", path], (text) => text.includes("failed"));
  const report = parseReport(seen.trim().split("\n").at(-1) ?? "");
  const [update] = report?.updates ?? [];
  assert.deepEqual([update?.kind, update?.target, update?.state], ["os", image, "failed"]);
  assert.match(update?.message ?? "", /^this board has its vendor's system: /);
  await fleet.seen(["get", "events", "--watch"], (printed) => printed.includes("UpdateFailed"));
  const { status, stdout } = spawnSync("dist/board/bin/edgectl", ["--socket", node.socketPath, "update", "status"], {
    encoding: "utf8",
  });
  assert.equal(status, 1);
  assert.match(stdout, /^os +failed +\S+ +registry.example\/fleet\/os:2$/m);
});

test("the configuration in force is the same for kubectl and edgectl, as a file has it and without secrets", {
  skip,
}, async () => {
  const raw = await fleet.kubectl(["get", "--raw", "/api/v1/nodes/short/proxy/configz"]);
  const { kubeletconfig } = JSON.parse(raw) as { readonly kubeletconfig: Readonly<Record<string, unknown>> };
  const own = JSON.parse(edgectl(node, "config", "-o", "json")) as ConfigAnswer;
  assert.deepEqual(kubeletconfig, own.configuration);
  assert.equal(kubeletconfig.syncFrequency, "1m0s");
  assert.equal((kubeletconfig.hub as { readonly token: string }).token, "***");
  assert.equal(own.file, node.configPath);
  assert.ok(own.given.includes("evictionHard[memory.available]") && !own.given.includes("syncFrequency"));
});

test("a pod that has asked for no memory is refused as evicted, though somebody has bound it to the node", {
  skip,
}, async () => {
  const pod = componentPod("bound") as { spec: object };
  await fleet.apply({ ...pod, spec: { ...pod.spec, nodeName: "short" } });
  await fleet.kubectl(["wait", "--for=jsonpath={.status.phase}=Failed", "pod/bound", "--timeout=30s"]);
  const why = await fleet.kubectl(["get", "pod", "bound", "-o", "jsonpath={.status.reason}: {.status.message}"]);
  assert.match(why, /^Evicted: .*The node had condition: \[MemoryPressure\]\. $/);
});
