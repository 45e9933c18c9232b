import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { Clock, Millis } from "../../protocol/ports.ts";
import { millis } from "../../protocol/ports.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { ClusterObjects } from "../core/cluster-objects.ts";
import { errorCode } from "../core/error-code.ts";
import { nameOf, type PodPaths } from "./pod-paths.ts";

/** What a `serviceAccountToken` source of a projected volume asks for. */
export interface TokenSource {
  readonly audience?: string | undefined;
  readonly expirationSeconds: number;
}

/** One token as it is kept on disk. */
interface KeptToken {
  readonly token: string;
  readonly issuedAtMs: number;
  readonly expiresAtMs: number;
  /** What it was issued for: a pod that was adopted, or that asks for something else, needs another one. */
  readonly purpose: string;
}

/** The kubelet's: a token is asked for anew when this share of its life is over, or after a day. */
const REFRESH_SHARE = 0.8;
const MAX_AGE_MS = 86_400_000;
/** A token is 1 to 2 KiB. A file that is larger than this is not one of ours. */
const MAX_KEPT_BYTES = 64 * 1024;

/**
 * Tokens of pods' service accounts. They are kept beside the pod's volumes on disk, so that a board that starts with no
 * hub in reach starts its pods all the same; a token that ran out meanwhile is used until there is another.
 */
export class ServiceAccountTokens {
  readonly #objects: ClusterObjects;
  readonly #clock: Clock;
  readonly #paths: PodPaths;

  constructor(components: { readonly objects: ClusterObjects; readonly clock: Clock; readonly paths: PodPaths }) {
    this.#objects = components.objects;
    this.#clock = components.clock;
    this.#paths = components.paths;
  }

  /**
   * @returns the token, and in how long it should be asked for again
   * @throws `unavailable` (retryable) when there is none and no hub to ask
   */
  async get(
    pod: DesiredPod,
    volume: string,
    index: number,
    source: TokenSource,
    signal: AbortSignal,
  ): Promise<{ readonly token: string; readonly refreshIn: Millis }> {
    const purpose = purposeOf(pod, source);
    const path = join(this.#paths.pod(pod.uid), "tokens", `${nameOf(volume, "volume")}-${index}.json`);
    const kept = await readKept(path);
    const usable = kept?.purpose === purpose ? kept : undefined;
    const left = usable === undefined ? 0 : this.#refreshIn(usable);
    if (usable !== undefined && left > 0) return { token: usable.token, refreshIn: millis(left) };
    try {
      const fresh = await this.#request(pod, source, purpose, signal);
      await keep(path, fresh);
      return { token: fresh.token, refreshIn: millis(Math.max(this.#refreshIn(fresh), 1000)) };
    } catch (error) {
      // A refusal stands (the account is gone); without a hub what is at hand is better than nothing.
      if (usable === undefined || !isPicoletError(error) || !error.retryable) throw error;
      return { token: usable.token, refreshIn: millis(60_000) };
    }
  }

  #refreshIn({ issuedAtMs, expiresAtMs }: KeptToken): number {
    const age = Math.min((expiresAtMs - issuedAtMs) * REFRESH_SHARE, MAX_AGE_MS);
    return issuedAtMs + age - this.#clock.wall().getTime();
  }

  async #request(
    pod: DesiredPod,
    { audience = "", expirationSeconds }: TokenSource,
    purpose: string,
    signal: AbortSignal,
  ): Promise<KeptToken> {
    const { metadata, spec } = pod.pod;
    const { token, expirationTimestamp } = await this.#objects.requestToken(
      {
        namespace: metadata.namespace,
        serviceAccount: spec.serviceAccountName ?? "default",
        audiences: audience === "" ? [] : [audience],
        expirationSeconds,
        podName: metadata.name,
        podUid: metadata.uid ?? pod.uid,
      },
      signal,
    );
    const expiresAtMs = Date.parse(expirationTimestamp);
    if (token === "" || Number.isNaN(expiresAtMs)) throw new PicoletError("corrupt", "the token has no expiration");
    return { token, issuedAtMs: this.#clock.wall().getTime(), expiresAtMs, purpose };
  }
}

const purposeOf = ({ uid, pod }: DesiredPod, { audience = "", expirationSeconds }: TokenSource): string =>
  JSON.stringify([pod.metadata.uid ?? uid, pod.spec.serviceAccountName ?? "default", audience, expirationSeconds]);

/** Undefined for what is not there or damaged: a token can always be asked for again. */
async function readKept(path: string): Promise<KeptToken | undefined> {
  try {
    const text = await readFile(path, "utf8");
    if (text.length > MAX_KEPT_BYTES) return undefined;
    const { token, issuedAtMs, expiresAtMs, purpose } = JSON.parse(text) as Partial<KeptToken>;
    if (typeof token !== "string" || typeof purpose !== "string") return undefined;
    if (typeof issuedAtMs !== "number" || typeof expiresAtMs !== "number") return undefined;
    return { token, issuedAtMs, expiresAtMs, purpose };
  } catch (error) {
    if (error instanceof SyntaxError || errorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}

async function keep(path: string, token: KeptToken): Promise<void> {
  await mkdir(join(path, ".."), { recursive: true, mode: 0o700 });
  await writeFile(`${path}.new`, JSON.stringify(token), { mode: 0o600 });
  await rename(`${path}.new`, path);
}
