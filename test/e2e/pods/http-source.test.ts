/** Pods from a web server: a real agent, a real server that goes away, real containers. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { after, before, test } from "node:test";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { containerIdOf, containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { fixedPort } from "../../support/unit/machine/fixed-port.ts";

const skip = containerdMissing() ?? false;

let containerd: Containerd;

before(async () => {
  if (skip === false) containerd = await Containerd.start();
});

after(async () => {
  if (skip === false) await containerd[Symbol.asyncDispose]();
});

async function listen(server: Server, port: number): Promise<void> {
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
}

test("pods of a URL run, go on without its server over a restart of the agent, and go when it says so", {
  skip,
}, async () => {
  let said: unknown = { apiVersion: "v1", kind: "PodList", items: [containerPod("web")] };
  const server = createServer((_, response) => void response.end(JSON.stringify(said)));
  const port = await fixedPort();
  await listen(server, port);
  const config = { staticPodURL: `http://127.0.0.1:${port}/pods.json`, httpCheckFrequency: "1s" };
  await using node = nodeWith(containerd, { config });
  await node.start();
  const first = (await node.waitForPods("a ready pod", (pods) => isReady(pods.get("web-node")))).get("web-node");
  assert.equal((await node.status()).pods[0]?.source, "http");

  server.closeAllConnections();
  server.close();
  await node.stop();
  await node.start();
  const { problems = [] } = await node.waitForStatus("a problem", (status) => (status.problems ?? []).length > 0);
  assert.deepEqual([problems[0]?.source, problems[0]?.origin], ["http", config.staticPodURL]);
  const again = (await node.waitForPods("the same pod", (pods) => isReady(pods.get("web-node")))).get("web-node");
  assert.equal(containerIdOf(again), containerIdOf(first));

  said = { apiVersion: "v1", kind: "PodList", items: [] };
  await listen(server, port);
  await node.waitForPods("no pod", (pods) => pods.size === 0);
  server.closeAllConnections();
  server.close();
});
