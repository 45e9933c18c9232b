import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { messageOf } from "./agent-fork.ts";

function childOf(folder: TempFolder, program: string) {
  const path = folder.at("child.cjs");
  writeFileSync(path, program);
  return fork(path);
}

test("a child that answers and ends at once has answered", async () => {
  using folder = new TempFolder();
  assert.deepEqual(await messageOf(childOf(folder, "process.send({ heapUsed: 1 }); process.disconnect();")), {
    heapUsed: 1,
  });
});

test("a child that ends without an answer is an error", async () => {
  using folder = new TempFolder();
  await assert.rejects(messageOf(childOf(folder, "process.exit(3);")), /has ended without an answer/);
});
