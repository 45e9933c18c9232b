/**
 * Components of WASI 0.3 on a node that runs them, and on one that does not: the real agent, and edgectl as it is
 * shipped.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { get } from "node:http";
import { connect } from "node:net";
import { test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady, textOf } from "@picolet/scripts/start/follow-pods.ts";
import { edgectl, nodeWith, startedAtOf } from "../../support/agent/node-fixtures.ts";
import { fixedPort } from "../../support/unit/machine/fixed-port.ts";
import { PseudoTerminal } from "../../support/unit/wasm/pseudo-terminal.ts";
import { testComponent } from "../../support/wasm/components.ts";

const FILES = "picolet.example/async-files:1";
const BOARD = "picolet.example/async-board:1";
const SERIAL = "picolet.example/async-serial:1";
const SERVER = "picolet.example/async-server:1";
const NET = "picolet.example/async-net:1";

const podWith = (name: string, container: Readonly<Record<string, unknown>>, more = {}): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name },
  spec: { runtimeClassName: "wasm", containers: [{ name: "app", imagePullPolicy: "Never", ...container }], ...more },
});

const fetched = (port: number): Promise<string> =>
  new Promise((resolve, reject) => {
    get({ port, host: "127.0.0.1", path: "/", agent: false }, (answer) => resolve(textOf(answer))).on("error", reject);
  });

test("pods of WASI 0.3 write into a volume, say what they do, and serve", async () => {
  await using node = nodeWith(undefined, { config: { wasm: { p3: true } } });
  await node.start();
  edgectl(node, "image", "import", await testComponent("async-files.c"), "--name", FILES);
  edgectl(node, "image", "import", await testComponent("async-server.c"), "--name", SERVER);
  const volumeMounts = [{ name: "data", mountPath: "/data" }];
  const init = { name: "writes", image: FILES, imagePullPolicy: "Never", volumeMounts };
  const files = podWith(
    "files",
    { image: FILES, args: ["read", "/data/file", "0"], volumeMounts },
    {
      restartPolicy: "Never",
      volumes: [{ name: "data", emptyDir: {} }],
      initContainers: [{ ...init, args: ["write", "/data/file", "0", "words"] }],
    },
  );
  const port = await fixedPort();
  const probe = { httpGet: { path: "/", port }, periodSeconds: 1 };
  node.writeManifest("files.json", files);
  const served = { image: SERVER, ports: [{ containerPort: port }], readinessProbe: probe };
  node.writeManifest("served.json", podWith("served", served));
  const phase = (pod: Pod | undefined): string | undefined => pod?.status?.phase;
  await node.waitForPods("the end of files", (pods) => phase(pods.get("files-node")) === "Succeeded");
  const log = await node.request("/v1/namespaces/default/pods/files-node/log?container=app");
  assert.equal(await textOf(log), "wordsok\n");
  await node.waitForPods("served to be ready", (pods) => isReady(pods.get("served-node")));
  assert.equal(await fetched(port), "hello by 0.3\n");
});

test("pods of WASI 0.3 have of the board what they name", async () => {
  await using node = nodeWith(undefined, { config: { wasm: { p3: true } } });
  await node.start();
  edgectl(node, "image", "import", await testComponent("async-files.c"), "--name", FILES);
  edgectl(node, "image", "import", await testComponent("async-board.c"), "--name", BOARD);
  edgectl(node, "image", "import", await testComponent("async-serial.c"), "--name", SERIAL);
  const named = {
    "wasm.picolet.io/interfaces": "keyvalue, config, logging, node-info, telemetry",
    "wasm.picolet.io/keyvalue": "b=4Ki",
    "wasm.picolet.io/config": "settings",
  };
  const volumeMounts = [{ name: "settings", mountPath: "/settings" }];
  const writes = { name: "writes", image: FILES, imagePullPolicy: "Never", volumeMounts };
  const pod = (
    name: string,
    args: readonly string[],
    annotations: Readonly<Record<string, string>> = named,
  ): unknown => ({
    ...(podWith(
      name,
      { image: BOARD, args, volumeMounts },
      {
        restartPolicy: "Never",
        volumes: [{ name: "settings", emptyDir: {} }],
        initContainers: [{ ...writes, args: ["write", "/settings/greeting", "0", "good day"] }],
      },
    ) as Pod),
    metadata: { name, annotations },
  });
  const said = async (name: string): Promise<string> => {
    await node.waitForPods(`the end of ${name}`, (pods) => pods.get(`${name}-node`)?.status?.phase === "Succeeded");
    return textOf(await node.request(`/v1/namespaces/default/pods/${name}-node/log?container=app`));
  };
  node.writeManifest("counts.json", pod("counts", ["count", "b", "n", "40"]));
  node.writeManifest("board.json", pod("board", ["board"]));
  assert.equal(await said("counts"), "40 and the timer\n");
  assert.deepEqual((await said("board")).trimEnd().split("\n").sort(), ["WARN [own] a line", "good day", "node"]);
  const status = JSON.parse(edgectl(node, "status", "-o", "json")) as {
    telemetry: { queued: { records: number } };
  };
  assert.equal(status.telemetry.queued.records, 1);
  using terminal = new PseudoTerminal();
  const serial = podWith("serial", { image: SERIAL, args: [terminal.path] }, { restartPolicy: "Never" }) as Pod;
  const devices = {
    "wasm.picolet.io/interfaces": "serial",
    "wasm.picolet.io/devices": `serial:${terminal.path}`,
  };
  node.writeManifest("serial.json", { ...serial, metadata: { name: "serial", annotations: devices } });
  await node.waitForPods("serial to run", (pods) => startedAtOf(pods.get("serial-node")) !== undefined);
  const log = await node.request("/v1/namespaces/default/pods/serial-node/log?container=app&follow=true");
  // Input before the port is open is dropped.
  log.once("data", () => void terminal.write(Buffer.from("abc")));
  assert.equal(await textOf(log), "open\nabc\nand the timer\n");
  node.writeManifest("unnamed.json", pod("unnamed", ["board"], {}));
  await node.waitForPods("unnamed to be refused", (pods) =>
    /name keyvalue, .*node-info.* in the pod's annotation/.test(JSON.stringify(pods.get("unnamed-node")?.status ?? {})),
  );
});

test("a pod of WASI 0.3 takes connections on the port that its network opens, and nothing else", async () => {
  await using node = nodeWith(undefined, { config: { wasm: { p3: true } } });
  await node.start();
  edgectl(node, "image", "import", await testComponent("async-net.c"), "--name", NET);
  const port = await fixedPort();
  const network = { "wasm.picolet.io/network": `listen tcp:${port}` };
  const serves = podWith("serves", { image: NET, args: ["serve", String(port), "2"] }, { restartPolicy: "Never" });
  node.writeManifest("serves.json", { ...serves, metadata: { name: "serves", annotations: network } });
  const asks = { image: NET, args: ["fetch", "127.0.0.1", String(port), "word"] };
  node.writeManifest("asks.json", podWith("asks", asks, { restartPolicy: "Never" }));
  const log = async (name: string): Promise<string> =>
    textOf(await node.request(`/v1/namespaces/default/pods/${name}-node/log?container=app`));
  const phase = (pod: Pod | undefined): string | undefined => pod?.status?.phase;
  await node.waitForPods("serves to run", (pods) => phase(pods.get("serves-node")) === "Running");
  for (const text of ["one", "two".repeat(50_000)])
    assert.ok((await echoed(port, text)) === text, "all of it comes back");
  await node.waitForPods("the end of both", (pods) =>
    ["serves-node", "asks-node"].every((name) => phase(pods.get(name)) === "Succeeded"),
  );
  assert.equal(await log("serves"), `listening ${port}\nserved 2\n`);
  assert.equal(await log("asks"), "create: access-denied\n");
});

/** Sends again until the component listens. */
async function echoed(port: number, text: string): Promise<string> {
  for (;;) {
    const client = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    const received: Buffer[] = [];
    client.on("data", (chunk: Buffer) => void received.push(chunk));
    client.end(text);
    try {
      await once(client, "end");
      return Buffer.concat(received).toString();
    } catch {
      // It is not there yet.
    }
  }
}

test("a node without the setting says which one it is, and edgectl tells beforehand", async () => {
  const path = await testComponent("async-files.c");
  await using node = nodeWith(undefined);
  await node.start();
  assert.throws(
    () => edgectl(node, "image", "import", path, "--name", FILES),
    /another WASI than 0\.2: .*wasm\.p3: true/,
  );
  const checked = (file: string, ...words: readonly string[]): string =>
    spawnSync("dist/board/bin/edgectl", ["wasm", "check", file, ...words], { encoding: "utf8" }).stdout;
  const check = (...words: readonly string[]): string => checked(path, ...words);
  assert.match(check(), /This node would not run it:[\s\S]*wasm\.p3: true/);
  assert.match(check("--p3"), /wasi:filesystem\/types@0\.3\.0\n[\s\S]*This node would run it\./);
  const net = await testComponent("async-net.c");
  assert.match(checked(net, "--p3"), /wasi:sockets\/types@0\.3\.0\n[\s\S]*This node would run it\./);
});
