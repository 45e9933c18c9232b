import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isAbandoned, writeOwner } from "./owner-file.ts";
import { TempFolder } from "./temp-folder.ts";

test("a folder is abandoned when its process has ended, and never by what another namespace says", () => {
  using folder = new TempFolder();
  const { path } = folder;
  assert.equal(isAbandoned(path), false, "nothing says who made it");
  writeOwner(path);
  assert.equal(isAbandoned(path), false, "its process is this one");
  const { pid } = spawnSync("/bin/true");
  const own = readlinkSync("/proc/self/ns/pid");
  const cases: [string, boolean][] = [
    [`${pid} ${own}`, true],
    [`${pid} pid:[1]`, false],
    [String(pid), false],
    ["", false],
  ];
  for (const [text, expected] of cases) {
    writeFileSync(join(path, "owner"), text);
    assert.equal(isAbandoned(path), expected, text);
  }
});
