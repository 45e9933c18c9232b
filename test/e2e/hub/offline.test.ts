/**
 * A board without its hub, without power, or with an older hub: it goes on by itself, and a hub that returns continues
 * where the board is. Real hub, real agent, real containerd, real components.
 */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { backupStoppedStore } from "@picolet/hub-embedded/store/backup.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady, type PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import { runHubCommand } from "@picolet/scripts/start/hub-process.ts";
import { type AgentNode, restartsOf } from "../../support/agent/agent-process.ts";
import {
  componentPod,
  containerIdOf,
  containerPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  identitiesOf,
  nodeWith,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";

const skip = containerdMissing() ?? kubectlMissing("1.32");

let containerd: Containerd;

before(async () => {
  if (skip === false) containerd = await Containerd.start();
});

after(async () => {
  await containerd?.[Symbol.asyncDispose]();
});

/** One board that has joined one hub, with the component in its store. */
async function startBoard(fleet: Fleet, runtime: Containerd | undefined): Promise<AgentNode> {
  const hub = { ...(await fleet.joinConfig()), reconnectBackoff: { initial: "100ms", max: "1s" } };
  const node = nodeWith(runtime, { config: { nodeName: "board", hub } });
  try {
    await node.start();
    edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
    await untilConnected(node);
    return node;
  } catch (error) {
    await node[Symbol.asyncDispose]();
    throw error;
  }
}

/** With a session that began at `since` or later, milliseconds since the epoch. */
async function untilConnected(node: AgentNode, since = 0): Promise<void> {
  await node.waitForStatus("a connection to the hub", ({ tunnel }) => {
    return tunnel.state === "connected" && Date.parse(tunnel.since ?? "") >= since;
  });
}

const onBoard = (pod: unknown) => {
  const { spec, ...rest } = pod as { readonly spec: object };
  return { ...rest, spec: { ...spec, nodeName: "board" } };
};

const allReady =
  (names: readonly string[]) =>
  (pods: PodsByName): boolean =>
    pods.size === names.length && names.every((name) => isReady(pods.get(name)));

async function make(fleet: Fleet, ...pods: readonly unknown[]): Promise<void> {
  await using admin = await FleetAdmin.of(fleet);
  for (const pod of pods) await admin.create(PODS, onBoard(pod));
}

/** The API server says of each pod what the node says, under the UID that the API server knows. */
async function agreedWith(fleet: Fleet, node: AgentNode, names: readonly string[]): Promise<PodsByName> {
  const pods = await node.waitForPods(`${names.join(", ")}, all ready`, allReady(names));
  await using admin = await FleetAdmin.of(fleet);
  for (const [name, pod] of pods) {
    const isTold = (told: Pod): boolean => containerIdOf(told) === containerIdOf(pod) && isReady(told);
    const shown = await admin.untilPod(name, `ready as ${containerIdOf(pod)}`, isTold);
    assert.equal(shown.status?.containerStatuses?.[0]?.restartCount, restartsOf(pod), name);
    // A static pod's own UID is the node's affair.
    if (!name.endsWith("-board")) assert.equal(shown.metadata.uid, pod.metadata.uid, name);
  }
  await admin.untilCondition("board", "Ready", "True");
  return pods;
}

/** Nothing is left running that a test would have to end by force. */
async function emptied(fleet: Fleet, node: AgentNode): Promise<void> {
  for (const file of readdirSync(node.manifests)) node.removeManifest(file);
  await fleet.kubectl(["delete", "pods", "--all", "--wait=false"]);
  await node.waitForPods("an empty node", (pods) => pods.size === 0);
}

/** Reads what the cluster gives it, says so, and goes on. */
const READER = `echo "env $COLOR file $(cat /config/color) token $(head -c 3 /access/token)"
trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done`;

const readerPod = (name: string): unknown =>
  containerPod(name, "", {
    containers: [
      {
        name: "app",
        image: BUSYBOX_IMAGE,
        command: ["/bin/sh", "-c", READER],
        env: [{ name: "COLOR", valueFrom: { configMapKeyRef: { name: "colors", key: "color" } } }],
        volumeMounts: [
          { name: "config", mountPath: "/config" },
          { name: "access", mountPath: "/access" },
        ],
      },
    ],
    volumes: [
      { name: "config", configMap: { name: "colors" } },
      { name: "access", projected: { sources: [{ serviceAccountToken: { path: "token", audience: "somebody" } }] } },
    ],
  });

const COLORS = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "colors" }, data: { color: "green" } };

/** Most of the time goes by in waiting. */
describe("a board without its hub", { skip, concurrency: 2 }, () => {
  test("a board that loses its power while the hub is away runs everything again by itself; the hub's return restarts nothing", async () => {
    await using own = await Containerd.start();
    await using fleet = await Fleet.start(["--drain-time", "1s"]);
    await using node = await startBoard(fleet, own);
    await fleet.apply(COLORS);
    await make(fleet, readerPod("reader"), componentPod("component"));
    node.writeManifest("static.json", containerPod("static"));
    const names = ["component", "reader", "static-board"];
    const first = await agreedWith(fleet, node, names);
    assert.equal(edgectl(node, "logs", "reader"), "env green file green token eyJ\n");

    await fleet.endHub("SIGKILL");
    await node.kill();
    await own.cutPower();
    node.cutPower();
    await own.startDaemon();
    await node.start();
    const isNew = ([name, pod]: [string, Pod]): boolean => containerIdOf(pod) !== containerIdOf(first.get(name));
    const again = await node.waitForPods("three pods that run anew with no hub", (pods) => {
      return allReady(names)(pods) && [...pods].every(isNew);
    });
    for (const [name, pod] of again) assert.equal(pod.metadata.uid, first.get(name)?.metadata.uid);
    assert.equal(edgectl(node, "logs", "reader"), "env green file green token eyJ\n");
    assert.notEqual((await node.status()).tunnel.state, "connected");

    await fleet.startHub();
    await untilConnected(node);
    const back = await agreedWith(fleet, node, names);
    assert.deepEqual(identitiesOf(back), identitiesOf(again));
    await emptied(fleet, node);
  });

  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    test(`a hub that goes with ${signal} and comes back finds every container as it was`, async () => {
      await using fleet = await Fleet.start(["--drain-time", "1s"]);
      await using node = await startBoard(fleet, containerd);
      await make(fleet, containerPod("container"), componentPod("component"));
      const names = ["component", "container"];
      const first = await agreedWith(fleet, node, names);
      await fleet.endHub(signal);
      await node.waitForStatus("the loss of the hub", ({ tunnel }) => tunnel.state !== "connected");
      await fleet.startHub();
      await untilConnected(node);
      const back = await agreedWith(fleet, node, names);
      assert.deepEqual(identitiesOf(back), identitiesOf(first));
      const shown = await fleet.kubectl(["get", "pods"]);
      for (const name of names) assert.match(shown, new RegExp(`^${name} +1/1 +Running +0 `, "m"));
      // The hub returns at the port that the Node already names: no client needs another one.
      assert.match(await fleet.kubectl(["logs", "component", "--tail=1"]), /Running for|Hello/);
      await emptied(fleet, node);
    });
  }

  test("a hub restored from its backup: pods that are older than what runs take it over; what the backup lacks ends", async () => {
    await using fleet = await Fleet.start(["--drain-time", "1s"]);
    await using node = await startBoard(fleet, containerd);
    const [store, backup] = [join(fleet.dataDir, "hub.db"), fleet.folder.at("backup.db")];
    await make(fleet, containerPod("kept"), containerPod("container"), componentPod("component"));
    const names = ["component", "container", "kept"];
    const first = await agreedWith(fleet, node, names);
    await fleet.endHub("SIGTERM");
    backupStoppedStore(store, backup);
    await fleet.startHub();

    await fleet.kubectl(["delete", "pods", "container", "component", "--timeout=60s"]);
    await make(fleet, containerPod("container"), componentPod("component"), componentPod("later"));
    const second = await agreedWith(fleet, node, [...names, "later"]);
    for (const name of ["container", "component"]) {
      assert.notEqual(second.get(name)?.metadata.uid, first.get(name)?.metadata.uid);
    }

    await fleet.endHub("SIGKILL");
    await runHubCommand(fleet.dataDir, "restore", backup);
    await fleet.startHub();
    await node.waitForPods("the UIDs of the backup", (pods) => {
      return allReady(names)(pods) && names.every((name) => uidOf(pods, name) === uidOf(first, name));
    });
    const restored = await agreedWith(fleet, node, names);
    assert.deepEqual(identitiesOf(restored), identitiesOf(new Map([...second].filter(([name]) => name !== "later"))));
    await emptied(fleet, node);
  });
});

const uidOf = (pods: PodsByName, name: string): string | undefined => pods.get(name)?.metadata.uid;
