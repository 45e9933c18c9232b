import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { SerialLine } from "./serial-line.ts";

const LIMIT_MS = 60_000;

test("a wait for text ends when the line closes, and shows what came last", async () => {
  using folder = new TempFolder();
  const path = folder.at("line.sock");
  await using server = createServer((board) => board.end("reboot: Restarting system\n")).listen(path);
  await once(server, "listening");
  const line = await SerialLine.connect(path);
  assert.deepEqual(await line.waitFor(/Restarting/, LIMIT_MS), ["Restarting"]);
  const closed = /had no \/login\/ before it closed; its end is\nreboot: Restarting system/;
  await assert.rejects(line.waitFor(/login/, LIMIT_MS), closed);
  await assert.rejects(line.waitFor(/login/, LIMIT_MS), closed);
});
