/** Images over CRI: a real containerd, a real registry, real archives. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { copyFileSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { CriAdapter } from "@picolet/runtime-cri/cri-adapter.ts";
import { buildImageArchive } from "@picolet/scripts/build/build-image-archive.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { REGISTRY_PASSWORD, REGISTRY_USER, Registry, registryMissing } from "../support/containerd/real-registry.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { criAdapter } from "../support/unit/cri/cri-adapters.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { LinkProxy } from "../support/unit/tunnel/link-proxy.ts";

const skip = containerdMissing() ?? registryMissing() ?? false;
const { signal } = new AbortController();
/** Enough for several samples of its progress. */
const IMAGE_BYTES = 6_000_000;
/** Resolves when so many bytes have come from the registry. */
const passed = (proxy: LinkProxy, bytes: number): Promise<void> =>
  new Promise((resolve) => {
    proxy.onForwarded = () => {
      if (proxy.bytes.down >= bytes) resolve();
    };
  });
const failsWith = (code: string, reason: string | undefined) => (error: unknown) =>
  isPicoletError(error) && error.code === code && error.reason === reason;

describe("images over CRI", { skip }, () => {
  const directory = mkdtempSync(join(tmpdir(), "picolet-images-"));
  let containerd: Containerd;
  let registry: Registry;
  let adapter: CriAdapter;

  before(async () => {
    containerd = await Containerd.start();
    registry = await Registry.start();
    adapter = criAdapter(containerd.socketPath);
  });
  after(async () => {
    await adapter?.[Symbol.asyncDispose]();
    await registry?.[Symbol.asyncDispose]();
    await containerd?.[Symbol.asyncDispose]();
    rmSync(directory, { recursive: true });
  });

  /** An archive of an image of one file. */
  const archiveOf = (name: string, content: string): string => {
    const file = join(directory, "content");
    writeFileSync(file, content);
    return buildImageArchive({ name, files: { content: file }, command: ["/content"] }, directory);
  };

  test("an image is pulled from a registry, found, and removed", async () => {
    containerd.importArchive(archiveOf("archive.example/pushed:1", "zero"));
    const name = registry.push(containerd, "archive.example/pushed:1", "pulled:1");
    containerd.ctr("images", "remove", "--sync", "archive.example/pushed:1");
    assert.equal(await adapter.images.status(name, signal), undefined);
    const pulled = await adapter.images.pull(name, {}, signal);
    assert.ok(pulled.tags.includes(name));
    assert.ok(pulled.digests.some((each) => each.startsWith(`${registry.address}/pulled@sha256:`)));
    assert.equal((await adapter.images.status(name, signal))?.id, pulled.id);
    await adapter.images.remove(name, signal);
    assert.equal(await adapter.images.status(name, signal), undefined);
    await adapter.images.remove(name, signal);
  });

  test("a repository behind a password opens with it, and is refused without", async () => {
    registry.push(containerd, BUSYBOX_IMAGE, "locked:1");
    const name = `${registry.privateAddress}/locked:1`;
    await assert.rejects(adapter.images.pull(name, {}, signal), isPicoletError);
    const wrong = { username: REGISTRY_USER, password: "wrong", serverAddress: registry.privateAddress };
    await assert.rejects(
      adapter.images.pull(name, { credentials: wrong }, signal),
      (error) => isPicoletError(error) && error.reason === "ErrImagePull" && error.retryable,
    );
    const right = { ...wrong, password: REGISTRY_PASSWORD };
    assert.ok((await adapter.images.pull(name, { credentials: right }, signal)).tags.includes(name));
  });

  test("a pull tells how far it is, also over a link that was cut, until it is over", async () => {
    const content = randomBytes(IMAGE_BYTES).toString("base64");
    containerd.importArchive(archiveOf("archive.example/large:1", content));
    registry.push(containerd, "archive.example/large:1", "large:1");
    await adapter.images.remove("archive.example/large:1", signal);
    await using proxy = await LinkProxy.start(() => Number(registry.address.split(":")[1]), seededRandom(1));
    proxy.behave({ bytesPerSecond: 8_000_000 });
    const name = `127.0.0.1:${proxy.port}/large:1`;
    assert.equal(await adapter.images.progress(name, signal), undefined);
    const half = passed(proxy, IMAGE_BYTES / 2);
    const pulling = adapter.images.pull(name, {}, signal);
    await Promise.race([half, pulling]);
    proxy.behave({ silent: true });
    const progress = await adapter.images.progress(name, signal);
    assert.ok(progress !== undefined);
    assert.ok(progress.isTransferring);
    assert.ok(progress.totalBytes > IMAGE_BYTES, `${progress.totalBytes} in all`);
    assert.ok(progress.bytes > IMAGE_BYTES / 8 && progress.bytes < progress.totalBytes, `${progress.bytes} so far`);
    proxy.cut();
    proxy.heal();
    await pulling.catch(() => adapter.images.pull(name, {}, signal));
    const { bytes, totalBytes, isTransferring } = (await adapter.images.progress(name, signal)) ?? {};
    assert.deepEqual([bytes, isTransferring], [totalBytes, false]);
  });

  test("an image can be pinned in containerd's own store", async () => {
    registry.push(containerd, BUSYBOX_IMAGE, "pinned:1");
    const name = `${registry.address}/pinned:1`;
    await adapter.images.pull(name, {}, signal);
    const isLabelled = (): boolean =>
      containerd.ctr("images", "list", `name==${name}`).includes("cri-containerd.pinned=pinned");
    await adapter.images.setPinned(name, true, signal);
    assert.ok(isLabelled());
    await adapter.images.setPinned(name, false, signal);
    assert.ok(!isLabelled());
    await assert.rejects(
      adapter.images.setPinned("archive.example/absent:1", true, signal),
      failsWith("not_found", undefined),
    );
  });

  test("what is wrong with a pull is told apart", async () => {
    await assert.rejects(
      adapter.images.pull(`${registry.address}/no/such:image`, {}, signal),
      failsWith("not_found", "ErrImagePull"),
    );
    await assert.rejects(
      adapter.images.pull("127.0.0.1:1/dead:registry", {}, signal),
      failsWith("unavailable", "ErrImagePull"),
    );
    await assert.rejects(adapter.images.pull("Not A Name", {}, signal), failsWith("invalid", "InvalidImageName"));
  });

  test("an archive is imported under its own name, plain and gzipped, twice with no harm", async () => {
    const name = "archive.example/plain:1";
    const archive = archiveOf(name, "one");
    for (let time = 0; time < 2; time += 1) {
      const imported = await adapter.images.import(archive, undefined, signal);
      assert.deepEqual(
        imported.map((each) => each.tags),
        [[name]],
      );
    }
    const zipped = archiveOf("archive.example/zipped:1", "two");
    execFileSync("gzip", ["--force", zipped]);
    const [image] = await adapter.images.import(`${zipped}.gz`, undefined, signal);
    assert.deepEqual(image?.tags, ["archive.example/zipped:1"]);
    assert.equal((await adapter.images.status("archive.example/zipped:1", signal))?.id, image?.id);
  });

  test("an archive is given another name", async () => {
    const archive = archiveOf("archive.example/own:1", "three");
    const imported = await adapter.images.import(archive, "archive.example/given:2", signal);
    const tags = imported.flatMap((each) => each.tags);
    assert.ok(tags.includes("archive.example/given:2"), String(tags));
    assert.ok((await adapter.images.status("archive.example/given:2", signal)) !== undefined);
    await assert.rejects(adapter.images.import(archive, "No Name", signal), failsWith("invalid", "InvalidImageName"));
  });

  test("an OCI layout with no name needs one, and runs under it", async () => {
    const layout = join(directory, "layout.tar");
    containerd.ctr("images", "export", layout, BUSYBOX_IMAGE);
    const folder = mkdtempSync(join(directory, "layout-"));
    execFileSync("tar", ["-C", folder, "-xf", layout]);
    const strip = `const fs=require("fs");const p=${JSON.stringify(join(folder, "index.json"))};const i=JSON.parse(fs.readFileSync(p));for(const m of i.manifests)delete m.annotations;fs.writeFileSync(p,JSON.stringify(i))`;
    execFileSync(process.execPath, ["-e", strip]);
    const nameless = join(directory, "nameless.tar");
    execFileSync("sh", ["-c", `cd ${folder} && tar -cf ${nameless} oci-layout index.json blobs`]);
    await assert.rejects(adapter.images.import(nameless, undefined, signal), failsWith("invalid", undefined));
    const [image] = await adapter.images.import(nameless, "archive.example/layout:1", signal);
    assert.ok(image?.tags.includes("archive.example/layout:1"));
  });

  test("a file that is no image is for another runtime, a damaged one is said to be", async () => {
    const component = join(directory, "component.wasm");
    writeFileSync(component, Buffer.concat([Buffer.from("\0asm\r\0\x01\0", "latin1"), Buffer.alloc(600)]));
    await assert.rejects(adapter.images.import(component, undefined, signal), failsWith("unimplemented", undefined));
    await assert.rejects(
      adapter.images.import(join(directory, "absent"), undefined, signal),
      failsWith("not_found", undefined),
    );
    const cut = join(directory, "cut.tar");
    copyFileSync(archiveOf("archive.example/cut:1", "x".repeat(100_000)), cut);
    truncateSync(cut, 60_000);
    await assert.rejects(adapter.images.import(cut, undefined, signal), isPicoletError);
    await assert.rejects(adapter.images.import(component, undefined, AbortSignal.abort()), isPicoletError);
  });
});
