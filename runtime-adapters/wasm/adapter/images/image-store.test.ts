/** Names, files and archives of components, and everything that is none. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { type TestContext, test } from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { parse } from "@bytecodealliance/jco-transpile/wasm-tools";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { makeTar } from "@picolet/test/support/unit/images/tar.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { textComponent, textFile } from "@picolet/test/support/unit/wasm/text-components.ts";
import { ImageStore } from "./image-store.ts";

const NEVER = new AbortController().signal;
const NAME = "picolet.example/hello:1";

const component = readFileSync(await textFile("exit-42.wat"));
const another = readFileSync(await textFile("no-run.wat"));
const sha256 = (bytes: Uint8Array | string): string => createHash("sha256").update(bytes).digest("hex");
const ID = `sha256:${sha256(component)}`;

class Bench {
  readonly folder: TempFolder;
  readonly log = new RecordedLog();
  readonly removed: string[] = [];
  store: ImageStore;

  constructor(context: TestContext) {
    this.folder = new TempFolder();
    context.after(() => this.folder[Symbol.dispose]());
    this.store = this.newAgent();
  }

  newAgent(maxComponentBytes?: number): ImageStore {
    const clock = { ...systemClock, wall: () => new Date(0) };
    const onRemoved = async (hex: string): Promise<void> => void this.removed.push(hex);
    const init = { rootDirectory: this.folder.at("wasm"), maxComponentBytes };
    this.store = new ImageStore({ clock, log: this.log, onRemoved }, init);
    return this.store;
  }

  file(name: string, content: Uint8Array | string): string {
    writeFileSync(this.folder.at(name), content);
    return this.folder.at(name);
  }

  import(content: Uint8Array | string, name?: string) {
    return this.store.import(this.file("imported", content), name, NEVER);
  }

  idOf(reference: string): Promise<string | undefined> {
    return this.store.status(reference, NEVER).then((info) => info?.id);
  }

  stored(): string[] {
    return readdirSync(this.folder.at("wasm/components"));
  }
}

const blob = (content: Uint8Array | string) => [`blobs/sha256/${sha256(content)}`, content] as const;

const descriptor = (content: Uint8Array | string, mediaType: string, more: object = {}) => ({
  mediaType,
  digest: `sha256:${sha256(content)}`,
  size: content.length,
  ...more,
});

const CONFIG = '{"architecture":"wasm","os":"wasip2"}';
const MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json";

/** The manifest of a component artifact. */
const artifactManifest = (bytes: Uint8Array): string =>
  JSON.stringify({
    schemaVersion: 2,
    config: descriptor(CONFIG, "application/vnd.wasm.config.v0+json"),
    layers: [descriptor(bytes, "application/wasm")],
  });

/** The manifest of a container image with these layers, gzipped. */
const imageManifest = (layers: readonly Uint8Array[]): string =>
  JSON.stringify({
    schemaVersion: 2,
    config: descriptor("{}", "application/vnd.oci.image.config.v1+json"),
    layers: layers.map((layer) => descriptor(layer, "application/vnd.oci.image.layer.v1.tar+gzip")),
  });

function ociLayout(manifest: string, blobs: readonly (Uint8Array | string)[], name?: string): Buffer {
  const annotations = name === undefined ? {} : { annotations: { "org.opencontainers.image.ref.name": name } };
  return makeTar({
    ...Object.fromEntries([manifest, ...blobs].map(blob)),
    "index.json": JSON.stringify({ schemaVersion: 2, manifests: [descriptor(manifest, MANIFEST_TYPE, annotations)] }),
    "oci-layout": '{"imageLayoutVersion":"1.0.0"}',
  });
}

test("an imported component has its name, its id, and is there for the next agent too", async (context) => {
  const bench = new Bench(context);
  const expected = {
    id: ID,
    tags: [NAME],
    digests: [`picolet.example/hello@${ID}`],
    sizeBytes: component.length,
    pinned: false,
  };
  assert.deepEqual(await bench.import(component, NAME), [expected]);
  bench.newAgent();
  assert.deepEqual(await bench.store.list(NEVER), [expected]);
  for (const reference of [NAME, ID, ID.slice(7), `picolet.example/hello@${ID}`]) {
    assert.equal(await bench.idOf(reference), ID, reference);
  }
  for (const reference of ["picolet.example/hello:2", "hello:1", `sha256:${"0".repeat(64)}`, `other@${ID}`]) {
    assert.equal(await bench.idOf(reference), undefined, reference);
  }
  assert.equal(sha256(readFileSync((await bench.store.component(ID, NEVER)).path)), ID.slice(7));
});

test("names are as short as Docker's, and a name can move to another component", async (context) => {
  const bench = new Bench(context);
  await bench.import(component, "hello");
  assert.equal(await bench.idOf("docker.io/library/hello:latest"), ID);
  await bench.import(another, "hello:latest");
  assert.equal(await bench.idOf("hello"), `sha256:${sha256(another)}`);
  bench.newAgent();
  assert.equal(await bench.idOf("hello"), `sha256:${sha256(another)}`);
  assert.deepEqual(bench.stored(), [`${sha256(another)}.wasm`], "what no name leads to is not kept");
  assert.deepEqual(bench.removed, [ID.slice(7)]);
});

test("a component goes with its last name, or by its id with all of them", async (context) => {
  const bench = new Bench(context);
  await bench.import(component, "one:1");
  await bench.import(component, "two:1");
  await bench.store.remove("one:1", NEVER);
  assert.equal(await bench.idOf("one:1"), undefined);
  assert.equal(await bench.idOf("two:1"), ID);
  await bench.import(component, "three:1");
  await bench.store.remove(ID, NEVER);
  assert.deepEqual(await bench.store.list(NEVER), []);
  assert.deepEqual(bench.stored(), []);
  assert.deepEqual(bench.removed, [ID.slice(7)]);
  await bench.store.remove(ID, NEVER);
});

test("a file:// reference is taken when it is first seen, and again when the file has changed", async (context) => {
  const bench = new Bench(context);
  const reference = `file://${bench.folder.at("app.wasm")}`;
  assert.equal(await bench.idOf(reference), undefined, "no file yet");
  await assert.rejects(bench.store.pull(reference, {}, NEVER), (error) => {
    return isPicoletError(error, "not_found") && error.reason === "ErrImagePull";
  });
  bench.file("app.wasm", component);
  assert.equal(await bench.idOf(reference), ID);
  assert.equal((await bench.store.pull(reference, {}, NEVER)).id, ID);
  assert.deepEqual((await bench.store.list(NEVER))[0]?.digests, []);
  copyFileSync(await textFile("no-run.wat"), bench.folder.at("app.wasm"));
  utimesSync(bench.folder.at("app.wasm"), 1, 1);
  assert.equal(await bench.idOf(reference), `sha256:${sha256(another)}`);
  assert.equal(await bench.idOf(ID), undefined, "nothing is called by the old content any more");
});

test("a file that is not a component is refused by its reference, with the kubelet's reason", async (context) => {
  const bench = new Bench(context);
  bench.file("core.wasm", await parse('(module (func (export "_start")))'));
  bench.file("garbage.wasm", "not wasm");
  const failures = [
    ["core.wasm", /core module, not a component.*wasm-tools component new/],
    ["garbage.wasm", /no WebAssembly binary/],
  ] as const;
  for (const [name, text] of failures) {
    const reference = `file://${bench.folder.at(name)}`;
    const refused = (reason: string) => (error: unknown) =>
      isPicoletError(error, "invalid") && error.reason === reason && text.test(String(error.cause));
    await assert.rejects(bench.store.status(reference, NEVER), refused("ImageInspectError"));
    await assert.rejects(bench.store.pull(reference, {}, NEVER), refused("ErrImagePull"));
  }
  await assert.rejects(bench.store.import(bench.folder.at("core.wasm"), NAME, NEVER), (error) => {
    return isPicoletError(error, "invalid") && /core module/.test(String(error.cause));
  });
  assert.deepEqual(readdirSync(bench.folder.at("wasm/tmp")), [], "nothing half-made stays");
  assert.equal(existsSync(bench.folder.at("wasm/components")), false);
});

test("a pipe is refused instead of waited for, and files are read as before", async (context) => {
  const bench = new Bench(context);
  execFileSync("mkfifo", [bench.folder.at("pipe.wasm")]);
  const refused = (error: unknown): boolean =>
    isPicoletError(error, "invalid") && /no regular file/.test(String(error.cause));
  await assert.rejects(bench.store.import(bench.folder.at("pipe.wasm"), NAME, NEVER), refused);
  await assert.rejects(bench.store.status(`file://${bench.folder.at("pipe.wasm")}`, NEVER), refused);
  await assert.rejects(bench.store.pull(`file://${bench.folder.at("pipe.wasm")}`, {}, NEVER), refused);
  assert.equal((await bench.import(component, NAME))[0]?.id, ID);
});

test("a file that another runtime may import is unimplemented here", async (context) => {
  const bench = new Bench(context);
  const layer = gzipSync(makeTar({ "bin/sh": "#!", "etc/passwd": "root" }));
  const others = [
    "any file",
    "",
    makeTar({ "readme.txt": "no image at all" }),
    ociLayout(imageManifest([layer]), [layer, "{}"], "localhost/busybox:1"),
    makeTar({
      "layer.tar": makeTar({ "bin/sh": "#!" }),
      "manifest.json": JSON.stringify([{ Config: "c.json", RepoTags: ["busybox:1"], Layers: ["layer.tar"] }]),
    }),
  ];
  for (const content of others) {
    await assert.rejects(bench.import(content, NAME), (error) => isPicoletError(error, "unimplemented"));
  }
  assert.deepEqual(await bench.store.list(NEVER), []);
});

test("an OCI artifact is imported under its own name, or the one given", async (context) => {
  const bench = new Bench(context);
  const manifest = artifactManifest(component);
  const archive = ociLayout(manifest, [component, CONFIG], NAME);
  const [info] = await bench.import(archive);
  assert.equal(info?.id, ID);
  assert.deepEqual(info?.tags, [NAME]);
  assert.deepEqual(info?.digests, [`picolet.example/hello@sha256:${sha256(manifest)}`]);
  assert.equal(await bench.idOf(`picolet.example/hello@sha256:${sha256(manifest)}`), ID);
  await bench.import(gzipSync(archive), "localhost/given:2");
  assert.equal(await bench.idOf("localhost/given:2"), ID);
});

test("a name with a digest is given to that content alone", async (context) => {
  const bench = new Bench(context);
  const other = `picolet.example/hello@sha256:${"0".repeat(64)}`;
  const manifest = artifactManifest(component);
  const archive = ociLayout(manifest, [component, CONFIG]);
  for (const content of [component, archive]) {
    await assert.rejects(bench.import(content, other), (error) => {
      return isPicoletError(error, "invalid") && /its digest is sha256:/.test(String(error.cause));
    });
    assert.deepEqual(await bench.store.list(NEVER), []);
  }
  assert.equal((await bench.import(component, `picolet.example/hello@${ID}`))[0]?.id, ID);
  assert.equal((await bench.import(archive, `picolet.example/hello@sha256:${sha256(manifest)}`))[0]?.id, ID);
});

test("the error for a file that is not an image names its kind and what to do", async (context) => {
  const bench = new Bench(context);
  const says = async (content: Uint8Array | string, expected: RegExp, code = "unimplemented"): Promise<void> => {
    const path = bench.file("imported.gz", content);
    await assert.rejects(bench.store.import(path, NAME, NEVER), (error) => {
      const message = describeError(error);
      assert.ok(isPicoletError(error) && error.code === code && message.includes(path), message);
      assert.match(message, expected);
      return true;
    });
    assert.deepEqual(await bench.store.list(NEVER), []);
  };
  await says("", /it is empty: import a/);
  await says("\x1f", /it is neither a component nor an image archive: import a/);
  await says("hello\n", /it is text: import a/);
  await says('#!/bin/sh\necho "hello"\n', /it is a script: make an image/);
  await says("(component)", /it is WebAssembly as text: make a component of it first \(wasm-tools parse\)/);
  await says(
    readFileSync("/bin/sh"),
    /it is a program \(ELF\): make an image of it first, or build it for wasm32-wasip2/,
  );
  await says(Buffer.from("PK\x03\x04\x14\0\0\0"), /it is a zip archive: unpack it/);
  await says(Buffer.alloc(2000), /it is neither a component nor an image archive: import a/);
  const archive = ociLayout(artifactManifest(component), [component, CONFIG, randomBytes(100_000)], NAME);
  await says(zstdCompressSync(archive), /it is zstd: unpack it first \(zstd -d\)/);
  const inGzip = "it is a gzip that holds no tar archive but ";
  await says(gzipSync(component), new RegExp(`${inGzip}a WebAssembly file: gunzip it and import that`));
  await says(gzipSync("hello ".repeat(500)), new RegExp(`${inGzip}text: import a`));
  await says(gzipSync(""), new RegExp(`${inGzip}nothing: import a`));
  await says(gzipSync(gzipSync(archive)), new RegExp(`${inGzip}gzip: unpack it`));
  await says(gzipSync(randomBytes(2000).fill(0xff, 0, 1)), new RegExp(`${inGzip}something else: import a`));
  await says(
    makeTar({ "etc/motd": "hello" }),
    /the archive .*imported\.gz is no image: it has neither the index\.json/,
  );
  const again = /\(make or fetch the file again\): .*: it is cut off$/;
  await says(gzipSync(archive).subarray(0, 60_000), again, "corrupt");
  await says(archive.subarray(0, 60_000), again, "corrupt");
  await says(archive.subarray(0, archive.length - 1532), again, "corrupt");
});

test("a folder that is no image layout, and a pipe, are named too", async (context) => {
  const bench = new Bench(context);
  const [folder, pipe] = [bench.folder.at("empty"), bench.folder.at("pipe")];
  mkdirSync(folder);
  execFileSync("mkfifo", [pipe]);
  for (const [path, expected] of [
    [folder, `the folder ${folder} is no image: it has neither the index.json`],
    [pipe, `${pipe} is no regular file`],
  ] as const) {
    await assert.rejects(bench.store.import(path, NAME, NEVER), (error) => describeError(error).includes(expected));
  }
});

test("an archive without a name needs one", async (context) => {
  const bench = new Bench(context);
  const archive = ociLayout(artifactManifest(component), [component, CONFIG]);
  for (const content of [archive, component]) {
    await assert.rejects(bench.import(content), (error) => {
      return isPicoletError(error, "invalid") && /brings no name/.test(String(error.cause));
    });
  }
  assert.equal((await bench.import(archive, NAME))[0]?.id, ID);
});

test("an image that holds one .wasm file is that component, in whichever layer it is", async (context) => {
  const bench = new Bench(context);
  const base = gzipSync(makeTar({ "etc/motd": "hello" }));
  const layer = gzipSync(makeTar({ "readme.md": "", "app/hello.wasm": component }));
  await bench.import(ociLayout(imageManifest([base, layer]), [base, layer, "{}"], NAME));
  assert.equal(await bench.idOf(NAME), ID);
  const saved = makeTar({
    "layer.tar": makeTar({ "hello.wasm": component }),
    "manifest.json": JSON.stringify([{ Config: "c.json", RepoTags: ["saved:1", "saved:2"], Layers: ["layer.tar"] }]),
  });
  await bench.import(saved);
  assert.equal(await bench.idOf("saved:2"), ID);
});

test("the error for an image of several .wasm files names two, for any number and length of names", async (context) => {
  const bench = new Bench(context);
  const says = async (layers: readonly Record<string, string>[], expected: RegExp, code = "unimplemented") => {
    const tars = layers.map((files) => gzipSync(makeTar(files)));
    await assert.rejects(bench.import(ociLayout(imageManifest(tars), [...tars, "{}"]), NAME), (error) => {
      assert.ok(isPicoletError(error) && error.code === code, describeError(error));
      assert.match(describeError(error), expected);
      return true;
    });
  };
  const files = (count: number, prefix: string) =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`${prefix}${at}.wasm`, ""]));
  await says([{ "etc/motd": "" }], /holds no WebAssembly component: none of its files is a \.wasm file$/);
  await says([files(64, "a")], /it has 64 \.wasm files, "a0\.wasm" and "a1\.wasm" among them$/);
  await says([files(65, "a")], /it has more than 64 \.wasm files$/);
  await says([files(40, "a"), files(40, "b")], /it has more than 64 \.wasm files$/);
  const long = "x".repeat(4091);
  await says(
    [{ [`${long}.wasm`]: "", "b.wasm": "" }],
    /it has 2 \.wasm files, "x{95}\.wasm" and "b\.wasm" among them$/,
  );
  await says([{ [`${long}x.wasm`]: "" }], /a file's name has 4097 bytes, more than 4096$/, "corrupt");
});

test("a component of many pieces is taken out of a layer whole", async (context) => {
  const bench = new Bench(context);
  const data = randomBytes(64 * 1024).toString("hex");
  const module = `(core module (memory 2) (data (i32.const 0) "${data}"))`;
  const large = readFileSync(await textComponent(`(component ${module})`));
  const layer = gzipSync(makeTar({ "hello.wasm": large }));
  await bench.import(ociLayout(imageManifest([layer]), [layer, "{}"], NAME));
  assert.equal(await bench.idOf(NAME), `sha256:${sha256(large)}`);
});

test("the folder of an OCI image layout is imported as its archive is, and no link in it is followed", async (context) => {
  const bench = new Bench(context);
  const manifest = artifactManifest(component);
  const files = {
    "index.json": JSON.stringify({ manifests: [descriptor(manifest, MANIFEST_TYPE)] }),
    ...Object.fromEntries([manifest, component, CONFIG].map(blob)),
  };
  const layout = bench.folder.at("layout");
  mkdirSync(`${layout}/blobs/sha256`, { recursive: true });
  for (const [name, content] of Object.entries(files)) writeFileSync(`${layout}/${name}`, content);
  assert.equal((await bench.store.import(layout, NAME, NEVER))[0]?.id, ID);
  await bench.store.remove(ID, NEVER);
  const path = `${layout}/${blob(component)[0]}`;
  renameSync(path, bench.folder.at("outside.wasm"));
  const corrupt = (error: unknown): boolean => isPicoletError(error, "corrupt");
  await assert.rejects(bench.store.import(layout, NAME, NEVER), corrupt, "it is missing");
  symlinkSync(bench.folder.at("outside.wasm"), path);
  await assert.rejects(bench.store.import(layout, NAME, NEVER), corrupt, "it is a link");
  rmSync(path);
  mkdirSync(path);
  await assert.rejects(bench.store.import(layout, NAME, NEVER), corrupt, "it is a folder");
  mkdirSync(bench.folder.at("empty"));
  await assert.rejects(bench.store.import(bench.folder.at("empty"), NAME, NEVER), (error) =>
    isPicoletError(error, "unimplemented"),
  );
  assert.deepEqual(await bench.store.list(NEVER), []);
});

test("one of several platforms is found in an index of indexes, though the others are not in the archive", async (context) => {
  const bench = new Bench(context);
  const manifest = artifactManifest(component);
  const absent = descriptor("not here", MANIFEST_TYPE);
  const inner = JSON.stringify({ schemaVersion: 2, manifests: [absent, descriptor(manifest, MANIFEST_TYPE)] });
  const type = "application/vnd.oci.image.index.v1+json";
  const named = { annotations: { "io.containerd.image.name": NAME } };
  const archive = makeTar({
    "index.json": JSON.stringify({ manifests: [descriptor(inner, type, named)] }),
    ...Object.fromEntries([inner, manifest, component, CONFIG].map(blob)),
  });
  await bench.import(archive);
  assert.equal(await bench.idOf(NAME), ID);
});

test("content with another digest is refused at every place", async (context) => {
  const bench = new Bench(context);
  const manifest = artifactManifest(component);
  const swapped = makeTar({
    "index.json": JSON.stringify({ manifests: [descriptor(manifest, MANIFEST_TYPE)] }),
    [blob(manifest)[0]]: manifest,
    [blob(component)[0]]: another,
  });
  const wrongManifest = makeTar({
    "index.json": JSON.stringify({ manifests: [descriptor(manifest, MANIFEST_TYPE)] }),
    [blob(manifest)[0]]: manifest.replace("2", "3"),
  });
  const layer = gzipSync(makeTar({ "hello.wasm": component }));
  const otherLayer = gzipSync(makeTar({ "hello.wasm": another }));
  const ofLayer = imageManifest([layer]);
  const wrongLayer = makeTar({
    "index.json": JSON.stringify({ manifests: [descriptor(ofLayer, MANIFEST_TYPE)] }),
    [blob(ofLayer)[0]]: ofLayer,
    [blob(layer)[0]]: otherLayer,
  });
  const missing = makeTar({ "index.json": JSON.stringify({ manifests: [descriptor(manifest, MANIFEST_TYPE)] }) });
  for (const content of [swapped, wrongManifest, wrongLayer, missing]) {
    await assert.rejects(bench.import(content, NAME), (error) => isPicoletError(error, "corrupt"));
  }
  assert.deepEqual(await bench.store.list(NEVER), []);
});

test("a component larger than the limit is refused", async (context) => {
  const bench = new Bench(context);
  bench.newAgent(component.length - 1);
  // By the size that the file system tells: nothing of it is copied.
  const refused = (error: unknown): boolean =>
    isPicoletError(error, "resource_exhausted") &&
    /has \d+ bytes, more than the \d+ of wasm\.maxComponentSize/.test(String(error.cause));
  await assert.rejects(bench.import(component, NAME), refused);
  bench.file("large.wasm", component);
  await assert.rejects(bench.store.status(`file://${bench.folder.at("large.wasm")}`, NEVER), refused);
  bench.newAgent(component.length);
  assert.equal((await bench.import(component, NAME))[0]?.id, ID);
});

test("a record that was damaged costs that name alone", async (context) => {
  const bench = new Bench(context);
  await bench.import(component, "kept:1");
  await bench.import(another, "lost:1");
  const images = bench.folder.at("wasm/images");
  const lost = readdirSync(images).find((name) => readFileSync(`${images}/${name}`, "utf8").includes("lost"));
  writeFileSync(`${images}/${lost}`, '{"name":');
  bench.newAgent();
  assert.equal(await bench.idOf("kept:1"), ID);
  assert.equal(await bench.idOf("lost:1"), undefined);
  assert.equal(bench.log.problems.length, 1);
  assert.deepEqual(bench.stored(), [`${ID.slice(7)}.wasm`]);
});

test("a name that is none has the reason InvalidImageName, and a node that pulls nothing says so", async (context) => {
  const bench = new Bench(context);
  await assert.rejects(bench.store.status("Not A Name", NEVER), (error) => {
    return isPicoletError(error, "invalid") && error.reason === "InvalidImageName";
  });
  await assert.rejects(bench.store.pull(NAME, {}, NEVER), (error) => {
    return (
      isPicoletError(error, "unimplemented") &&
      error.reason === "ErrImagePull" &&
      /pulls no components/.test(String(error.cause))
    );
  });
});

test("an import that is given up leaves nothing", async (context) => {
  const bench = new Bench(context);
  await bench.store.list(NEVER);
  const path = bench.file("imported", component);
  const abort = new AbortController();
  const task = bench.store.import(path, NAME, abort.signal);
  abort.abort();
  await assert.rejects(task, (error) => isPicoletError(error, "cancelled"));
  assert.deepEqual(readdirSync(bench.folder.at("wasm/tmp")), []);
  assert.deepEqual(await bench.store.list(NEVER), []);
});
