/** Probes of every kind as a user sees them: the real agent, a real containerd, a real server in the pod. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady, type PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { fixedPort } from "../../support/unit/machine/fixed-port.ts";

const skip = containerdMissing() ?? false;
/** A second, which is what a probe has by default, is less than a machine with much to do has been seen to take. */
const PATIENT = { periodSeconds: 1, timeoutSeconds: 60 };

let containerd: Containerd;
let node: AgentNode;
let readOnlyPort: number;
/** The server's files, in the container as on the node. */
let www: string;

before(async () => {
  if (skip !== false) return;
  www = mkdtempSync(join(tmpdir(), "picolet-www-"));
  mkdirSync(join(www, "state"));
  readOnlyPort = await fixedPort();
  containerd = await Containerd.start();
  node = nodeWith(containerd, { config: { readOnlyPort } });
  await node.start();
});

after(async () => {
  if (skip !== false) return;
  await node[Symbol.asyncDispose]();
  await containerd[Symbol.asyncDispose]();
  rmSync(www, { recursive: true });
});

const web = (pods: PodsByName): Pod | undefined => pods.get("web-node");
const messageOf = async (name: string, reason: string, begin: string): Promise<string> => {
  const event = await node.waitForEvent(
    `${reason} ${begin}`,
    (each) => each.involvedObject.name === name && each.reason === reason && each.message.startsWith(begin),
  );
  return `${event.involvedObject.fieldPath}: ${event.message}`;
};

function metrics(): Promise<string> {
  return new Promise((resolve, reject) => {
    const request = get(
      { host: "127.0.0.1", port: readOnlyPort, path: "/metrics/probes", agent: false },
      (response) => {
        let text = "";
        response.on("data", (piece: Buffer) => {
          text += piece.toString();
        });
        response.on("end", () => resolve(text));
      },
    );
    request.on("error", reject);
  });
}

describe("probes with real runtimes", { skip }, () => {
  test("a server is ready while its page is there, also for the next agent", async () => {
    writeFileSync(join(www, "state", "index.html"), "well");
    node.writeManifest(
      "web.json",
      containerPod("web", "", {
        volumes: [{ name: "www", hostPath: { path: www } }],
        containers: [
          {
            name: "app",
            image: BUSYBOX_IMAGE,
            command: ["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"],
            ports: [{ name: "http", containerPort: 8080 }],
            volumeMounts: [{ name: "www", mountPath: "/www" }],
            startupProbe: { tcpSocket: { port: "http" }, ...PATIENT },
            readinessProbe: { httpGet: { path: "/state/", port: "http" }, ...PATIENT, failureThreshold: 1 },
            livenessProbe: { exec: { command: ["/bin/busybox", "true"] }, ...PATIENT },
          },
        ],
      }),
    );
    const started = web(await node.waitForPods("a ready server", (pods) => isReady(web(pods))));
    rmSync(join(www, "state", "index.html"));
    const unready = await node.waitForPods("an unready server", (pods) => !isReady(web(pods)));
    const condition = web(unready)?.status?.conditions?.find(({ type }) => type === "Ready");
    assert.equal(condition?.message, "containers with unready status: [app]");
    assert.equal(
      await messageOf("web-node", "Unhealthy", "Readiness"),
      "spec.containers{app}: Readiness probe failed: HTTP probe failed with statuscode: 404",
    );
    writeFileSync(join(www, "state", "index.html"), "well");
    await node.waitForPods("a ready server again", (pods) => isReady(web(pods)));
    await node.stop();
    await node.start();
    const again = web(await node.waitForPods("it known again", (pods) => web(pods) !== undefined));
    assert.ok(isReady(again), "a restart of the agent takes nothing out of service");
    assert.equal(
      again?.status?.containerStatuses?.[0]?.containerID,
      started?.status?.containerStatuses?.[0]?.containerID,
    );
    // The next agent probes it too.
    rmSync(join(www, "state", "index.html"));
    await node.waitForPods("an unready server", (pods) => !isReady(web(pods)));
    const text = await metrics();
    assert.match(
      text,
      /^prober_probe_total\{container="app",namespace="default",pod="web-node",pod_uid="[^"]+",probe_type="Readiness",result="failed"\} \d+$/m,
    );
    assert.doesNotMatch(text, /probe_type="Startup"/, "it has started long ago");
    node.removeManifest("web.json");
    await node.waitForPods("its end", (pods) => web(pods) === undefined);
    assert.doesNotMatch(await metrics(), /web-node/);
  });

  test("what became ready while no agent was there is ready with the next agent, long before its period is over", async () => {
    const late = (pods: PodsByName): Pod | undefined => pods.get("late-node");
    const command = ["/bin/busybox", "test", "-f", "/www/late"];
    node.writeManifest(
      "late.json",
      containerPod("late", "", {
        volumes: [{ name: "www", hostPath: { path: www } }],
        containers: [
          {
            name: "app",
            image: BUSYBOX_IMAGE,
            command: ["/bin/busybox", "sleep", "3600"],
            volumeMounts: [{ name: "www", mountPath: "/www" }],
            readinessProbe: { exec: { command }, ...PATIENT, periodSeconds: 3600 },
          },
        ],
      }),
    );
    await messageOf("late-node", "Unhealthy", "Readiness");
    await node.waitForPods("a running pod", (pods) => late(pods)?.status?.phase === "Running");
    // Not killed: the next agent must know that it was not ready.
    await node.stop();
    writeFileSync(join(www, "late"), "");
    await node.start();
    await node.waitForPods("a ready pod", (pods) => isReady(late(pods)));
    node.removeManifest("late.json");
    await node.waitForPods("its end", (pods) => late(pods) === undefined);
  });

  test("a command that hangs fails when its time is over, and is killed", async () => {
    const livenessProbe = { exec: { command: ["/bin/sh", "-c", "sleep 1000"] }, periodSeconds: 1, failureThreshold: 1 };
    const container = { name: "app", image: BUSYBOX_IMAGE, command: ["/bin/busybox", "sleep", "3600"], livenessProbe };
    node.writeManifest("hang.json", containerPod("hang", "", { containers: [container] }));
    const restarted = (pods: PodsByName): boolean =>
      (pods.get("hang-node")?.status?.containerStatuses?.[0]?.restartCount ?? 0) > 0;
    await node.waitForPods("a restart", restarted);
    assert.equal(
      await messageOf("hang-node", "Unhealthy", "Liveness"),
      'spec.containers{app}: Liveness probe failed: command timed out: "/bin/sh -c sleep 1000" timed out after 1s',
    );
    node.removeManifest("hang.json");
    await node.waitForPods("its end", (pods) => !pods.has("hang-node"));
  });
});
