/**
 * The default cluster of the conformance tests: a hub with its embedded API server, an agent, a real containerd,
 * registries.
 */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildImageArchive, type ImageRecipe } from "@picolet/scripts/build/build-image-archive.ts";
import type { AgentNode } from "../support/agent/agent-process.ts";
import { nodeWith } from "../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { REGISTRY_PASSWORD, REGISTRY_USER, Registry, registryMissing } from "../support/containerd/real-registry.ts";
import type { RuntimeReleaseName } from "../support/containerd/runtime-release.ts";
import { Fleet } from "../support/hub/test-fleet.ts";
import { KubeApi } from "./framework/kube-api.ts";
import { LiveSet } from "./framework/live-set.ts";
import type { Images, Target } from "./framework/target.ts";

const NODE = "conformance";
const READY_LIMIT_MS = 60_000;
const TOOL_SOURCE = fileURLToPath(new URL("image/tool.c", import.meta.url));
const OPENSSL = "/usr/bin/openssl";

/** Why it cannot run here; `undefined`: it can. */
export const localClusterMissing = (): string | undefined => containerdMissing() ?? registryMissing();

export class LocalCluster implements AsyncDisposable {
  readonly target: Target;
  readonly #parts: AsyncDisposableStack;
  readonly #node: AgentNode;

  private constructor(target: Target, node: AgentNode, parts: AsyncDisposableStack) {
    this.target = target;
    this.#node = node;
    this.#parts = parts;
  }

  /** @param release of containerd; undefined: the default of `Containerd.start` */
  static async start(release?: RuntimeReleaseName): Promise<LocalCluster> {
    await using parts = new AsyncDisposableStack();
    const containerd = parts.use(await Containerd.start(release === undefined ? {} : { release }));
    const registry = parts.use(await Registry.start());
    const fleet = parts.use(await Fleet.start());
    const images = provideImages(containerd, registry, fleet.folder.path);
    const node = nodeWith(containerd, { config: { nodeName: NODE, hub: await fleet.joinConfig() }, logTail: 400 });
    parts.use(node);
    await node.start();
    const { kubeconfig } = fleet.ready;
    await untilReady(kubeconfig);
    const pullSecret = pullSecretFor(registry.privateAddress);
    // Beside its folder of logs, as a kubelet's.
    const containerLogs = join(node.directory, "containers");
    const kubeletRoot = join(node.directory, "root");
    const target = { kubeconfig, node: NODE, images, pullSecret, containerLogs, kubeletRoot };
    return new LocalCluster(target, node, parts.move());
  }

  /** The agent's, its end. */
  get log(): string {
    return this.#node.log;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#parts.disposeAsync();
  }
}

export const pullSecretFor = (registry: string): string => {
  const auth = Buffer.from(`${REGISTRY_USER}:${REGISTRY_PASSWORD}`).toString("base64");
  return JSON.stringify({ auths: { [registry]: { auth } } });
};

async function untilReady(kubeconfig: string): Promise<void> {
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(READY_LIMIT_MS)]);
  using api = await KubeApi.open(kubeconfig);
  type Node = { metadata: { name: string }; status?: { conditions?: { type: string; status: string }[] } };
  const nodes = new LiveSet<Node>(api, "/api/v1/nodes", signal);
  await nodes.find(() => {
    const conditions = nodes.get(NODE)?.status?.conditions ?? [];
    return conditions.some(({ type, status }) => type === "Ready" && status === "True") || undefined;
  });
  stop.abort(new Error("the node is ready"));
}

/** Builds the images and gives them to the node. @param folder to build in */
export function provideImages(containerd: Containerd, registry: Registry, folder: string): Images {
  const tool = join(folder, "tool");
  execFileSync("clang", ["-Os", "-static", "-s", "-o", tool, TOOL_SOURCE], { stdio: "ignore" });
  const applets = execFileSync("/bin/busybox", ["--list"], { encoding: "utf8" }).trim().split("\n");
  const links = Object.fromEntries(
    applets.filter((applet) => applet !== "busybox").map((each) => [`bin/${each}`, "busybox"]),
  );
  const base = { files: { "bin/busybox": "/bin/busybox" }, links, command: ["/bin/sh"] };
  const give = (name: string, recipe: Omit<ImageRecipe, "name">): string => {
    const full = `localhost/conformance/${name}:1`;
    containerd.importArchive(buildImageArchive({ name: full, ...recipe }, folder));
    return full;
  };
  // With content of their own: what was pulled with a secret is not to be what others find at hand.
  const push = (name: string): string => {
    const files = { ...base.files, [`etc/${name}`]: TOOL_SOURCE };
    const local = give(name, { ...base, files });
    const pushed = registry.push(containerd, local, `conformance/${name}:1`);
    containerd.ctr("images", "remove", "--sync", local);
    return pushed;
  };
  return {
    busybox: give("busybox", base),
    other: give("other", { ...base, environment: ["OTHER=yes"] }),
    nonroot: give("nonroot", { ...base, user: "1234" }),
    tool: give("tool", {
      files: { ...base.files, tool, "tool-setuid": tool },
      links,
      entrypoint: ["/tool", "argv"],
      command: ["default", "arguments"],
      setuid: ["tool-setuid"],
    }),
    https: existsSync(OPENSSL) ? give("https", { ...base, files: { ...base.files, ...withLibraries(OPENSSL) } }) : "",
    pullable: push("pullable"),
    private: push("private").replace(registry.address, registry.privateAddress),
  };
}

/** A program with the shared libraries it needs, at the same paths in the image. */
function withLibraries(program: string): Record<string, string> {
  const needed = execFileSync("/usr/bin/ldd", [program], { encoding: "utf8" }).match(/\/\S+/g) ?? [];
  return Object.fromEntries([program, ...needed].map((path) => [path.slice(1), path]));
}
