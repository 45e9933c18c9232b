import type { OutgoingHttpHeaders } from "node:http";
import type { Duplex, Readable } from "node:stream";

/** A node, and where its Node object says that its kubelet is. */
export interface KubeletTarget {
  readonly node: string;
  /**
   * The first of InternalIP, ExternalIP, Hostname, and `status.daemonEndpoints.kubeletEndpoint.Port`; undefined: none.
   * The node writes it itself, so the connector must judge it before it is dialed.
   */
  readonly claimed: { readonly address: string; readonly port: number } | undefined;
}

export interface KubeletRequest {
  readonly method: string;
  /** With the query: `/containerLogs/default/a/main?follow=true`. */
  readonly path: string;
  /** Headers of the client, without those for this server alone (authorization, cookies, impersonation). */
  readonly headers: OutgoingHttpHeaders;
  /** Undefined: none. */
  readonly body: Readable | undefined;
}

export interface KubeletResponse {
  readonly status: number;
  readonly headers: OutgoingHttpHeaders;
  /** Destroying it ends the request. */
  readonly body: Readable;
}

/** The outcome of an upgrade: 101 and the connection, or a plain answer that refuses it. */
export type KubeletUpgrade =
  | {
      readonly kind: "upgraded";
      /** Headers of the 101 answer. */
      readonly headers: OutgoingHttpHeaders;
      /** The bytes that the kubelet sent right behind its answer, then everything else; both ways. */
      readonly connection: Duplex;
    }
  | ({ readonly kind: "refused" } & KubeletResponse);

/**
 * How the embedded API server reaches kubelets: over TLS, with its own client certificate, verifying theirs, as a real
 * API server does.
 */
export interface KubeletConnector {
  /**
   * @throws `unavailable` when the kubelet cannot be reached, `permission_denied` when its address must not be dialed
   */
  request(target: KubeletTarget, request: KubeletRequest, signal: AbortSignal): Promise<KubeletResponse>;
  /** A request with `Connection: Upgrade` (SPDY or WebSocket). The bytes behind it are not looked into. */
  upgrade(target: KubeletTarget, request: KubeletRequest, signal: AbortSignal): Promise<KubeletUpgrade>;
}
