import {
  type KubeClient,
  type KubeObject,
  type ObjectRef,
  SECRETS,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { PemFiles, PemStore, StoredPems } from "../identity/pem-store.ts";
import { fieldsAt } from "./remote-object.ts";

/**
 * The hub's CA and certificate in a Secret that its replicas share. The second replica takes what the first has stored.
 */
export class SecretPemStore implements PemStore {
  readonly #client: KubeClient;
  readonly #ref: ObjectRef;

  constructor(components: { readonly client: KubeClient }, init: ObjectRef) {
    this.#client = components.client;
    this.#ref = init;
  }

  async load(signal: AbortSignal): Promise<StoredPems | undefined> {
    try {
      const secret = await this.#client.get(SECRETS, this.#ref, signal);
      return { files: filesIn(secret), version: secret.metadata.resourceVersion ?? "" };
    } catch (error) {
      if (isPicoletError(error, "not_found")) return undefined;
      throw error;
    }
  }

  async save(files: PemFiles, expected: string | undefined, signal: AbortSignal): Promise<void> {
    const { namespace, name } = this.#ref;
    const data = Object.fromEntries(
      Object.entries(files).map(([file, text]) => [file, Buffer.from(text).toString("base64")]),
    );
    const metadata = { namespace, name, ...(expected === undefined ? {} : { resourceVersion: expected }) };
    const secret = { apiVersion: "v1", kind: "Secret", metadata, type: "Opaque", data };
    try {
      if (expected === undefined) await this.#client.create(SECRETS, this.#ref, secret, {}, signal);
      else await this.#client.update(SECRETS, this.#ref, secret, {}, signal);
    } catch (error) {
      // `not_found` of an update: a client has deleted the Secret.
      const isRace = isPicoletError(error, "already_exists") || isPicoletError(error, "not_found");
      if (!isRace) throw error;
      throw new PicoletError("conflict", `cannot store Secret ${namespace}/${name}`, { cause: error });
    }
  }
}

/** @throws `corrupt` for what is no text */
function filesIn(secret: KubeObject): PemFiles {
  const files: Record<string, string> = {};
  for (const [name, value] of Object.entries(fieldsAt(secret, "data"))) {
    if (typeof value !== "string")
      throw new PicoletError("corrupt", `cannot read Secret ${secret.metadata.name}: ${name} is no text`);
    files[name] = Buffer.from(value, "base64").toString("utf8");
  }
  return files;
}
