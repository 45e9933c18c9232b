import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { LOADER_MESSAGE, seccompLoader } from "./seccomp-loader.ts";

function folderOf(context: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "picolet-loader-"));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The loader of this machine as a file. */
function loaderIn(folder: string): string {
  const path = join(folder, "load");
  writeFileSync(path, seccompLoader(process.arch) ?? assert.fail(`${process.arch} is known`));
  chmodSync(path, 0o755);
  return path;
}

/** As a runner is started: no_new_privs has to be set, or the kernel takes no filter of a process without rights. */
const under = (loader: string, ...command: readonly string[]) =>
  spawnSync("setpriv", ["--no-new-privs", loader, ...command], { encoding: "utf8" });

describe("the loader of the seccomp filter", () => {
  it("loads the filter, and becomes its arguments with its environment", (context) => {
    const loader = loaderIn(folderOf(context));
    const { stdout, status } = spawnSync(
      "setpriv",
      ["--no-new-privs", loader, "/bin/cat", "/proc/self/status", "/proc/self/environ"],
      { encoding: "utf8", env: { WHO: "it is" } },
    );
    assert.equal(status, 0);
    assert.match(stdout, /^Seccomp:\t2$/m);
    assert.match(stdout, /WHO=it is\0$/);
    assert.match(under(loader, "/bin/sh", "-c", "/bin/true; echo no").stderr, /fork/i);
  });

  it("ends with 126 and a message where it cannot go on", (context) => {
    const { status, stderr } = under(loaderIn(folderOf(context)), "/there/is/none");
    assert.deepEqual([status, stderr], [126, LOADER_MESSAGE]);
  });

  it("exists for the machines of which the system calls are known", () => {
    assert.equal(seccompLoader("mips"), undefined);
  });
});
