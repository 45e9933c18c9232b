/** What is sent with a pull, as an image service of another's making (node:http2) reads it. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http2";
import { test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { CriImages } from "./cri-images.ts";
import { CriClient } from "./wire/cri-client.ts";
import { ImageService } from "./wire/cri-messages.ts";
import type { MessageOf } from "./wire/protobuf.ts";

type Request = MessageOf<(typeof ImageService.pullImage)["request"]>;
const { signal } = new AbortController();
const PREFIX_BYTES = 5;

const framed = (message: Uint8Array): Buffer => {
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
};

test("a pull says on whose behalf it is, as the kubelet does, and with which credentials", async () => {
  using folder = new TempFolder();
  const requests: Request[] = [];
  const server = createServer();
  server.on("stream", async (stream, headers) => {
    const pieces = (await stream.toArray()) as Buffer[];
    const body = Buffer.concat(pieces);
    const isPull = headers[":path"] === ImageService.pullImage.path;
    if (isPull) requests.push(ImageService.pullImage.request.decode(body, PREFIX_BYTES, body.length));
    const answer = isPull
      ? ImageService.pullImage.response.encode({ imageRef: "sha256:1" })
      : ImageService.imageStatus.response.encode({ image: { id: "sha256:1", size: 5 } });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.end(framed(answer));
  });
  const path = folder.at("cri.sock");
  server.listen(path);
  await once(server, "listening");
  const client = new CriClient({ clock: systemClock }, { endpoint: path, requestTimeoutMs: 10_000 });
  const images = new CriImages({ client, clock: systemClock }, { pullTimeoutMs: 10_000 });
  try {
    const metadata = { name: "web", namespace: "shop", labels: { app: "web" }, annotations: { key: "value" } };
    const pod = desired(podOf({}, metadata), "uid-1");
    const credentials = { username: "u", password: "p", serverAddress: "", identityToken: "i", registryToken: "r" };
    assert.equal((await images.pull("registry.example/app:1", { pod, credentials }, signal)).id, "sha256:1");
    await images.pull("registry.example/app:1", {}, signal);
  } finally {
    client[Symbol.dispose]();
    server.close();
  }
  const [withPod, bare] = requests;
  assert.deepEqual(withPod?.image?.annotations, new Map([["key", "value"]]));
  const { metadata, labels, annotations } = withPod?.sandboxConfig ?? {};
  assert.deepEqual({ ...metadata }, { name: "web", uid: "uid-1", namespace: "shop", attempt: 0 });
  assert.deepEqual([labels, annotations], [new Map([["app", "web"]]), new Map([["key", "value"]])]);
  const { username, password, identityToken, registryToken, serverAddress } = withPod?.auth ?? {};
  assert.deepEqual([username, password, identityToken, registryToken, serverAddress], ["u", "p", "i", "r", ""]);
  assert.deepEqual([bare?.sandboxConfig, bare?.auth], [undefined, undefined]);
});
