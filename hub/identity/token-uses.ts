/**
 * How many nodes have joined with a token that is for a limited number of them: a Secret for each such token, in the
 * hub's own namespace. A node counts once, however often it asks. Replicas write it by its version, so that two joins
 * at a time never take one use.
 */
import { hash } from "node:crypto";
import { type KubeClient, type KubeObject, SECRETS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";

/** 16 of the 64 digits of a hash: among so few names no two are the same. */
const NAME_DIGITS = 16;
/** The record has 17 bytes for each, of the megabyte that a Secret may have. */
export const MAX_TOKEN_USES = 10_000;
/** Attempts at a record that several replicas write. A board that gets none asks again. */
const MAX_CONFLICTS = 16;
const PREFIX = "picolet-token-uses.";

export class TokenUses {
  readonly #client: KubeClient;
  readonly #namespace: string;

  constructor(components: { readonly client: KubeClient }, init: { readonly namespace: string }) {
    this.#client = components.client;
    this.#namespace = init.namespace;
  }

  /**
   * Counts a node, unless it was counted before.
   * @throws `permission_denied` when `uses` other nodes have joined with the token, `unavailable` (retryable) when too
   * many join at the same moment
   */
  async take(id: string, uses: number, node: string, signal: AbortSignal): Promise<void> {
    const name = hash("sha256", node).slice(0, NAME_DIGITS);
    for (let attempt = 1; attempt <= MAX_CONFLICTS; attempt += 1) {
      const record = await this.#find(id, signal);
      const names = namesIn(record);
      if (names.includes(name)) return;
      if (names.length >= uses)
        throw new PicoletError(
          "permission_denied",
          `token ${id}: ${uses} boards have joined with it, and it is for no more; make another one with \`picolet-hub token create\``,
        );
      if (await this.#write(id, [...names, name], record, signal)) return;
    }
    throw new PicoletError("unavailable", "too many boards join at this moment", { retryable: true });
  }

  /** How many nodes have joined with the token. */
  async count(id: string, signal: AbortSignal): Promise<number> {
    return namesIn(await this.#find(id, signal)).length;
  }

  async forget(id: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#client.delete(SECRETS, this.#ref(id), {}, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
  }

  /** Forgets tokens that are there no more. @param ids those that are */
  async prune(ids: readonly string[], signal: AbortSignal): Promise<void> {
    const { items } = await this.#client.list(SECRETS, { namespace: this.#namespace }, signal);
    const counted = items.map(({ metadata: { name } }) => name).filter((name) => name.startsWith(PREFIX));
    for (const id of counted.map((name) => name.slice(PREFIX.length)))
      if (!ids.includes(id)) await this.forget(id, signal);
  }

  #ref(id: string): { readonly namespace: string; readonly name: string } {
    return { namespace: this.#namespace, name: `${PREFIX}${id}` };
  }

  async #find(id: string, signal: AbortSignal): Promise<KubeObject | undefined> {
    try {
      return await this.#client.get(SECRETS, this.#ref(id), signal);
    } catch (error) {
      if (isPicoletError(error, "not_found")) return undefined;
      throw error;
    }
  }

  /** @returns false when the record is another by now */
  async #write(
    id: string,
    names: readonly string[],
    record: KubeObject | undefined,
    signal: AbortSignal,
  ): Promise<boolean> {
    const ref = this.#ref(id);
    const data = { nodes: Buffer.from(names.join(" ")).toString("base64") };
    const object = { apiVersion: "v1", kind: "Secret", metadata: ref, type: "Opaque", data };
    try {
      if (record === undefined) await this.#client.create(SECRETS, ref, object, {}, signal);
      else {
        const metadata = { ...ref, resourceVersion: record.metadata.resourceVersion ?? "" };
        await this.#client.update(SECRETS, ref, { ...object, metadata }, {}, signal);
      }
      return true;
    } catch (error) {
      const isOther = (["already_exists", "not_found", "conflict"] as const).some((code) =>
        isPicoletError(error, code),
      );
      if (isOther) return false;
      throw error;
    }
  }
}

function namesIn(record: KubeObject | undefined): readonly string[] {
  const { nodes } = (record?.data ?? {}) as { readonly nodes?: unknown };
  const text = typeof nodes === "string" ? Buffer.from(nodes, "base64").toString("utf8") : "";
  return text.split(" ").filter((each) => each !== "");
}
