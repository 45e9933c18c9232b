/** The built agent on a file system that becomes read-only. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { AgentNode } from "../../support/agent/agent-process.ts";
import { edgectl } from "../../support/agent/node-fixtures.ts";

test("a read-only file system is a condition and an event", async () => {
  await using node = new AgentNode();
  const root = join(node.directory, "root");
  await node.start();
  try {
    const isTrue = (status: string) => (answer: { readonly conditions: readonly { type: string; status: string }[] }) =>
      answer.conditions.some((each) => each.type === "ReadonlyFilesystem" && each.status === status);
    await node.waitForStatus("a good start", isTrue("False"));
    // A second view of the folder: what the agent has open for writing stays so, and the database lives on.
    execFileSync("mount", ["--bind", root, root]);
    execFileSync("mount", ["-o", "remount,bind,ro", root]);
    await node.waitForStatus("the condition", isTrue("True"));
    const event = await node.waitForEvent("the event", ({ reason }) => reason === "FilesystemIsReadOnly");
    assert.equal(event.type, "Warning");
    const shown = JSON.parse(edgectl(node, "config", "-o", "json")) as { configuration: Record<string, unknown> };
    assert.deepEqual(shown.configuration.boardHealth, {
      ...{ enabled: true, holdPeriod: "5m0s", temperatureCelsius: 85, wearPercent: 90 },
    });
  } finally {
    spawnSync("umount", ["--lazy", root]);
  }
});

test("boardHealth: {enabled: false} reports no condition of the board", async () => {
  await using node = new AgentNode({ config: { boardHealth: { enabled: false } } });
  await node.start();
  const { conditions } = await node.waitForStatus("a ready node", ({ ready }) => ready);
  assert.deepEqual(
    conditions.map(({ type }) => type).filter((type) => type.includes("/") || type === "ReadonlyFilesystem"),
    [],
  );
  await node.stop();
});
