/**
 * The cluster of the conformance tests whose node is an emulated board: the hub, its API server and the registry run
 * here, agent and containerd in a guest with systemd and cgroup v2 alone.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { Registry } from "../support/containerd/real-registry.ts";
import type { RuntimeReleaseName } from "../support/containerd/runtime-release.ts";
import { Guest } from "../support/guest/guest.ts";
import type { GuestAgent } from "../support/guest/guest-agent.ts";
import type { GuestArchitectureName } from "../support/guest/guest-architecture.ts";
import { OUTSIDE_ADDRESS } from "../support/guest/guest-machine.ts";
import { Fleet } from "../support/hub/test-fleet.ts";
import {
  componentImages,
  type ImagePrograms,
  NO_CONTAINER_IMAGES,
  provideImages,
  pullSecretFor,
} from "./conformance-images.ts";
import type { Target } from "./framework/target.ts";
import { untilReady } from "./local-cluster.ts";

const NODE = "conformance";
const MEMORY_MIB = 1536;
/** Emulated processors beside other work have been seen this many times slower than the machine's own. */
const SLOWNESS = { amd64: 8, arm64: 10 } as const satisfies Record<GuestArchitectureName, number>;
const LOADERS = {
  amd64: "/lib64/ld-linux-x86-64.so.2",
  arm64: "/lib/ld-linux-aarch64.so.1",
} as const satisfies Record<GuestArchitectureName, string>;
const READY_LIMIT_MS = 60_000;
const IMPORT_LIMIT_MS = 600_000;

export interface GuestBoard {
  readonly architecture: GuestArchitectureName;
  readonly runtime?: RuntimeReleaseName | undefined;
  readonly pages?: "16k" | undefined;
  /** Nothing runs containers in it. */
  readonly componentsOnly?: boolean;
}

export class GuestCluster implements AsyncDisposable {
  readonly target: Target;
  readonly #parts: AsyncDisposableStack;
  readonly #agent: GuestAgent;

  private constructor(target: Target, agent: GuestAgent, parts: AsyncDisposableStack) {
    this.target = target;
    this.#agent = agent;
    this.#parts = parts;
  }

  static async start(board: GuestBoard): Promise<GuestCluster> {
    await using parts = new AsyncDisposableStack();
    const guest = parts.use(await Guest.start({ ...board, memoryMiB: MEMORY_MIB }));
    const registry = parts.use(await Registry.start());
    const fleet = parts.use(await Fleet.start(["--server-name", OUTSIDE_ADDRESS]));
    const addresses = [registry.address, registry.privateAddress];
    for (const address of addresses) await guest.letReachOnLoopback(Number(address.split(":")[1]));
    const componentsOnly = board.componentsOnly === true;
    if (componentsOnly) await guest.output("systemctl stop containerd");
    const images = {
      ...(componentsOnly
        ? NO_CONTAINER_IMAGES
        : await imagesOf(guest, board.architecture, registry, fleet.folder.path)),
      ...(await componentImages(async (file) => {
        const path = `/root/${basename(file)}`;
        await guest.upload(path, readFileSync(file));
        return path;
      })),
    };
    const { host, port } = guest.letReach(fleet.tunnelPort);
    const hub = { ...(await fleet.joinConfig()), server: `https://${host}:${port}` };
    const runtime = componentsOnly ? { containerRuntimeEndpoint: "" } : {};
    const agent = await guest.agent({ config: { nodeName: NODE, hub, ...runtime } });
    const slowness = SLOWNESS[board.architecture];
    const { kubeconfig } = fleet.ready;
    await untilReady(kubeconfig, NODE, READY_LIMIT_MS * slowness);
    const target: Target = {
      ...{ kubeconfig, node: NODE, images, slowness },
      pullSecret: pullSecretFor(registry.privateAddress),
      containerLogs: "/var/log/containers",
      // Plugins of the tests run beside the tests, and a guest shares no folder with this machine.
      kubeletRoot: "",
    };
    return new GuestCluster(target, agent, parts.move());
  }

  /** The agent's, its end. */
  log(): Promise<string> {
    return this.#agent.log();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#parts.disposeAsync();
  }
}

/** Builds the images with the guest's own programs, which are of its architecture. */
async function imagesOf(
  guest: Guest,
  architecture: GuestArchitectureName,
  registry: Registry,
  folder: string,
): ReturnType<typeof provideImages> {
  const fetched = async (path: string): Promise<string> => {
    const file = join(folder, path.replaceAll("/", "_"));
    writeFileSync(file, await guest.download(path));
    return file;
  };
  const ctr = (line: string): Promise<string> => guest.output(`ctr ${line}`, { timeoutMs: IMPORT_LIMIT_MS });
  const store = {
    importArchive: async (archive: string) => {
      await guest.output("ctr images import -", { input: readFileSync(archive), timeoutMs: IMPORT_LIMIT_MS });
    },
    push: async (image: string, repository: string) => {
      const name = `${registry.address}/${repository}`;
      await ctr(`images tag --force ${image} ${name}`);
      await ctr(`images push --plain-http ${name}`);
      await ctr(`images remove --sync ${name} ${image}`);
      return name;
    },
  };
  const https: Record<string, string> = {};
  const needed = await guest.output(`echo /usr/bin/openssl; ${LOADERS[architecture]} --list /usr/bin/openssl`);
  for (const [path] of needed.matchAll(/\/\S+/g)) https[path.slice(1)] = await fetched(path);
  const programs: ImagePrograms = {
    ...{ architecture, https },
    busybox: await fetched("/bin/busybox"),
    tool: await fetched("/usr/lib/guest/tool"),
  };
  return await provideImages(store, programs, registry, folder);
}
