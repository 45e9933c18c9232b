import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { type Bundles, keptBundles } from "./kept-bundles.ts";

class Sources implements Disposable {
  readonly #folder = new TempFolder();
  readonly cache = this.#folder.at("cache");
  made = 0;

  constructor() {
    mkdirSync(this.#folder.at("source/inner"), { recursive: true });
    this.write("a.ts", "a");
    this.write("inner/b.ts", "b");
  }

  write(name: string, content: string): void {
    writeFileSync(this.#folder.at(`source/${name}`), content);
  }

  remove(name: string): void {
    rmSync(this.#folder.at(`source/${name}`));
  }

  /** Bundles that hold how many were made before. */
  async bundle(root = "dist/board"): Promise<Bundles> {
    const make = async (): Promise<Bundles> => {
      this.made += 1;
      return { files: [{ path: "lib/program", content: Buffer.from([this.made]) }], metafiles: [] };
    };
    return await keptBundles(root, make, { sources: [this.#folder.at("source")], cache: this.cache });
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

it("bundles the same sources once for each distribution", async () => {
  using sources = new Sources();
  const [first, second] = [await sources.bundle(), await sources.bundle()];
  assert.equal(sources.made, 1);
  assert.deepEqual(Buffer.from(second.files[0]?.content ?? ""), Buffer.from(first.files[0]?.content ?? ""));
  await sources.bundle("dist/hub");
  assert.equal(sources.made, 2);
});

it("bundles again after a source was changed, added, renamed or removed, and not after a test was", async () => {
  using sources = new Sources();
  await sources.bundle();
  const changes = [
    () => sources.write("a.ts", "changed"),
    () => sources.write("inner/c.ts", ""),
    () => {
      sources.remove("inner/c.ts");
      sources.write("inner/d.ts", "");
    },
    () => sources.remove("inner/d.ts"),
  ];
  for (const [index, change] of changes.entries()) {
    change();
    await sources.bundle();
    assert.equal(sources.made, index + 2);
  }
  sources.write("a.test.ts", "a test");
  await sources.bundle();
  assert.equal(sources.made, changes.length + 1);
});

it("bundles again when what was kept is not whole", async () => {
  using sources = new Sources();
  await sources.bundle();
  const [name = ""] = readdirSync(sources.cache);
  const path = join(sources.cache, name);
  truncateSync(path, readFileSync(path).length - 1);
  await sources.bundle();
  assert.equal(sources.made, 2);
});
