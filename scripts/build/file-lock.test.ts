import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { FileLock } from "./file-lock.ts";

const SCRIPT = `
  import { FileLock } from "./scripts/build/file-lock.ts";
  const lock = await FileLock.take(process.argv[1]);
  process.send("taken");
  process.on("message", async () => {
    await lock[Symbol.asyncDispose]();
    process.exit();
  });`;

for (const end of ["disposed of", "killed"] as const) {
  test(`a lock is taken by the next process when it was ${end}`, async () => {
    using folder = new TempFolder();
    const args = ["--input-type=module", "-e", SCRIPT, folder.at("lock")];
    const other = spawn(process.execPath, args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    await once(other, "message");
    let isEnding = false;
    const taken = FileLock.take(folder.at("lock")).then((lock) => ({ lock, isEnding }));
    // Long enough for a lock that waits for nothing.
    await FileLock.take(folder.at("another")).then((another) => another[Symbol.asyncDispose]());
    isEnding = true;
    if (end === "killed") other.kill("SIGKILL");
    else other.send("end");
    const { lock, isEnding: wasEnding } = await taken;
    await using _ = lock;
    assert.equal(wasEnding, true);
  });
}
