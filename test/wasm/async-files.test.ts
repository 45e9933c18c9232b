/**
 * wasi:filesystem of WASI 0.3: what it reads and writes, that it is held as that of 0.2 is, and that it leaves nothing
 * behind.
 */
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { heldMemory } from "../support/unit/machine/held-memory.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { AsyncComponent } from "../support/wasm/async-component.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmPod, WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const SEED = Number(process.env.PICOLET_SEED ?? 20_261_120);
const RANDOM_STEPS = 120;
const CHANGES = /^(?:write|append|mkdir|rmdir|rm|mv|ln|symlink|time)$/;
const NEVER = new AbortController().signal;
/** Error codes of wasi:filesystem/types@0.3.0, by their place in it. */
const ERROR = { badDescriptor: 2, exist: 6, isDirectory: 13, noEntry: 19, notPermitted: 30, readOnly: 32 };
/** Descriptor types of the same. */
const TYPE = { directory: 2, link: 4, file: 5 };

let component: AsyncComponent;

before(async () => {
  component = await AsyncComponent.of("async-files.c");
});

after(() => component?.[Symbol.dispose]());

/** A volume, and a file beside it that no component may reach. */
class Volume implements Disposable {
  readonly folder = new TempFolder();

  constructor() {
    for (const each of ["volume", "volume/folder", "outside"]) mkdirSync(this.folder.at(each));
    writeFileSync(this.at("file"), "some words\n");
    writeFileSync(this.folder.at("outside/secret"), "secret");
    symlinkSync("../outside", this.at("way-out"));
    symlinkSync("../outside/secret", this.at("secret-link"));
  }

  at(name: string): string {
    return this.folder.at("volume", name);
  }

  text(name: string): string {
    return readFileSync(this.at(name), "utf8");
  }

  run(...args: readonly string[]): Promise<string> {
    const volume = { guestPath: "/data", hostPath: this.folder.at("volume"), readOnly: false };
    const fixed = { guestPath: "/fixed", hostPath: this.folder.at("volume"), readOnly: true };
    return component.run({ args, mounts: [volume, fixed] });
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

test("it reads, writes and appends by streams, which tell how they ended", async () => {
  using volume = new Volume();
  assert.equal(await volume.run("read", "/data/file", "0"), "some words\nok\n");
  assert.equal(await volume.run("read", "/data/file", "5"), "words\nok\n");
  assert.equal(await volume.run("read", "/data/file", "500"), "ok\n");
  assert.equal(await volume.run("some", "/data/file", "4"), "someok\n", "who lets go of a stream hears of no failure");
  assert.equal(await volume.run("write", "/data/new", "2", "text"), "ok\n");
  assert.equal(volume.text("new"), "\0\0text");
  assert.equal(await volume.run("append", "/data/new", " more"), "ok\n");
  assert.equal(volume.text("new"), "\0\0text more");
  assert.equal(await volume.run("size", "/data/new", "3"), "ok\n");
  assert.equal(volume.text("new"), "\0\0t");
});

test("streams of any length go through whole, and two at the same time", async () => {
  using volume = new Volume();
  assert.equal(await volume.run("many", "/data/long", "300"), "ok\n");
  const written = volume.text("long");
  assert.equal(written.length, 300 * 4096);
  assert.equal(written, Array.from({ length: 300 }, () => written.slice(0, 4096)).join(""));
  assert.equal(await volume.run("read", "/data/long", "0"), `${written}ok\n`);
  writeFileSync(volume.at("x"), "x".repeat(50_000));
  writeFileSync(volume.at("y"), "y".repeat(70_000));
  const both = await volume.run("both", "/data/x", "/data/y");
  assert.deepEqual([both.replaceAll("y", "").length, both.replaceAll("x", "").length], [50_000, 70_000]);
});

test("names, kinds, sizes and times are told", async () => {
  using volume = new Volume();
  assert.equal(await volume.run("stat", "/data/file"), `${TYPE.file} size 11 modified 1 now\n`);
  assert.equal(await volume.run("time", "/data/file", "1000000000"), "ok\n");
  assert.equal(await volume.run("stat", "/data/file"), `${TYPE.file} size 11 modified 1 then\n`);
  for (let count = 0; count < 20; count += 1) writeFileSync(volume.at(`folder/${count}`), "");
  const lines = (await volume.run("list", "/data/folder")).split("\n").slice(0, -1);
  assert.equal(lines.pop(), "ok");
  assert.deepEqual(lines.sort(), Array.from({ length: 20 }, (_, count) => `${TYPE.file} ${count}`).sort());
  const listed = await volume.run("list", "/data/");
  assert.match(listed, new RegExp(`^${TYPE.directory} folder$`, "m"));
  assert.match(listed, new RegExp(`^${TYPE.link} way-out$`, "m"));
  assert.equal(await volume.run("hash", "/data/file", "/fixed/file"), "equal same\n");
  assert.equal(await volume.run("hash", "/data/file", "/data/folder"), "unlike other\n");
});

test("names are made, moved and taken away", async () => {
  using volume = new Volume();
  for (const args of [
    ["mkdir", "/data/made"],
    ["mv", "/data/file", "/data/made/moved"],
    ["ln", "/data/made/moved", "/data/second"],
    ["symlink", "made/moved", "/data/link"],
    ["sync", "/data/link"],
    ["rm", "/data/made/moved"],
    ["rmdir", "/data/made"],
  ] as const) {
    assert.equal(await volume.run(...args), "ok\n", args.join(" "));
  }
  assert.equal(await volume.run("readlink", "/data/link"), "made/moved ok\n");
  assert.equal(volume.text("second"), "some words\n");
  assert.deepEqual(readdirSync(volume.at("")).sort(), ["folder", "link", "second", "secret-link", "way-out"]);
});

test("what fails says by its code why", async () => {
  using volume = new Volume();
  for (const [code, ...args] of [
    [ERROR.noEntry, "read", "/data/missing", "0"],
    [ERROR.isDirectory, "read", "/data/folder", "0"],
    [ERROR.exist, "mkdir", "/data/folder"],
    [ERROR.readOnly, "write", "/fixed/file", "0", "text"],
    [ERROR.readOnly, "append", "/fixed/file", "text"],
    [ERROR.readOnly, "mkdir", "/fixed/made"],
    [ERROR.readOnly, "rm", "/fixed/file"],
    [ERROR.readOnly, "time", "/fixed/file", "1"],
    [ERROR.readOnly, "mv", "/fixed/file", "/fixed/other"],
    [ERROR.notPermitted, "read", "/data/../outside/secret", "0"],
    [ERROR.notPermitted, "read", "/data/way-out/secret", "0"],
    [ERROR.notPermitted, "read", "/data/secret-link", "0"],
    [ERROR.notPermitted, "write", "/data/way-out/made", "0", "text"],
    [ERROR.notPermitted, "mv", "/data/file", "/data/way-out/file"],
    [ERROR.notPermitted, "symlink", "/etc/passwd", "/data/link"],
  ] as const) {
    assert.equal(await volume.run(...args), `error ${code}\n`, args.join(" "));
  }
  assert.deepEqual(readdirSync(volume.folder.at("outside")), ["secret"]);
  assert.equal(volume.text("file"), "some words\n");
});

test(`nothing of random steps leads out of a volume, or changes what is read-only (PICOLET_SEED=${SEED})`, async () => {
  using volume = new Volume();
  const random = seededRandom(SEED);
  const one = <T>(of: readonly T[]): T => of[Math.floor(random.next() * of.length)] as T;
  const parts = ["..", ".", "folder", "file", "way-out", "secret-link", "secret", "a", "b", "outside", ""];
  const path = (): string => {
    const length = 1 + Math.floor(random.next() * 4);
    return [one(["/data", "/data", "/fixed"]), ...Array.from({ length }, () => one(parts))].join("/");
  };
  const fixed = (): string => readFileSync(volume.folder.at("outside/secret"), "utf8");
  for (let step = 0; step < RANDOM_STEPS; step += 1) {
    const command = one([
      "read",
      "write",
      "append",
      "list",
      "stat",
      "mkdir",
      "rmdir",
      "rm",
      "mv",
      "ln",
      "symlink",
      "time",
    ]);
    const args = command === "symlink" ? [one(parts), path()] : [path(), /mv|ln/.test(command) ? path() : "0", "text"];
    const said = await volume.run(command, ...args);
    assert.ok(!said.includes("secret\n") || command === "list", `${command} ${args.join(" ")}: ${said}`);
    const changed = command === "symlink" ? args[1] : args[0];
    if (changed?.startsWith("/fixed") && CHANGES.test(command)) assert.notEqual(said, "ok\n", `${command} ${args}`);
    assert.deepEqual([fixed(), readdirSync(volume.folder.at("outside"))], ["secret", ["secret"]], `${command} ${args}`);
  }
  assert.deepEqual(readdirSync(volume.folder.path).sort(), ["outside", "volume"]);
});

test("streams, futures and pieces leave nothing behind", async () => {
  using volume = new Volume();
  const held: number[] = [];
  const mounts = [{ guestPath: "/data", hostPath: volume.at(""), readOnly: false }];
  // It says something each 400 times.
  await component.run({
    args: ["again", "/data/file", "1200"],
    mounts,
    onOutput: () => void held.push(heldMemory().heap),
  });
  assert.ok(held.length >= 3);
  const grown = (held[2] as number) - (held[0] as number);
  // jco's own glue keeps 20 KiB of each.
  assert.ok(grown < MEBIBYTE, `800 times have left ${grown} bytes`);
});

test("a pod's component has its volumes by WASI 0.3, in its jail", async () => {
  await using runtime = await WasmRuntime.create({ p3: true });
  await using adapter = runtime.adapter();
  const image = "localhost/async-files:1";
  await adapter.images.import(await testComponent("async-files.c"), image, NEVER);
  await using pod = await WasmPod.create(runtime, adapter, { image });
  const volume = runtime.folder.at("volume");
  mkdirSync(volume);
  chmodSync(volume, 0o777);
  const mounts = [{ containerPath: "/data", hostPath: volume, readOnly: false }] as never;
  const container = await pod.start({ args: ["write", "/data/made", "0", "text"], mounts });
  assert.equal((await pod.exit(container.id)).exitCode, 0);
  assert.equal(existsSync(`${volume}/made`) && readFileSync(`${volume}/made`, "utf8"), "text");
});
