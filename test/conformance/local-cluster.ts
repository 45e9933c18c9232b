/**
 * The default cluster of the conformance tests: a hub with its embedded API server, an agent, a real containerd,
 * registries.
 */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { AgentNode } from "../support/agent/agent-process.ts";
import { nodeWith } from "../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { Registry, registryMissing } from "../support/containerd/real-registry.ts";
import type { RuntimeReleaseName } from "../support/containerd/runtime-release.ts";
import { Fleet } from "../support/hub/test-fleet.ts";
import {
  compileTool,
  componentImages,
  NO_CONTAINER_IMAGES,
  provideImages,
  pullSecretFor,
} from "./conformance-images.ts";
import { KubeApi } from "./framework/kube-api.ts";
import { LiveSet } from "./framework/live-set.ts";
import type { Target } from "./framework/target.ts";

const NODE = "conformance";
const READY_LIMIT_MS = 60_000;
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

  /** @param release of containerd; undefined: the default of `Containerd.start`; "none": components only */
  static async start(release?: RuntimeReleaseName | "none"): Promise<LocalCluster> {
    await using parts = new AsyncDisposableStack();
    const started = release === "none" ? undefined : Containerd.start(release === undefined ? {} : { release });
    const containerd = started === undefined ? undefined : parts.use(await started);
    const registry = parts.use(await Registry.start());
    const fleet = parts.use(await Fleet.start());
    const images = {
      ...(containerd === undefined ? NO_CONTAINER_IMAGES : await imagesOf(containerd, registry, fleet.folder.path)),
      ...(await componentImages((file) => file)),
    };
    const node = nodeWith(containerd, { config: { nodeName: NODE, hub: await fleet.joinConfig() }, logTail: 400 });
    parts.use(node);
    await node.start();
    const { kubeconfig } = fleet.ready;
    await untilReady(kubeconfig, NODE, READY_LIMIT_MS);
    const pullSecret = pullSecretFor(registry.privateAddress);
    // Beside its folder of logs, as a kubelet's.
    const containerLogs = join(node.directory, "containers");
    const kubeletRoot = join(node.directory, "root");
    const target = { kubeconfig, node: NODE, images, pullSecret, containerLogs, kubeletRoot, slowness: 1 };
    return new LocalCluster(target, node, parts.move());
  }

  /** The agent's, its end. */
  async log(): Promise<string> {
    return this.#node.log;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#parts.disposeAsync();
  }
}

export async function untilReady(kubeconfig: string, node: string, limitMs: number): Promise<void> {
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(limitMs)]);
  using api = await KubeApi.open(kubeconfig);
  type Node = { metadata: { name: string }; status?: { conditions?: { type: string; status: string }[] } };
  const nodes = new LiveSet<Node>(api, "/api/v1/nodes", signal);
  await nodes.find(() => {
    const conditions = nodes.get(node)?.status?.conditions ?? [];
    return conditions.some(({ type, status }) => type === "Ready" && status === "True") || undefined;
  });
  stop.abort(new Error("the node is ready"));
}

function imagesOf(containerd: Containerd, registry: Registry, folder: string): ReturnType<typeof provideImages> {
  const https = existsSync(OPENSSL) ? withLibraries(OPENSSL) : undefined;
  const programs = { architecture: "amd64", busybox: "/bin/busybox", tool: compileTool(folder), https } as const;
  const push = (image: string, repository: string): string => {
    const pushed = registry.push(containerd, image, repository);
    containerd.ctr("images", "remove", "--sync", image);
    return pushed;
  };
  const store = { importArchive: (archive: string) => containerd.importArchive(archive), push };
  return provideImages(store, programs, registry, folder);
}

/** A program with the shared libraries it needs, at the same paths in the image. */
function withLibraries(program: string): Record<string, string> {
  const needed = execFileSync("/usr/bin/ldd", [program], { encoding: "utf8" }).match(/\/\S+/g) ?? [];
  return Object.fromEntries([program, ...needed].map((path) => [path.slice(1), path]));
}
