import type { KubeClient, KubeObject, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { selects } from "../../api/label-selector.ts";
import { controllerOf, type LabelSelector } from "../../api/typed-objects.ts";
import { ownerOf } from "./daemon-set.ts";

export interface Claim {
  /** The owner's, adopted ones among them. */
  readonly owned: readonly KubeObject[];
  readonly adopt: readonly KubeObject[];
  readonly release: readonly KubeObject[];
}

type Selecting = KubeObject & { readonly spec: { readonly selector: LabelSelector } };

/** Ownership by ownerReferences, with adoption of orphans that match (pkg/controller, `ControllerRefManager`). */
export class Ownership {
  readonly #client: KubeClient;

  constructor(client: KubeClient) {
    this.#client = client;
  }

  /** Pure. @param candidates everything of that kind in the owner's namespace */
  claim(owner: Selecting, candidates: readonly KubeObject[]): Claim {
    const owned: KubeObject[] = [];
    const adopt: KubeObject[] = [];
    const release: KubeObject[] = [];
    for (const object of candidates) {
      const controller = controllerOf(object.metadata);
      const matches = selects(owner.spec.selector, object.metadata.labels);
      if (controller !== undefined && controller.uid !== owner.metadata.uid) continue;
      if (controller !== undefined && matches) owned.push(object);
      else if (controller !== undefined) release.push(object);
      else if (matches && object.metadata.deletionTimestamp === undefined) adopt.push(object);
    }
    return { owned: [...owned, ...adopt], adopt, release };
  }

  /** Carries it out. @throws what the API server says but for objects that are gone */
  async settle(
    type: ResourceType,
    ownerType: ResourceType,
    owner: KubeObject,
    { adopt, release }: Claim,
    signal: AbortSignal,
  ): Promise<void> {
    if (adopt.length > 0 && !(await this.#isAlive(ownerType, owner, signal))) return;
    for (const { metadata } of adopt) {
      const ownerReferences = [...(metadata.ownerReferences ?? []), ownerOf(owner)];
      await this.#patch(
        type,
        metadata,
        { metadata: { ownerReferences, uid: metadata.uid, resourceVersion: metadata.resourceVersion } },
        signal,
      );
    }
    for (const { metadata } of release) {
      const ownerReferences = (metadata.ownerReferences ?? []).filter(({ uid }) => uid !== owner.metadata.uid);
      await this.#patch(
        type,
        metadata,
        { metadata: { ownerReferences, uid: metadata.uid, resourceVersion: metadata.resourceVersion } },
        signal,
      );
    }
  }

  /** A set that was deleted a moment ago must not adopt its successor's pods. */
  async #isAlive(type: ResourceType, { metadata }: KubeObject, signal: AbortSignal): Promise<boolean> {
    try {
      const live = await this.#client.get(type, { namespace: metadata.namespace ?? "", name: metadata.name }, signal);
      return live.metadata.uid === metadata.uid && live.metadata.deletionTimestamp === undefined;
    } catch (error) {
      if (isPicoletError(error, "not_found")) return false;
      throw error;
    }
  }

  async #patch(
    type: ResourceType,
    { namespace = "", name }: KubeObject["metadata"],
    patch: object,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      await this.#client.patch(type, { namespace, name }, "merge", patch, {}, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
  }
}
