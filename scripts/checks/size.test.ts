import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { sizeOf } from "./size.ts";

test("files, lines, rooms and the imports between them are counted, of a tree with and without packages", () => {
  using folder = new TempFolder();
  const write = (path: string, content: string): void => {
    mkdirSync(dirname(folder.at(path)), { recursive: true });
    writeFileSync(folder.at(path), content);
  };
  write("package.json", "{}");
  write("agent/plan/plan.ts", 'import "../core/core.ts";\nimport "../../protocol/pod.ts";\n');
  write("agent/plan/more.ts", 'import type { X } from "../core/core.ts";\n');
  write("agent/plan/plan.test.ts", 'import "../store/store.ts";\n');
  write("agent/core/core.ts", "export {};\n");
  write("protocol/pod.ts", "export {};\n\n\n");
  write("test/sim/sim.ts", "\n");
  const size = sizeOf(folder.path);
  assert.deepEqual(
    [size.packages, size.program, size.rest, size.rooms, size.importsBetweenRooms],
    [0, { files: 4, lines: 7 }, { files: 2, lines: 2 }, 3, 2],
  );
  assert.deepEqual(
    size.largestRooms.map(({ room, lines }) => [room, lines]),
    [
      ["agent/plan", 3],
      ["protocol", 3],
      ["agent/core", 1],
    ],
  );

  write("package.json", '{ "workspaces": ["protocol", "agent"] }');
  write("protocol/package.json", '{ "name": "@x/protocol" }');
  write("agent/package.json", '{ "name": "@x/agent" }');
  write("agent/plan/more.ts", 'import "@x/protocol/pod.ts";\nimport "@x/agent/core/core.ts";\nimport "node:fs";\n');
  const divided = sizeOf(folder.path);
  assert.deepEqual([divided.packages, divided.importsBetweenRooms], [2, 2]);
});

test("an unknown option is refused", () => {
  const { status, stderr } = spawnSync(process.execPath, ["scripts/checks/size.ts", "--fast"], { encoding: "utf8" });
  assert.equal(status, 64);
  assert.match(stderr, /--fast.*\n.*npm run size/s);
});
