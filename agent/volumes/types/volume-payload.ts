/** The files of a configMap, secret, downwardAPI or projected volume. Pure. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod, Volume } from "@picolet/protocol/pod/pod.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import type { Payload, PayloadFile } from "../files/atomic-writer.ts";
import { type VolumeFieldContext, volumeFieldValue } from "../values/field-values.ts";
import { type KeyedData, type KeyedKind, keyedData, objectNotFound } from "../values/keyed-data.ts";
import { resourceValue } from "../values/resource-values.ts";
import { trustAnchors } from "./cluster-trust-bundles.ts";

export interface PayloadContext extends VolumeFieldContext {
  readonly objects: Pick<ClusterObjects, "object" | "keys">;
  /** By the index of its source in a projected volume. */
  readonly tokens: ReadonlyMap<number, string>;
  readonly allocatable: Readonly<Record<string, string>>;
}

type Projection = NonNullable<NonNullable<Volume["projected"]>["sources"]>[number];
type KeyedSource = NonNullable<Projection["configMap"]>;
type DownwardItems = NonNullable<Volume["downwardAPI"]>["items"];

/** Kubernetes' own, where a volume written before its defaults were known has none. */
const DEFAULT_MODE = 0o644;
/** Only its owner can read a token. */
const TOKEN_MODE = 0o600;
/** The group's rights in a read-only volume with an `fsGroup` (SetVolumeOwnership of Kubernetes). */
const GROUP_READ = 0o440;

/**
 * @throws `not_found` (retryable) for what is named and not there, with the kubelet's words; `invalid` for what can
 *   never be projected
 */
export function volumePayload(volume: Volume, context: PayloadContext): Payload {
  const { configMap, secret, downwardAPI, projected } = volume;
  const files = new Map<string, PayloadFile>();
  const writer = new PayloadWriter(files, context);
  if (configMap !== undefined) writer.keyed("ConfigMap", configMap, configMap.defaultMode);
  if (secret !== undefined) writer.keyed("Secret", { ...secret, name: secret.secretName }, secret.defaultMode);
  if (downwardAPI !== undefined) writer.downward(downwardAPI.items, downwardAPI.defaultMode);
  if (projected !== undefined) project(writer, projected);
  return files;
}

/** Joins the errors of several sources as Kubernetes does. */
function project(writer: PayloadWriter, { sources = [], defaultMode }: NonNullable<Volume["projected"]>): void {
  const errors: PicoletError[] = [];
  for (const [index, source] of sources.entries()) {
    try {
      writer.projection(source, index, defaultMode);
    } catch (error) {
      if (!(error instanceof PicoletError)) throw error;
      errors.push(error);
    }
  }
  const [first, ...others] = errors;
  if (first === undefined) return;
  if (others.length === 0) throw first;
  const message = `[${[...new Set(errors.map((error) => error.message))].join(", ")}]`;
  throw new PicoletError(first.code, message, { retryable: errors.every((error) => error.retryable) });
}

class PayloadWriter {
  readonly #files: Map<string, PayloadFile>;
  readonly #context: PayloadContext;

  constructor(files: Map<string, PayloadFile>, context: PayloadContext) {
    this.#files = files;
    this.#context = context;
  }

  keyed(kind: KeyedKind, source: KeyedSource, defaultMode: number = DEFAULT_MODE): void {
    const { namespace } = this.#context.pod.pod.metadata;
    const data = keyedData(this.#context.objects, kind, namespace, source.name);
    if (data === undefined) {
      if (source.optional === true) return;
      throw objectNotFound(kind, source.name);
    }
    if (source.items === undefined || source.items.length === 0) {
      for (const [key, content] of data) this.#add(key, content, defaultMode);
      return;
    }
    for (const { key, path, mode } of source.items) {
      const content = this.#valueOf(data, key, kind, source);
      if (content !== undefined) this.#add(path, content, mode ?? defaultMode);
    }
  }

  downward(items: DownwardItems, defaultMode: number = DEFAULT_MODE): void {
    const { pod, allocatable } = this.#context;
    for (const { path, fieldRef, resourceFieldRef, mode } of items ?? []) {
      let text = "";
      if (fieldRef !== undefined) text = volumeFieldValue(fieldRef.fieldPath, this.#context);
      else if (resourceFieldRef !== undefined) {
        const [first] = pod.pod.spec.containers;
        if (first !== undefined) text = resourceValue(resourceFieldRef, first, pod.pod, allocatable);
      }
      this.#add(path, Buffer.from(text), mode ?? defaultMode);
    }
  }

  projection(source: Projection, index: number, defaultMode: number = DEFAULT_MODE): void {
    const { configMap, secret, downwardAPI, serviceAccountToken, clusterTrustBundle, podCertificate } = source;
    if (configMap !== undefined) this.keyed("ConfigMap", configMap, defaultMode);
    if (secret !== undefined) this.keyed("Secret", secret, defaultMode);
    if (downwardAPI !== undefined) this.downward(downwardAPI.items, defaultMode);
    if (serviceAccountToken !== undefined) this.#token(serviceAccountToken.path, index, defaultMode);
    if (clusterTrustBundle !== undefined) {
      this.#addOwned(clusterTrustBundle.path, trustAnchors(clusterTrustBundle, this.#context.objects), defaultMode);
    }
    if (podCertificate !== undefined)
      throw new PicoletError("invalid", "podCertificate projections are not supported by this version of picolet");
  }

  #token(path: string, index: number, defaultMode: number): void {
    const token = this.#context.tokens.get(index);
    if (token === undefined) throw new PicoletError("internal", `the token for ${path} has not been asked for`);
    this.#addOwned(path, Buffer.from(token), defaultMode);
  }

  /** Adds a file that only the pod's one user can read, if it has one, or else its group. */
  #addOwned(path: string, content: Buffer, defaultMode: number): void {
    const { fsGroup } = this.#context.pod.pod.spec.securityContext;
    const user = commonUser(this.#context.pod.pod);
    const isOwned = user !== undefined || fsGroup !== undefined;
    this.#add(path, content, isOwned ? TOKEN_MODE : defaultMode, user);
  }

  #valueOf(data: KeyedData, key: string, kind: KeyedKind, source: KeyedSource): Buffer | undefined {
    const content = data.get(key);
    if (content === undefined && source.optional !== true) {
      const what = kind === "Secret" ? "references non-existent secret" : "configmap references non-existent config";
      throw new PicoletError("not_found", `${what} key: ${key}`, { retryable: true });
    }
    return content;
  }

  #add(path: string, content: Buffer, mode: number, uid = -1): void {
    const { fsGroup } = this.#context.pod.pod.spec.securityContext;
    const isOfGroup = fsGroup !== undefined;
    this.#files.set(path, { content, mode: isOfGroup ? mode | GROUP_READ : mode, uid, gid: fsGroup ?? -1 });
  }
}

/** @returns the user that all containers run as; undefined when they differ, or a container names none */
function commonUser({ spec }: Pod): number | undefined {
  const containers = [...(spec.initContainers ?? []), ...spec.containers];
  const users = new Set(containers.map((each) => each.securityContext?.runAsUser ?? spec.securityContext.runAsUser));
  const [user] = users;
  return users.size === 1 ? user : undefined;
}
