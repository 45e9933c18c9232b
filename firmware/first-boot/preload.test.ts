/** Preloading from real files, with programs in place of ctr and edgectl. */
import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { TestBoard } from "@picolet/test/support/unit/firmware/test-board.ts";
import { type PreloadInit, preload } from "./preload.ts";

const WISHES = {
  images: ["preload/web.tar", "preload\\db.tar"],
  components: [{ file: "preload/hello.wasm", name: "registry.example/hello:1" }],
};

class Bench extends TestBoard {
  readonly runs: string[] = [];
  readonly shown: string[] = [];
  readonly digested: string[] = [];
  failing: string | undefined;

  constructor() {
    super("");
    for (const name of ["web.tar", "db.tar", "hello.wasm"]) this.write(`/boot/picolet/preload/${name}`, name);
  }

  preload(wishes: Parameters<typeof preload>[0] = WISHES): Promise<readonly string[]> {
    const { files, partition } = this.board();
    const init: PreloadInit = {
      ...{ files, partition },
      run: (command, args) => {
        if (this.failing !== undefined && args.join().includes(this.failing))
          return Promise.reject(new Error("no room"));
        this.runs.push([command, ...args].join(" "));
        return Promise.resolve();
      },
      digestOf: (path) => {
        this.digested.push(path);
        return Promise.resolve(hash("sha256", readFileSync(join(this.root, path))));
      },
      stampOf: (path) => {
        const found = statSync(join(this.root, path), { throwIfNoEntry: false });
        return found === undefined ? undefined : `${found.size} ${found.mtimeMs}`;
      },
      show: (line) => this.shown.push(line),
    };
    return preload(wishes, init);
  }
}

const IMPORT = "ctr -n k8s.io images import /boot/picolet/preload";

test("each file is brought once, and read again only when it has changed", async () => {
  using bench = new Bench();
  assert.deepEqual(await bench.preload(), []);
  assert.deepEqual(bench.runs.splice(0), [
    `${IMPORT}/web.tar`,
    `${IMPORT}/db.tar`,
    "edgectl image import /boot/picolet/preload/hello.wasm --name registry.example/hello:1",
  ]);
  assert.deepEqual(bench.shown, [
    "preload 1/3: preload/web.tar",
    "preload 2/3: preload\\db.tar",
    "preload 3/3: preload/hello.wasm",
  ]);
  bench.digested.length = 0;
  await bench.preload();
  assert.deepEqual([bench.runs, bench.digested], [[], []]);
  bench.write("/boot/picolet/preload/web.tar", "another one");
  await bench.preload();
  assert.deepEqual(bench.runs.splice(0), [`${IMPORT}/web.tar`]);
  // Another time of change, and the same content.
  bench.write("/boot/picolet/preload/web.tar", "another one");
  await bench.preload();
  assert.deepEqual(bench.runs, []);
});

test("what fails is named, stops nothing else, and is tried again", async () => {
  using bench = new Bench();
  bench.failing = "web.tar";
  const missing = { images: [...WISHES.images, "none.tar"] };
  assert.deepEqual(await bench.preload(missing), [
    "preload of preload/web.tar failed: no room",
    "preload of none.tar failed: there is no such file on this partition",
  ]);
  assert.deepEqual(bench.runs.splice(0), [`${IMPORT}/db.tar`]);
  bench.failing = undefined;
  assert.deepEqual(await bench.preload(), []);
  assert.deepEqual(bench.runs.splice(0).length, 2);
});

test("a damaged record, and an item that went away and came back, cost another import", async () => {
  using bench = new Bench();
  await bench.preload();
  bench.write("/data/first-boot/preloaded.json", "{");
  await bench.preload({ images: ["preload/web.tar"] });
  await bench.preload();
  assert.deepEqual(bench.runs.slice(3), [
    `${IMPORT}/web.tar`,
    `${IMPORT}/db.tar`,
    "edgectl image import /boot/picolet/preload/hello.wasm --name registry.example/hello:1",
  ]);
});
