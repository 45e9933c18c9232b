/**
 * A containerd that stops answering, and one that is gone: what the node reports, and what becomes of its containers.
 */
import assert from "node:assert/strict";
import { get } from "node:http";
import { after, before, describe, test } from "node:test";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { allReady, containerPod, identitiesOf, nodeWith, SLEEP_SCRIPT } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { fixedPort } from "../../support/unit/machine/fixed-port.ts";

const skip = containerdMissing() ?? false;

/** A process starts within this time even on a machine with much to do; it fails at the first failure. */
const LIVENESS = {
  exec: { command: ["/bin/busybox", "true"] },
  periodSeconds: 1,
  timeoutSeconds: 5,
  failureThreshold: 1,
};

describe("a containerd in trouble", { skip }, () => {
  let containerd: Containerd;
  let node: AgentNode;
  let healthzPort: number;

  before(async () => {
    healthzPort = await fixedPort();
    containerd = await Containerd.start();
    node = nodeWith(containerd, { config: { healthzPort } });
    await node.start();
    const probed = containerPod("probed", SLEEP_SCRIPT) as { spec: { containers: object[] } };
    probed.spec.containers = probed.spec.containers.map((each) => ({ ...each, livenessProbe: LIVENESS }));
    node.writeManifest("probed.json", probed);
    await node.waitForPods("a ready pod", allReady(1));
  });
  after(async () => {
    await node?.[Symbol.asyncDispose]();
    await containerd?.[Symbol.asyncDispose]();
  });

  const healthz = (): Promise<{ readonly status: number; readonly text: string }> =>
    new Promise((resolve, reject) => {
      get({ host: "127.0.0.1", port: healthzPort, path: "/healthz", agent: false }, (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (piece: string) => {
          text += piece;
        });
        response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
      }).on("error", reject);
    });

  async function assertNotReady(why: RegExp): Promise<void> {
    const { conditions, runtimes } = await node.waitForStatus("a node that is not ready", ({ ready }) => !ready);
    const ready = conditions.find(({ type }) => type === "Ready");
    assert.equal(ready?.status, "False");
    assert.match(ready?.message ?? "", why);
    const cri = runtimes.find(({ name }) => name === "cri");
    assert.equal(cri?.ready, false);
    const { status, text } = await healthz();
    assert.equal(status, 500, text);
    assert.match(text, /^\[-\]/m);
  }

  test("one that is stopped makes the node not ready, and restarts nothing", async () => {
    const before = identitiesOf(await node.waitForPods("a ready pod", allReady(1)));
    containerd.freeze();
    try {
      await assertNotReady(/RuntimeNotReady: cri: cannot get an answer from the container runtime/);
      await node.waitForEvent(
        "a probe that came to nothing",
        ({ reason, message }) =>
          reason === "Unhealthy" && message.startsWith("Liveness probe errored and resulted in unknown state"),
      );
    } finally {
      containerd.thaw();
    }
    await node.waitForStatus("a ready node", ({ ready }) => ready);
    const pods = await node.waitForPods("the pod as it was", (each) => [...each.values()].every(isReady));
    assert.deepEqual(identitiesOf(pods), before);
    assert.equal((await healthz()).status, 200);
  });

  test("one that is gone makes the node not ready, and comes back with all that runs", async () => {
    const before = identitiesOf(await node.waitForPods("a ready pod", allReady(1)));
    await containerd.killDaemon();
    await assertNotReady(/RuntimeNotReady: cri: cannot/);
    await containerd.startDaemon();
    await node.waitForStatus("a ready node", ({ ready }) => ready);
    assert.deepEqual(identitiesOf(await node.waitForPods("the pod as it was", allReady(1))), before);
  });
});
