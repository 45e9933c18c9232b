import type { ClusterObjects, IssuedToken } from "@picolet/agent/core/hub/cluster-objects.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { ObjectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { TokenParams } from "@picolet/protocol/tunnel/stream.ts";

/** The objects of a node, and an issuer of tokens, controlled by a test. */
export class TestClusterObjects implements ClusterObjects {
  readonly changed = new WatchSource<unknown>(0);
  readonly requests: TokenParams[] = [];
  /** Set: no hub is in reach, or it refuses. */
  refusal: PicoletError | undefined;
  readonly #objects = new Map<ObjectKey, Readonly<Record<string, unknown>>>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  set(key: ObjectKey, object: Readonly<Record<string, unknown>>): void {
    this.#objects.set(key, object);
    this.changed.set(key);
  }

  delete(key: ObjectKey): void {
    this.#objects.delete(key);
    this.changed.set(key);
  }

  goOffline(): void {
    this.refusal = new PicoletError("unavailable", "no hub is connected", { retryable: true });
  }

  object(key: ObjectKey): Readonly<Record<string, unknown>> | undefined {
    return this.#objects.get(key);
  }

  keys(kind: string, namespace: string): readonly ObjectKey[] {
    return [...this.#objects.keys()].filter((key) => key.startsWith(`${kind}/${namespace}/`));
  }

  async requestToken(params: TokenParams): Promise<IssuedToken> {
    if (this.refusal !== undefined) throw this.refusal;
    this.requests.push(params);
    const expires = new Date(this.#clock.wall().getTime() + params.expirationSeconds * 1000);
    return { token: `token-${this.requests.length}`, expirationTimestamp: expires.toISOString() };
  }
}
