/**
 * Private images, credentials of every kind, bad links and what people do by hand: a real containerd, a real registry.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { PREFETCH_ANNOTATION } from "@picolet/agent/images/prefetcher.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { ImageList, ImageReport } from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { PullOptions, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { CriAdapter } from "@picolet/runtime-cri/cri-adapter.ts";
import { buildImageArchive } from "@picolet/scripts/build/build-image-archive.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { dockerConfig, ImageBoard, podWith } from "../support/containerd/image-board.ts";
import { REGISTRY_PASSWORD, REGISTRY_USER, Registry, registryMissing } from "../support/containerd/real-registry.ts";
import { agentPod, observedContainer } from "../support/unit/agent/fake-agent-view.ts";
import { criAdapter } from "../support/unit/cri/cri-adapters.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { LinkProxy } from "../support/unit/tunnel/link-proxy.ts";

const skip = containerdMissing() ?? registryMissing() ?? false;
const { signal } = new AbortController();
const RIGHT = [REGISTRY_USER, REGISTRY_PASSWORD] as const;
const WRONG = [REGISTRY_USER, "guess"] as const;
const LARGE_BYTES = 4_000_000;

describe("images of a node", { skip }, () => {
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

  /** In the registry alone, of a content of its own. @returns its repository with tag */
  const publish = async (repository: string, content: string = repository): Promise<string> => {
    const file = join(directory, "content");
    writeFileSync(file, content);
    const name = `archive.example/${repository}`;
    containerd.importArchive(buildImageArchive({ name, files: { content: file }, command: ["/content"] }, directory));
    registry.push(containerd, name, repository);
    await adapter.images.remove(name, signal);
    return repository;
  };
  const privately = async (repository: string): Promise<string> =>
    `${registry.privateAddress}/${await publish(repository)}`;

  test("a private image opens with the pod's secret, and for no pod without one although it is there", async () => {
    const image = await privately("private:1");
    await using board = await ImageBoard.start(adapter);
    board.secret("pull", dockerConfig({ [registry.privateAddress]: RIGHT }));
    assert.match(
      await board.ensure({ name: "without", image }),
      /^ErrImagePull: .*(401 Unauthorized|no basic auth credentials)/,
    );
    const id = await board.ensure({ name: "with", image, secrets: ["pull"] });
    assert.match(id, /^sha256:/);
    assert.match(await board.ensure({ name: "other", image }), /^ErrImagePull: /);
    assert.match(await board.ensure({ name: "never", image, policy: "Never" }), /^ErrImageNeverPull: /);
    const asked = registry.privateRequests;
    assert.equal(await board.ensure({ name: "again", image, secrets: ["pull"] }), id);
    // Another secret with the same credentials is as good; so is the same one with others.
    board.secret("copy", dockerConfig({ [`https://${registry.privateAddress}/v2/`]: RIGHT }));
    assert.equal(await board.ensure({ name: "copy", image, secrets: ["copy"], policy: "Never" }), id);
    board.secret("pull", dockerConfig({ [registry.privateAddress]: WRONG }));
    assert.equal(await board.ensure({ name: "rotated", image, secrets: ["pull"] }), id);
    await board.startAgent();
    assert.equal(await board.ensure({ name: "restarted", image, secrets: ["copy"] }), id);
    assert.equal(registry.privateRequests, asked, "the registry was asked");
    board.takeEvents();
    assert.match(await board.ensure({ name: "stranger", image }), /^ErrImagePull: /);
    assert.deepEqual(board.takeEvents(), ["Pulling Pod/stranger", "Failed Pod/stranger", "Failed Pod/stranger"]);
    assert.ok(readdirSync(join(board.rootDir, "image_manager")).every((name) => !name.startsWith("pulling-")));
    await board.startAgent("imagePullCredentialsVerificationPolicy: NeverVerify");
    assert.equal(await board.ensure({ name: "careless", image }), id);
  });

  test("what was there before, and what was brought by hand, is for everybody; unless everything is verified", async () => {
    const image = await privately("preloaded:1");
    const right = { username: REGISTRY_USER, password: REGISTRY_PASSWORD, serverAddress: "" };
    const { id } = await adapter.images.pull(image, { credentials: right }, signal);
    await using board = await ImageBoard.start(adapter);
    assert.equal(await board.ensure({ name: "a", image }), id);
    const always = "imagePullCredentialsVerificationPolicy: AlwaysVerify";
    await board.startAgent(always);
    assert.match(await board.ensure({ name: "b", image }), /^ErrImagePull: /);
    const allowed = `preloadedImagesVerificationAllowlist: ["${image.split(":").slice(0, -1).join(":")}"]`;
    await board.startAgent(`imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\n${allowed}`);
    assert.equal(await board.ensure({ name: "c", image }), id);
    await board.startAgent();
    board.secret("pull", dockerConfig({ [registry.privateAddress]: RIGHT }));
    assert.equal(await board.ensure({ name: "d", image, secrets: ["pull"], policy: "Always" }), id);
    assert.match(await board.ensure({ name: "e", image, policy: "Never" }), /^ErrImageNeverPull: /);
    board.images.images.imported([{ id, tags: [image], digests: [], sizeBytes: 0, pinned: false }]);
    assert.equal(await board.ensure({ name: "f", image, policy: "Never" }), id);
  });

  test("credentials are tried one after another, the most specific first, from all secrets", async () => {
    const image = await privately("team/app:1");
    await using board = await ImageBoard.start(adapter);
    board.secret("wrong", dockerConfig({ [`${registry.privateAddress}/team/app`]: WRONG, "other.example": WRONG }));
    board.secret(
      "old",
      JSON.stringify({ [registry.privateAddress]: { username: "nobody", password: "x" } }),
      "kubernetes.io/dockercfg",
    );
    assert.match(await board.ensure({ name: "a", image, secrets: ["wrong", "old"] }), /^ErrImagePull: /);
    board.secret(
      "right",
      dockerConfig({ "127.0.0.*": WRONG, [`127.0.0.*:${registry.privateAddress.split(":")[1]}`]: RIGHT }),
    );
    assert.match(await board.ensure({ name: "b", image, secrets: ["wrong", "old", "right"] }), /^sha256:/);
  });

  test("a secret that is not there, and one that is not JSON, are told of, and the pull goes on without", async () => {
    const image = `${registry.address}/${await publish("public:1")}`;
    await using board = await ImageBoard.start(adapter);
    board.secret("broken", "no JSON");
    board.secret("opaque", "no JSON", "Opaque");
    assert.match(await board.ensure({ name: "a", image, secrets: ["absent", "broken", "opaque", "gone"] }), /^sha256:/);
    assert.deepEqual(board.events.lines.slice(0, 3), [
      "Warning FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (absent, gone); attempting to pull the image may not succeed.",
      'Warning FailedToRetrieveImagePullSecret: Unable to use image pull secret "broken": cannot read the registry credentials: it is not JSON; attempting to pull the image may not succeed.',
      `Normal Pulling spec.containers{app}: Pulling image "${image}"`,
    ]);
    // An image that was pulled without credentials is open to all pods.
    assert.match(await board.ensure({ name: "b", image, policy: "Never" }), /^sha256:/);
  });

  test("the node's own registry configuration is read again with each pull, and what it opens is for every pod", async () => {
    const [first, second, third] = [await privately("node:1"), await privately("node:2"), await privately("node:3")];
    await using board = await ImageBoard.start(adapter);
    const write = (text: string): void => writeFileSync(join(board.rootDir, "config.json"), text);
    write(dockerConfig({ [registry.privateAddress]: WRONG }));
    assert.match(await board.ensure({ name: "a", image: first }), /^ErrImagePull: /);
    write(dockerConfig({ [registry.privateAddress]: RIGHT }));
    assert.match(await board.ensure({ name: "b", image: second }), /^sha256:/);
    write("{");
    assert.match(await board.ensure({ name: "c", image: third }), /^ErrImagePull: /);
    assert.deepEqual(board.log.problems, ["the node's registry configuration cannot be used"]);
    assert.match(await board.ensure({ name: "d", image: second, policy: "Never" }), /^sha256:/);
  });

  test("a credential provider plugin opens a registry for every pod, or for a service account's", async () => {
    const [first, second] = [await privately("plugin:1"), await privately("plugin:2")];
    await using board = await ImageBoard.start(adapter);
    const auth = { [registry.privateAddress]: { username: REGISTRY_USER, password: REGISTRY_PASSWORD } };
    const version = "credentialprovider.kubelet.k8s.io/v1";
    const answer = { kind: "CredentialProviderResponse", apiVersion: version, cacheKeyType: "Registry", auth };
    const binDir = board.plugin("robot", `cat >> "$0.input"\ncat <<'END'\n${JSON.stringify(answer)}\nEND`);
    const configure = async (more: string): Promise<void> => {
      const config = join(board.directory, "providers.yaml");
      const provider = `{name: robot, matchImages: ["${registry.privateAddress}"], defaultCacheDuration: "0", apiVersion: ${version}${more}}`;
      writeFileSync(
        config,
        `apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders: [${provider}]\n`,
      );
      await board.startAgent(`imageCredentialProviderConfig: ${config}\nimageCredentialProviderBinDir: ${binDir}`);
    };
    await configure("");
    assert.match(await board.ensure({ name: "a", image: first }), /^sha256:/);
    assert.match(await board.ensure({ name: "b", image: first, policy: "Never" }), /^sha256:/);
    await configure(
      ", tokenAttributes: {serviceAccountTokenAudience: reg, cacheType: ServiceAccount, requireServiceAccount: true}",
    );
    assert.match(await board.ensure({ name: "c", image: second, serviceAccountName: "robot" }), /^sha256:/);
    assert.match(
      await board.ensure({ name: "d", image: second, serviceAccountName: "robot", policy: "Never" }),
      /^sha256:/,
    );
    assert.match(
      await board.ensure({ name: "e", image: second, serviceAccountName: "other", policy: "Never" }),
      /^ErrImageNeverPull/,
    );
    assert.equal(board.objects.requests.length, 3);
    board.plugin("robot", "echo the account is locked >&2; exit 1");
    assert.match(await board.ensure({ name: "f", image: second, serviceAccountName: "other" }), /^ErrImagePull: /);
    const told = board.events.all.find(({ reason }) => reason === "FailedToGetImageCredentials");
    assert.match(
      told?.message ?? "",
      /plugin "robot": error execing .*: exit status 1: the account is locked; attempting/,
    );
    rmSync(join(binDir, "robot"));
    await assert.rejects(
      configure(""),
      (error) => isPicoletError(error, "invalid") && /robot did not exist/.test(error.message),
    );
  });

  test("offline, a pod has what it could have had online, and no more", async () => {
    const repository = await publish("offline:1");
    await using proxy = await LinkProxy.start(() => Number(registry.privateAddress.split(":")[1]), seededRandom(1));
    const image = `127.0.0.1:${proxy.port}/${repository}`;
    await using board = await ImageBoard.start(adapter);
    board.secret("pull", dockerConfig({ [`127.0.0.1:${proxy.port}`]: RIGHT }));
    const id = await board.ensure({ name: "online", image, secrets: ["pull"] });
    assert.match(id, /^sha256:/);
    proxy.behave({ refuses: true });
    assert.equal(await board.ensure({ name: "a", image, secrets: ["pull"], policy: "Always" }), id);
    assert.match(
      await board.ensure({ name: "b", image, policy: "Always" }),
      /^ErrImagePull: .*connection refused|reset/,
    );
    assert.match(await board.ensure({ name: "b", image }), /^ImagePullBackOff: .*: ErrImagePull: /);
  });

  test("a pull that a silent link holds up is cut, and the pod behind it has its turn", async () => {
    const large = await publish("large:1", randomBytes(LARGE_BYTES).toString("base64"));
    const small = `${registry.address}/${await publish("small:1")}`;
    await using proxy = await LinkProxy.start(() => Number(registry.address.split(":")[1]), seededRandom(1));
    proxy.behave({ bytesPerSecond: 10_000_000 });
    const clock = new VirtualClock();
    await using board = await ImageBoard.start(adapter, "", clock);
    const looks: (() => void)[] = [];
    const images = {
      status: (name: string, stop: AbortSignal) => adapter.images.status(name, stop),
      pull: (name: string, options: PullOptions, stop: AbortSignal) => adapter.images.pull(name, options, stop),
      progress: async (name: string, stop: AbortSignal) => {
        const found = await adapter.images.progress(name, stop);
        looks.shift()?.();
        return found;
      },
    };
    const watched = { name: "cri", images } as unknown as RuntimeAdapter;
    const hung = board.ensure({ name: "hung", image: `127.0.0.1:${proxy.port}/${large}` }, watched);
    await new Promise<void>((resolve) => {
      proxy.onForwarded = () => {
        if (proxy.bytes.down > LARGE_BYTES / 2) resolve();
      };
    });
    proxy.behave({ silent: true });
    const behind = board.ensure({ name: "behind", image: small }, watched);
    // The second caller asks the runtime for the image before it waits.
    const { puller } = board.images;
    do await puller.refresh(signal);
    while (puller.active.length < 2);
    assert.deepEqual(
      puller.active.map(({ state, pods }) => [state, pods.map(({ name }) => name)]),
      [
        ["pulling", ["hung"]],
        ["waiting", ["behind"]],
      ],
    );
    const [{ progress } = {}] = puller.active;
    assert.ok(progress?.isTransferring && progress.bytes > 0 && progress.bytes < progress.totalBytes);
    // It looks every 5 s, each look a real question.
    let isOver = false;
    const over = hung.then(() => {
      isOver = true;
    });
    while (!isOver && clock.monotonic() < 600_000) {
      const look = new Promise<void>((resolve) => looks.push(resolve));
      await clock.advance(seconds(5));
      await Promise.race([look, over]);
      await clock.settle();
    }
    assert.match(
      await hung,
      /^ErrImagePull: the pull made next to no progress for \d+s, and others wait that are from other registries$/,
    );
    assert.match(await behind, /^sha256:/);
    assert.deepEqual(board.images.puller.active, []);
  });

  test("a pull that the link cuts fails, is left alone for a while, and then comes", async () => {
    const large = await publish("cut:1", randomBytes(LARGE_BYTES).toString("base64"));
    await using proxy = await LinkProxy.start(() => Number(registry.address.split(":")[1]), seededRandom(1));
    const clock = new VirtualClock();
    await using board = await ImageBoard.start(adapter, "", clock);
    const wish = { name: "web", image: `127.0.0.1:${proxy.port}/${large}` };
    // The link fails for good in the middle: neither what was begun nor what follows gets through.
    proxy.onForwarded = () => {
      if (proxy.bytes.down < LARGE_BYTES) return;
      proxy.behave({ refuses: true });
      proxy.cut();
    };
    assert.match(await board.ensure(wish), /^ErrImagePull: failed to pull and unpack image /);
    proxy.onForwarded = () => undefined;
    proxy.heal();
    assert.match(await board.ensure(wish), /^ImagePullBackOff: Back-off pulling image ".*": ErrImagePull: /);
    await clock.advance(seconds(11));
    assert.match(await board.ensure(wish), /^sha256:/);
  });

  test("edgectl pulls with live progress, shows what is pulled, pins and removes", async () => {
    const large = await publish("by-hand:1", randomBytes(LARGE_BYTES).toString("base64"));
    await using proxy = await LinkProxy.start(() => Number(registry.address.split(":")[1]), seededRandom(1));
    proxy.behave({ bytesPerSecond: 3_000_000 });
    await using board = await ImageBoard.start(adapter);
    const image = `127.0.0.1:${proxy.port}/${large}`;
    const pulling = board.edgectl(["image", "pull", image, "-o", "json"]);
    await new Promise<void>((resolve) => {
      proxy.onForwarded = () => {
        if (proxy.bytes.down < LARGE_BYTES / 2) return;
        // The pull stays under way while the test inspects it.
        proxy.onForwarded = () => undefined;
        proxy.behave({ silent: true });
        resolve();
      };
    });
    const { pulls } = JSON.parse((await board.edgectl(["images", "-o", "json"])).out) as ImageList;
    const [pull] = pulls;
    assert.deepEqual([pull?.image, pull?.runtime, pull?.state, pull?.pods], [image, "cri", "pulling", []]);
    assert.ok((pull?.bytes ?? 0) > 0 && (pull?.bytes ?? 0) < (pull?.totalBytes ?? 0));
    assert.match(
      (await board.edgectl(["images"])).out,
      /^pulling 127\.0\.0\.1:\d+\/by-hand:1 for \d+s: [\d.]+ (?:[KM]iB )?of 5/m,
    );
    proxy.behave({ silent: false });
    const { code, out, error } = await pulling;
    assert.equal(code, 0);
    const pulled = JSON.parse(out) as ImageReport;
    assert.ok(pulled.tags.includes(image));
    assert.match(error, /^pulling .*by-hand:1: \d0 % of 5/m);
    assert.match(
      (await board.edgectl(["image", "pull", image])).out,
      /^pulled 127.* \([0-9a-f]{12}, 5.* MiB\) into cri\n$/,
    );
    assert.deepEqual((await board.edgectl(["image", "pin", image])).out, `pinned ${image}\n`);
    await board.startAgent();
    assert.equal(board.images.images.isPinned({ ...pulled }), true);
    const refused = await board.edgectl(["image", "rm", image]);
    assert.deepEqual(
      [refused.code, refused.error],
      [1, `edgectl: image ${image} is pinned; unpin it, or use --force\n`],
    );
    await board.edgectl(["image", "unpin", image]);
    const user = { ...observedContainer("app", 0, "/log"), imageId: pulled.id };
    board.view.setPods(agentPod(podWith({ name: "web", image }).pod, { containers: [user] }));
    assert.match(
      (await board.edgectl(["image", "rm", image])).error,
      /is used by container app of pod shop\/web; --force/,
    );
    board.view.setPods();
    assert.match((await board.edgectl(["image", "rm", image])).out, /^removed 127.* from cri\n$/);
    assert.equal(await adapter.images.status(image, signal), undefined);
    assert.match((await board.edgectl(["image", "rm", image])).error, /^edgectl: there is no image /);
    await board.edgectl(["image", "pull", image]);
    const short = pulled.id.replace("sha256:", "").slice(0, 12);
    assert.match((await board.edgectl(["image", "rm", short])).out, /^removed 127.* from cri\n$/);
    const absent = await board.edgectl(["image", "pull", `${registry.address}/no/such:1`]);
    assert.deepEqual([absent.code, absent.out], [1, ""]);
    assert.match(
      absent.error,
      /^edgectl: rpc error: code = NotFound desc = failed to pull and unpack image .*not found/m,
    );
  });

  test("a pull by hand opens with a secret that is named", async () => {
    const image = await privately("by-hand-private:1");
    await using board = await ImageBoard.start(adapter);
    board.secret("pull", dockerConfig({ [registry.privateAddress]: RIGHT }));
    assert.equal((await board.edgectl(["image", "pull", image])).code, 1);
    assert.equal((await board.edgectl(["image", "pull", image, "-n", "shop", "--secret", "pull"])).code, 0);
    assert.match(await board.ensure({ name: "a", image, policy: "Never" }), /^ErrImageNeverPull/);
    const wrong = await board.edgectl(["image", "pull", image, "--runtime", "podman"]);
    assert.equal(wrong.error, "edgectl: this node has no runtime podman, only cri\n");
  });

  test("images that annotations name are here before a pod needs them", async () => {
    const open = `${registry.address}/${await publish("next:1")}`;
    const locked = await privately("next-private:1");
    await using board = await ImageBoard.start(adapter);
    board.secret("pull", dockerConfig({ [registry.privateAddress]: RIGHT }));
    const both = { [PREFETCH_ANNOTATION]: `${locked}, Not-A-Name` };
    board.desired.replace("api", 1, [podWith({ name: "web", image: "a:1", secrets: ["pull"], annotations: both })]);
    const metadata = { name: "edge-1", annotations: { [PREFETCH_ANNOTATION]: `${open} ${locked}` } };
    board.objects.set("Node//edge-1", { apiVersion: "v1", kind: "Node", metadata });
    const settled = new Promise<void>((resolve) => {
      const { record } = board.events;
      board.events.record = (event) => {
        record.call(board.events, event);
        if (board.events.lines.filter((line) => /^(Normal Pulled|Warning Failed)/.test(line)).length === 3) resolve();
      };
    });
    board.prefetch();
    await settled;
    await systemClock.sleep(seconds(0), signal);
    const states = board.images.images.prefetches.map(({ image, wantedBy, state }) => [image, wantedBy, state]);
    assert.deepEqual(states, [
      [locked, ["pod/shop/web", "node/edge-1"], "present"],
      ["Not-A-Name", ["pod/shop/web"], "failed"],
      [open, ["node/edge-1"], "present"],
    ]);
    assert.deepEqual(board.takeEvents().sort(), [
      ...[
        "Failed Pod/web",
        "InspectFailed Pod/web",
        "Pulled Node/edge-1",
        "Pulled Pod/web",
        "Pulling Node/edge-1",
        "Pulling Pod/web",
      ],
    ]);
    assert.match(
      (await board.edgectl(["images"])).out,
      /^prefetch of Not-A-Name for pod\/shop\/web: failed: Failed to apply/m,
    );
    assert.match(await board.ensure({ name: "late", image: open, policy: "Never" }), /^sha256:/);
    assert.match(await board.ensure({ name: "late", image: locked, policy: "Never" }), /^ErrImageNeverPull/);
  });
});
