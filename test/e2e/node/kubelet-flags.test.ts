/** The built agent with the command line of a kubelet. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { ConfigAnswer } from "@picolet/protocol/local-api/status.ts";
import { AgentNode } from "../../support/agent/agent-process.ts";
import { componentPod, edgectl, HELLO_COMPONENT, HELLO_IMAGE } from "../../support/agent/node-fixtures.ts";

/** As a unit file of kubeadm's time has it, but for the kubeconfig. */
const KUBELET_LINE = [
  ...["--hostname-override=edge-7", "--node-labels=room=12,picolet.io/site=north", "--register-node=true"],
  ...["--register-with-taints=dedicated=camera:NoSchedule", "--v=2", "--fail-swap-on=false", "--cgroups-per-qos"],
  ...["--eviction-hard=memory.available<20Mi,nodefs.available<1%", "--eviction-minimum-reclaim=nodefs.available=10Mi"],
  ...["--max-pods", "12", "--image-gc-high-threshold", "90", "--image-gc-low-threshold", "70", "--healthz-port=0"],
  ...["--kube-reserved=memory=40Mi", "--cluster-dns=10.43.0.10", "--cluster-domain=cluster.local"],
  ...["--pod-infra-container-image=registry.k8s.io/pause:3.9", "--cert-dir=/var/lib/kubelet/pki", "--port=10250"],
];

test("an agent takes a kubelet's command line, runs its pods, and shows where each value comes from", async () => {
  await using node = new AgentNode({
    program: (directory) => ["dist/board/bin/picolet", ...KUBELET_LINE, "--pod-manifest-path", join(directory, "pods")],
    config: { nodeName: "from-the-file", maxPods: 99, imageMinimumGCAge: "5m" },
  });
  const pods = join(node.directory, "pods");
  mkdirSync(pods);
  writeFileSync(join(pods, "one.json"), JSON.stringify(componentPod("one")));
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  await node.waitForPods("the pod of the folder that the flag names", (all) =>
    [...all.values()].some(({ status }) => status?.phase === "Running"),
  );
  const { node: name } = await node.waitForStatus("the node's name", () => true);
  assert.equal(name, "edge-7");

  const { configuration, flags } = JSON.parse(edgectl(node, "config", "-o", "json")) as ConfigAnswer;
  assert.deepEqual(configuration.nodeLabels, { room: "12", "picolet.io/site": "north" });
  assert.deepEqual(configuration.evictionHard, { "memory.available": "20Mi", "nodefs.available": "1%" });
  assert.deepEqual([configuration.maxPods, configuration.imageMinimumGCAge], [12, "5m0s"]);
  assert.ok(flags?.some(({ path, flag }) => path === "maxPods" && flag === "--max-pods"));
  const shown = edgectl(node, "config");
  assert.match(shown, /^maxPods: 12 {2}# --max-pods$/m);
  assert.match(shown, /^imageMinimumGCAge: "?5m0s"?$/m);

  assert.match(node.log, /^Flag --max-pods has been deprecated: .* as maxPods$/m);
  assert.match(node.log, /^Flag --cert-dir has no effect: keys and certificates are below --root-dir$/m);
  assert.doesNotMatch(node.log, /Flag --node-labels/);
  assert.equal(await node.stop(), 0);
});

/** Lines that end the start, with the exit code. */
const REFUSED: readonly (readonly [line: readonly string[], code: number, message: RegExp])[] = [
  [
    ["--max-pods=many", "--healthz-port=99999"],
    78,
    /^--max-pods=many: maxPods: .*\n--healthz-port=99999: healthzPort: .*99999/m,
  ],
  [
    ["--kubeconfig=/etc/kubernetes/kubelet.conf"],
    64,
    /picolet does not take the kubelet's --kubeconfig: .*edgectl join/,
  ],
  [["--pod-manifest-pth=/x"], 64, /unknown flag --pod-manifest-pth; did you mean "--pod-manifest-path"\?/],
];

for (const [line, code, message] of REFUSED) {
  test(`it ends with ${code}: ${line.join(" ")}`, () => {
    const { status, stderr } = spawnSync("dist/board/bin/picolet", [...line, "--check-config"], { encoding: "utf8" });
    assert.match(stderr, message);
    assert.equal(status, code);
  });
}
