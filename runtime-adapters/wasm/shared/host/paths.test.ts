import assert from "node:assert/strict";
import {
  closeSync,
  constants,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { type TestContext, test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { Failure } from "../resources/failure.ts";
import { O_PATH, resolvePath } from "./paths.ts";

/** A folder `root` to resolve in, and beside it what must not be reached. */
class Tree {
  readonly folder = new TempFolder();
  readonly root: number;

  constructor(context: TestContext) {
    mkdirSync(this.folder.at("root/a/b"), { recursive: true });
    writeFileSync(this.folder.at("root/a/file"), "in a");
    writeFileSync(this.folder.at("root/top"), "on top");
    writeFileSync(this.folder.at("secret"), "outside");
    this.root = openSync(this.folder.at("root"), O_PATH | constants.O_DIRECTORY);
    context.after(() => {
      closeSync(this.root);
      this.folder[Symbol.dispose]();
    });
  }

  link(target: string, at: string): void {
    symlinkSync(target, this.folder.at("root", at));
  }

  read(path: string, follow = true): string {
    using resolved = resolvePath(this.root, path, follow);
    return readFileSync(resolved.path, "utf8");
  }

  name(path: string, follow = true): string {
    using resolved = resolvePath(this.root, path, follow);
    return resolved.name;
  }
}

const failsWith = (code: string) => (error: unknown) => error instanceof Failure && error.payload === code;
const openDescriptors = (): number => readdirSync("/proc/self/fd").length;

test("paths inside are resolved, dots and slashes as Linux has them", (context) => {
  const tree = new Tree(context);
  for (const path of ["a/file", "./a/./file", "a//file", "a/b/../file", "a/b/../../a/file"]) {
    assert.equal(tree.read(path), "in a", path);
  }
  for (const path of [".", "a/..", "a/b/../.."]) assert.equal(tree.name(path), ".", path);
});

test("paths that lead out are not permitted, missing ones are no entry", (context) => {
  const tree = new Tree(context);
  for (const path of ["..", "../secret", "a/../../secret", "a/b/../../../root/top", "/etc/passwd", "/"]) {
    assert.throws(() => tree.name(path), failsWith("not-permitted"), path);
  }
  for (const path of ["", "nothing/file", "a/nothing/file"])
    assert.throws(() => tree.name(path), failsWith("no-entry"));
  assert.throws(() => tree.name("top/file"), failsWith("not-directory"));
  assert.throws(() => tree.name("a\0b"), failsWith("invalid"));
  assert.throws(() => tree.name("x/".repeat(3000)), failsWith("name-too-long"));
  assert.equal(tree.name("a/new"), "new", "the last name need not exist");
});

test("links are followed inside, and never out", (context) => {
  const tree = new Tree(context);
  tree.link("a", "to-a");
  tree.link("to-a/b/..", "to-a-again");
  tree.link("../top", "a/b/too-short");
  tree.link("../../top", "a/b/to-top");
  tree.link("../secret", "out");
  tree.link(tree.folder.at("secret"), "absolute");
  tree.link("out", "to-out");
  tree.link("..", "up");
  tree.link("loop", "loop");
  assert.equal(tree.read("to-a/file"), "in a");
  assert.equal(tree.read("to-a-again/file"), "in a");
  assert.equal(tree.read("a/b/to-top"), "on top");
  assert.equal(tree.name("a/b/too-short"), "top");
  for (const path of ["out", "absolute", "to-out", "up", "up/secret", "a/../up/secret", "a/b/../../up/root/top"]) {
    assert.throws(() => tree.read(path), failsWith("not-permitted"), path);
  }
  assert.throws(() => tree.name("loop"), failsWith("loop"));
  assert.throws(() => tree.name("loop/file"), failsWith("loop"));
});

test("the last link is itself when links are not followed, but not with a slash behind it", (context) => {
  const tree = new Tree(context);
  tree.link("../secret", "out");
  tree.link("a", "to-a");
  assert.equal(tree.name("out", false), "out");
  assert.equal(tree.name("to-a", false), "to-a");
  assert.equal(tree.name("to-a/", false), "a");
  assert.throws(() => tree.name("out/", false), failsWith("not-permitted"));
});

test("a trailing slash or dot asks for a directory", (context) => {
  const tree = new Tree(context);
  const asks = (path: string): boolean => {
    using resolved = resolvePath(tree.root, path, true);
    return resolved.mustBeDirectory;
  };
  for (const path of ["a/", "a/.", "./", "a/b//"]) assert.equal(asks(path), true, path);
  for (const path of ["a", "./a", "a/b"]) assert.equal(asks(path), false, path);
});

test("no path leads out, and no directory stays open", (context) => {
  const tree = new Tree(context);
  tree.link("..", "up");
  tree.link("a/b", "down");
  tree.link("../../..", "a/b/far");
  const component = fc.constantFrom("a", "b", "..", ".", "", "up", "down", "far", "top", "file", "secret", "root");
  const before = openDescriptors();
  fc.assert(
    fc.property(fc.array(component, { minLength: 1, maxLength: 8 }), fc.boolean(), (components, follow) => {
      try {
        const content = tree.read(components.join("/"), follow);
        assert.notEqual(content, "outside");
      } catch (error) {
        if (error instanceof Error && "code" in error && error.code !== "ERR_ASSERTION") return;
        assert.ok(error instanceof Failure, String(error));
      }
    }),
    { numRuns: 2000 },
  );
  assert.equal(openDescriptors(), before);
});

test("a directory that is moved away while it is walked is left by the way it was entered", (context) => {
  const tree = new Tree(context);
  mkdirSync(tree.folder.at("elsewhere/deep"), { recursive: true });
  writeFileSync(tree.folder.at("elsewhere/secret"), "outside");
  using inside = resolvePath(tree.root, "a/b/x", true);
  renameSync(tree.folder.at("root/a/b"), tree.folder.at("elsewhere/deep/b"));
  // From the moved directory the kernel's `..` would now be outside; a walk from it ends at its own root.
  assert.throws(() => resolvePath(inside.directory, "../secret", true), failsWith("not-permitted"));
  rmSync(tree.folder.at("elsewhere"), { recursive: true });
});
