/** Pulls of components from Debian's docker-registry: anonymously, and with the user that its htpasswd names. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { describeError } from "@picolet/protocol/errors.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { REGISTRY_PASSWORD, REGISTRY_USER, Registry, registryMissing } from "../support/containerd/real-registry.ts";
import { artifact, digestOf, gzippedLayer, imageOf, indexOf, WASM_CONFIG } from "../support/unit/images/oci-content.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const skip = registryMissing() ?? false;
const NEVER = new AbortController().signal;
const component = readFileSync(await testComponent("workload.c"));
const ID = digestOf(component);

describe("a real registry", { skip }, () => {
  let runtime: WasmRuntime;
  let adapter: WasmAdapter;

  before(async () => {
    runtime = await WasmRuntime.create();
    adapter = runtime.adapter();
  });
  after(async () => {
    await adapter[Symbol.asyncDispose]();
    await runtime[Symbol.asyncDispose]();
  });

  test("artifacts, images and indexes are pulled by tag and by digest", async () => {
    await using registry = await Registry.start();
    const wasm = artifact(component);
    const image = imageOf([gzippedLayer({ "app.wasm": component })]);
    const container = imageOf([gzippedLayer({ "bin/sh": "#!" })], {}, "docker");
    await registry.pushContent("team/app", "artifact", wasm, [component, WASM_CONFIG]);
    await registry.pushContent("team/app", "image", image.manifest, image.blobs);
    await registry.pushContent("team/app", "container", container.manifest, container.blobs);
    const lines = [
      { document: container.manifest, platform: "linux/amd64" },
      { document: wasm, platform: "wasip2/wasm" },
    ];
    const index = indexOf(lines);
    await registry.pushContent("team/app", "dual", index, []);
    const name = `${registry.address}/team/app`;
    for (const reference of [":artifact", ":image", ":dual", `@${wasm.digest}`, `@${index.digest}`]) {
      assert.equal((await adapter.images.pull(name + reference, {}, NEVER)).id, ID, reference);
    }
    const platforms = await adapter.images.platforms?.(`${name}:dual`, {}, NEVER);
    assert.deepEqual(platforms?.platforms, ["linux/amd64", "wasi/wasm"]);
    const failures: readonly [reference: string, text: RegExp][] = [
      [":none", /has no manifest none: MANIFEST_UNKNOWN/],
      [`@${digestOf("x")}`, /has no manifest sha256:/],
      [":container", /the image is no component/],
    ];
    for (const [reference, text] of failures) {
      const pull = adapter.images.pull(name + reference, {}, NEVER);
      await assert.rejects(pull, (error) => text.test(describeError(error)), reference);
    }
  });

  test("one with users lets in the right one, and says so of the others", async () => {
    await using registry = await Registry.start({ htpasswd: true });
    await registry.pushContent("app", "1", artifact(component), [component, WASM_CONFIG]);
    const reference = `${registry.address}/app:1`;
    const credentials = { username: REGISTRY_USER, password: REGISTRY_PASSWORD, serverAddress: "" };
    const wrong = { credentials: { ...credentials, password: "wrong" }, credentialsFrom: "secret shop/old" };
    await assert.rejects(adapter.images.pull(reference, wrong, NEVER), (error) =>
      /does not let this node in \(401\), tried as "picolet" of secret shop\/old/.test(describeError(error)),
    );
    assert.equal((await adapter.images.pull(reference, { credentials }, NEVER)).id, ID);
  });
});
