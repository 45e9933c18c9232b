/** `edgectl why` on a real agent with real containers: for each thing that goes wrong, what a technician reads. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { DecisionKind } from "@picolet/protocol/decisions/decision-kinds.ts";
import type { WhyAnswer, WhyDecision } from "@picolet/protocol/local-api/why.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerIdOf, containerPod, edgectl, nodeWith, SLEEP_SCRIPT } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { settled } from "../../support/unit/ports/settled.ts";

const skip = containerdMissing() ?? false;
const SECRET = "hunter2hunter2";

let containerd: Containerd;
let node: AgentNode;

function whyOf(...words: readonly string[]): { readonly code: number | null; readonly answer: WhyAnswer } {
  const args = ["--socket", node.socketPath, "why", ...words, "-o", "json"];
  const { status, stdout, stderr } = spawnSync("dist/board/bin/edgectl", args, { encoding: "utf8" });
  if (stdout === "") throw new Error(stderr);
  return { code: status, answer: JSON.parse(stdout) as WhyAnswer };
}

/** Waits until the black box has all of these decisions. @returns the newest of each */
async function decisionsOf<K extends DecisionKind>(words: readonly string[], ...kinds: readonly K[]) {
  let found: readonly WhyDecision[] = [];
  const missing = await settled(() => {
    try {
      found = whyOf(...words).answer.decisions;
    } catch {
      found = [];
    }
    return kinds.filter((kind) => !found.some(({ decision }) => decision.kind === kind));
  });
  assert.deepEqual(missing, [], found.map(({ sentence }) => sentence).join("\n"));
  return kinds.map((kind) => found.find(({ decision }) => decision.kind === kind)?.sentence ?? "");
}

const running = (name: string, container: object, spec: Record<string, unknown> = {}): unknown => {
  const pod = containerPod(name, SLEEP_SCRIPT, spec) as { spec: { containers: object[] } };
  return { ...pod, spec: { ...pod.spec, containers: [{ ...pod.spec.containers[0], ...container }] } };
};

/** What is wrong with each pod; all of them run at once. */
const PODS: Readonly<Record<string, unknown>> = {
  crash: containerPod("crash", "exit 3"),
  hungry: running("hungry", {
    command: ["/bin/sh", "-c", "exec dd if=/dev/zero of=/dev/null bs=128M count=1"],
    resources: { limits: { memory: "32Mi" } },
  }),
  offline: running("offline", { image: "127.0.0.1:1/none/app:1" }),
  never: running("never", { image: "picolet.example/none:1", imagePullPolicy: "Never" }),
  sick: running("sick", {
    livenessProbe: {
      exec: { command: ["/bin/sh", "-c", `echo ${SECRET}; false`] },
      periodSeconds: 1,
      failureThreshold: 1,
    },
  }),
  unready: running("unready", {
    readinessProbe: { exec: { command: ["false"] }, periodSeconds: 1, failureThreshold: 1 },
  }),
  large: running("large", { resources: { requests: { cpu: "1000" } } }),
  elsewhere: containerPod("elsewhere", SLEEP_SCRIPT, { nodeSelector: { place: "elsewhere" } }),
  short: containerPod("short", "exit 0", { restartPolicy: "Never" }),
  late: containerPod("late", SLEEP_SCRIPT, { activeDeadlineSeconds: 1 }),
  unmounted: running(
    "unmounted",
    { volumeMounts: [{ name: "gone", mountPath: "/gone" }] },
    {
      volumes: [{ name: "gone", hostPath: { path: "/nowhere/at/all", type: "Directory" } }],
    },
  ),
  well: running("well", { env: [{ name: "PASSWORD", value: SECRET }] }),
  doomed: containerPod("doomed"),
};

describe("the black box of a node", { skip }, () => {
  before(async () => {
    containerd = await Containerd.start();
    node = nodeWith(containerd, { config: { shutdownGracePeriod: "10s", shutdownGracePeriodCriticalPods: "5s" } });
    for (const [name, pod] of Object.entries(PODS)) node.writeManifest(`${name}.json`, pod);
    await node.start();
  });

  after(async () => {
    await node?.drain();
    await node?.[Symbol.asyncDispose]();
    await containerd?.[Symbol.asyncDispose]();
  });

  const CASES: readonly (readonly [pod: string, kinds: readonly DecisionKind[], says: RegExp])[] = [
    ["crash", ["exited", "heldBack"], /ended after .* \(exit code 3, Error\)[\s\S]*held back for/],
    [
      "hungry",
      ["exited"],
      /killed by the kernel: it, its pod or all pods together reached their limit of memory .*exit code 137/,
    ],
    ["offline", ["imageNotPulled"], /Image 127\.0\.0\.1:1\/none\/app:1 of container app is not here: .*tried again in/],
    ["never", ["imageNotPulled"], /ErrImageNeverPull/],
    [
      "sick",
      ["probeFailed", "stopped"],
      /liveness probe of container app failed[\s\S]*because it failed its liveness probe/,
    ],
    ["unready", ["probeFailed"], /readiness probe of container app failed once, .*: it is not ready/],
    ["large", ["refused"], /The node refused the pod: UnexpectedAdmissionError: .*res: cpu/],
    ["elsewhere", ["refused"], /The node refused the pod: NodeAffinity/],
    ["short", ["exited", "finished"], /exit code 0\); it stays ended[\s\S]*the pod has succeeded/],
    ["late", ["deadline"], /it may be active for 1s \(activeDeadlineSeconds\)/],
    ["unmounted", ["stepFailed"], /"prepare volumes and cgroup" failed: FailedMount/],
    ["well", ["accepted", "started"], /its manifest wants here[\s\S]*Container app was started\./],
  ];
  for (const [pod, kinds, says] of CASES) {
    test(`why ${pod}`, async () => assert.match((await decisionsOf([pod], ...kinds)).join("\n"), says));
  }

  test("the exit code says whether the pod is well, and a page is enough", async () => {
    await node.waitForPods("a pod that is well", (pods) => isReadyPod(pods.get("well-node")));
    assert.equal(whyOf("well").code, 0);
    assert.equal(whyOf("crash").code, 1);
    assert.equal(whyOf("node").code, 1);
    assert.match(whyOf("node").answer.now, /pods not ready/);
    const { stdout } = spawnSync("dist/board/bin/edgectl", ["--socket", node.socketPath, "why", "crash"], {
      encoding: "utf8",
    });
    const lines = stdout.split("\n");
    assert.ok(lines.length <= 24 && lines.every((each) => each.length <= 80), stdout);
  });

  test("a dead sandbox, a changed definition and a manifest that is removed", async () => {
    const before = containerIdOf(
      (await node.waitForPods("a pod", (pods) => isReadyPod(pods.get("well-node")))).get("well-node"),
    );
    assert.notEqual(before, "");
    const labels = ['labels."io.kubernetes.pod.name"==well-node', 'labels."io.cri-containerd.kind"==sandbox'];
    const sandbox = containerd.ctr("containers", "list", "--quiet", labels.join(",")).trim();
    process.kill(containerd.pidOf(sandbox), "SIGKILL");
    assert.match(
      (await decisionsOf(["well"], "sandboxReplaced")).join("\n"),
      /sandbox had died or was lost; sandbox 2 takes its place/,
    );
    await node.waitForPods("a pod in a new sandbox", (pods) => {
      const pod = pods.get("well-node");
      return isReadyPod(pod) && containerIdOf(pod) !== before;
    });
    node.writeManifest("doomed.json", containerPod("doomed", SLEEP_SCRIPT, { terminationGracePeriodSeconds: 0 }));
    assert.match((await decisionsOf(["doomed"], "removed", "gone", "accepted")).join("\n"), /no longer wants the pod/);
    node.removeManifest("doomed.json");
    const gone = await settled(() => {
      const { answer } = whyOf("ended", "doomed");
      return answer.now === "it is no longer on this node" ? [] : [answer.now];
    });
    assert.deepEqual(gone, []);
    assert.equal(whyOf("doomed").code, 0);
  });

  test("a manifest that breaks", async () => {
    node.writeManifest("broken.json", { kind: "Pod", password: SECRET });
    assert.match((await decisionsOf(["node"], "manifestBroken")).join("\n"), /broken\.json.* cannot be used/);
    node.removeManifest("broken.json");
    await decisionsOf(["node"], "manifestMended");
  });

  test("a pod that makes room for a critical one", async () => {
    const requesting = (name: string, cpu: number, priority: number, container = {}, spec = {}): unknown =>
      running(name, { resources: { requests: { cpu: `${cpu}m` } }, ...container }, { priority, ...spec });
    const deaf = { command: ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"] };
    const all = cpus().length * 1000;
    node.writeManifest("low.json", requesting("low", all - 100, 1, deaf, { terminationGracePeriodSeconds: 3 }));
    await node.waitForPods("a pod that takes the CPUs", (pods) => isReadyPod(pods.get("low-node")));
    node.writeManifest("high.json", requesting("high", all - 200, 10));
    const [sentence] = await decisionsOf(["low"], "preempted");
    assert.equal(sentence, "The node ended the pod to make room for the critical pod default/high-node.");
    // Its container still has 3 s to end.
    const { code, answer } = whyOf("evicted", "low");
    assert.equal(code, 1, answer.now);
    assert.match(answer.now, /^Preempting: Preempted in order to admit critical pod$/);
    await node.waitForPods("its end", (pods) => pods.get("low-node")?.status?.phase === "Failed");
    assert.equal(whyOf("evicted", "low").code, 1);
  });

  test("an agent that is killed, and one that is stopped", async () => {
    await node.kill();
    await node.start();
    const told = (await decisionsOf(["well"], "agentStarted", "takenOver")).join("\n");
    assert.match(told, /after it was killed or had crashed; the board ran on[\s\S]*took over 1 running container, /);
    await node.stop();
    await node.start();
    const stopped = await decisionsOf(["node", "not", "ready"], "agentStopped", "nodeReady");
    assert.match(stopped.join("\n"), /asked to stop; pods run on/);
  });

  test("a shutdown of the node, and its cancellation", async () => {
    edgectl(node, "node", "shutdown");
    assert.match((await decisionsOf(["well"], "shutDown")).join("\n"), /The node shut down and ended the pod/);
    assert.equal(whyOf("node").answer.isWell, false);
    edgectl(node, "node", "shutdown", "--cancel");
    await decisionsOf(["well"], "revived", "shutdownCancelled");
  });

  test("no Secret is in the file", () => {
    const text = readFileSync(join(node.directory, "root", "black-box"), "latin1");
    assert.match(text, /"kind":"probeFailed"/);
    assert.ok(!text.includes(SECRET));
  });
});

const isReadyPod = (pod: Parameters<typeof isReady>[0] | undefined): boolean => pod !== undefined && isReady(pod);
