/** The agent's request to a pull child, and its answers: lines of JSON between two programs of the same version. */
import type { ErrorCode } from "@picolet/protocol/errors.ts";
import type { ImageCredentials, SignedImage } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ProxySettings } from "../oci/proxies.ts";
import type { RegistryEndpoint } from "../oci/registries.ts";

/** How one repository of a registry is reached. */
export interface RegistryAccess {
  readonly repository: string;
  /** In the order in which they are asked. */
  readonly endpoints: readonly RegistryEndpoint[];
  readonly proxies: ProxySettings;
  readonly credentials: ImageCredentials | undefined;
  /** Where those come from, for messages: `secret shop/pull`. */
  readonly credentialsFrom: string | undefined;
  readonly limits: PullLimits;
}

/** One line on the child's standard input, because it has secrets, and all users can read a command line. */
export interface PullRequest extends RegistryAccess {
  /**
   * `component`: store it on disk. `platforms`: only report the platforms. `signatures`: its digest, and who signed it.
   */
  readonly want: "component" | "platforms" | "signatures";
  readonly tag: string | undefined;
  /** `sha256:…`; it goes before the tag. */
  readonly digest: string | undefined;
  /** A folder of this pull's own, which may hold parts of an earlier one. Absolute. */
  readonly directory: string;
  /** Components that are here, 64 hexadecimal digits, by the digests of the manifests that lead to them. */
  readonly known: Readonly<Record<string, string>>;
  readonly maxComponentBytes: number;
}

/** Times in milliseconds. */
export interface PullLimits {
  readonly connectTimeoutMs: number;
  /** Without a byte. */
  readonly idleTimeoutMs: number;
  /** Bounds the transfer of one whole manifest or token. */
  readonly documentTimeoutMs: number;
  /** Between two attempts; doubled each time. */
  readonly retryDelayMs: number;
  /** Without progress, while pulls from other registries wait for a process. Kept by the agent. */
  readonly contendedTimeoutMs: number;
  /**
   * Bounds a pull that others wait for, however fast it is. It continues later from where it stopped, so that slow
   * links get on too. Kept by the agent.
   */
  readonly contendedLimitMs: number;
}

export const DEFAULT_PULL_LIMITS: PullLimits = {
  connectTimeoutMs: 30_000,
  idleTimeoutMs: 60_000,
  documentTimeoutMs: 120_000,
  retryDelayMs: 1_000,
  contendedTimeoutMs: 15_000,
  contendedLimitMs: 300_000,
};

export interface PulledComponent {
  /** Digest of the reference itself: of the index, where there is one. */
  readonly digest: string;
  /** Digest of the manifest that leads to the component. */
  readonly manifestDigest: string;
  /** Digest of the component, 64 hexadecimal digits. */
  readonly sha256: string;
  /** A file in the request's folder, on disk; undefined: it is one of those known. */
  readonly path: string | undefined;
  /** The platforms of the reference: `wasi/wasm`, `linux/arm64`. */
  readonly platforms: readonly string[];
}

export type PullAnswer =
  | { readonly kind: "progress"; readonly bytes: number; readonly totalBytes: number }
  | { readonly kind: "component"; readonly component: PulledComponent; readonly peakRssKiB: number }
  | { readonly kind: "platforms"; readonly platforms: readonly string[]; readonly peakRssKiB: number }
  | { readonly kind: "signatures"; readonly signed: SignedImage; readonly peakRssKiB: number }
  | { readonly kind: "failed"; readonly code: ErrorCode; readonly message: string; readonly retryable: boolean };
