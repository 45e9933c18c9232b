import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type { CriClient } from "../wire/cri-client.ts";
import { RuntimeService } from "../wire/cri-messages.ts";
import { LABEL } from "./labels.ts";

export interface Owned {
  readonly kind: "sandbox" | "container";
  readonly uid: PodUid;
}

/**
 * The sandboxes and containers of this agent, by id. Filled by lists and by what the adapter makes itself, so that the
 * runtime is seldom asked; bounded by the last list and what was made since.
 */
export class OwnedIds {
  readonly #client: CriClient;
  readonly #owner: string;
  #known = new Map<string, Owned>();

  constructor(client: CriClient, owner: string) {
    this.#client = client;
    this.#owner = owner;
  }

  /** Replaces all entries with the result of a complete list. */
  replace(known: Map<string, Owned>): void {
    this.#known = known;
  }

  add(id: string, owned: Owned): void {
    this.#known.set(id, owned);
  }

  delete(id: string): void {
    this.#known.delete(id);
  }

  get(id: string): Owned | undefined {
    return this.#known.get(id);
  }

  /**
   * @returns `undefined` when the runtime has no such object.
   * @throws `permission_denied` when it belongs to another client of the runtime.
   */
  async require(id: string, kind: Owned["kind"], signal: AbortSignal): Promise<Owned | undefined> {
    const known = this.#known.get(id);
    if (known?.kind === kind) return known;
    const labels = await this.#labelsOf(id, kind, signal);
    if (labels === undefined) return undefined;
    const uid = labels.get(LABEL.podUid);
    if (labels.get(LABEL.owner) !== this.#owner || uid === undefined) {
      throw new PicoletError("permission_denied", `cannot touch ${kind} ${id}: it is not ours`);
    }
    const owned = { kind, uid: podUid(uid) };
    this.#known.set(id, owned);
    return owned;
  }

  async #labelsOf(
    id: string,
    kind: Owned["kind"],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, string> | undefined> {
    try {
      if (kind === "sandbox") {
        return (await this.#client.call(RuntimeService.podSandboxStatus, { podSandboxId: id }, signal)).status?.labels;
      }
      return (await this.#client.call(RuntimeService.containerStatus, { containerId: id }, signal)).status?.labels;
    } catch (error) {
      if (isPicoletError(error, "not_found")) return undefined;
      throw error;
    }
  }
}
