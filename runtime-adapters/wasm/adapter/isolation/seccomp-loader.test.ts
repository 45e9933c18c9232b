import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { LOADER_MESSAGE, loaderCode, loaderSource, seccompLoader } from "./seccomp-loader.ts";

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

/** What an assembler makes of the source, up to the structure that follows the code. */
function assembled(context: TestContext, machine: string, target: string): Buffer {
  const folder = folderOf(context);
  const syntax = machine === "x64" ? ".intel_syntax noprefix\n" : "";
  const source = `${syntax}${loaderSource(machine)}\n.balign 8\nprogram: .quad 0, 0\nmessage: .ascii "x"\n`;
  writeFileSync(join(folder, "loader.s"), source);
  const object = join(folder, "loader.o");
  execFileSync("clang", [`--target=${target}`, "-c", join(folder, "loader.s"), "-o", object]);
  const file = readFileSync(object);
  // elf(5): sections, each of 64 bytes; the one of code is the first that is executable.
  const [sections, count] = [Number(file.readBigUInt64LE(40)), file.readUInt16LE(60)];
  for (let index = 0; index < count; index += 1) {
    const at = sections + index * 64;
    if ((file.readBigUInt64LE(at + 8) & 4n) === 0n) continue;
    const offset = Number(file.readBigUInt64LE(at + 24));
    return file.subarray(offset, offset + Number(file.readBigUInt64LE(at + 32)));
  }
  return assert.fail("the object file has no code");
}

describe("the loader of the seccomp filter", () => {
  for (const [machine, target] of [
    ["x64", "x86_64-linux-gnu"],
    ["arm64", "aarch64-linux-gnu"],
  ] as const) {
    it(`has the machine code that an assembler makes of its source, for ${machine}`, (context) => {
      const code = Buffer.from(loaderCode(machine) ?? assert.fail("the machine is known"));
      assert.equal(assembled(context, machine, target).subarray(0, code.length).toString("hex"), code.toString("hex"));
      assert.match(loaderSource(machine), new RegExp(`\\b${LOADER_MESSAGE.length}$`, "m"), "the message's length");
    });
  }

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
