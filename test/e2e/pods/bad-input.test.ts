/**
 * Bad input of every kind for the agent: each gets one clear error that names its place, and harms nothing that already
 * runs.
 */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { EventObject } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { AgentNode } from "../../support/agent/agent-process.ts";
import {
  allReady,
  componentPod,
  containerIdOf,
  containerPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  nodeWith,
  startedAtOf,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { testComponent, testCoreModule } from "../../support/wasm/components.ts";

const skip = containerdMissing() ?? false;

let containerd: Containerd;

before(async () => {
  if (skip === false) containerd = await Containerd.start();
});

after(async () => {
  if (skip === false) await containerd[Symbol.asyncDispose]();
});

const json = (value: unknown): string => JSON.stringify(value);

/** What is put into the folder of manifests, and the event that names it. */
interface BadInput {
  readonly name: string;
  readonly put: (node: AgentNode) => void;
  readonly says: (event: EventObject) => boolean;
}

const saying =
  (...patterns: readonly RegExp[]) =>
  (event: EventObject): boolean =>
    event.type === "Warning" &&
    patterns.every((pattern) => pattern.test(`${event.involvedObject.name} ${event.message}`));

const BAD_INPUTS: readonly BadInput[] = [
  {
    name: "a syntax error",
    put: (node) => void node.writeManifest("syntax.yaml", "kind: Pod\n  bad: [indent"),
    says: saying(/syntax\.yaml/, /:\d+/),
  },
  {
    name: "a wrong type",
    put: (node) =>
      void node.writeManifest("type.yaml", json({ ...(containerPod("type") as object), spec: { containers: "none" } })),
    says: saying(/type\.yaml/, /spec\.containers/),
  },
  {
    name: "an unknown runtimeClassName",
    put: (node) =>
      void node.writeManifest("class.yaml", json(containerPod("class", "true", { runtimeClassName: "nobody" }))),
    says: saying(/class/, /nobody/),
  },
  {
    name: "a duplicate name",
    put: (node) => void node.writeManifest("zzz.yaml", json(componentPod("good"))),
    says: saying(/zzz\.yaml/, /good/),
  },
  {
    name: "a 50 MB file",
    put: (node) => writeFileSync(join(node.manifests, "large.yaml"), Buffer.alloc(50 * MEBIBYTE, "a")),
    says: saying(/large\.yaml/, /MiB|bytes|large/i),
  },
  {
    name: "a FIFO",
    put: (node) => void execFileSync("mkfifo", [join(node.manifests, "fifo.yaml")]),
    says: saying(/fifo\.yaml/),
  },
  {
    name: "a symlink loop",
    put: (node) => symlinkSync("loop.yaml", join(node.manifests, "loop.yaml")),
    says: saying(/loop\.yaml/),
  },
  {
    name: "a name of 300 characters",
    put: (node) => void node.writeManifest("long.yaml", json(containerPod("n".repeat(300)))),
    says: saying(/long\.yaml/, /metadata\.name/),
  },
  {
    name: "a container image that does not exist",
    put: (node) =>
      void node.writeManifest(
        "image.yaml",
        json(containerPod("image", "true", { containers: [{ name: "app", image: "127.0.0.1:1/nobody:1" }] })),
      ),
    says: saying(/image-node/, /127\.0\.0\.1:1\/nobody:1/),
  },
  {
    name: "a component that does not exist",
    put: (node) =>
      void node.writeManifest("component.yaml", json(componentPod("component", { image: "picolet.example/nobody:1" }))),
    says: saying(/component-node/, /picolet\.example\/nobody:1/),
  },
];

const identity = (pod: Pod | undefined): unknown => [containerIdOf(pod), startedAtOf(pod)];

/** Most of the time goes by in waiting. */
describe("an agent and what is wrong", { skip, concurrency: 2 }, () => {
  test("each bad input is named by one event, and the pods that ran before run on", async (context) => {
    await using node = nodeWith(containerd);
    await node.start();
    edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
    node.writeManifest("good.yaml", componentPod("good"));
    node.writeManifest("fine.yaml", containerPod("fine"));
    const before = await node.waitForPods("two ready pods", allReady(2));
    for (const { name, put, says } of BAD_INPUTS) {
      await context.test(name, async () => {
        put(node);
        await node.waitForEvent(`an event about ${name}`, says);
      });
    }
    const afterwards = await node.waitForPods(
      "the pods from before",
      (pods) => isReady(pods.get("good-node")) && isReady(pods.get("fine-node")),
    );
    for (const name of ["good-node", "fine-node"])
      assert.deepEqual(identity(afterwards.get(name)), identity(before.get(name)));
    const status = await node.status();
    assert.ok(
      status.problems.some(({ origin }) => origin.endsWith("syntax.yaml")),
      "edgectl status names the broken file",
    );
    await node.drain();
  });

  /** A component that is no component, wants too much or behaves badly, and what is said of its pod. */
  interface BadComponent {
    readonly name: string;
    readonly image: () => Promise<string>;
    readonly args?: readonly string[];
    readonly says: (event: EventObject) => boolean;
  }

  const LIMITS = { memory: "64Mi", cpu: "100m" };

  const BAD_COMPONENTS: readonly BadComponent[] = [
    {
      name: "core-module",
      image: () => testCoreModule("workload.c"),
      says: saying(/core-module-node/, /core module/i, /componentNew|wasm-tools component new/),
    },
    {
      name: "wants-http",
      image: () => testComponent("wants-http.wat"),
      says: saying(/wants-http-node/, /wasi:http/),
    },
    {
      name: "hungry",
      image: () => testComponent("workload.c"),
      args: ["allocate"],
      says: saying(/hungry-node/, /restarting failed container/),
    },
  ];

  test("a component that is none, or asks for too much, is named and harms no other pod", async (context) => {
    const crashLoopBackOff = { initialContainerRestartPeriod: "1s", maxContainerRestartPeriod: "2s" };
    await using node = nodeWith(undefined, { config: { crashLoopBackOff } });
    await node.start();
    edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
    node.writeManifest("good.yaml", componentPod("good"));
    const spin = await testComponent("workload.c");
    const limited = { resources: { limits: LIMITS } };
    node.writeManifest("spin.yaml", componentPod("spin", { image: `file://${spin}`, args: ["spin"], ...limited }));
    const before = await node.waitForPods("two ready pods", allReady(2));
    for (const { name, image, args = [], says } of BAD_COMPONENTS) {
      await context.test(name, async () => {
        const container = { image: `file://${await image()}`, args, ...limited };
        node.writeManifest(`${name}.yaml`, componentPod(name, container));
        await node.waitForEvent(`an event about ${name}`, says);
      });
    }
    const afterwards = await node.waitForPods("the pods from before", (pods) => isReady(pods.get("good-node")));
    assert.deepEqual(identity(afterwards.get("good-node")), identity(before.get("good-node")));
    await node.drain();
  });

  test("a broken file keeps its last good version running, also when the agent is started again", async () => {
    await using node = nodeWith(undefined);
    await node.start();
    edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
    node.writeManifest("good.yaml", componentPod("good"));
    const before = await node.waitForPods("a ready pod", (pods) => isReady(pods.get("good-node")));
    node.writeManifest("good.yaml", "kind: [");
    await node.waitForEvent("an event about the broken file", saying(/good\.yaml/));
    await node.kill();
    await node.start();
    const afterwards = await node.waitForPods("the pod as it was", (pods) => isReady(pods.get("good-node")));
    assert.deepEqual(identity(afterwards.get("good-node")), identity(before.get("good-node")));
    await node.drain();
  });
});

test("a wrong configuration names every problem with its path and leaves with 78", async () => {
  await using node = new AgentNode({ config: { fileCheckFrequency: "soon", maxPods: -1, staticPodPth: "/x" } });
  const result = spawnSync("dist/board/bin/picolet", ["--config", node.configPath], { encoding: "utf8" });
  assert.equal(result.status, 78);
  for (const field of ["fileCheckFrequency", "maxPods", "staticPodPth"]) assert.match(result.stderr, new RegExp(field));
});

test("thresholds and reservations that this machine contradicts leave with 78, and nothing is started", async () => {
  await using node = new AgentNode({
    config: {
      evictionHard: { "memory.available": "9999Gi", "nodefs.avail": "5%", "imagefs.available": "101%" },
      evictionSoft: { "pid.available": "4%" },
      kubeReserved: { cpu: "9999", memory: "1Mi" },
    },
  });
  const root = join(node.directory, "root");
  const result = spawnSync("dist/board/bin/picolet", ["--config", node.configPath, "--root-dir", root], {
    encoding: "utf8",
  });
  assert.equal(result.status, 78);
  const patterns = [
    /kubeReserved.memory: Invalid value: "1Mi": Resource "memory" has a reservation of \d+Mi but/,
    /evictionHard\[nodefs.avail\]: .*unsupported eviction signal, did you mean nodefs.available\?/,
    /evictionHard\[imagefs.available\]: Invalid value: "101%"/,
    /evictionSoft\[pid.available\]: .*grace period must be specified/,
    /kubeReserved.cpu: Invalid value: "9999": Resource "cpu" has a reservation of 9999 but capacity of/,
  ];
  for (const pattern of patterns) assert.match(result.stderr, pattern);
  assert.equal(existsSync(root), false);
});

test("an unknown argument leaves with 64 and names it", () => {
  const result = spawnSync("dist/board/bin/picolet", ["--nope"], { encoding: "utf8" });
  assert.equal(result.status, 64);
  assert.match(result.stderr, /--nope/);
});
