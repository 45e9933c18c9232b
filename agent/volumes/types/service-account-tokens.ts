import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects, IssuedToken } from "../../core/hub/cluster-objects.ts";
import type { Sealer } from "../../core/store/sealer.ts";
import { nameOf, type PodPaths, TOKENS_FOLDER } from "../files/pod-paths.ts";
import { encodeKeptToken, generationOf, type KeptToken, type KeptTokenFile, parseKeptToken } from "./kept-tokens.ts";

/** The fields of a `serviceAccountToken` source of a projected volume. */
export interface TokenSource {
  readonly audience?: string | undefined;
  readonly expirationSeconds: number;
}

/** The kubelet's rule: a token is requested again when this share of its life is over, or after a day. */
const REFRESH_SHARE = 0.8;
const MAX_AGE_MS = 86_400_000;
/** Bounds a read. A token has 1 to 2 KiB, so a larger file is not one of ours. */
const MAX_KEPT_BYTES = 64 * KIBIBYTE;

/**
 * Tokens of pods' service accounts. They are kept beside the pod's volumes on disk, so that a board that starts with no
 * hub in reach starts its pods all the same; a token that ran out meanwhile is used until there is another.
 */
export class ServiceAccountTokens {
  readonly #objects: ClusterObjects;
  readonly #clock: Clock;
  readonly #paths: PodPaths;
  readonly #sealer: Sealer | undefined;

  constructor(components: {
    readonly objects: ClusterObjects;
    readonly clock: Clock;
    readonly paths: PodPaths;
    readonly sealer?: Sealer | undefined;
  }) {
    this.#objects = components.objects;
    this.#clock = components.clock;
    this.#paths = components.paths;
    this.#sealer = components.sealer;
  }

  /**
   * @returns the token with its end (RFC 3339), and in how long it should be asked for again
   * @throws `unavailable` (retryable) when there is none and no hub to ask
   */
  async get(
    pod: DesiredPod,
    volume: string,
    index: number,
    source: TokenSource,
    signal: AbortSignal,
  ): Promise<{ readonly token: string; readonly expirationTimestamp: string; readonly refreshIn: Millis }> {
    const purpose = purposeOf(pod, source);
    const file: KeptTokenFile = { uid: pod.uid, name: `${nameOf(volume, "volume")}-${index}.json` };
    const kept = await this.#readKept(file);
    const usable = kept?.purpose === purpose ? kept : undefined;
    const left = usable === undefined ? 0 : this.#refreshIn(usable);
    if (usable !== undefined && left > 0) return { ...issued(usable), refreshIn: millis(left) };
    try {
      const fresh = await this.#request(pod, source, purpose, signal);
      await this.#keep(file, fresh);
      return { ...issued(fresh), refreshIn: millis(Math.max(this.#refreshIn(fresh), 1000)) };
    } catch (error) {
      // A refusal is final, such as for a deleted account. Without a hub an old token is better than none.
      if (usable === undefined || !isPicoletError(error) || !error.retryable) throw error;
      return { ...issued(usable), refreshIn: millis(60_000) };
    }
  }

  #pathOf({ uid, name }: KeptTokenFile): string {
    return join(this.#paths.pod(uid), TOKENS_FOLDER, name);
  }

  /**
   * @returns undefined for a file that is missing, damaged, or cannot be opened. One of an older key is sealed again.
   */
  async #readKept(file: KeptTokenFile): Promise<KeptToken | undefined> {
    let text: string;
    try {
      text = await readFile(this.#pathOf(file), "utf8");
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return undefined;
      throw error;
    }
    if (text.length > MAX_KEPT_BYTES) return undefined;
    const kept = parseKeptToken(text, file, this.#sealer);
    if (
      kept !== undefined &&
      this.#sealer?.isDurable === true &&
      generationOf(text, this.#sealer) !== this.#sealer.generation
    )
      await this.#keep(file, kept);
    return kept;
  }

  async #keep(file: KeptTokenFile, token: KeptToken): Promise<void> {
    const path = this.#pathOf(file);
    await mkdir(join(path, ".."), { recursive: true, mode: 0o700 });
    await writeFile(`${path}.new`, encodeKeptToken(token, file, this.#sealer), { mode: 0o600 });
    await rename(`${path}.new`, path);
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

const issued = ({ token, expiresAtMs }: KeptToken): IssuedToken => ({
  token,
  expirationTimestamp: kubeTime(new Date(expiresAtMs)),
});

const purposeOf = ({ uid, pod }: DesiredPod, { audience = "", expirationSeconds }: TokenSource): string =>
  JSON.stringify([pod.metadata.uid ?? uid, pod.spec.serviceAccountName ?? "default", audience, expirationSeconds]);
