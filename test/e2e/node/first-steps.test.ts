/** A first set-up of picolet with one mistake in it: each gives one sentence that says what to do. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import type { PodReport } from "@picolet/protocol/local-api/status.ts";
import { HubProcess, runHubCommand } from "@picolet/scripts/start/hub-process.ts";
import { AgentNode } from "../../support/agent/agent-process.ts";
import {
  componentPod,
  containerPod,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  nodeWith,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { fixedPort } from "../../support/unit/machine/fixed-port.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";

interface Ended {
  readonly code: number;
  readonly out: string;
}

/** `edgectl`, with all lines of its answer as one. */
const edgectl = (node: AgentNode, ...words: string[]): Promise<Ended> =>
  new Promise((resolve) => {
    execFile("dist/board/bin/edgectl", ["--socket", node.socketPath, ...words], (error, out, errors) => {
      resolve({ code: typeof error?.code === "number" ? error.code : 0, out: `${out}${errors}`.replace(/\s+/g, " ") });
    });
  });

/** A program that says what is wrong and leaves. */
const refused = (program: string, ...words: string[]): Promise<Ended> =>
  new Promise((resolve) => {
    const env = { PATH: process.env.PATH, HOME: "/nonexistent" };
    execFile(
      `dist/${program === "picolet-hub" ? "hub" : "board"}/bin/${program}`,
      words,
      { env, timeout: 60_000 },
      (error, out, errors) =>
        resolve({ code: typeof error?.code === "number" ? error.code : 0, out: `${out}${errors}` }),
    );
  });

const NO_STACK = /\n\s+at |node:internal/;

describe("a container runtime that is not there", () => {
  test("no socket: what to install, or to configure", async () => {
    const endpoint = "/nonexistent/containerd.sock";
    await using node = new AgentNode({ config: { containerRuntimeEndpoint: `unix://${endpoint}` } });
    await node.start();
    await node.waitForStatus("a node that is not ready", ({ conditions }) =>
      conditions.some(({ message }) => message.includes("there is no container runtime")),
    );
    const { code, out } = await edgectl(node, "status");
    assert.equal(code, 1);
    assert.ok(
      out.includes(
        `RuntimeNotReady: cri: there is no container runtime at ${endpoint}: install containerd, or set containerRuntimeEndpoint to the runtime's socket, or to "" to run components alone`,
      ),
      out,
    );
    assert.doesNotMatch(node.log, NO_STACK);
  });

  test("Docker's containerd, without its CRI plugin", { skip: containerdMissing() ?? false }, async () => {
    await using containerd = await Containerd.start({ withoutCri: true });
    await using node = nodeWith(containerd);
    await node.start();
    await node.waitForStatus("a node that is not ready", ({ conditions }) =>
      conditions.some(({ message }) => message.includes("CRI plugin")),
    );
    const { code, out } = await edgectl(node, "status");
    assert.equal(code, 1);
    assert.match(
      out,
      /RuntimeNotReady: cri: containerd has its CRI plugin switched off, .* remove "cri" from disabled_plugins/,
    );
    assert.doesNotMatch(node.log, NO_STACK);
  });
});

describe("a board and its hub", () => {
  let hub: HubProcess;
  let token: string;
  const folder = new TempFolder();

  before(async () => {
    hub = await HubProcess.start({ dataDir: folder.at("hub") });
    token = await runHubCommand(folder.at("hub"), "token", "create");
  });
  after(async () => {
    await hub?.end("SIGTERM");
    folder[Symbol.dispose]();
  });

  const boardWith = (server: string, changes: object = {}): AgentNode =>
    new AgentNode({
      config: { hub: { server, token, caHash: [hub.ready.caHash], ...changes } },
    });

  async function assertRefused(board: AgentNode, problem: RegExp): Promise<void> {
    await board.waitForStatus("a board that is refused", ({ tunnel }) => tunnel.refused === true);
    const { code, out } = await edgectl(board, "status");
    assert.equal(code, 1, out);
    assert.match(out, /^node is degraded: it cannot join its hub https:\/\//);
    assert.match(out, problem);
    const { tunnel } = await board.status();
    assert.match(tunnel.problem ?? "", problem);
  }

  test("another CA than the hub's", async () => {
    await using board = boardWith(hub.ready.tunnel, { caHash: [`sha256:${"0".repeat(64)}`] });
    await board.start();
    await assertRefused(
      board,
      /this is not the hub: its CA is sha256:[0-9a-f]{64}, and the configuration \(hub\.caHash\)/,
    );
  });

  test("a token that the hub does not take", async () => {
    await using board = boardWith(hub.ready.tunnel, { token: "aaaaaa.aaaaaaaaaaaaaaaa" });
    await board.start();
    await assertRefused(board, /the token is not accepted: .*`picolet-hub token create`/);
  });

  test("no token", async () => {
    await using board = boardWith(hub.ready.tunnel, { token: "", tokenFile: "/nonexistent/token" });
    await board.start();
    await assertRefused(board, /needs a token of `picolet-hub token create` in \/nonexistent\/token to join/);
  });

  const toApi = /:\d+ is a Kubernetes API server, not a hub's port for boards: set hub\.server to /;

  test("the port of the API server, for a new board and for one that has joined", async () => {
    await using fresh = boardWith(hub.ready.api);
    await fresh.start();
    await assertRefused(fresh, toApi);
    fresh.configure({ hub: { server: hub.ready.tunnel, token, caHash: [hub.ready.caHash] } });
    await fresh.stop();
    await fresh.start();
    await fresh.waitForStatus("a board that is connected", ({ tunnel }) => tunnel.state === "connected");
    assert.equal((await edgectl(fresh, "status")).code, 0);
    fresh.configure({ hub: { server: hub.ready.api, token, caHash: [hub.ready.caHash] } });
    await fresh.stop();
    await fresh.start();
    await assertRefused(fresh, toApi);
  });

  test("a hub that is away is no fault", async () => {
    await using board = boardWith(`https://127.0.0.1:${await fixedPort()}`);
    await board.start();
    await board.waitForStatus("a board that is offline", ({ tunnel }) => tunnel.state === "disconnected");
    const { code, out } = await edgectl(board, "status");
    assert.equal(code, 0, out);
    assert.match(out, /^node is healthy: 0 pods .* Tunnel disconnected for .*: cannot connect to 127\.0\.0\.1:\d+/);
  });
});

test("a hub without a cluster: both ways to give it one", async () => {
  const sentence =
    "picolet-hub: there is no cluster here: name one with --embedded for an API server of the hub's own, or --kubeconfig FILE (or KUBECONFIG) for a Kubernetes cluster\n";
  for (const words of [[], ["token", "create"], ["ca", "hash"]]) {
    assert.deepEqual(await refused("picolet-hub", ...words), { code: 64, out: sentence }, words.join(" "));
  }
});

for (const [program, words, sentence] of [
  ["picolet", ["--confg", "x"], 'picolet: unknown flag --confg; did you mean "--config"?\n'],
  ["picolet-hub", ["--embeded"], 'picolet-hub: unknown flag --embeded; did you mean "--embedded"?\n'],
] as const) {
  test(`${program} ${words.join(" ")}`, async () => {
    assert.deepEqual(await refused(program, ...words), { code: 64, out: sentence });
  });
}

test("a folder of state that cannot be made: which setting names another", async () => {
  const { code, out } = await refused("picolet", "--root-dir", "/dev/null/picolet", "--config", "/dev/null");
  assert.equal(code, 1);
  assert.match(out, /cannot make \/dev\/null\/picolet: run picolet as root, or set --root-dir to a folder .*: ENOTDIR/);
  assert.doesNotMatch(out, NO_STACK);
});

test("files that are no pods, and a quantity of another program, in the folder of static pods", async () => {
  await using node = new AgentNode();
  await node.start();
  node.writeManifest("compose.yaml", 'version: "3"\nservices:\n  web:\n    image: nginx\n');
  node.writeManifest(
    "deployment.yaml",
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 2}\n",
  );
  const resources = { limits: { memory: "64MB" } };
  const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a" } };
  node.writeManifest("units.yaml", { ...pod, spec: { containers: [{ name: "a", image: "a", resources }] } });
  await node.waitForStatus(
    "three problems",
    ({ problems }) => new Set(problems.map(({ origin }) => origin)).size === 3,
  );
  const { code, out } = await edgectl(node, "status");
  assert.equal(code, 1);
  for (const sentence of [
    "compose.yaml:1: this is a Docker Compose file, and picolet runs Kubernetes Pods: write its services as containers of Pods",
    "a Deployment is for a Kubernetes API server: apply it there with kubectl, or write its spec.template as a Pod of its own",
    'did you mean "64M" (10^6) or "64Mi" (2^20)?',
  ])
    assert.ok(out.includes(sentence), out);
});

test("why a pod does not run, or is not ready, is in edgectl status", async () => {
  await using node = nodeWith(undefined);
  await node.start();
  await edgectl(node, "image", "import", resolve(HELLO_COMPONENT), "--name", HELLO_IMAGE);
  const readinessProbe = {
    tcpSocket: { host: "127.0.0.1", port: await fixedPort() },
    periodSeconds: 1,
    initialDelaySeconds: 0,
  };
  node.writeManifest("unready.json", componentPod("unready", { readinessProbe }));
  node.writeManifest(
    "imageless.json",
    componentPod("imageless", { image: "picolet.example/none:1", imagePullPolicy: "Never" }),
  );
  node.writeManifest("greedy.json", componentPod("greedy", { resources: { requests: { memory: "100Ti" } } }));
  node.writeManifest("contained.json", containerPod("contained"));
  const expected = {
    "unready-node": /^Unhealthy: Readiness probe failed: .*connection refused/,
    "imageless-node": /^ErrImageNeverPull: /,
    "greedy-node": /^(?:OutOfmemory|UnexpectedAdmissionError): Pod was rejected: .*memory/,
    "contained-node":
      /^FailedCreatePodSandBox: .*this node runs components only .*; set containerRuntimeEndpoint to a container runtime's socket/,
  };
  const isTold = ([name, message]: [string, RegExp], pods: readonly PodReport[]): boolean =>
    pods.some((pod) => pod.name === name && message.test(pod.message));
  await node.waitForStatus("each reason", ({ pods }) => Object.entries(expected).every((each) => isTold(each, pods)));
  const { code, out } = await edgectl(node, "status");
  assert.equal(code, 1);
  assert.doesNotMatch(node.log, /stack=/);
  for (const name of Object.keys(expected)) assert.match(out, new RegExp(`${name}: \\w+: `));
  node.removeManifest("contained.json");
  await node.waitForStatus("its end", ({ pods }) => pods.every(({ name }) => name !== "contained-node"));
});
