/** A component that serves, as a pod of the real agent: its port, its probes, its traps. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../protocol/pod.ts";
import { isReady } from "../../scripts/follow-pods.ts";
import type { AgentNode } from "../support/agent-process.ts";
import { testComponent } from "../support/components.ts";
import { fixedPort } from "../support/fixed-port.ts";
import { edgectl, nodeWith } from "../support/node-fixtures.ts";

const IMAGE = "picolet.example/http-server:1";

let node: AgentNode;

before(async () => {
  node = nodeWith(undefined, { config: {} });
  await node.start();
  edgectl(node, "image", "import", await testComponent("http-server.c"), "--name", IMAGE);
});

after(async () => await node?.[Symbol.asyncDispose]());

/** Asked each second; a liveness probe of `livePath`. */
const podOn = (name: string, port: number, livePath: string) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, annotations: { "wasm.picolet.io/http": "instances=2" } },
  spec: {
    runtimeClassName: "wasm",
    containers: [
      {
        name: "main",
        image: IMAGE,
        imagePullPolicy: "IfNotPresent",
        ports: [{ containerPort: port, name: "web" }],
        readinessProbe: { httpGet: { port: "web", path: "/hello" }, periodSeconds: 1 },
        livenessProbe: { httpGet: { port: "web", path: livePath }, periodSeconds: 1, failureThreshold: 1 },
      },
    ],
  },
});

const waitFor = async (what: string, name: string, fits: (pod: Pod) => boolean): Promise<Pod> => {
  const pods = await node.waitForPods(what, (all) => {
    const pod = all.get(`${name}-node`);
    return pod !== undefined && fits(pod);
  });
  return pods.get(`${name}-node`) as Pod;
};

const ask = async (port: number, path: string): Promise<string> =>
  (await fetch(`http://127.0.0.1:${port}${path}`, { signal: AbortSignal.timeout(10_000) })).text();

describe("a component that serves", () => {
  test("is ready once it answers, and goes on after a trap", async () => {
    const port = await fixedPort();
    node.writeManifest("web.json", podOn("web", port, "/hello"));
    await waitFor("the pod to be ready", "web", isReady);
    assert.equal(await ask(port, "/hello"), "hello world");
    assert.equal(await ask(port, "/trap"), "");
    assert.equal(await ask(port, "/hello"), "hello world");
    const pod = await waitFor("the pod", "web", isReady);
    assert.equal(pod.status?.containerStatuses?.[0]?.restartCount, 0);
  });

  test("is started again when its liveness probe gets an error", async () => {
    node.writeManifest("ill.json", podOn("ill", await fixedPort(), "/error"));
    await waitFor("a restart", "ill", (pod) => (pod.status?.containerStatuses?.[0]?.restartCount ?? 0) > 0);
  });
});
