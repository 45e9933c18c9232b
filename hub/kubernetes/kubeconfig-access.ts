/**
 * Access as kubectl has it: a kubeconfig with certificates, tokens, token files or exec plugins, or the pod's own
 * account.
 */
import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { KubeConfig, User } from "@kubernetes/client-node";
import { PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { parse } from "yaml";
import type { ClusterAccess, ClusterCredentials, ClusterTls } from "./cluster-access.ts";

export interface KubeconfigAccessInit {
  /**
   * Path of a kubeconfig; undefined: $KUBECONFIG, ~/.kube/config, then the service account of the pod, as kubectl does.
   */
  readonly kubeconfig?: string;
  /** Undefined: the file's `current-context`. */
  readonly context?: string;
}

interface FoundOptions {
  headers?: Record<string, unknown>;
  ca?: unknown;
  cert?: unknown;
  key?: unknown;
  auth?: unknown;
  servername?: unknown;
  rejectUnauthorized?: boolean;
}

/** The library's server for an account that has no kubeconfig, and is no pod's. */
const NO_SERVER = "http://localhost:8080";
/** The reason of the error then. */
export const NO_CLUSTER = "NoCluster";

/** @throws `invalid` when there is no such file, context, cluster or user, or a part of it cannot be used */
export async function loadKubeconfigAccess(init: KubeconfigAccessInit): Promise<ClusterAccess> {
  const first = await loadConfig(init);
  const cluster = first.getCurrentCluster();
  if (cluster === null) {
    throw new PicoletError("invalid", `cannot find a cluster for the context ${first.getCurrentContext() || "(none)"}`);
  }
  if (init.kubeconfig === undefined && cluster.server === NO_SERVER) {
    const how =
      "--embedded for an API server of the hub's own, or --kubeconfig FILE (or KUBECONFIG) for a Kubernetes cluster";
    throw new PicoletError("invalid", `there is no cluster here: name one with ${how}`, { reason: NO_CLUSTER });
  }
  if (!cluster.server.startsWith("https://")) {
    throw new PicoletError("invalid", `cannot use the API server ${cluster.server}: only https is spoken`);
  }
  if (cluster.proxyUrl !== undefined && !/^https?:/.test(cluster.proxyUrl)) {
    throw new PicoletError("invalid", `cannot use the proxy ${cluster.proxyUrl}: only HTTP proxies are spoken to`);
  }
  return new KubeconfigAccess(init, first, cluster.server.replace(/\/+$/, ""), cluster.proxyUrl);
}

class KubeconfigAccess implements ClusterAccess {
  readonly server: string;
  readonly proxy?: string;
  readonly #init: KubeconfigAccessInit;
  #config: KubeConfig | undefined;

  constructor(init: KubeconfigAccessInit, config: KubeConfig, server: string, proxy: string | undefined) {
    this.#init = init;
    this.#config = config;
    this.server = server;
    if (proxy !== undefined) this.proxy = proxy;
  }

  async credentials(): Promise<ClusterCredentials> {
    this.#config ??= await loadConfig(this.#init);
    const found: FoundOptions = {};
    try {
      await this.#config.applyToHTTPSOptions(found as never);
    } catch (error) {
      throw toPicoletError(error, "unavailable", "cannot get credentials for the API server");
    }
    return { tls: tlsOf(found), headers: headersOf(found) };
  }

  /** With the next request the kubeconfig is read again, and an exec plugin runs again. */
  refused(): void {
    this.#config = undefined;
  }
}

async function loadConfig(init: KubeconfigAccessInit): Promise<KubeConfig> {
  const { KubeConfig } = await import("@kubernetes/client-node");
  const config = new KubeConfig();
  try {
    if (init.kubeconfig === undefined) config.loadFromDefault();
    else config.loadFromFile(init.kubeconfig);
  } catch (error) {
    throw toPicoletError(
      error,
      "invalid",
      `cannot read the kubeconfig ${init.kubeconfig ?? "of KUBECONFIG or ~/.kube/config"}`,
    );
  }
  if (init.context !== undefined) config.setCurrentContext(init.context);
  const tokenFiles = init.kubeconfig === undefined ? new Map<string, string>() : await tokenFilesOf(init.kubeconfig);
  const server = config.getCurrentCluster()?.server ?? "";
  config.users = config.users.map((user) => completed(user, tokenFiles.get(user.name), server));
  return config;
}

/** `users[].user.tokenFile` by user: the library does not know the field. */
async function tokenFilesOf(path: string): Promise<Map<string, string>> {
  const parsed: unknown = parse(await readFile(path, "utf8"));
  const users = (parsed as { users?: readonly { name?: unknown; user?: { tokenFile?: unknown } }[] } | null)?.users;
  const found = new Map<string, string>();
  for (const { name, user } of Array.isArray(users) ? users : []) {
    if (typeof name === "string" && typeof user?.tokenFile === "string") {
      found.set(name, resolve(dirname(path), user.tokenFile));
    }
  }
  return found;
}

/**
 * A token file is read again once a minute; an exec plugin gets the variable that client-go sets
 * (KUBERNETES_EXEC_INFO).
 */
function completed(user: User, tokenFile: string | undefined, server: string): User {
  if (tokenFile !== undefined && !user.token) {
    return { ...user, authProvider: { name: "tokenFile", config: { tokenFile } } };
  }
  if (!user.exec) return user;
  const { apiVersion, env = [] } = user.exec as { apiVersion?: string; env?: readonly unknown[] };
  const info = {
    apiVersion: apiVersion ?? "client.authentication.k8s.io/v1",
    kind: "ExecCredential",
    spec: { interactive: false, cluster: { server } },
  };
  return {
    ...user,
    exec: { ...user.exec, env: [...(env ?? []), { name: "KUBERNETES_EXEC_INFO", value: JSON.stringify(info) }] },
  };
}

const textOf = (value: unknown): string | undefined =>
  typeof value === "string" ? value : Buffer.isBuffer(value) ? value.toString("utf8") : undefined;

function tlsOf(found: FoundOptions): ClusterTls {
  const ca = textOf(found.ca);
  const cert = textOf(found.cert);
  const key = textOf(found.key);
  const servername = textOf(found.servername);
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(servername === undefined ? {} : { servername }),
    ...(found.rejectUnauthorized === undefined ? {} : { rejectUnauthorized: found.rejectUnauthorized }),
  };
}

function headersOf(found: FoundOptions): Record<string, string> {
  const headers: Record<string, string> = {};
  // A token file may end with a newline, which no header may hold.
  for (const [name, value] of Object.entries(found.headers ?? {})) headers[name.toLowerCase()] = String(value).trim();
  const userAndPassword = textOf(found.auth);
  if (userAndPassword !== undefined) {
    headers.authorization = `Basic ${Buffer.from(userAndPassword).toString("base64")}`;
  }
  return headers;
}
