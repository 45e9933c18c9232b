/** The runners' loader against what Debian's assembler makes of its source. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { describe, it, type TestContext } from "node:test";
import { LOADER_MESSAGE, loaderCode, loaderSource } from "@picolet/runtime-wasm/adapter/isolation/seccomp-loader.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

/** The assembler's output, up to the structure that follows the code. */
function assembled(context: TestContext, machine: string, target: string): Buffer {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  const syntax = machine === "x64" ? ".intel_syntax noprefix\n" : "";
  const source = `${syntax}${loaderSource(machine)}\n.balign 8\nprogram: .quad 0, 0\nmessage: .ascii "x"\n`;
  writeFileSync(folder.at("loader.s"), source);
  const object = folder.at("loader.o");
  execFileSync("clang", [`--target=${target}`, "-c", folder.at("loader.s"), "-o", object]);
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
});
