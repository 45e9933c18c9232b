/** A process of its own that races with a process that resolves paths. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { symlinkSync } from "node:fs";
import type { TestContext } from "node:test";

const PROGRAM = `
  const { renameSync, writeSync } = require("node:fs");
  const [folder, moving] = process.argv.slice(1);
  process.chdir(folder);
  for (let turn = 0; ; turn += 1) {
    renameSync(moving, "parked");
    renameSync("link-out", moving);
    if (turn === 0) writeSync(1, "going");
    renameSync(moving, "link-out");
    renameSync("parked", moving);
  }`;

/**
 * Puts a folder and a link in each other's place, as fast as it can.
 * @param moving the folder, relative to `folder`
 * @param target of the link, as seen from where the folder is
 * @returns what ends it
 */
export async function swapFolder(
  context: TestContext,
  folder: string,
  moving: string,
  target: string,
): Promise<() => Promise<void>> {
  symlinkSync(target, `${folder}/link-out`);
  const swapper = spawn(process.execPath, ["-e", PROGRAM, folder, moving], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(swapper, "exit");
  const end = async (): Promise<void> => {
    swapper.kill("SIGKILL");
    await ended;
  };
  context.after(end);
  await once(swapper.stdout, "data");
  return end;
}
