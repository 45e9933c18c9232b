import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { describe, it } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { licenseText, thirdPartyLicenses } from "./carried-packages.ts";
import { Distribution } from "./distribution.ts";
import { isNativeFor, platformOf, requireHash } from "./platform-parts.ts";

const elfFor = (machine: number): Buffer => {
  const header = Buffer.alloc(64);
  header.write("\x7fELF", "latin1");
  header.writeUInt16LE(machine, 18);
  return header;
};
const X64 = elfFor(62);
const ARM64 = elfFor(183);

describe("a distribution", () => {
  it("has what was added to it, and nothing of an earlier build", () => {
    using folder = new TempFolder();
    mkdirSync(folder.at("source/inner"), { recursive: true });
    writeFileSync(folder.at("source/inner/a"), "a");
    mkdirSync(folder.at("out/old/older"), { recursive: true });
    writeFileSync(folder.at("out/old/older/b"), "b");
    const distribution = new Distribution(folder.at("out"), "linux-x64");
    distribution.add("lib", folder.at("source"));
    distribution.write("bin/program", "#!/bin/sh\n", 0o755);
    distribution.prune();
    const files = readdirSync(folder.at("out"), { recursive: true }).sort();
    assert.deepEqual(files, ["bin", "bin/program", "lib", "lib/inner", "lib/inner/a"]);
    assert.equal(statSync(folder.at("out/bin/program")).mode & 0o777, 0o755);
  });

  it("replaces a file that programs may have mapped, and leaves one that is the same", () => {
    using folder = new TempFolder();
    const [source, target] = [folder.at("source"), folder.at("out/a")];
    const add = (content: string): number => {
      writeFileSync(source, content);
      new Distribution(folder.at("out"), "linux-x64").add("a", source);
      assert.equal(readFileSync(target, "utf8"), content);
      return statSync(target).ino;
    };
    const first = add("one");
    assert.equal(add("one"), first);
    assert.notEqual(add("two"), first);
  });

  it("refuses machine code of another platform", () => {
    using folder = new TempFolder();
    writeFileSync(folder.at("addon.node"), ARM64);
    const distribution = new Distribution(folder.at("out"), "linux-x64");
    assert.throws(() => distribution.add("addon.node", folder.at("addon.node")), /addon\.node is not for linux-x64/);
  });
});

describe("parts of a platform", () => {
  it("are recognised by their ELF header", () => {
    using folder = new TempFolder();
    const judge = (content: Uint8Array | string): boolean | undefined => {
      writeFileSync(folder.at("file"), content);
      return isNativeFor("linux-arm64", folder.at("file"));
    };
    assert.deepEqual([ARM64, X64, "#!/bin/sh", ""].map(judge), [true, false, undefined, undefined]);
  });

  it("are refused without the hash that was reviewed", () => {
    using folder = new TempFolder();
    writeFileSync(folder.at("file"), "abc");
    const sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    requireHash(folder.at("file"), "sha256", "hex", sha256);
    for (const expected of [sha256.replace("b", "c"), undefined])
      assert.throws(() => requireHash(folder.at("file"), "sha256", "hex", expected), /has the sha256 ba78.*, not the/);
  });

  it("are there for two platforms", () => {
    assert.equal(platformOf("linux-arm64"), "linux-arm64");
    assert.throws(() => platformOf("linux-riscv64"), /cannot build for linux-riscv64: .*linux-x64 and linux-arm64/);
    const { status, stderr } = spawnSync(process.execPath, ["scripts/build/build.ts", "--platform", "win32-x64"], {
      encoding: "utf8",
    });
    assert.equal(status, 64);
    assert.match(stderr, /cannot build for win32-x64.*\nnpm run build -- --help/);
  });
});

describe("the licences of third parties", () => {
  it("name every package, and have a text that is shared once", () => {
    using folder = new TempFolder();
    for (const [name, text] of [
      ["a", "one text"],
      ["b", "one text\n"],
      ["c", "another"],
    ] as const) {
      mkdirSync(folder.at(name));
      writeFileSync(folder.at(name, name === "c" ? "UNLICENSE" : "license.md"), text);
    }
    const packages = ["a", "b", "c"].map((name) => {
      return { name, version: "1.0.0", license: "MIT", text: licenseText(name, folder.at(name)) };
    });
    const licenses = thirdPartyLicenses(packages);
    assert.match(
      licenses,
      /^a 1\.0\.0 \(MIT\)\nb 1\.0\.0 \(MIT\)\n=+\n\none text\n\n=+\nc 1\.0\.0 \(MIT\)\n=+\n\nanother\n$/m,
    );
  });

  it("refuse a package that brings none", () => {
    using folder = new TempFolder();
    assert.throws(() => licenseText("a", folder.path), /the package a brings no licence text/);
  });
});
