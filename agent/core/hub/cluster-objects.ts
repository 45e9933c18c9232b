import type { ObjectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { ReviewParams, TokenParams } from "@picolet/protocol/tunnel/stream.ts";

export interface IssuedToken {
  readonly token: string;
  /** RFC 3339. */
  readonly expirationTimestamp: string;
}

/** Objects of the API server that this node's pods use. A node without a hub has none. */
export interface ClusterObjects {
  /**
   * @returns an object that pods of this node reference, reduced by the hub; undefined: the node does not have it
   * - `Secret/NS/NAME`, `ConfigMap/NS/NAME`
   * - `PersistentVolumeClaim/NS/NAME`, also that of a generic ephemeral volume: uid, deletionTimestamp,
   *   ownerReferences, spec, `phase` and `capacity` of its status (older hubs: no `capacity`)
   * - `PersistentVolume//NAME` once a claim of theirs is bound to it: annotations, spec
   * - `RuntimeClass//NAME`: handler
   * - `ResourceClaim/NS/NAME`: uid, ownerReferences, the annotation `resource.kubernetes.io/pod-claim-name`;
   *   `allocation` and `reservedFor` of its status
   * - `Service/NS/NAME` of the namespaces of pods that have service links, and `Service/default/kubernetes`, as far as
   *   they have a cluster IP, 256 at most: `spec` with type, clusterIP, clusterIPs, ports
   */
  object(key: ObjectKey): Readonly<Record<string, unknown>> | undefined;
  /**
   * Keys of all objects of a kind in a namespace ("" for kinds without), in no order. Walks everything this node was
   * given.
   */
  keys(kind: string, namespace: string): readonly ObjectKey[];
  /** @throws `unavailable` (retryable) while no hub is connected, `permission_denied`, `not_found` */
  requestToken(params: TokenParams, signal: AbortSignal): Promise<IssuedToken>;
}

/** Asks the API server about clients of this node's own port. */
export interface ClientReviews {
  /** @returns the reply as the hub sent it. @throws `unavailable` (retryable) while no hub is connected */
  review(params: ReviewParams, signal: AbortSignal): Promise<unknown>;
}
