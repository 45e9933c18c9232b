/** The output of containers as a user reads it: real containers in a real containerd, over the local API. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync, realpathSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { isReady, linesOf, textOf } from "@picolet/scripts/start/follow-pods.ts";
import { type AgentNode, restartsOf } from "../../support/agent/agent-process.ts";
import { containerIdOf, containerPod, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { settled } from "../../support/unit/ports/settled.ts";

const skip = containerdMissing() ?? false;
/** What is followed would be waited for without end. */
const timeout = 180_000;

let containerd: Containerd;

before(async () => {
  if (skip === false) containerd = await Containerd.start();
});

after(async () => {
  if (skip === false) await containerd[Symbol.asyncDispose]();
});

const REST = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

const logOf = async (node: AgentNode, query = ""): Promise<string> =>
  await textOf(await node.request(`/v1/namespaces/default/pods/web-node/log${query}`));

const readyWeb = (node: AgentNode) => node.waitForPods("a ready pod", (pods) => isReady(pods.get("web-node")));

/** Most of the time goes by in waiting. */
describe("the logs of containers", { skip, concurrency: 4 }, () => {
  test("a long line is one line; a stream, the end, a time, times and so many bytes can be asked for", {
    skip,
    timeout,
  }, async () => {
    await using node = nodeWith(containerd);
    await node.start();
    const long = "head -c 40000 /dev/zero | tr '\\0' x; echo";
    const script = `${long}; echo out; sleep 1.2; echo err >&2; ${REST}`;
    node.writeManifest("web.json", containerPod("web", script));
    await readyWeb(node);
    const follow = await node.request("/v1/namespaces/default/pods/web-node/log?follow=true");
    let all = "";
    for await (const piece of follow) {
      all += String(piece);
      if (all.endsWith("err\n")) break;
    }
    follow.destroy();
    assert.equal(all, `${"x".repeat(40_000)}\nout\nerr\n`);
    assert.equal(await logOf(node, "?stream=Stderr"), "err\n");
    assert.equal(await logOf(node, "?stream=Stdout&limitBytes=40004"), `${"x".repeat(40_000)}\nout`);
    assert.equal(await logOf(node, "?tailLines=2"), "out\nerr\n");
    const stamped = await logOf(node, "?timestamps=true&tailLines=2");
    assert.match(stamped, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z out\n\S+ err\n$/);
    const ofErr = /^(\S+) err$/m.exec(stamped)?.[1] ?? "";
    assert.equal(await logOf(node, `?sinceTime=${encodeURIComponent(ofErr)}`), "err\n");
    assert.equal(edgectl(node, "logs", "web", "--tail", "1"), "err\n");
    await node.drain();
  });

  test("edgectl runs a command in it, shows what it uses, starts it again, and bundles its end", {
    skip,
    timeout,
  }, async () => {
    await using node = nodeWith(containerd);
    await node.start();
    node.writeManifest("web.json", containerPod("web", `echo token=hunter2; ${REST}`));
    const before = (await readyWeb(node)).get("web-node");
    assert.equal(edgectl(node, "exec", "web", "--", "/bin/echo", "inside"), "inside\n");
    assert.match(
      edgectl(node, "top"),
      /^NAME +CPU +MEMORY\nnode node +\d+m +\S+ [MG]iB\nweb-node +(?:\d+m|-) +\S+ [KM]iB\n$/,
    );
    assert.equal(edgectl(node, "restart", "web", "--now"), "pod/web-node restarted\n");
    const after = await node.waitForPods("the pod again", (pods) => isReady(pods.get("web-node")));
    assert.notEqual(containerIdOf(after.get("web-node")), containerIdOf(before));
    assert.equal(restartsOf(after.get("web-node")), 1);
    const bundle = join(node.directory, "bundle.tar.gz");
    const config = ["--config", join(node.directory, "none.yaml")];
    spawnSync("dist/board/bin/edgectl", ["--socket", node.socketPath, "support-bundle", bundle, ...config]);
    const log = "picolet-support/logs/default_web-node";
    const bundled = execFileSync("tar", ["-xzOf", bundle, "--wildcards", `${log}/*.log`], { encoding: "utf8" });
    assert.match(bundled, / token=\*\*\*\n/);
    await node.drain();
  });

  test("a log is put aside by size, compressed and counted, and whoever follows it misses no line", {
    skip,
    timeout,
  }, async () => {
    const config = { containerLogMaxSize: "20Ki", containerLogMaxFiles: 3, containerLogMonitorInterval: "3s" };
    await using node = nodeWith(containerd, { config });
    await node.start();
    const gate = join(node.directory, "gate");
    const lines = `i=0; while [ ! -e /gate/over ]; do i=$((i+1)); echo "line $i"; [ $((i % 20)) = 0 ] && sleep 0.05; done`;
    const app = {
      ...{ name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", `${lines}; echo end; ${REST}`] },
      volumeMounts: [{ name: "gate", mountPath: "/gate" }],
    };
    const volumes = [{ name: "gate", hostPath: { path: gate, type: "DirectoryOrCreate" } }];
    node.writeManifest("web.json", containerPod("web", "", { containers: [app], volumes }));
    await readyWeb(node);
    const following = linesUntil(await node.request("/v1/namespaces/default/pods/web-node/log?follow=true"), "end");
    const [pod = ""] = readdirSync(join(node.directory, "logs"));
    const folder = join(node.directory, "logs", pod, "app");
    const files = (): string[] => readdirSync(folder).filter((name) => !name.endsWith(".tmp"));
    const rotated = (): string | undefined => files().find((name) => /^0\.log\.\d/.test(name));
    await node.waitForFile(folder, () => rotated() !== undefined);
    // Compression changes only the ending of a file's name.
    const oldest = rotated()?.replace(/\.gz$/, "") ?? "";
    await node.waitForFile(folder, () => !files().some((name) => name.startsWith(oldest)));
    writeFileSync(join(gate, "over"), "");
    assertInOrder(await following, 1);
    await node.waitForFile(folder, () => files().length <= 3 && files().some((name) => name.endsWith(".gz")));
    const kept = (await logOf(node)).trimEnd().split("\n");
    const from = Number(/\d+/.exec(kept[0] ?? "")?.[0]);
    assertInOrder(kept, from);
    assert.ok(from > 1, "the oldest is gone");
    await node.drain();
  });

  async function linesUntil(response: IncomingMessage, last: string): Promise<string[]> {
    const seen: string[] = [];
    for await (const line of linesOf(response)) {
      seen.push(line);
      if (line === last) break;
    }
    return seen;
  }

  /** None lost, none doubled. */
  const assertInOrder = (seen: readonly string[], first: number): void =>
    assert.deepEqual(seen, [...Array.from({ length: seen.length - 1 }, (_, index) => `line ${first + index}`), "end"]);

  test("a container's log has a link where log collectors look for it, over a death of the agent, until it is gone", {
    skip,
    timeout,
  }, async () => {
    await using node = nodeWith(containerd);
    await node.start();
    node.writeManifest("web.json", containerPod("web", `echo here; ${REST}`));
    const pods = await readyWeb(node);
    const links = (): string[] => readdirSync(join(node.directory, "containers"));
    const name = `web-node_default_app-${containerIdOf(pods.get("web-node"))}.log`;
    // The agent makes and removes links once a status has changed.
    assert.deepEqual(await settled(() => (links().includes(name) ? [] : [name])), []);
    assert.deepEqual(links(), [name]);
    assert.match(realpathSync(join(node.directory, "containers", name)), /\/default_web-node_[^/]+\/app\/0\.log$/);
    await node.kill();
    await node.start();
    await readyWeb(node);
    assert.deepEqual(links(), [name]);
    await node.drain();
    assert.deepEqual(await settled(links), []);
  });

  test("the run before, init containers and sidecars can be asked for", { skip, timeout }, async () => {
    await using node = nodeWith(containerd, { config: { crashLoopBackOff: { initialContainerRestartPeriod: "1s" } } });
    await node.start();
    const container = (name: string, script: string, more: object = {}): object => ({
      name,
      image: BUSYBOX_IMAGE,
      command: ["/bin/sh", "-c", script],
      ...more,
    });
    const pod = containerPod("web", "", {
      volumes: [{ name: "memory", emptyDir: {} }],
      initContainers: [
        container("first", "echo from first"),
        container("side", `echo from side; ${REST}`, { restartPolicy: "Always" }),
      ],
      containers: [
        container(
          "app",
          `if [ -e /m/x ]; then echo second run; touch /m/y; ${REST}; fi; echo first run; touch /m/x; exit 3`,
          {
            // A container is ready before its script has run.
            readinessProbe: { exec: { command: ["test", "-e", "/m/y"] }, periodSeconds: 1 },
            volumeMounts: [{ name: "memory", mountPath: "/m" }],
          },
        ),
      ],
    });
    node.writeManifest("web.json", pod);
    await node.waitForPods("a pod that has restarted", (pods) => {
      const web = pods.get("web-node");
      return restartsOf(web) === 1 && isReady(web);
    });
    assert.equal(await logOf(node, "?container=first"), "from first\n");
    assert.equal(await logOf(node, "?container=side"), "from side\n");
    assert.equal(await logOf(node, "?container=app"), "second run\n");
    assert.equal(await logOf(node, "?container=app&previous=true"), "first run\n");
    assert.match(
      await logOf(node, "?container=side&previous=true"),
      /previous terminated container .*side.* not found/,
    );
    await node.drain();
  });
});
