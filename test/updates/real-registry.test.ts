/** A bundle in Debian's docker-registry, read by parts as RAUC reads it. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { BlobServer } from "@picolet/agent/updates/program/blob-server.ts";
import { BytePace } from "@picolet/agent/updates/program/byte-pace.ts";
import { withArtifact } from "@picolet/agent/updates/program/find-update.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { OS_ARTIFACT_TYPE, OS_LAYER_TYPE } from "@picolet/protocol/updates/node-updates.ts";
import { DEFAULT_PULL_LIMITS } from "@picolet/runtime-wasm/shared/messages/pull-request.ts";
import { REGISTRY_PASSWORD, REGISTRY_USER, Registry, registryMissing } from "../support/containerd/real-registry.ts";
import {
  type Document,
  descriptorOf,
  digestOf,
  INDEX_TYPE,
  MANIFEST_TYPE,
} from "../support/unit/images/oci-content.ts";

const skip = registryMissing() ?? false;
const NEVER = new AbortController().signal;
const BLOCK = 4096;
const bundle = Buffer.concat(
  Array.from({ length: 512 }, (_, index) => Buffer.alloc(BLOCK, createHash("sha256").update(String(index)).digest())),
);
const COMPATIBLE = "picolet-generic-arm64-components";

const documentOf = (object: object, mediaType: string): Document => {
  const content = JSON.stringify({ schemaVersion: 2, mediaType, ...object });
  return { content, mediaType, digest: digestOf(content) };
};

test("the manifest of this board is found in an index, and only the blocks that are asked for are fetched", {
  skip,
}, async () => {
  await using registry = await Registry.start();
  const config = "{}";
  const manifest = documentOf(
    {
      artifactType: OS_ARTIFACT_TYPE,
      config: descriptorOf(config, "application/vnd.oci.empty.v1+json"),
      layers: [descriptorOf(bundle, OS_LAYER_TYPE)],
      annotations: { "org.opencontainers.image.version": "1.3", "picolet.io/compatible": COMPATIBLE },
    },
    MANIFEST_TYPE,
  );
  const annotations = { "picolet.io/compatible": COMPATIBLE };
  const index = documentOf({ manifests: [descriptorOf(manifest.content, MANIFEST_TYPE, { annotations })] }, INDEX_TYPE);
  await registry.pushContent("fleet/os", "manifest", manifest, [bundle, config]);
  await registry.pushContent("fleet/os", "1.3", index, []);
  const credentials = { username: REGISTRY_USER, password: REGISTRY_PASSWORD, serverAddress: "" };
  const source = (login: typeof credentials | undefined) =>
    ({
      kind: "registry",
      reference: "1.3",
      access: {
        repository: "fleet/os",
        endpoints: [{ url: `http://${registry.privateAddress}`, caFile: undefined }],
        proxies: { httpProxy: "", httpsProxy: "", noProxy: "" },
        ...{ credentials: login, credentialsFrom: "this node", limits: DEFAULT_PULL_LIMITS },
      },
    }) as const;
  const wanted = { kind: "os", compatible: COMPATIBLE } as const;
  await assert.rejects(
    withArtifact(source(undefined), wanted, async () => undefined, NEVER),
    (error) => isPicoletError(error, "permission_denied"),
  );
  const bytes = await withArtifact(
    source(credentials),
    wanted,
    async ({ layer, version }, client) => {
      assert.equal(version, "1.3");
      const parts = {
        clock: systemClock,
        random: { next: () => 0 },
        registry: client,
        pace: new BytePace(systemClock, 0),
      };
      await using server = new BlobServer(parts, layer);
      const url = await server.listen(NEVER);
      // The last block is in the end, which is fetched first.
      for (const block of [511, 0, 17, 18, 300]) {
        const [first, last] = [block * BLOCK, (block + 1) * BLOCK - 1];
        const response = await fetch(url, { headers: { range: `bytes=${first}-${last}` } });
        assert.ok(Buffer.from(await response.arrayBuffer()).equals(bundle.subarray(first, last + 1)), `block ${block}`);
      }
      return server.bytes;
    },
    NEVER,
  );
  assert.equal(bytes, 4 * BLOCK + 65_544, `of ${bundle.length} bytes`);
});
