/** Address of an API server, and the hub's identity towards it. */

/** Credentials of one connection: `tls.connect` options and request headers. */
export interface ClusterCredentials {
  readonly tls: ClusterTls;
  /** `authorization`, or none where a certificate says who we are. Lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface ClusterTls {
  /** PEM; undefined: what the machine trusts. */
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  /** Name that the server's certificate must have, where that is not the host. */
  readonly servername?: string;
  /** False only when the kubeconfig says `insecure-skip-tls-verify`. */
  readonly rejectUnauthorized?: boolean;
}

export interface ClusterAccess {
  /** `https://host:port`, perhaps with a path, without a slash at its end. */
  readonly server: string;
  /** An HTTP proxy that the API server is reached through. */
  readonly proxy?: string;
  /** The current credentials: files are read again, plugins run again when their credentials have expired. */
  credentials(): Promise<ClusterCredentials>;
  /** The server did not accept them (401): cached ones must be dropped. */
  refused(): void;
}
