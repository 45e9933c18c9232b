/** Pulls of components through the adapter: its own process, real files, and a registry that the test writes. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { zstdCompressSync } from "node:zlib";
import { describeError } from "@picolet/protocol/errors.ts";
import {
  artifact,
  descriptorOf,
  digestOf,
  gzippedLayer,
  imageOf,
  indexOf,
  sha256,
  WASM_CONFIG,
} from "../support/unit/images/oci-content.ts";
import { makeTar } from "../support/unit/images/tar.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { textComponent } from "../support/unit/wasm/text-components.ts";
import { testComponent, testCoreModule } from "../support/wasm/components.ts";
import { PullBench } from "../support/wasm/pull-bench.ts";

const NEVER = new AbortController().signal;
const notRoot = process.getuid?.() !== 0 && "a disk of its own can only be mounted by root";

const component = readFileSync(await testComponent("workload.c"));
const another = readFileSync(await testComponent("exit-42.wat"));
const ID = digestOf(component);
const OTHER_ID = digestOf(another);

test("an artifact is pulled by its tag, by its digest, and not again while it is here", async () => {
  await using bench = await PullBench.create();
  const manifest = artifact(component);
  bench.registry.add(manifest, [component, WASM_CONFIG], "1");
  const info = await bench.pull("team/app:1");
  assert.deepEqual(info, {
    id: ID,
    tags: [bench.name("team/app:1")],
    digests: [bench.name(`team/app@${manifest.digest}`)],
    sizeBytes: component.length,
    pinned: false,
  });
  assert.deepEqual(bench.registry.requests, ["GET /v2/team/app/manifests/1", `GET /v2/team/app/blobs/${ID}`]);
  assert.deepEqual([bench.files("pulls"), bench.files("tmp")], [[], []]);
  assert.deepEqual(bench.files("components"), [`${sha256(component)}.wasm`]);
  for (const reference of [`team/app@${manifest.digest}`, "team/app:1"]) {
    assert.equal((await bench.adapter.images.status(bench.name(reference), NEVER))?.id, ID);
  }
  await bench.pull("team/app:1");
  assert.equal((await bench.pull(`team/app:1@${manifest.digest}`)).id, ID);
  assert.equal(bench.registry.requests.filter((each) => each.includes("/blobs/")).length, 1);
});

test("a tag that has moved is another image, and its digest the same one", async () => {
  await using bench = await PullBench.create();
  const first = artifact(component);
  bench.registry.add(first, [component], "1");
  await bench.pull("app:1");
  bench.registry.add(artifact(another), [another], "1");
  assert.equal((await bench.pull("app:1")).id, OTHER_ID);
  assert.equal((await bench.pull(`app@${first.digest}`)).id, ID);
});

test("of an index the component is taken, wherever it stands, and never a container", async () => {
  await using bench = await PullBench.create();
  const container = imageOf([gzippedLayer({ "bin/sh": "#!" })]);
  const [wasm, old] = [artifact(component), artifact(another)];
  bench.registry.add(wasm, [component]);
  bench.registry.add(old, [another]);
  bench.registry.add(container.manifest, container.blobs);
  const amd64 = { document: container.manifest, platform: "linux/amd64" };
  const attestation = {
    document: container.manifest,
    platform: "unknown/unknown",
    more: { annotations: { "vnd.docker.reference.type": "attestation-manifest" } },
  };
  const inner = indexOf([amd64, { document: wasm }]);
  bench.registry.add(inner);
  const indexes = {
    wasip2: [amd64, { document: old, platform: "wasip1/wasm" }, { document: wasm, platform: "wasip2/wasm" }],
    wasi: [attestation, amd64, { document: wasm, platform: "wasi/wasm" }],
    wasm32: [amd64, { document: wasm, platform: "wasi/wasm32" }],
    artifact: [amd64, { document: wasm, more: { artifactType: "application/vnd.wasm.config.v0+json" } }],
    untold: [amd64, { document: wasm }],
    nested: [amd64, { document: inner }],
  };
  for (const [tag, lines] of Object.entries(indexes)) {
    const index = indexOf(lines);
    bench.registry.add(index, [], tag);
    const { id, digests } = await bench.pull(`dual:${tag}`);
    assert.equal(id, ID, tag);
    assert.ok(digests.includes(bench.name(`dual@${index.digest}`)), tag);
  }
  assert.ok(!bench.registry.requests.some((each) => each.includes(`/manifests/${container.manifest.digest}`)));
  bench.registry.add(indexOf([amd64, attestation]), [], "containers");
  await bench.refuses(
    "dual:containers",
    "invalid",
    /the image is no component: .*; an image of one holds one \.wasm file/,
  );
});

test("an image that holds one .wasm file is that component, however its layers are packed", async () => {
  await using bench = await PullBench.create();
  const base = gzippedLayer({ "etc/motd": "hello", "old.wasm": another });
  const top = gzippedLayer({ ".wh.old.wasm": "", "app/hello.wasm": component });
  const images = {
    gzip: imageOf([base, top]),
    docker: imageOf([base, top], {}, "docker"),
    tar: imageOf([makeTar({ "hello.wasm": component })]),
    zstd: imageOf([zstdCompressSync(makeTar({ "hello.wasm": component }))]),
    replaced: imageOf([gzippedLayer({ "a.wasm": another }), gzippedLayer({ "a.wasm": component })]),
  };
  for (const [tag, { manifest, blobs }] of Object.entries(images)) {
    bench.registry.add(manifest, blobs, tag);
    assert.equal((await bench.pull(`image:${tag}`)).id, ID, tag);
  }
  const two = imageOf([base, gzippedLayer({ "hello.wasm": component })]);
  bench.registry.add(two.manifest, two.blobs, "two");
  await bench.refuses("image:two", "invalid", /holds one \.wasm file/);
});

test("what is no component for this node is refused in one message that says what to do", async () => {
  await using bench = await PullBench.create();
  const core = readFileSync(await testCoreModule("workload.c"));
  const future = readFileSync(
    await textComponent(
      '(component (import "wasi:cli/stdout@0.3.0" (instance)) (import "wasi:io/poll@0.2.0" (instance)))',
    ),
  );
  const contents = { core, future, text: Buffer.from("not wasm, but longer than that") };
  for (const [tag, content] of Object.entries(contents)) bench.registry.add(artifact(content), [content], tag);
  const inImage = imageOf([gzippedLayer({ "core.wasm": core })]);
  bench.registry.add(inImage.manifest, inImage.blobs, "image");
  await bench.refuses("app:core", "invalid", /core module, not a component; make one with `wasm-tools component new/);
  await bench.refuses("app:image", "invalid", /core module, not a component/);
  await bench.refuses("app:text", "invalid", /no WebAssembly binary/);
  await bench.refuses("app:future", "invalid", /wasi:cli\/stdout@0\.3\.0.*build it for WASI 0\.2/);
  assert.deepEqual([bench.files("components"), bench.files("images")], [[], []]);
  // A refused layer is not downloaded again to be refused again.
  const before = bench.registry.requests.length;
  await bench.refuses("app:future", "invalid", /wasi:cli\/stdout@0\.3\.0/);
  assert.deepEqual(bench.registry.requests.slice(before), ["GET /v2/app/manifests/future"]);
});

test("the rest of what its first bytes say to be no component is never asked for", async () => {
  await using bench = await PullBench.create();
  const text = Buffer.alloc(8_000_000, "not wasm");
  bench.registry.add(artifact(text), [text], "1");
  await bench.refuses("app:1", "invalid", /no WebAssembly binary/);
  const before = bench.registry.requests.length;
  await bench.refuses("app:1", "invalid", /no WebAssembly binary/);
  assert.deepEqual(bench.registry.requests.slice(before), ["GET /v2/app/manifests/1"]);
});

test("where the disk has no room for it, nothing of an image is asked for", { skip: notRoot }, async () => {
  using folder = new TempFolder();
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=12m", "tmpfs", folder.path]);
  using mounts = new DisposableStack();
  mounts.defer(() => execFileSync("umount", [folder.path]));
  await using bench = await PullBench.create({ rootDirectory: folder.path });
  bench.registry.add(artifact(component), [component], "1");
  await bench.refuses("app:1", "resource_exhausted", /the disk has \d+ bytes left, it takes \d+/);
  assert.deepEqual(bench.registry.requests, ["GET /v2/app/manifests/1"]);
  assert.deepEqual(readdirSync(folder.at("pulls")), []);
});

test("a registry says what it holds by a name: a component, a container for this node, or both", async () => {
  await using bench = await PullBench.create();
  const { images } = bench.adapter;
  const container = imageOf([gzippedLayer({ "bin/sh": "#!" })], { architecture: "arm64" });
  const own = process.arch === "x64" ? "amd64" : process.arch;
  const foreign = process.arch === "s390x" ? "amd64" : "s390x";
  const wasm = artifact(component);
  bench.registry.add(wasm, [component], "artifact");
  bench.registry.add(container.manifest, container.blobs, "single");
  const line = (platform: string) => ({ document: container.manifest, platform });
  bench.registry.add(indexOf([line(`linux/${own}`), { document: wasm, platform: "wasip2/wasm" }]), [], "dual");
  bench.registry.add(indexOf([line(`linux/${foreign}`), { document: wasm }]), [], "foreign");
  bench.registry.add(indexOf([line(`linux/${own}/v8`)]), [], "container");
  const told = async (tag: string) => {
    const answer = await images.platforms?.(bench.name(`app:${tag}`), {}, NEVER);
    return answer && [answer.component, answer.container, ...answer.platforms];
  };
  assert.deepEqual(await told("dual"), [true, true, `linux/${own}`, "wasi/wasm"]);
  assert.deepEqual(await told("foreign"), [true, false, `linux/${foreign}`, "wasi/wasm"]);
  assert.deepEqual(await told("container"), [false, true, `linux/${own}/v8`]);
  assert.deepEqual(await told("artifact"), [true, false, "wasi/wasm"]);
  assert.deepEqual(await told("single"), [false, own === "arm64", "linux/arm64"]);
  assert.ok(!bench.registry.requests.some((each) => each.includes(`/blobs/${ID}`)), "nothing is pulled for it");
  const lies: readonly [lie: string, text: RegExp][] = [
    ['{"os":"linux","architecture":"s390x"}', /in the place of sha256:/],
    [" ".repeat(5 * 1024 * 1024), /is larger than 4194304 bytes/],
  ];
  for (const [lie, text] of lies) {
    bench.registry.intercept = ({ url = "" }, response) => url.includes("/blobs/") && Boolean(response.end(lie));
    await assert.rejects(told("single"), (error) => text.test(describeError(error)));
  }
  bench.registry.intercept = () => false;
  await bench.pull("app:dual");
  bench.registry.intercept = (_, response) => Boolean(response.writeHead(503).end());
  assert.deepEqual(await told("dual"), [true, true, `linux/${own}`, "wasi/wasm"], "as it was when it was pulled");
  await assert.rejects(told("foreign"), /cannot tell what .* holds/);
});

test("how far a pull is can be asked while it goes on, and a pull that is given up ends its process", async () => {
  await using bench = await PullBench.create();
  bench.registry.add(artifact(component), [component], "1");
  const half = Math.floor(component.length / 2);
  const held = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<void>();
  bench.registry.intercept = ({ url = "" }, response) => {
    if (!url.includes("/blobs/")) return false;
    response.on("close", () => closed.resolve());
    response
      .writeHead(200, { "content-length": component.length })
      .write(component.subarray(0, half), () => held.resolve());
    return true;
  };
  await using slow = await PullBench.create({ pullLimits: {} });
  const abort = new AbortController();
  const reference = bench.name("app:1");
  const pull = slow.adapter.images.pull(reference, {}, abort.signal);
  await held.promise;
  let progress = await slow.adapter.images.progress(reference);
  while (progress === undefined || progress.bytes < half) {
    await new Promise((resolve) => setImmediate(resolve));
    progress = await slow.adapter.images.progress(reference);
  }
  assert.deepEqual(progress, { bytes: half, totalBytes: component.length, isTransferring: true });
  abort.abort();
  await assert.rejects(pull, /cancelled/);
  await closed.promise;
  assert.equal(await slow.adapter.images.progress(reference), undefined);
  assert.deepEqual(slow.files("pulls"), [sha256(component)], "the next pull goes on there");
  bench.registry.intercept = () => false;
  assert.equal((await slow.adapter.images.pull(reference, {}, NEVER)).id, ID);
  assert.ok(bench.registry.requests.includes(`GET /v2/app/blobs/${ID} bytes=${half}-`));
});

test("mirrors are asked first, and what they have not the registry has", async () => {
  await using mirror = await PullBench.create();
  const url = `http://${mirror.registry.address}/`;
  await using upstream = await PullBench.create();
  const host = upstream.registry.address;
  await using bench = await PullBench.create({ registries: [{ host, mirrors: ["http://127.0.0.1:1", url] }] });
  mirror.registry.add(artifact(component), [component], "mirrored");
  upstream.registry.add(artifact(another), [another], "own");
  assert.equal((await bench.adapter.images.pull(`${host}/app:mirrored`, {}, NEVER)).id, ID);
  assert.deepEqual(upstream.registry.requests, []);
  assert.equal((await bench.adapter.images.pull(`${host}/app:own`, {}, NEVER)).id, OTHER_ID);
  const nowhere = bench.adapter.images.pull(`${host}/app:none`, {}, NEVER);
  await assert.rejects(nowhere, (error: Error) => {
    assert.match(String(error.cause), /has no manifest none.*mirrors: http:\/\/127\.0\.0\.1:1: .*connection refused/);
    return true;
  });
});

test("an old manifest of Docker's and documents that are none are refused", async () => {
  await using bench = await PullBench.create();
  const documents: readonly [content: object | string, code: string, text: RegExp][] = [
    [{ schemaVersion: 1, fsLayers: [] }, "invalid", /schema 1/],
    [{ schemaVersion: 2 }, "corrupt", /neither layers nor manifests/],
    [{ layers: [], manifests: [] }, "corrupt", /is an index too/],
    ["not JSON", "corrupt", /no JSON/],
    [{ layers: [{ digest: "md5:1", size: 1 }] }, "corrupt", /no SHA-256/],
    [{ layers: [descriptorOf("x", "application/wasm", { size: -1 })] }, "corrupt", /a size is none/],
    [{ layers: Array(500).fill(descriptorOf("x", "tar")) }, "resource_exhausted", /500 layers, more than 128/],
    [{ manifests: Array(500).fill(descriptorOf("x", "tar")) }, "resource_exhausted", /500 entries/],
    [{ layers: [], config: descriptorOf("", "application/vnd.wasm.config.v0+json") }, "invalid", /must have one layer/],
  ];
  for (const [document, code, text] of documents) {
    const content = typeof document === "string" ? document : JSON.stringify(document);
    bench.registry.add({ content, mediaType: "", digest: digestOf(content) }, [], "1");
    await bench.refuses("app:1", code, text);
  }
});
