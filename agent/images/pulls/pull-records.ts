/**
 * With whose credentials images came to this node, on disk: the kubelet's ImagePulledRecord and ImagePullIntent. One
 * small file for each image, read when it is needed and nowhere in memory.
 */
import { createHash } from "node:crypto";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";

/** The kubelet's own name, below its root directory. */
export const RECORDS_FOLDER = "image_manager";

/** A folder of small files, each replaced as a whole. */
export interface RecordFiles {
  /** @returns undefined for a missing file. @throws `corrupt`, `unavailable` */
  read(name: string): string | undefined;
  write(name: string, text: string): void;
  rename(from: string, to: string): void;
  remove(name: string): void;
  sync(): void;
}

export interface RecordedSecret {
  readonly namespace: string;
  readonly name: string;
  readonly credentialHash: string;
}

export interface RecordedAccount {
  readonly namespace: string;
  readonly name: string;
}

/** The credentials that may use an image under one name. */
export interface RecordedCredentials {
  readonly nodePodsAccessible?: boolean;
  readonly kubernetesSecrets?: readonly RecordedSecret[];
  readonly kubernetesServiceAccounts?: readonly RecordedAccount[];
}

/** By the image's name, with its domain, without tag and digest. */
export type CredentialMapping = Readonly<Record<string, RecordedCredentials>>;

/**
 * Bounds the credentials of one name, as the kubelet does. The oldest are dropped, and their pods ask the registry
 * again.
 */
const MAX_CREDENTIALS = 100;

export class PullRecords {
  readonly #files: RecordFiles;
  readonly #clock: Clock;
  readonly #log: Log;
  /** Pulls under way, by image: the intent is there until the last of them ends. */
  readonly #underWay = new Map<string, number>();

  constructor(components: { readonly files: RecordFiles; readonly clock: Clock; readonly log: Log }) {
    this.#files = components.files;
    this.#clock = components.clock;
    this.#log = components.log;
  }

  /**
   * Before a pull: an image that comes after the agent's end is known to be no preloaded one.
   * @param image canonical
   * @throws `resource_exhausted` and the like when it cannot be written down
   */
  begin(image: string): void {
    const count = this.#underWay.get(image) ?? 0;
    if (count === 0) this.#write(intentName(image), { kind: "ImagePullIntent", image });
    this.#underWay.set(image, count + 1);
  }

  /** Called after a pull, successful or not. */
  end(image: string): void {
    const count = (this.#underWay.get(image) ?? 1) - 1;
    if (count > 0) {
      this.#underWay.set(image, count);
      return;
    }
    this.#underWay.delete(image);
    this.#files.remove(intentName(image));
  }

  /** @returns whether a pull of the image was begun and has not ended */
  isIntended(image: string): boolean {
    if (this.#underWay.has(image)) return true;
    try {
      return this.#files.read(intentName(image)) !== undefined;
    } catch (error) {
      if (!isPicoletError(error)) throw error;
      return true;
    }
  }

  /**
   * @param imageId as the runtime has it
   * @returns undefined when no pull of ours brought it; nothing in it when the record is damaged
   */
  get(imageId: string): CredentialMapping | undefined {
    try {
      const text = this.#files.read(recordName(imageId));
      return text === undefined ? undefined : mappingIn(text);
    } catch (error) {
      if (!isPicoletError(error)) throw error;
      this.#log.warn("cannot read the record of an image's pull: it is pulled again", {
        image: imageId,
        error: describeError(error),
      });
      return {};
    }
  }

  /**
   * Adds to what is known of it; writes nothing when that is nothing new. @returns false when it cannot be written down
   */
  add(imageId: string, name: string, credentials: RecordedCredentials): boolean {
    const mapping = this.get(imageId);
    const known = mapping !== undefined && Object.hasOwn(mapping, name) ? mapping[name] : undefined;
    const merged = merge(known, credentials);
    if (known !== undefined && JSON.stringify(known) === JSON.stringify(merged)) return true;
    try {
      this.#write(recordName(imageId), {
        kind: "ImagePulledRecord",
        lastUpdatedTime: this.#clock.wall().toISOString(),
        imageRef: imageId,
        credentialMapping: { ...mapping, [name]: merged },
      });
      return true;
    } catch (error) {
      this.#log.warn("cannot write down an image's pull", { image: imageId, error: describeError(error) });
      return false;
    }
  }

  /** Called when the image is removed, or an administrator has imported it. */
  forget(imageId: string, names: readonly string[] = []): void {
    this.#files.remove(recordName(imageId));
    for (const name of names) if (!this.#underWay.has(name)) this.#files.remove(intentName(name));
  }

  #write(name: string, content: object): void {
    const text = JSON.stringify({ apiVersion: "kubelet.config.k8s.io/v1alpha1", ...content });
    this.#files.write(`${name}.new`, text);
    this.#files.rename(`${name}.new`, name);
    this.#files.sync();
  }
}

const hash = (text: string): string => createHash("sha256").update(text).digest("hex");
const intentName = (image: string): string => `pulling-${hash(image)}`;
const recordName = (imageId: string): string => `pulled-${hash(imageId)}`;

function mappingIn(text: string): CredentialMapping {
  const damaged = (): PicoletError => new PicoletError("corrupt", "the record is damaged");
  let mapping: unknown;
  try {
    mapping = (JSON.parse(text) as { readonly credentialMapping?: unknown } | null)?.credentialMapping;
  } catch {
    throw damaged();
  }
  if (!isFields(mapping) || !Object.values(mapping).every(isCredentials)) throw damaged();
  return mapping as CredentialMapping;
}

const isFields = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function isCredentials(value: unknown): boolean {
  if (!isFields(value)) return false;
  const { kubernetesSecrets = [], kubernetesServiceAccounts = [] } = value;
  return [kubernetesSecrets, kubernetesServiceAccounts].every((each) => Array.isArray(each) && each.every(isFields));
}

function merge(known: RecordedCredentials = {}, added: RecordedCredentials): RecordedCredentials {
  if (known.nodePodsAccessible === true || added.nodePodsAccessible === true) return { nodePodsAccessible: true };
  const secrets = union(known.kubernetesSecrets, added.kubernetesSecrets);
  const accounts = union(known.kubernetesServiceAccounts, added.kubernetesServiceAccounts);
  return {
    ...(secrets.length === 0 ? {} : { kubernetesSecrets: secrets }),
    ...(accounts.length === 0 ? {} : { kubernetesServiceAccounts: accounts }),
  };
}

/** Each object once, with what was last known of it. */
function union<T extends RecordedAccount>(known: readonly T[] = [], added: readonly T[] = []): readonly T[] {
  const all = [...known, ...added].map((each) => [`${each.namespace}/${each.name}`, each] as const);
  return [...new Map(all).values()].slice(-MAX_CREDENTIALS);
}
