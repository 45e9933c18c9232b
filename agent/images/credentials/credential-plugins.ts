/** Programs that give credentials (KEP-2133), as the kubelet runs them. */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import type { Clock, Millis, MonotonicMs } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import { apiUidOf } from "../../core/pods/pod-identity.ts";
import type { CredentialProvider } from "./credential-provider-config.ts";
import { findCredentials, type KeyringEntry, matchesImage } from "./keyring.ts";
import {
  accountOf,
  type CredentialPluginPort,
  type CredentialSource,
  type PullCredential,
} from "./pull-credentials.ts";

type Found = Omit<PullCredential, "hash">;
type Keyring = readonly KeyringEntry<Found>[];

export interface CredentialPluginsComponents {
  readonly clock: Clock;
  readonly objects: Pick<ClusterObjects, "requestToken">;
}

export interface CredentialPluginsInit {
  readonly providers: readonly CredentialProvider[];
  /** Holds the programs. */
  readonly binDir: string;
}

/** Bounds the cached answers of one plugin. The oldest is dropped, and requested again. */
const MAX_CACHED = 256;
/** Kubernetes' default for a token's life. */
const TOKEN_SECONDS = 3600;
/** Registries in one answer; a longer one is refused. */
const MAX_REGISTRIES = 1024;

export class CredentialPlugins implements CredentialPluginPort {
  readonly perServiceAccount: boolean;
  readonly #plugins: readonly Plugin[];

  constructor(components: CredentialPluginsComponents, init: CredentialPluginsInit) {
    this.#plugins = init.providers.map(
      (provider) => new Plugin(components, provider, join(init.binDir, provider.name)),
    );
    this.perServiceAccount = init.providers.some(({ tokenAttributes }) => tokenAttributes !== undefined);
  }

  async lookUp(
    repository: string,
    pod: DesiredPod | undefined,
    failed: (plugin: string, why: string) => void,
    signal: AbortSignal,
  ): Promise<readonly Found[]> {
    const keyring: KeyringEntry<Found>[] = [];
    for (const plugin of this.#plugins) {
      try {
        keyring.push(...(await plugin.credentials(repository, pod, signal)));
      } catch (error) {
        if (signal.aborted || isCancelled(error)) throw error;
        failed(plugin.name, describeError(error));
      }
    }
    return findCredentials(keyring, repository);
  }
}

class Plugin {
  readonly name: string;
  readonly #components: CredentialPluginsComponents;
  readonly #provider: CredentialProvider;
  readonly #program: string;
  readonly #cache = new Map<string, { readonly keyring: Keyring; readonly until: MonotonicMs }>();

  constructor(components: CredentialPluginsComponents, provider: CredentialProvider, program: string) {
    this.name = provider.name;
    this.#components = components;
    this.#provider = provider;
    this.#program = program;
  }

  async credentials(image: string, pod: DesiredPod | undefined, signal: AbortSignal): Promise<Keyring> {
    const { matchImages, tokenAttributes } = this.#provider;
    if (!matchImages.some((glob) => matchesImage(glob, image))) return [];
    const account = pod?.pod.spec.serviceAccountName ?? "";
    if (tokenAttributes === undefined) return await this.#cachedOrAsked(image, "", undefined, { kind: "node" }, signal);
    if (pod === undefined || account === "") {
      if (tokenAttributes.requireServiceAccount) return [];
      return await this.#cachedOrAsked(image, "", undefined, { kind: "node" }, signal);
    }
    const token = await this.#token(pod, account, signal);
    const owner = accountOf(pod) + (tokenAttributes.cacheType === "Token" ? ` ${hashOf(token)}` : "");
    const source = { kind: "serviceAccount", namespace: pod.pod.metadata.namespace, name: account } as const;
    return await this.#cachedOrAsked(image, owner, token, source, signal);
  }

  async #token(pod: DesiredPod, serviceAccount: string, signal: AbortSignal): Promise<string> {
    const { namespace, name: podName } = pod.pod.metadata;
    const audiences = [this.#provider.tokenAttributes?.serviceAccountTokenAudience ?? ""];
    const podUid = apiUidOf(pod);
    const params = { namespace, serviceAccount, audiences, expirationSeconds: TOKEN_SECONDS, podName, podUid };
    return (await this.#components.objects.requestToken(params, signal)).token;
  }

  async #cachedOrAsked(
    image: string,
    owner: string,
    token: string | undefined,
    source: CredentialSource,
    signal: AbortSignal,
  ): Promise<Keyring> {
    const now = this.#components.clock.monotonic();
    for (const [key, { until }] of this.#cache) if (until <= now) this.#cache.delete(key);
    for (const kind of ["Image", "Registry", "Global"] as const) {
      const cached = this.#cache.get(cacheKey(kind, image, owner));
      if (cached !== undefined) return cached.keyring;
    }
    const answer = parseAnswer(await this.#ask(image, token, signal), this.#provider.apiVersion);
    if (token !== undefined && this.#provider.tokenAttributes?.cacheType !== "Token") {
      const isEcho = answer.auth.some(({ password }) => password === token);
      if (isEcho) throw wrong('it gave back the service account\'s token, which cacheType "Token" is for');
    }
    const keyring = answer.auth.map(({ location, username, password }) => ({
      location,
      value: { credentials: { username, password, serverAddress: "" }, source },
    }));
    const duration = answer.cacheDuration ?? this.#provider.defaultCacheDuration;
    if (duration > 0) this.#keep(cacheKey(answer.cacheKeyType, image, owner), keyring, duration);
    return keyring;
  }

  #keep(key: string, keyring: Keyring, duration: Millis): void {
    const until = (this.#components.clock.monotonic() + duration) as MonotonicMs;
    this.#cache.delete(key);
    this.#cache.set(key, { keyring, until });
    const [oldest] = this.#cache.keys();
    if (this.#cache.size > MAX_CACHED && oldest !== undefined) this.#cache.delete(oldest);
  }

  async #ask(image: string, serviceAccountToken: string | undefined, signal: AbortSignal): Promise<string> {
    const { apiVersion, args, env } = this.#provider;
    const request = { kind: "CredentialProviderRequest", apiVersion, image, serviceAccountToken };
    // A part of its own: most nodes have no plugin.
    const { runPlugin } = await import("./plugin-process.ts");
    const variables = Object.fromEntries(env.map(({ name, value }) => [name, value]));
    const call = { program: this.#program, args, env: variables, input: `${JSON.stringify(request)}\n` };
    try {
      return await runPlugin(call, this.#components.clock, signal);
    } catch (cause) {
      if (isCancelled(cause)) throw cause;
      const message = `error execing credential provider plugin ${this.name} for image ${image}`;
      throw new PicoletError("failed", message, { cause, retryable: true });
    }
  }
}

const hashOf = (token: string): string => createHash("sha256").update(token).digest("hex");

type CacheKeyType = "Image" | "Registry" | "Global";

function cacheKey(kind: CacheKeyType, image: string, owner: string): string {
  const [registry = ""] = image.split("/", 1);
  // Angle brackets cannot be part of an image's name.
  const base = kind === "Image" ? image : kind === "Registry" ? registry : "<global>";
  return JSON.stringify([base, owner]);
}

interface Answer {
  readonly cacheKeyType: CacheKeyType;
  /** The plugin's own duration; undefined: the configuration's default. */
  readonly cacheDuration: Millis | undefined;
  readonly auth: readonly { readonly location: string; readonly username: string; readonly password: string }[];
}

const wrong = (why: string): PicoletError =>
  new PicoletError("corrupt", `cannot use what a credential provider plugin answered: ${why}`);

/** @throws `corrupt` with the problem, without the content, which is secret */
export function parseAnswer(text: string, apiVersion: string): Answer {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    throw wrong("it is not JSON");
  }
  if (!isFields(answer)) throw wrong("it is no JSON object");
  if (answer.kind !== "CredentialProviderResponse") throw wrong("its kind is not CredentialProviderResponse");
  if (answer.apiVersion !== apiVersion) throw wrong(`its apiVersion is not ${apiVersion}`);
  const { cacheKeyType, cacheDuration, auth } = answer;
  if (cacheKeyType !== "Image" && cacheKeyType !== "Registry" && cacheKeyType !== "Global") {
    throw wrong("its cacheKeyType is none of Image, Registry, Global");
  }
  const duration = typeof cacheDuration === "string" ? parseDuration(cacheDuration) : undefined;
  const hasNone = cacheDuration === undefined || cacheDuration === null;
  if (!hasNone && duration === undefined) throw wrong("its cacheDuration is no duration");
  if (auth !== undefined && auth !== null && !isFields(auth)) throw wrong("its auth is no JSON object");
  const registries = Object.entries(auth ?? {});
  if (registries.length > MAX_REGISTRIES) throw wrong(`it names more than ${MAX_REGISTRIES} registries`);
  return { cacheKeyType, cacheDuration: duration, auth: registries.map(registryOf) };
}

function registryOf([location, entry]: [string, unknown]): Answer["auth"][number] {
  const { username = "", password = "" } = isFields(entry) ? entry : {};
  if (!isFields(entry) || typeof username !== "string" || typeof password !== "string") {
    throw wrong("an entry of its auth is no user and password");
  }
  return { location, username, password };
}

const isFields = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
