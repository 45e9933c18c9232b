/**
 * Images that must be signed: the real agent, a real containerd, components, a registry that has signatures as cosign
 * stores them.
 */
import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import {
  componentPod,
  containerIdOf,
  containerPod,
  edgectl,
  nodeWith,
  SLEEP_SCRIPT,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { Registry, registryMissing } from "../../support/containerd/real-registry.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import {
  artifact,
  type Document,
  descriptorOf,
  digestOf,
  MANIFEST_TYPE,
  WASM_CONFIG,
} from "../../support/unit/images/oci-content.ts";
import { testComponent } from "../../support/wasm/components.ts";

const skip = containerdMissing() ?? registryMissing() ?? false;
const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const SIGNING_CONFIG = "{}";

let containerd: Containerd;
let registry: Registry;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  registry = await Registry.start();
  const keys = [publicKey.export({ type: "spki", format: "pem" }).toString()];
  const crashLoopBackOff = { initialContainerRestartPeriod: "1s", maxContainerRestartPeriod: "2s" };
  const imageSignatures = [{ repository: `${registry.address}/signed/*`, keys }];
  node = nodeWith(containerd, { config: { imageSignatures, crashLoopBackOff } });
  await node.start();
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, registry, node]) if (each !== undefined) all.use(each);
});

/**
 * Signs what the registry has by that tag, and puts the signature beside it. @param repository that the signature is
 * for
 */
async function signTag(repository: string, tag: string, signedFor = repository): Promise<string> {
  const { digest } = await registry.document(repository, tag);
  const payload = JSON.stringify({
    critical: {
      identity: { "docker-reference": `${registry.address}/${signedFor}` },
      image: { "docker-manifest-digest": digest },
      type: "cosign container image signature",
    },
    optional: null,
  });
  const annotations = {
    "dev.cosignproject.cosign/signature": sign("sha256", Buffer.from(payload), privateKey).toString("base64"),
  };
  const content = JSON.stringify({
    schemaVersion: 2,
    mediaType: MANIFEST_TYPE,
    config: descriptorOf(SIGNING_CONFIG, "application/vnd.oci.image.config.v1+json"),
    layers: [descriptorOf(payload, "application/vnd.dev.cosign.simplesigning.v1+json", { annotations })],
  });
  const document: Document = { content, mediaType: MANIFEST_TYPE, digest: digestOf(content) };
  await registry.pushContent(repository, `${digest.replace(":", "-")}.sig`, document, [payload, SIGNING_CONFIG]);
  return digest;
}

async function pushComponent(repository: string): Promise<string> {
  const component = readFileSync(await testComponent("script.c"));
  await registry.pushContent(repository, "1", artifact(component), [component, WASM_CONFIG]);
  return `${registry.address}/${repository}:1`;
}

const containerOf = (name: string, image: string): unknown =>
  containerPod(name, undefined, {
    terminationGracePeriodSeconds: 1,
    containers: [{ name: "app", image, imagePullPolicy: "IfNotPresent", command: ["/bin/sh", "-c", SLEEP_SCRIPT] }],
  });

const componentOf = (name: string, image: string): unknown =>
  componentPod(name, { image, args: ["say", "here", "hold"], imagePullPolicy: "IfNotPresent" });

/** The first reason is SignatureValidationFailed, and soon ImagePullBackOff, which repeats it. */
const isRefused = (pod: Pod | undefined): boolean => /the signature validation failed/.test(messageOf(pod));
const messageOf = (pod: Pod | undefined): string => pod?.status?.containerStatuses?.[0]?.state.waiting?.message ?? "";

const until = (what: string, name: string, fits: (pod: Pod | undefined) => boolean): Promise<Pod | undefined> =>
  node.waitForPods(what, (pods) => fits(pods.get(`${name}-node`))).then((pods) => pods.get(`${name}-node`));

test("a container and a component run when they are signed", { skip }, async () => {
  const image = registry.push(containerd, BUSYBOX_IMAGE, "signed/box:1");
  const digest = await signTag("signed/box", "1");
  node.writeManifest("box.json", containerOf("box", image));
  const component = await pushComponent("signed/script");
  await signTag("signed/script", "1");
  node.writeManifest("script.json", componentOf("script", component));
  const box = await until("the signed container", "box", isReady);
  await until("the signed component", "script", isReady);
  assert.ok(box?.status?.containerStatuses?.[0]?.imageID.includes(digest), "it is the digest that was signed");
});

test("neither runs when it is not signed, and the pod and an event say why", { skip }, async () => {
  const image = registry.push(containerd, BUSYBOX_IMAGE, "signed/unsigned-box:1");
  node.writeManifest("bare-box.json", containerOf("bare-box", image));
  node.writeManifest("bare-script.json", componentOf("bare-script", await pushComponent("signed/unsigned-script")));
  for (const name of ["bare-box", "bare-script"]) {
    const refused = await until(`${name} to be refused`, name, isRefused);
    assert.match(messageOf(refused), /the signature validation failed: .*the registry has no signature of sha256:/);
    const { items } = JSON.parse(edgectl(node, "events", "--pod", `${name}-node`, "-o", "json")) as {
      readonly items: readonly { readonly reason: string; readonly message: string }[];
    };
    assert.ok(items.some(({ reason, message }) => reason === "Failed" && /no signature of sha256:/.test(message)));
    node.removeManifest(`${name}.json`);
  }
});

test("a signature that was made for another repository, and one of other content, count for nothing", {
  skip,
}, async () => {
  const image = registry.push(containerd, BUSYBOX_IMAGE, "signed/copied:1");
  await signTag("signed/copied", "1", "elsewhere/box");
  node.writeManifest("copied.json", containerOf("copied", image));
  const refused = await until("it to be refused", "copied", isRefused);
  assert.match(messageOf(refused), /a signature is for \S+\/elsewhere\/box, not for \S+\/signed\/copied/);
  node.removeManifest("copied.json");
});

test("an image that must be signed and is here without that is not used, and others need no signature", {
  skip,
}, async () => {
  const image = registry.push(containerd, BUSYBOX_IMAGE, "signed/preloaded:1");
  containerd.ctr("images", "pull", "--plain-http", image);
  node.writeManifest("preloaded.json", containerOf("preloaded", image));
  await until("it to be refused", "preloaded", isRefused);
  node.removeManifest("preloaded.json");
  const free = registry.push(containerd, BUSYBOX_IMAGE, "free/box:1");
  node.writeManifest("free.json", containerOf("free", free));
  await until("one that no rule is about", "free", isReady);
});

test("with no registry a restarted agent and a new pod use what was verified", { skip }, async () => {
  const before = await until("the signed container", "box", isReady);
  await registry[Symbol.asyncDispose]();
  await node.kill();
  await node.start();
  const pod = await until("it after the restart", "box", isReady);
  assert.equal(containerIdOf(pod), containerIdOf(before));
  const image = `${registry.address}/signed/box:1`;
  node.writeManifest("offline.json", containerOf("offline", image));
  await until("another pod of the image", "offline", isReady);
  node.writeManifest("offline-script.json", componentOf("offline-script", `${registry.address}/signed/script:1`));
  await until("another pod of the component", "offline-script", isReady);
});
