/** A component that serves, as a pod of the real agent: its port, its probes, its traps. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { TlsAuthority } from "../../support/unit/identity/tls-authority.ts";
import { fixedPort } from "../../support/unit/machine/fixed-port.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { testComponent } from "../../support/wasm/components.ts";

const IMAGE = "picolet.example/http-server:1";

const ASKS = "picolet.example/http-asks:1";

const folder = new TempFolder();
let node: AgentNode;

before(async () => {
  // It may come later.
  node = nodeWith(undefined, { config: { wasm: { http: { caFile: folder.at("authorities.pem") } } } });
  await node.start();
  edgectl(node, "image", "import", await testComponent("http-server.c"), "--name", IMAGE);
  edgectl(node, "image", "import", await testComponent("http-asks.c"), "--name", ASKS);
});

after(async () => {
  await node?.[Symbol.asyncDispose]();
  folder[Symbol.dispose]();
});

/**
 * A probe's default of a second is too short on a busy machine, and one late answer would end the
 * component.
 */
const PATIENT = { periodSeconds: 1, timeoutSeconds: 30 };

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
        readinessProbe: { httpGet: { port: "web", path: "/hello" }, ...PATIENT },
        livenessProbe: { httpGet: { port: "web", path: livePath }, ...PATIENT, failureThreshold: 1 },
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

  test("asks by https as soon as the file of the node's authorities can be read, and until then says what is wrong with it", async (context) => {
    const authority = new TlsAuthority();
    const { privateKey: key, certificate: cert } = authority.issueServer();
    const server = createServer({ key, cert }, (_, response) => void response.end("fine")).listen(0, "127.0.0.1");
    await once(server, "listening");
    context.after(() => server.close());
    const here = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const wrong = /cannot use the authorities in \S+ \(wasm\.http\.caFile\): there is no such file/;
    assert.match(JSON.stringify((await node.status()).runtimes), wrong);
    const port = await fixedPort();
    const { spec, ...pod } = podOn("asks", port, "/");
    const containers = spec.containers.map(({ name, ports }) => ({ name, ports, image: ASKS }));
    const annotations = { "wasm.picolet.io/network": `https://${here}` };
    node.writeManifest("asks.json", { ...pod, metadata: { name: "asks", annotations }, spec: { ...spec, containers } });
    const waiting = (each: Pod) => each.status?.containerStatuses?.[0]?.state?.waiting;
    const refused = await waitFor(
      "it to be refused",
      "asks",
      (each) => waiting(each)?.reason === "CreateContainerConfigError",
    );
    assert.match(waiting(refused)?.message ?? "", wrong);
    writeFileSync(folder.at("authorities.pem"), authority.ca);
    await waitFor("it to run", "asks", isReady);
    assert.equal(await ask(port, `/${here}`), "200");
  });
});
