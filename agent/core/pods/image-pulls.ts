/** Images on their way to this node and kept on it, as the local API and the statuses show them. */
import type { PrefetchReport } from "@picolet/protocol/local-api/status.ts";
import type { ImageInfo, PullProgress } from "@picolet/runtime-contract/runtime-adapter.ts";

/** The kubelet's reason for an image that may not be used (pkg/kubelet/images, ErrSignatureValidationFailed). */
export const SIGNATURE_REASON = "SignatureValidationFailed";

export interface PodName {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

export interface ActivePull {
  /** The name as the first request wrote it. */
  readonly image: string;
  /** The adapter's name. */
  readonly runtime: string;
  /** `waiting`: for its turn. */
  readonly state: "waiting" | "pulling";
  /** Milliseconds since the epoch; of the state. */
  readonly sinceMs: number;
  /** From the last sample; undefined: the runtime does not report it. */
  readonly progress: PullProgress | undefined;
  /** Pods that wait for it; none for a prefetch or a pull by a user. */
  readonly pods: readonly PodName[];
}

export interface HandPull {
  readonly image: string;
  /** An adapter's name; undefined: the first that knows registries. */
  readonly runtime: string | undefined;
  /** In which the secrets are. */
  readonly namespace: string;
  readonly secrets: readonly string[];
}

export interface NodeImages {
  /** Answers at once. */
  readonly pulls: readonly ActivePull[];
  readonly prefetches: readonly PrefetchReport[];
  /** Reads the progress of the pulls. */
  refresh(signal: AbortSignal): Promise<void>;
  /**
   * From its registry, whether it is here or not. @throws `not_found` for a runtime that is none, and as a pull does
   */
  pull(request: HandPull, signal: AbortSignal): Promise<{ readonly runtime: string; readonly image: ImageInfo }>;
  /**
   * By name, digest or id, from each runtime that has it, or the one that is named.
   * @throws `not_found`, `conflict` when it is pinned or a container is made of it, unless `force`
   */
  remove(
    image: string,
    options: { readonly runtime: string | undefined; readonly force: boolean },
    signal: AbortSignal,
  ): Promise<readonly { readonly runtime: string; readonly image: ImageInfo }[]>;
  /** Pins a name; the image need not exist. @throws `invalid` for a malformed name */
  setPinned(image: string, isPinned: boolean, signal: AbortSignal): Promise<void>;
  /** By us, or by the runtime. */
  isPinned(image: ImageInfo): boolean;
  /** Names that are pinned, canonical, sorted. */
  readonly pinned: readonly string[];
  /** Images were imported without a registry: every pod may use them. */
  imported(images: readonly ImageInfo[]): void;
}
