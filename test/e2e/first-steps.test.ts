/** What somebody meets who sets picolet up for the first time and gets one thing wrong: one sentence that says what to do. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe, test } from "node:test";
import { AgentNode } from "../support/agent-process.ts";
import { Containerd, containerdMissing } from "../support/containerd.ts";
import { nodeWith } from "../support/node-fixtures.ts";

interface Ended {
  readonly code: number;
  readonly out: string;
}

/** `edgectl`, with all lines of its answer as one. */
const edgectl = (node: AgentNode, ...words: string[]): Promise<Ended> =>
  new Promise((resolve) => {
    execFile("dist/bin/edgectl", ["--socket", node.socketPath, ...words], (error, out, errors) => {
      resolve({ code: typeof error?.code === "number" ? error.code : 0, out: `${out}${errors}`.replace(/\s+/g, " ") });
    });
  });

/** A program that says what is wrong and leaves. */
const refused = (program: string, ...words: string[]): Promise<Ended> =>
  new Promise((resolve) => {
    const env = { PATH: process.env.PATH, HOME: "/nonexistent" };
    execFile(`dist/bin/${program}`, words, { env, timeout: 60_000 }, (error, out, errors) =>
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

test("a hub without a cluster: both ways to give it one", async () => {
  const sentence =
    "picolet-hub: there is no cluster here: name one with --embedded for an API server of the hub's own, or --kubeconfig FILE (or KUBECONFIG) for a Kubernetes cluster\n";
  for (const words of [[], ["token", "create"], ["ca", "hash"]]) {
    assert.deepEqual(await refused("picolet-hub", ...words), { code: 64, out: sentence }, words.join(" "));
  }
});

for (const [program, words, sentence] of [
  ["picolet", ["--confg", "x"], "picolet: unknown argument --confg; did you mean --config?\n"],
  ["picolet-hub", ["--embeded"], "picolet-hub: unknown flag --embeded; did you mean --embedded?\n"],
] as const) {
  test(`${program} ${words.join(" ")}`, async () => {
    assert.deepEqual(await refused(program, ...words), { code: 64, out: sentence });
  });
}
