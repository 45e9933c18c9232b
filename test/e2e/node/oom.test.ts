/**
 * Containers that eat more memory than they may, as a user sees them: a real containerd, the real kernel's OOM killer.
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import type { EventList } from "@picolet/protocol/local-api/status.ts";
import type { ContainerStatus, Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerIdOf, containerPod, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";

const skip = containerdMissing() ?? false;

let containerd: Containerd;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  node = nodeWith(containerd);
  await node.start();
});

after(async () => {
  if (skip !== false) return;
  await node?.drain();
  await node?.[Symbol.asyncDispose]();
  await containerd?.[Symbol.asyncDispose]();
});

/** A child that fills 128 MiB; its parent goes on with what follows. */
const CHILD = "dd if=/dev/zero of=/dev/null bs=128M count=1";
const LIMIT = { resources: { limits: { memory: "32Mi" } } };

const hungry = (name: string, script: string, container: object = LIMIT, spec: object = {}): unknown => {
  const pod = containerPod(name, script, { restartPolicy: "Never" }) as { spec: { containers: object[] } };
  const [app] = pod.spec.containers;
  return { ...pod, spec: { ...pod.spec, containers: [{ ...app, ...container }], ...spec } };
};

const statusOf = (pod: Pod | undefined, name = "app"): ContainerStatus | undefined => {
  const { containerStatuses = [], initContainerStatuses = [] } = pod?.status ?? {};
  return [...initContainerStatuses, ...containerStatuses].find((each) => each.name === name);
};

const endOf = (pod: Pod | undefined, name = "app") => {
  const { reason, exitCode } = statusOf(pod, name)?.state.terminated ?? {};
  return { reason, exitCode };
};

const MEMORY = "/sys/fs/cgroup/memory";
const withoutV1 = existsSync(`${MEMORY}/memory.limit_in_bytes`) ? false : "needs the memory controller of cgroup v1";

/** Its cgroup of memory; "" of one that is gone. */
function cgroupOf(pid: number): string {
  try {
    return /^\d+:memory:(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, "utf8"))?.[1] ?? "";
  } catch {
    return "";
  }
}

/** The runtime may hear of a kill after it has shown the end. */
async function untilKilled(name: string, container?: string): Promise<Pod | undefined> {
  const isOver = (pods: ReadonlyMap<string, Pod>) => {
    const pod = pods.get(`${name}-node`);
    return pod?.status?.phase === "Failed" && endOf(pod, container).reason === "OOMKilled";
  };
  return (await node.waitForPods(`${name} was killed`, isOver)).get(`${name}-node`);
}

test("the first process of a container over its limit: OOMKilled, 137", { skip }, async () => {
  node.writeManifest("main.json", hungry("main", `exec ${CHILD}`));
  const pod = await untilKilled("main");
  assert.deepEqual(endOf(pod), { reason: "OOMKilled", exitCode: 137 });
  assert.equal(pod?.status?.phase, "Failed");
});

test("a child that is killed while the first process goes on: the container is not marked", { skip }, async () => {
  const readinessProbe = { exec: { command: ["/bin/test", "-f", "/done"] }, periodSeconds: 1 };
  const script = `${CHILD}; echo "child: $?"; touch /done; exec sleep 3600`;
  node.writeManifest("child.json", hungry("child", script, { ...LIMIT, readinessProbe }));
  const pods = await node.waitForPods("the child is gone", (all) => statusOf(all.get("child-node"))?.ready === true);
  assert.match(edgectl(node, "logs", "child-node"), /child: 137/);
  const status = statusOf(pods.get("child-node"));
  assert.ok(status?.state.running !== undefined && status.restartCount === 0);
});

test("a first process that ends because its child was killed: its own exit code, and OOMKilled", { skip }, async () => {
  node.writeManifest("parent.json", hungry("parent", `${CHILD} || exit 3`));
  assert.deepEqual(endOf(await untilKilled("parent")), { reason: "OOMKilled", exitCode: 3 });
});

test("the limit of the whole pod: the container whose process was killed", { skip }, async () => {
  const spec = { resources: { limits: { memory: "48Mi", cpu: "1" } } };
  node.writeManifest("whole.json", hungry("whole", `exec ${CHILD}`, {}, spec));
  assert.deepEqual(endOf(await untilKilled("whole")), { reason: "OOMKilled", exitCode: 137 });
});

/** On v1 containerd notices kills in the container's own cgroup, and none below it. */
test("a kill that its runtime does not tell of: the kernel's log does", { skip: skip || withoutV1 }, async () => {
  node.writeManifest("untold.json", hungry("untold", `until [ -e /go ]; do sleep 0.1; done; exec ${CHILD}`, {}));
  const pods = await node.waitForPods("it waits", (all) => isReady(all.get("untold-node")));
  const id = containerIdOf(pods.get("untold-node"));
  const pid = containerd.pidOf(id);
  const nested = `${MEMORY}${cgroupOf(pid)}/nested`;
  mkdirSync(nested);
  writeFileSync(`${nested}/memory.limit_in_bytes`, String(32 * 2 ** 20));
  writeFileSync(`${nested}/cgroup.procs`, String(pid));
  writeFileSync(`/proc/${pid}/root/go`, "");
  assert.deepEqual(endOf(await untilKilled("untold")), { reason: "OOMKilled", exitCode: 137 });
});

test("an init container: the pod fails with it", { skip }, async () => {
  const { spec } = hungry("init", `exec ${CHILD}`) as { spec: { containers: { name: string }[] } };
  const init = { ...spec.containers[0], name: "setup" };
  node.writeManifest("init.json", hungry("init", "exit 0", LIMIT, { initContainers: [init] }));
  const pod = await untilKilled("init", "setup");
  assert.deepEqual(endOf(pod, "setup"), { reason: "OOMKilled", exitCode: 137 });
});

test("none of that is the machine's: no SystemOOM; the agent says once what it may not", { skip }, () => {
  const { items } = JSON.parse(edgectl(node, "events", "-o", "json")) as EventList;
  assert.deepEqual(
    items.filter(({ reason }) => reason === "SystemOOM"),
    [],
  );
  const score = Number(readFileSync(`/proc/${node.pid}/oom_score_adj`, "latin1"));
  // Whose it was is in the log.
  assert.match(node.log, /a cgroup was out of memory: .*process=dd.* pod=/);
  const said = node.log.split("\n").filter((line) => /the agent's own oom_score_adj/.test(line));
  assert.equal(said.length, score === -999 ? 0 : 1);
});
