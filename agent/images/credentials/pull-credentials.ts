/** Collects the credentials of a pull: from the pod's secrets, then the node's own file, then plugins. */
import { createHash } from "node:crypto";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import type { RegistryReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod, ImageCredentials } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import { type DockerConfigEntry, type DockerConfigFormat, parseDockerConfig } from "./docker-config.ts";
import { findCredentials, type KeyringEntry } from "./keyring.ts";

/** The pods that may use an image pulled with these credentials. */
export type CredentialSource =
  /** Every pod of this node. */
  | { readonly kind: "node" }
  | { readonly kind: "secret" | "serviceAccount"; readonly namespace: string; readonly name: string };

export interface PullCredential {
  readonly credentials: ImageCredentials;
  readonly source: CredentialSource;
  /** Fingerprint of the credentials, hexadecimal. */
  readonly hash: string;
}

/** Whose pull it is. */
export interface PullOwner {
  /** "": of the node. */
  readonly namespace: string;
  /** Names of Secrets in the namespace. */
  readonly secrets: readonly string[];
  readonly pod: DesiredPod | undefined;
}

export interface CredentialPluginPort {
  /** True when the credentials depend on the pod's service account. */
  readonly perServiceAccount: boolean;
  /** More specific ones first. Throws only when it is cancelled; `failed` receives all other errors. */
  lookUp(
    repository: string,
    pod: DesiredPod | undefined,
    failed: (plugin: string, why: string) => void,
    signal: AbortSignal,
  ): Promise<readonly Omit<PullCredential, "hash">[]>;
}

export interface PullCredentialsComponents {
  readonly objects: Pick<ClusterObjects, "object">;
  /** The node's own registry configuration, as text; undefined: there is none. */
  readonly nodeConfig: () =>
    | { readonly path: string; readonly text: string; readonly format: DockerConfigFormat }
    | undefined;
  readonly plugins?: CredentialPluginPort | undefined;
  /**
   * With a key of this node, so that a thief of its records cannot test passwords. Missing: SHA-256, as the
   * kubelet's.
   */
  readonly fingerprint?: ((text: string) => string) | undefined;
  readonly log: Log;
}

/** The problems of a pod's pull secrets. */
export interface SecretProblems {
  /** The node was not given them. */
  readonly missing: readonly string[];
  readonly unusable: readonly { readonly name: string; readonly why: string }[];
}

const SECRET_FORMATS: ReadonlyMap<unknown, readonly [key: string, format: DockerConfigFormat]> = new Map([
  ["kubernetes.io/dockerconfigjson", [".dockerconfigjson", "config.json"]],
  ["kubernetes.io/dockercfg", [".dockercfg", ".dockercfg"]],
]);

export class PullCredentials {
  readonly #components: PullCredentialsComponents;
  /** The problem of the node's file; logged once for each change of it. */
  #nodeProblem = "";

  constructor(components: PullCredentialsComponents) {
    this.#components = components;
  }

  /** @returns a text that is equal for owners with the same credentials; reads no credentials */
  identityOf({ namespace, secrets, pod }: PullOwner): string {
    const account = this.#components.plugins?.perServiceAccount === true ? accountOf(pod) : "";
    return secrets.length === 0 && account === "" ? "" : `${namespace} ${secrets.join(",")} ${account}`;
  }

  problemsOf({ namespace, secrets }: PullOwner): SecretProblems {
    const missing: string[] = [];
    const unusable: { name: string; why: string }[] = [];
    for (const name of secrets) {
      try {
        if (this.#secretEntries(namespace, name) === undefined) missing.push(name);
      } catch (error) {
        if (!isPicoletError(error, "invalid")) throw error;
        unusable.push({ name, why: describeError(error) });
      }
    }
    return { missing, unusable };
  }

  /** @returns credentials in the order of their trial; none: the pull is anonymous */
  async lookUp(
    { domain, repository }: Pick<RegistryReference, "domain" | "repository">,
    { namespace, secrets, pod }: PullOwner,
    pluginFailed: (plugin: string, why: string) => void,
    signal: AbortSignal,
  ): Promise<readonly PullCredential[]> {
    const image = `${domain}/${repository}`;
    const ofSecrets = secrets.flatMap((name): KeyringEntry<Omit<PullCredential, "hash">>[] => {
      const source = { kind: "secret", namespace, name } as const;
      return keyringOf(this.#usableEntries(namespace, name), source);
    });
    const ofNode = keyringOf(this.#nodeEntries(), { kind: "node" });
    const ofPlugins = await this.#components.plugins?.lookUp(image, pod, pluginFailed, signal);
    const found = [...findCredentials(ofSecrets, image), ...findCredentials(ofNode, image), ...(ofPlugins ?? [])];
    const { fingerprint = sha256 } = this.#components;
    return found.map((each) => ({ ...each, hash: fingerprint(textOf(each.credentials)) }));
  }

  #usableEntries(namespace: string, name: string): readonly DockerConfigEntry[] {
    try {
      return this.#secretEntries(namespace, name) ?? [];
    } catch (error) {
      if (!isPicoletError(error, "invalid")) throw error;
      return [];
    }
  }

  /**
   * @returns undefined when there is no such Secret here; nothing of one of another type, as under the kubelet
   * @throws `invalid` for one that cannot be read
   */
  #secretEntries(namespace: string, name: string): readonly DockerConfigEntry[] | undefined {
    const secret = this.#components.objects.object(objectKey("Secret", namespace, name));
    if (secret === undefined) return undefined;
    const known = SECRET_FORMATS.get(secret.type);
    const data = secret.data as Readonly<Record<string, unknown>> | null | undefined;
    const content = known === undefined ? undefined : data?.[known[0]];
    if (known === undefined || typeof content !== "string" || content === "") return [];
    return parseDockerConfig(Buffer.from(content, "base64").toString("utf8"), known[1]);
  }

  /** Read with each pull, so that it may be changed at any time, and is nowhere in memory between. */
  #nodeEntries(): readonly DockerConfigEntry[] {
    const { nodeConfig, log } = this.#components;
    let problem = "";
    let entries: readonly DockerConfigEntry[] = [];
    try {
      const file = nodeConfig();
      if (file !== undefined) entries = parseDockerConfig(file.text, file.format);
    } catch (error) {
      if (isCancelled(error)) throw error;
      problem = describeError(error);
    }
    if (problem !== "" && problem !== this.#nodeProblem)
      log.warn("the node's registry configuration cannot be used", { error: problem });
    this.#nodeProblem = problem;
    return entries;
  }
}

/** The one whose token a plugin may be given. */
export const accountOf = (pod: DesiredPod | undefined): string =>
  pod === undefined ? "" : `${pod.pod.metadata.namespace}/${pod.pod.spec.serviceAccountName ?? ""}`;

const keyringOf = (
  entries: readonly DockerConfigEntry[],
  source: CredentialSource,
): KeyringEntry<Omit<PullCredential, "hash">>[] =>
  entries.map(({ location, credentials }) => ({ location, value: { credentials, source } }));

const textOf = ({ username, password, serverAddress, identityToken, registryToken }: ImageCredentials): string =>
  JSON.stringify([username, password, serverAddress, identityToken ?? "", registryToken ?? ""]);

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
