import assert from "node:assert/strict";
import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { SystemMounter } from "@picolet/agent/volumes/files/mounter.ts";
import { MountFolder } from "./mount-folder.ts";

const isAllowed = new SystemMounter().allowed && process.geteuid?.() === 0;
const skip = isAllowed ? false : "needs root and the right to mount";
const VICTIM = "victim";

function withMount(): MountFolder {
  const folder = new MountFolder();
  mkdirSync(folder.at("volume"));
  execFileSync("mount", ["-t", "tmpfs", "tmpfs", folder.at("volume")]);
  return folder;
}

const isLeft = (path: string): boolean =>
  existsSync(path) || readFileSync("/proc/self/mountinfo", "utf8").includes(path);

if (process.argv[2] === VICTIM) {
  process.send?.(withMount().path);
} else {
  test("a folder goes with its mounts", { skip }, () => {
    using folder = withMount();
    folder[Symbol.dispose]();
    assert.equal(isLeft(folder.path), false);
  });

  test("what a killed test left is removed by the next folder, and what runs keeps its own", { skip }, async () => {
    using own = withMount();
    const victim = fork(fileURLToPath(import.meta.url), [VICTIM], { execArgv: [] });
    const [path] = (await once(victim, "message")) as [string];
    assert.ok(isLeft(path));
    const exited = once(victim, "exit");
    victim.kill("SIGKILL");
    await exited;
    using _next = new MountFolder();
    assert.equal(isLeft(path), false);
    assert.equal(isLeft(own.at("volume")), true);
  });
}
