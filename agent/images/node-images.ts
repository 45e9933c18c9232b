import { describeError, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { PrefetchReport } from "@picolet/protocol/local-api/status.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { ImageInfo, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { ActivePull, HandPull, NodeImages } from "../core/pods/image-pulls.ts";
import { nodeReference } from "../core/store/store-ports.ts";
import type { PinnedImages } from "./pinned-images.ts";
import type { ImageAccess } from "./pulls/image-access.ts";
import type { ImagePuller } from "./pulls/image-puller.ts";

export interface NodeImageManagerComponents {
  readonly puller: ImagePuller;
  readonly adapters: readonly RuntimeAdapter[];
  readonly pins: PinnedImages;
  readonly access: ImageAccess;
  readonly prefetcher: { readonly prefetches: readonly PrefetchReport[] };
  readonly pods: () => readonly AgentPod[];
  readonly log: Log;
}

interface Held {
  readonly adapter: RuntimeAdapter;
  readonly image: ImageInfo;
}

/** Operations on images by `edgectl`. */
export class NodeImageManager implements NodeImages {
  readonly #components: NodeImageManagerComponents;
  readonly #nodeName: string;

  constructor(components: NodeImageManagerComponents, init: { readonly nodeName: string }) {
    this.#components = components;
    this.#nodeName = init.nodeName;
  }

  get pulls(): readonly ActivePull[] {
    return this.#components.puller.active;
  }

  get prefetches(): readonly PrefetchReport[] {
    return this.#components.prefetcher.prefetches;
  }

  get pinned(): readonly string[] {
    return this.#components.pins.names;
  }

  refresh(signal: AbortSignal): Promise<void> {
    return this.#components.puller.refresh(signal);
  }

  async pull({ image, runtime, namespace, secrets }: HandPull, signal: AbortSignal) {
    const { puller } = this.#components;
    const adapters = this.#adapters(runtime).slice(0, runtime === undefined ? undefined : 1);
    const regarding = nodeReference(this.#nodeName);
    const owner = { namespace, secrets, pod: undefined };
    const request = { image, policy: "Always", owner, regarding, lane: "hand" } as const;
    const adapter = await puller.runtimeFor(request, adapters, signal);
    if (adapter === undefined) throw new PicoletError("not_found", "this node has no runtime");
    return { runtime: adapter.name, image: await puller.provide({ ...request, adapter }, signal) };
  }

  async remove(
    image: string,
    { runtime, force }: { readonly runtime: string | undefined; readonly force: boolean },
    signal: AbortSignal,
  ) {
    const held: Held[] = [];
    for (const adapter of this.#adapters(runtime)) {
      // As it was typed: runtimes themselves tell names, ids and prefixes of ids apart.
      const found = await adapter.images.status(image, signal);
      if (found !== undefined) held.push({ adapter, image: found });
    }
    if (held.length === 0) throw new PicoletError("not_found", `there is no image ${image}`);
    if (!force) for (const each of held) this.#refuseInUse(image, each);
    for (const { adapter, image: found } of held) {
      await adapter.images.remove(found.id, signal);
      this.#components.access.forget(found.id, []);
    }
    return held.map(({ adapter, image: found }) => ({ runtime: adapter.name, image: found }));
  }

  async setPinned(image: string, isPinned: boolean, signal: AbortSignal): Promise<void> {
    const { pins, adapters, log } = this.#components;
    const name = pins.set(image, isPinned);
    for (const { images } of adapters) {
      try {
        await images.setPinned?.(name, isPinned, signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        // Our own list counts; the runtime's is for other programs.
        if (!isPicoletError(error, "not_found") && !isPicoletError(error, "unimplemented"))
          log.warn("cannot tell the runtime that an image is pinned", { image: name, error: describeError(error) });
      }
    }
  }

  isPinned(image: ImageInfo): boolean {
    return image.pinned || this.#components.pins.has(image);
  }

  imported(images: readonly ImageInfo[]): void {
    for (const { id, tags } of images) this.#components.access.forget(id, tags);
  }

  #adapters(runtime: string | undefined): readonly RuntimeAdapter[] {
    const { adapters, puller } = this.#components;
    if (runtime === undefined) {
      const withRegistry = adapters.filter((adapter) => puller.knowsRegistries(adapter));
      return [...withRegistry, ...adapters.filter((adapter) => !withRegistry.includes(adapter))];
    }
    const named = adapters.filter(({ name }) => name === runtime);
    if (named.length > 0) return named;
    const known = adapters.map(({ name }) => name).join(", ");
    throw new PicoletError("not_found", `this node has no runtime ${runtime}, only ${known}`);
  }

  #refuseInUse(name: string, { adapter, image }: Held): void {
    if (this.isPinned(image)) throw new PicoletError("conflict", `image ${name} is pinned; unpin it, or use --force`);
    const ids = new Set([image.id, ...image.digests]);
    for (const { desired, runtime, containers } of this.#components.pods()) {
      if (runtime !== adapter.name) continue;
      const user = containers.find(({ imageId, state }) => state.kind !== "exited" && ids.has(imageId));
      if (user === undefined) continue;
      const { namespace, name: pod } = desired.pod.metadata;
      throw new PicoletError(
        "conflict",
        `image ${name} is used by container ${user.name} of pod ${namespace}/${pod}; --force removes it all the same`,
      );
    }
  }
}
