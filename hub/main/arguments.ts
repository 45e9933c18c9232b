import { parseArgs } from "node:util";
import { parseDuration } from "../../protocol/duration.ts";
import { describeError, PicoletError } from "../../protocol/errors.ts";
import type { Millis } from "../../protocol/ports.ts";
import { parseQuantity, quantityValue } from "../../protocol/quantity.ts";

/** An address to listen on. Port 0: any free one. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** Which Kubernetes API a command speaks to. */
export type ClusterArguments =
  /** The API server inside the hub; its files are below `dataDir`. */
  | { readonly kind: "embedded"; readonly dataDir: string }
  /** A file, or (undefined) KUBECONFIG, ~/.kube/config, or the service account of the pod that the hub runs in. */
  | { readonly kind: "kubernetes"; readonly kubeconfig: string | undefined };

export interface TelemetryArguments {
  /** Undefined: in the data directory where there is one, else in memory. */
  readonly dir: string | undefined;
  /** Undefined: 256Mi on a disk, 32Mi in memory. */
  readonly maxBytes: number | undefined;
  readonly maxAge: Millis;
  readonly influx: TelemetryTarget | undefined;
  readonly otlp: TelemetryTarget | undefined;
}

/** A time-series store. */
export interface TelemetryTarget {
  readonly url: URL;
  readonly tokenFile: string | undefined;
}

export interface ServeArguments {
  readonly command: "serve";
  readonly cluster: ClusterArguments;
  /** Marks the nodes that came through this hub; replicas share it. */
  readonly hubName: string;
  readonly tunnel: ListenAddress;
  /** Embedded only. */
  readonly api: ListenAddress;
  /** Where API servers reach the hub as kubelet of its nodes; written into their status. */
  readonly advertiseAddress: string | undefined;
  /** First and last port of the kubelet endpoints; undefined: any free ones. */
  readonly kubeletPorts: readonly [first: number, last: number] | undefined;
  /** Names and addresses in the hub's own certificate, beside those of this machine. */
  readonly serverNames: readonly string[];
  /** PEM files; see the help. */
  readonly kubeletClientCaFile: string | undefined;
  readonly clientCaFile: string | undefined;
  /** Embedded only. */
  readonly kubeletCaFile: string | undefined;
  readonly kubeconfigOut: string | undefined;
  readonly nodeCertificateDuration: Millis;
  readonly renewalWindow: Millis;
  readonly drainTime: Millis;
  readonly telemetry: TelemetryArguments;
  readonly logFormat: "text" | "json";
  readonly verbose: boolean;
}

export type HubArguments =
  | ServeArguments
  | { readonly command: "help" | "version" }
  | {
      readonly command: "token create";
      readonly cluster: ClusterArguments;
      readonly ttl: Millis;
      readonly description: string;
      /** Whether a board may take the name of a node that another key has. */
      readonly replaceNodes: boolean;
    }
  | { readonly command: "token list"; readonly cluster: ClusterArguments }
  | { readonly command: "token delete"; readonly cluster: ClusterArguments; readonly id: string }
  | { readonly command: "ca hash"; readonly cluster: ClusterArguments }
  | { readonly command: "node reset"; readonly cluster: ClusterArguments; readonly node: string }
  | { readonly command: "backup" | "restore"; readonly dataDir: string; readonly file: string };

export const DEFAULT_DATA_DIR = "/var/lib/picolet-hub";
/** Of the tunnel; not given away to anything well known. */
export const DEFAULT_TUNNEL_PORT = 10_270;
/** As kube-apiserver's. */
export const DEFAULT_API_PORT = 6443;
const MAX_PORT = 65_535;

export const HELP = `picolet-hub - the cloud end of the tunnel: a fleet of picolet boards in Kubernetes, or without it

Usage: picolet-hub [serve] --embedded [flags]            an API server of its own, in SQLite
       picolet-hub [serve] [--kubeconfig FILE] [flags]   in front of a Kubernetes cluster
       picolet-hub token create [--ttl 1h] [--description TEXT] [--replace-nodes]
       picolet-hub token list | token delete ID
       picolet-hub ca hash                               what a board pins: sha256:...
       picolet-hub node reset NAME                       lets a board with a new key take this node's name
       picolet-hub backup FILE | restore FILE            of the embedded API server
       picolet-hub version | help

Which cluster (all commands)
  --embedded               the embedded API server in --data-dir
  --data-dir DIR           its state, keys and tokens (default ${DEFAULT_DATA_DIR})
  --kubeconfig FILE        default: KUBECONFIG, ~/.kube/config, or the pod's service account

Flags of serve
  --tunnel-address HOST:PORT    for boards (default 0.0.0.0:${DEFAULT_TUNNEL_PORT})
  --api-address HOST:PORT       for kubectl, embedded only (default 0.0.0.0:${DEFAULT_API_PORT})
  --advertise-address ADDRESS   where API servers reach this hub; default: this machine's first address
  --kubelet-ports FIRST-LAST    ports on which the hub answers as each node's kubelet; default: any free ones
  --server-name NAME            in the hub's certificate; may be given several times
  --hub-name NAME               marks this hub's nodes; replicas share it (default picolet)
  --client-ca-file FILE         PEM: whom boards' certificates are issued by; default: what the cluster says
  --kubelet-client-ca-file FILE PEM: whom API servers' client certificates are issued by; default: the same
  --kubelet-certificate-authority FILE
                                PEM: whom kubelets' certificates are issued by, embedded only; default: this hub
  --write-kubeconfig FILE       the administrator's, embedded only (default DATA-DIR/admin.kubeconfig)
  --node-certificate-duration D lifetime of a board's certificate, embedded only (default 8760h)
  --renewal-window D            how long after its certificate ran out a board may still renew it (default 4320h)
  --drain-time D                over which boards move elsewhere at SIGTERM (default 10s)
  --telemetry-influx URL        where components' telemetry is written on to by line protocol, such as
                                http://HOST:8086/api/v2/write?org=ORG&bucket=BUCKET
  --telemetry-influx-token-file FILE
  --telemetry-otlp URL          the same by OTLP/HTTP in JSON: what /v1/metrics and /v1/logs are below
  --telemetry-otlp-token-file FILE
  --telemetry-dir DIR           where telemetry is kept (default DATA-DIR/telemetry, without --embedded in memory)
  --telemetry-max-bytes SIZE    of it; the oldest goes first (default 256Mi, in memory 32Mi)
  --telemetry-max-age D         (default 168h)
  --log-format text|json        --verbose

Exit codes: 0 stopped by a signal, 64 wrong usage, 1 anything else.
`;

const CLUSTER_OPTIONS = {
  embedded: { type: "boolean" },
  "data-dir": { type: "string" },
  kubeconfig: { type: "string" },
} as const;

const SERVE_OPTIONS = {
  ...CLUSTER_OPTIONS,
  "tunnel-address": { type: "string" },
  "api-address": { type: "string" },
  "advertise-address": { type: "string" },
  "kubelet-ports": { type: "string" },
  "server-name": { type: "string", multiple: true },
  "hub-name": { type: "string" },
  "client-ca-file": { type: "string" },
  "kubelet-client-ca-file": { type: "string" },
  "kubelet-certificate-authority": { type: "string" },
  "write-kubeconfig": { type: "string" },
  "node-certificate-duration": { type: "string" },
  "renewal-window": { type: "string" },
  "drain-time": { type: "string" },
  "telemetry-influx": { type: "string" },
  "telemetry-influx-token-file": { type: "string" },
  "telemetry-otlp": { type: "string" },
  "telemetry-otlp-token-file": { type: "string" },
  "telemetry-dir": { type: "string" },
  "telemetry-max-bytes": { type: "string" },
  "telemetry-max-age": { type: "string" },
  "log-format": { type: "string" },
  verbose: { type: "boolean" },
} as const;

const TOKEN_CREATE_OPTIONS = {
  ...CLUSTER_OPTIONS,
  ttl: { type: "string" },
  description: { type: "string" },
  "replace-nodes": { type: "boolean" },
} as const;

/** @throws `invalid` that names the argument; the caller exits with 64. */
export function parseHubArguments(args: readonly string[]): HubArguments {
  if (args.includes("--help") || args.includes("-h")) return { command: "help" };
  if (args.includes("--version")) return { command: "version" };
  const [first = "serve", ...rest] = args;
  const words = first.startsWith("-") ? ["serve", ...args] : [first, ...rest];
  const [word = "", ...more] = words;
  switch (word) {
    case "help":
    case "version":
      return { command: word };
    case "serve":
      return parseServe(more);
    case "token":
      return parseToken(more);
    case "ca":
    case "node":
      return parsePair(word, more);
    case "backup":
    case "restore": {
      const { values, positionals } = read(more, {
        "data-dir": CLUSTER_OPTIONS["data-dir"],
        embedded: CLUSTER_OPTIONS.embedded,
      });
      return {
        command: word,
        dataDir: values["data-dir"] ?? DEFAULT_DATA_DIR,
        file: only(positionals, `${word} FILE`),
      };
    }
    default:
      throw new PicoletError("invalid", `unknown command ${word}; picolet-hub help lists the commands`);
  }
}

function parseServe(args: readonly string[]): ServeArguments {
  const { values, positionals } = read(args, SERVE_OPTIONS);
  if (positionals.length > 0) throw new PicoletError("invalid", `unknown argument ${positionals[0]}`);
  const cluster = clusterOf(values);
  const format = values["log-format"] ?? "text";
  if (format !== "text" && format !== "json") {
    throw new PicoletError("invalid", `--log-format must be text or json, not ${format}`);
  }
  return {
    command: "serve",
    cluster,
    hubName: values["hub-name"] ?? "picolet",
    tunnel: addressOf("--tunnel-address", values["tunnel-address"], DEFAULT_TUNNEL_PORT),
    api: addressOf("--api-address", values["api-address"], DEFAULT_API_PORT),
    advertiseAddress: values["advertise-address"],
    kubeletPorts: portsOf(values["kubelet-ports"]),
    serverNames: values["server-name"] ?? [],
    clientCaFile: values["client-ca-file"],
    kubeletClientCaFile: values["kubelet-client-ca-file"],
    kubeletCaFile: values["kubelet-certificate-authority"],
    kubeconfigOut: values["write-kubeconfig"],
    nodeCertificateDuration: durationOf("--node-certificate-duration", values["node-certificate-duration"], "8760h"),
    renewalWindow: durationOf("--renewal-window", values["renewal-window"], "4320h"),
    drainTime: durationOf("--drain-time", values["drain-time"], "10s"),
    telemetry: {
      dir: values["telemetry-dir"],
      maxBytes: bytesOf("--telemetry-max-bytes", values["telemetry-max-bytes"]),
      maxAge: durationOf("--telemetry-max-age", values["telemetry-max-age"], "168h"),
      influx: targetOf("--telemetry-influx", values["telemetry-influx"], values["telemetry-influx-token-file"]),
      otlp: targetOf("--telemetry-otlp", values["telemetry-otlp"], values["telemetry-otlp-token-file"]),
    },
    logFormat: format,
    verbose: values.verbose ?? false,
  };
}

function parseToken(args: readonly string[]): HubArguments {
  const [verb = "", ...rest] = args;
  if (verb === "create") {
    const { values, positionals } = read(rest, TOKEN_CREATE_OPTIONS);
    if (positionals.length > 0) throw new PicoletError("invalid", `unknown argument ${positionals[0]}`);
    const ttl = durationOf("--ttl", values.ttl, "1h");
    return {
      command: "token create",
      cluster: clusterOf(values),
      ttl,
      description: values.description ?? "",
      replaceNodes: values["replace-nodes"] ?? false,
    };
  }
  if (verb !== "list" && verb !== "delete") {
    throw new PicoletError("invalid", "token needs one of create, list, delete");
  }
  const { values, positionals } = read(rest, CLUSTER_OPTIONS);
  const cluster = clusterOf(values);
  if (verb === "list") return { command: "token list", cluster };
  return { command: "token delete", cluster, id: only(positionals, "token delete ID") };
}

function parsePair(word: "ca" | "node", args: readonly string[]): HubArguments {
  const [verb = "", ...rest] = args;
  const { values, positionals } = read(rest, CLUSTER_OPTIONS);
  const cluster = clusterOf(values);
  if (word === "ca" && verb === "hash" && positionals.length === 0) return { command: "ca hash", cluster };
  if (word === "node" && verb === "reset")
    return { command: "node reset", cluster, node: only(positionals, "node reset NAME") };
  throw new PicoletError("invalid", `the command is picolet-hub ${word === "ca" ? "ca hash" : "node reset NAME"}`);
}

function read<const T extends NonNullable<Parameters<typeof parseArgs>[0]>["options"]>(
  args: readonly string[],
  options: T,
) {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
  } catch (error) {
    throw new PicoletError("invalid", describeError(error));
  }
}

function only(positionals: readonly string[], usage: string): string {
  const [value, ...more] = positionals;
  if (value === undefined || more.length > 0) throw new PicoletError("invalid", `usage: picolet-hub ${usage}`);
  return value;
}

function clusterOf(values: {
  readonly embedded?: boolean | undefined;
  readonly "data-dir"?: string | undefined;
  readonly kubeconfig?: string | undefined;
}): ClusterArguments {
  if (values.embedded && values.kubeconfig !== undefined) {
    throw new PicoletError("invalid", "--embedded and --kubeconfig exclude each other");
  }
  if (values.embedded) return { kind: "embedded", dataDir: values["data-dir"] ?? DEFAULT_DATA_DIR };
  return { kind: "kubernetes", kubeconfig: values.kubeconfig };
}

/** `HOST:PORT`, `[IPv6]:PORT`, `:PORT` or `HOST`. */
function addressOf(flag: string, text: string | undefined, defaultPort: number): ListenAddress {
  if (text === undefined) return { host: "0.0.0.0", port: defaultPort };
  const match = /^(?:\[([^\]]+)\]|([^:]*))(?::(\d{1,5}))?$/.exec(text);
  const port = match?.[3] === undefined ? defaultPort : Number(match[3]);
  if (match === null || port > MAX_PORT) {
    throw new PicoletError("invalid", `${flag} must be HOST:PORT, such as 0.0.0.0:${defaultPort}, not ${text}`);
  }
  return { host: match[1] ?? (match[2] || "0.0.0.0"), port };
}

function portsOf(text: string | undefined): readonly [number, number] | undefined {
  if (text === undefined) return undefined;
  const match = /^(\d{1,5})-(\d{1,5})$/.exec(text);
  const [first, last] = [Number(match?.[1]), Number(match?.[2])];
  if (match === null || first < 1 || last > MAX_PORT || first > last) {
    throw new PicoletError("invalid", `--kubelet-ports must be FIRST-LAST, such as 20000-29999, not ${text}`);
  }
  return [first, last];
}

function durationOf(flag: string, text: string | undefined, byDefault: string): Millis {
  const duration = parseDuration(text ?? byDefault);
  if (duration === undefined || duration <= 0) {
    throw new PicoletError("invalid", `${flag} must be a duration such as ${byDefault}, not ${text}`);
  }
  return duration;
}

/** A batch of each of a few boards. */
const LEAST_BYTES = 1024 * 1024;

function bytesOf(flag: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const parsed = parseQuantity(text);
  const bytes = parsed.ok ? Number(quantityValue(parsed.quantity)) : 0;
  if (bytes >= LEAST_BYTES && Number.isSafeInteger(bytes)) return bytes;
  throw new PicoletError("invalid", `${flag} must be a size of 1Mi and more, such as 256Mi, not ${text}`);
}

function targetOf(flag: string, text: string | undefined, tokenFile: string | undefined): TelemetryTarget | undefined {
  if (text === undefined) {
    if (tokenFile === undefined) return undefined;
    throw new PicoletError("invalid", `${flag}-token-file is of no use without ${flag}`);
  }
  const url = URL.parse(text);
  if (url !== null && (url.protocol === "http:" || url.protocol === "https:") && url.username === "") {
    return { url, tokenFile };
  }
  throw new PicoletError("invalid", `${flag} must be an http:// or https:// URL without a user, not ${text}`);
}
