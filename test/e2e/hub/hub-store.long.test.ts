/**
 * A board whose hub lost or replaced its store: real hub, real agent, a running component. The board ends a pod only
 * when a hub of its own fleet says so.
 */
import assert from "node:assert/strict";
import { readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { runHubCommand } from "@picolet/scripts/start/hub-process.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import {
  componentPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  nodeWith,
  shownStatus,
} from "../../support/agent/node-fixtures.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";

const skip = kubectlMissing("1.32");

async function startBoard(fleet: Fleet): Promise<AgentNode> {
  const hub = { ...(await fleet.joinConfig()), reconnectBackoff: { initial: "100ms", max: "1s" } };
  const node = nodeWith(undefined, { config: { nodeName: "board", hub } });
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  await untilConnected(node);
  return node;
}

const untilConnected = async (node: AgentNode): Promise<unknown> =>
  await node.waitForStatus("a connection to the hub", ({ tunnel }) => tunnel.state === "connected");

/** @returns what the hub said, and the code that it shows */
async function refused(fleet: Fleet, flags: readonly string[] = []): Promise<{ said: string; code: string }> {
  const { message } = await fleet.startHub(flags).then(
    () => assert.fail("the hub serves"),
    (error: Error) => error,
  );
  assert.match(message, /the hub ended with 65 before it served/);
  return { said: message, code: /--accept-restored-store ([0-9a-f]{8})/.exec(message)?.[1] ?? "" };
}

test("a board runs on while its hub's store is lost, and while the hub serves another fleet", { skip }, async () => {
  await using fleet = await Fleet.start(["--drain-time", "1s"]);
  await using board = await startBoard(fleet);
  const pod = componentPod("hello") as { readonly spec: object };
  await fleet.apply({ ...pod, spec: { ...pod.spec, nodeName: "board" } });
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/hello", "--timeout=60s"]);
  const runs = async (): Promise<unknown> => await board.waitForPods("the pod as it was", (pods) => pods.has("hello"));
  const inDataDir = (name: string): string => join(fleet.dataDir, name);

  await fleet.endHub("SIGKILL");
  for (const name of readdirSync(fleet.dataDir)) if (name.startsWith("hub.db")) rmSync(inDataDir(name));
  const emptied = await refused(fleet);
  assert.match(emptied.said, /is missing, but the keys beside it show that a fleet was served from here/);
  assert.match(emptied.said, /boards then end every pod that is not in it/);
  await runs();

  // Only the CA is left, by which boards know the hub: an unknown fleet.
  for (const name of ["hub-keys.json", "hub-mark.json"]) renameSync(inDataDir(name), fleet.folder.at(name));
  const { code } = await refused(fleet);
  await fleet.startHub(["--accept-restored-store", code]);
  const status = await board.waitForStatus("the refusal", ({ tunnel }) =>
    / belongs to fleet /.test(tunnel.problem ?? ""),
  );
  const own = / belongs to fleet ([0-9a-f-]{36})/.exec(status.tunnel.problem ?? "")?.[1] ?? "";
  const shown = shownStatus(board);
  assert.equal(shown.code, 1);
  assert.match(shown.text, new RegExp(`this node belongs to fleet ${own}`));
  await runs();
  assert.ok(fleet.log.some((line) => line.includes("a board belongs to another fleet")));

  await fleet.endHub("SIGTERM");
  await fleet.startHub(["--adopt-fleet", own]);
  await untilConnected(board);
  await board.waitForPods("the end of the pod, which the operator has accepted", (pods) => !pods.has("hello"));
});

test("backup, loss and restore: the fleet is the same, Secrets are back, and the store before is kept", {
  skip,
}, async () => {
  await using fleet = await Fleet.start(["--drain-time", "1s"]);
  const backup = fleet.folder.at("backup.db");
  await fleet.kubectl(["create", "secret", "generic", "s", "--from-literal=password=hunter2"]);
  assert.match(await runHubCommand(fleet.dataDir, "backup", backup), /keep a copy of hub-keys\.json/);
  assert.match(await runHubCommand(fleet.dataDir, "keys", "rotate"), /seals Secrets with new keys/);
  await assert.rejects(runHubCommand(fleet.dataDir, "restore", backup), /another picolet-hub runs on it/);
  await fleet.kubectl(["create", "configmap", "later"]);
  await fleet.endHub("SIGTERM");
  const said = await runHubCommand(fleet.dataDir, "restore", backup);
  assert.match(said, /what was there before is .*before-restore-/);
  assert.match(said, /boards end pods that were bound to them since the backup/);
  await fleet.startHub();
  const password = await fleet.kubectl(["get", "secret", "s", "-o", "jsonpath={.data.password}"]);
  assert.equal(Buffer.from(password, "base64").toString(), "hunter2");
  assert.doesNotMatch(await fleet.kubectl(["get", "configmaps"]), /later/);
});
