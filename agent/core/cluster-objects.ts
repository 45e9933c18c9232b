import type { ObjectKey } from "../../protocol/tunnel/messages.ts";
import type { TokenParams } from "../../protocol/tunnel/stream.ts";

export interface IssuedToken {
  readonly token: string;
  /** RFC 3339. */
  readonly expirationTimestamp: string;
}

/** What the API server gives this node's pods besides themselves. A node without a hub has none of it. */
export interface ClusterObjects {
  /** A Secret or ConfigMap that a pod of this node names; undefined: the node was not given it. */
  object(key: ObjectKey): Readonly<Record<string, unknown>> | undefined;
  /** @throws `unavailable` (retryable) while no hub is connected, `permission_denied`, `not_found` */
  requestToken(params: TokenParams, signal: AbortSignal): Promise<IssuedToken>;
}
