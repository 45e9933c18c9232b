/**
 * Streams inside the tunnel: what both ends and everything that is carried through them rely on. `Mux` implements them.
 */

/** Lanes in order of weight. A lane with more to send never starves one above it; none is ever starved altogether. */
export type Lane = "control" | "status" | "interactive" | "logs" | "bulk";

/**
 * One ordered, flow-controlled pair of byte pipes, half-closable. A reader that stops holds up its own stream's writer
 * and nothing else. Message boundaries are not kept.
 */
export interface TunnelStream {
  readonly id: number;
  /** The opener's request, which the answering end validates. */
  readonly kind: StreamKind;
  /** Aborts when the stream is reset by either end or the session ends; `reason` is a PicoletError that says why. */
  readonly closed: AbortSignal;
  /** Resolves when all of it is within the peer's credit and handed to the link. @throws the reason of `closed` */
  write(bytes: Uint8Array, signal: AbortSignal): Promise<void>;
  /** No more will be written; the peer reads `undefined` after what was. Both ended: the stream is gone. */
  end(): void;
  /**
   * The next bytes, as they came; `undefined` at the peer's end. Reading gives the peer credit. @throws the reason of
   * `closed`
   */
  read(signal: AbortSignal): Promise<Uint8Array | undefined>;
  /** Ends both directions at once. The peer's `closed` carries code and message. */
  reset(error: StreamError): void;
}

/** `code` is one of ErrorCode; unknown ones from a newer peer are read as `failed`. */
export interface StreamError {
  readonly code: string;
  readonly message: string;
}

/** One that was opened from here and accepted there. */
export interface OpenedStream extends TunnelStream {
  /** The peer's answer: CBOR data, which the opener must validate. */
  readonly reply: unknown;
}

/** One that the peer asks for. Exactly one of `accept` and `reject` is called. */
export interface IncomingStream {
  readonly kind: StreamKind;
  readonly params: unknown;
  readonly closed: AbortSignal;
  accept(reply: unknown): TunnelStream;
  reject(error: StreamError): void;
}

export interface StreamOpener {
  /**
   * @throws what the peer rejected it with (`not_found`, `invalid`, `unimplemented` …), `unavailable` when there is no
   *   session or it ends, `resource_exhausted` at MAX_STREAMS.
   */
  open(kind: StreamKind, params: unknown, lane: Lane, signal: AbortSignal): Promise<OpenedStream>;
}

/**
 * - hub to agent: `logs`, `exec`, `attach`, `portForward`, `kubelet` (any GET of the kubelet's HTTP API)
 * - agent to hub: `token` (a TokenRequest for one of its pods, or a review), `telemetry`
 *   (`telemetry/stream-messages.ts`; only to a hub whose welcome says that it takes it), `samples`
 *   (`telemetry/sample-codec.ts`; only to one that says how often)
 */
export type StreamKind = "logs" | "exec" | "attach" | "portForward" | "kubelet" | "token" | "telemetry" | "samples";

/** Params of `logs`; the bytes are the log as `kubectl logs` shows it. Reply: `{}`. Lane `logs`. */
export interface LogsParams {
  readonly namespace: string;
  readonly pod: string;
  /** "" : any incarnation of that name. The API server's UID. */
  readonly uid: string;
  readonly container: string;
  /** PodLogOptions by their Kubernetes names, in the query's own spelling and as text: follow, previous, sinceSeconds,
   *  sinceTime, timestamps, tailLines, limitBytes, stream. */
  readonly query: Readonly<Record<string, string>>;
}

/** Params of `exec` and `attach`. Lane `interactive`. */
export interface ExecParams {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  readonly container: string;
  /** Empty for attach. */
  readonly command: readonly string[];
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
  /**
   * Set when the opener can continue in raw mode with these request headers (Upgrade, Sec-WebSocket-*,
   * X-Stream-Protocol-Version).
   */
  readonly upgrade: Readonly<Record<string, string>> | undefined;
}

/** Params of `portForward`. Lane `interactive`. Without `upgrade` it is one connection to the first of `ports`. */
export interface PortForwardParams {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  /** Ports of the WebSocket form of the protocol; SPDY names ports in its own streams. */
  readonly ports: readonly number[];
  readonly upgrade: Readonly<Record<string, string>> | undefined;
}

/**
 * The answer to `exec`, `attach` and `portForward`. `raw`: the bytes are the runtime's own HTTP answer to the upgrade
 * and then the protocol that was agreed (SPDY/3.1, WebSocket): both ends only copy. `channels`: the hub speaks the
 * client's protocol, and the bytes are channel frames: one byte of channel (0 stdin, 1 stdout, 2 stderr, 3 error as a
 * Kubernetes Status in JSON, 4 resize as {"Width","Height"} in JSON), three bytes of length, big-endian, then as many
 * bytes; a length of 0 closes the channel. `connections`, to `portForward` with `upgrade`: there are no bytes; the hub
 * speaks the client's protocol, and opens a `portForward` without `upgrade` for each connection. The answer to that one
 * is `raw`, and the bytes are the connection's own.
 */
export type SessionReply = { readonly mode: "raw" } | { readonly mode: "channels" } | { readonly mode: "connections" };

/** Params of `kubelet`. Reply: KubeletReply; the bytes are the body. Lane `bulk`. */
export interface KubeletParams {
  readonly method: "GET";
  /** The path with its query in the kubelet's HTTP API: `/stats/summary?only_cpu_and_memory=true`. */
  readonly path: string;
  /** The client's `Accept` header, at most 1,024 characters; older agents do not read it. */
  readonly accept?: string | undefined;
}

/**
 * Params of `kubelet` too: a restart or the deletion of a pod (`page/pod-actions.ts`), after the hub has reviewed the
 * user's rights. An older agent refuses them as `invalid`. Reply and lane as for a GET.
 */
export interface PodActionParams {
  readonly method: "POST" | "DELETE";
  /** From `/page/data/` on. */
  readonly path: string;
  /** The user's name, for the pod's events. */
  readonly user: string;
}

export interface KubeletReply {
  readonly status: number;
  readonly contentType: string;
}

/** Params of `token`; the reply is a TokenRequest's status `{token, expirationTimestamp}`. Lane `status`. No bytes. */
export interface TokenParams {
  readonly namespace: string;
  readonly serviceAccount: string;
  readonly audiences: readonly string[];
  readonly expirationSeconds: number;
  readonly podName: string;
  readonly podUid: string;
}

/**
 * Params of `token` too: what a kubelet asks about its own port: its clients, its certificate. A hub that is older
 * refuses them as `invalid`. Lane `status`. No bytes.
 */
export type ReviewParams =
  | { readonly review: "token"; readonly token: string }
  /** The resource is `nodes`, and the node is the one that asks. */
  | {
      readonly review: "access";
      readonly user: string;
      readonly groups: readonly string[];
      /** `get`, `create` … */
      readonly verb: string;
      /** `proxy`, `stats`, `metrics` … */
      readonly subresource: string;
    }
  /**
   * Asks whether a user of the board's page may delete the pods of a namespace. A stolen board can learn by it which
   * users may; the rate of its reviews is limited.
   */
  | {
      readonly review: "podDeletion";
      readonly user: string;
      readonly groups: readonly string[];
      readonly namespace: string;
    }
  /** A PKCS#10 request, PEM, for the serving certificate of the board's port. The same one is sent until it ends. */
  | { readonly review: "serving"; readonly request: string };

/** The reply to a request for a serving certificate. */
export type ServingReply =
  /** It is not approved or not signed yet. */
  | { readonly state: "pending" }
  /** PEM, the certificate and then its issuers. */
  | { readonly state: "issued"; readonly certificate: string }
  | { readonly state: "denied"; readonly reason: string }
  /** Addresses of the request that another node or the hub has: the board may ask again without them. */
  | { readonly state: "taken"; readonly addresses: readonly string[] };

/** The reply to a review of a token; null: no API server knows it. */
export interface TokenReply {
  readonly user: { readonly name: string; readonly groups: readonly string[] } | null;
}

/** The reply to a review of access. */
export interface AccessReply {
  readonly allowed: boolean;
}
