import { isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { LabelledCounts, LabelledLatencies } from "./counts.ts";
import type { KubeClient, KubeList, KubeObject, ListOptions, ResourceType } from "./kube-client/kube-client.ts";

/** Calls of the hub to its API server. */
export class KubeCallCounts {
  readonly #clock: Clock;
  /** By verb and result: `ok`, or the code of the error. */
  readonly results = new LabelledCounts();
  /** By verb; a watch is none of them. */
  readonly durations = new LabelledLatencies();

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  async call<T>(verb: string, call: () => Promise<T>): Promise<T> {
    const startedAt = this.#clock.monotonic();
    try {
      const answer = await call();
      this.#ended(verb, "ok", startedAt);
      return answer;
    } catch (error) {
      if (!isCancelled(error)) this.#ended(verb, isPicoletError(error) ? error.code : "internal", startedAt);
      throw error;
    }
  }

  #ended(verb: string, result: string, startedAt: number): void {
    this.results.add([verb, result]);
    this.durations.observe([verb], this.#clock.monotonic() - startedAt);
  }
}

/** Passes every call on, and counts it. */
export class CountedKubeClient implements KubeClient {
  readonly #client: KubeClient;
  readonly #counts: KubeCallCounts;

  constructor(client: KubeClient, counts: KubeCallCounts) {
    this.#client = client;
    this.#counts = counts;
  }

  get(...args: Parameters<KubeClient["get"]>): Promise<KubeObject> {
    return this.#counts.call("get", () => this.#client.get(...args));
  }

  list(...args: Parameters<KubeClient["list"]>): Promise<KubeList> {
    return this.#counts.call("list", () => this.#client.list(...args));
  }

  watch(type: ResourceType, options: ListOptions, signal: AbortSignal): ReturnType<KubeClient["watch"]> {
    this.#counts.results.add(["watch", "ok"]);
    return this.#client.watch(type, options, signal);
  }

  create(...args: Parameters<KubeClient["create"]>): Promise<KubeObject> {
    return this.#counts.call("create", () => this.#client.create(...args));
  }

  update(...args: Parameters<KubeClient["update"]>): Promise<KubeObject> {
    return this.#counts.call("update", () => this.#client.update(...args));
  }

  patch(...args: Parameters<KubeClient["patch"]>): Promise<KubeObject> {
    return this.#counts.call("patch", () => this.#client.patch(...args));
  }

  delete(...args: Parameters<KubeClient["delete"]>): Promise<void> {
    return this.#counts.call("delete", () => this.#client.delete(...args));
  }

  as(user: string, groups: readonly string[]): CountedKubeClient {
    return new CountedKubeClient(this.#client.as(user, groups), this.#counts);
  }
}
