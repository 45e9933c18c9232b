import { parseArgs } from "node:util";
import { validateFleetIds } from "@picolet/hub-embedded/store/fleet-keys.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import { unitHint } from "@picolet/protocol/kubernetes/quantity-hint.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import { blockListOf } from "../kubelet-proxy/kubelet-targets.ts";
import { type AddressRange, addressRangeOf, KUBELET_PORT } from "../kubelet-proxy/node-addresses.ts";

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
  /** An address of its own for each node, on port 10250; undefined: a port each at the hub's address. */
  readonly kubeletAddresses: AddressRange | undefined;
  /** Names and addresses in the hub's own certificate, beside those of this machine. */
  readonly serverNames: readonly string[];
  /** PEM files; see the help. */
  readonly kubeletClientCaFile: string | undefined;
  readonly clientCaFile: string | undefined;
  /** Embedded only. */
  readonly kubeletCaFile: string | undefined;
  /** CIDRs in which the embedded API server dials kubelets of other hubs; empty: everywhere but loopback and the like. */
  readonly kubeletNetworks: readonly string[];
  /** A PodSecurityConfiguration or AdmissionConfiguration; embedded only. */
  readonly admissionConfigFile: string | undefined;
  /** Whether `hostUsers: false` frees pods from Pod Security's checks of their user; embedded only. */
  readonly relaxesUserNamespaces: boolean;
  readonly kubeconfigOut: string | undefined;
  readonly nodeCertificateDuration: Millis;
  readonly renewalWindow: Millis;
  readonly drainTime: Millis;
  readonly telemetry: TelemetryArguments;
  /** Of the embedded API server's store, before boards' writes are refused. */
  readonly storeMaxBytes: number | undefined;
  /** Embedded only: the code of the store that was refused, and is to be served as it is. */
  readonly acceptRestoredStore: string | undefined;
  /** Fleets whose boards are to take this hub for their own. */
  readonly adoptFleets: readonly string[];
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
  | { readonly command: "keys rotate"; readonly dataDir: string }
  | { readonly command: "backup"; readonly dataDir: string; readonly file: string }
  | {
      readonly command: "restore";
      readonly dataDir: string;
      readonly file: string;
      /** As in ServeArguments. */
      readonly acceptRestoredStore: string | undefined;
    };

export const DEFAULT_DATA_DIR = "/var/lib/picolet-hub";
/** Of the tunnel; not given away to anything well known. */
export const DEFAULT_TUNNEL_PORT = 10_270;
/** As kube-apiserver's. */
export const DEFAULT_API_PORT = 6443;
const MAX_PORT = 65_535;

/** Of Kubernetes' feature gates the one that changes something here. Off by default, as in Kubernetes 1.34. */
const USER_NAMESPACES_GATE = "UserNamespacesPodSecurityStandards";

export const HELP = `picolet-hub - the cloud end of the tunnel: a fleet of picolet boards in Kubernetes, or without it

Usage: picolet-hub [serve] --embedded [flags]            an API server of its own, in SQLite
       picolet-hub [serve] [--kubeconfig FILE] [flags]   in front of a Kubernetes cluster
       picolet-hub token create [--ttl 1h] [--description TEXT] [--replace-nodes]
       picolet-hub token list | token delete ID
       picolet-hub ca hash                               what a board pins: sha256:...
       picolet-hub node reset NAME                       lets a board with a new key take this node's name
       picolet-hub backup FILE | restore FILE            of the embedded API server
       picolet-hub keys rotate                           new keys for its Secrets at rest
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
  --kubelet-addresses CIDR      gives each node an address of its own, on port ${KUBELET_PORT}, for clients that know no other port;
                                the network is routed to this machine alone: ip route add local CIDR dev lo
  --server-name NAME            in the hub's certificate; may be given several times
  --hub-name NAME               marks this hub's nodes; replicas share it (default picolet)
  --client-ca-file FILE         PEM: whom boards' certificates are issued by; default: what the cluster says
  --kubelet-client-ca-file FILE PEM: whom API servers' client certificates are issued by; default: the same
  --kubelet-certificate-authority FILE
                                PEM: whom kubelets' certificates are issued by, embedded only; default: this hub
  --kubelet-network CIDR        where kubelets that are not this hub's may be, embedded only; may be given several times;
                                default: everywhere but loopback, link-local, multicast and metadata addresses
  --admission-control-config-file FILE
                                defaults and exemptions of Pod Security, as kube-apiserver's flag, embedded only
  --feature-gates ${USER_NAMESPACES_GATE}=true
                                hostUsers: false frees pods from Pod Security's checks of their user, embedded only
  --write-kubeconfig FILE       the administrator's, embedded only (default DATA-DIR/admin.kubeconfig)
  --store-max-bytes SIZE        what the store may hold before boards' writes are refused, embedded only; default: what
                                the disk has
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
  --accept-restored-store CODE  serve a store that was refused, embedded only; see below
  --adopt-fleet ID              boards of this fleet take the hub for theirs; may be given several times
  --log-format text|json        --verbose

The store and its fleet (embedded)
  DATA-DIR/hub.db belongs to the keys beside it: hub-ca.json, hub-keys.json (which opens its Secrets) and hub-mark.json
  (how far it had come). Keep a copy of hub-ca.json and hub-keys.json apart from the backups: a backup without them is
  of no use to boards, and shows no Secret to a thief.
  A hub does not start on a store that is missing, empty, older than the mark or another fleet's, for its boards would end
  every pod that is not in it. \`picolet-hub restore FILE\` puts a backup in its place: the hub must be stopped, the store
  before is kept, every client lists again, what was written since the backup is lost (boards end pods that were bound
  since), and keys that were revoked stay revoked. To serve the store as it is, start once with
  --accept-restored-store and the CODE that the refusal shows; it is good for this store alone.
  Boards know their fleet (of a Kubernetes cluster the UID of the namespace kube-system). From a hub of another they take
  nothing, and run on what they have, until that hub runs with --adopt-fleet and the id that they show, or they join
  again with a new token.
  With the systemd credential picolet-hub-key (LoadCredentialEncrypted=) the keys in hub-keys.json are sealed with it, so
  that they open nothing on another machine. \`keys rotate\` makes new ones; what older ones sealed follows by itself. The
  hub makes a new data key every 90 days.

Exit codes: 0 stopped by a signal, 64 wrong usage, 65 the store was refused, 1 anything else.
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
  "kubelet-addresses": { type: "string" },
  "server-name": { type: "string", multiple: true },
  "hub-name": { type: "string" },
  "client-ca-file": { type: "string" },
  "kubelet-client-ca-file": { type: "string" },
  "kubelet-certificate-authority": { type: "string" },
  "kubelet-network": { type: "string", multiple: true },
  "admission-control-config-file": { type: "string" },
  "feature-gates": { type: "string" },
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
  "store-max-bytes": { type: "string" },
  "telemetry-max-age": { type: "string" },
  "accept-restored-store": { type: "string" },
  "adopt-fleet": { type: "string", multiple: true },
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
    case "keys":
    case "backup":
    case "restore":
      return parseStore(word, more);
    default:
      throw unknownCommand(word);
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
  const acceptRestoredStore = codeOf(values["accept-restored-store"]);
  if (acceptRestoredStore !== undefined && cluster.kind !== "embedded") {
    throw new PicoletError("invalid", "--accept-restored-store is of no use without --embedded");
  }
  return {
    command: "serve",
    cluster,
    hubName: values["hub-name"] ?? "picolet",
    tunnel: addressOf("--tunnel-address", values["tunnel-address"], DEFAULT_TUNNEL_PORT),
    api: addressOf("--api-address", values["api-address"], DEFAULT_API_PORT),
    advertiseAddress: values["advertise-address"],
    kubeletPorts: portsOf(values["kubelet-ports"]),
    kubeletAddresses: rangeOf(values["kubelet-addresses"]),
    serverNames: values["server-name"] ?? [],
    clientCaFile: values["client-ca-file"],
    kubeletClientCaFile: values["kubelet-client-ca-file"],
    kubeletCaFile: values["kubelet-certificate-authority"],
    kubeletNetworks: networksOf(values["kubelet-network"] ?? []),
    admissionConfigFile: values["admission-control-config-file"],
    relaxesUserNamespaces: isGateOpen(values["feature-gates"]),
    kubeconfigOut: values["write-kubeconfig"],
    nodeCertificateDuration: durationOf("--node-certificate-duration", values["node-certificate-duration"], "8760h"),
    renewalWindow: durationOf("--renewal-window", values["renewal-window"], "4320h"),
    storeMaxBytes: bytesOf("--store-max-bytes", values["store-max-bytes"]),
    drainTime: durationOf("--drain-time", values["drain-time"], "10s"),
    telemetry: {
      dir: values["telemetry-dir"],
      maxBytes: bytesOf("--telemetry-max-bytes", values["telemetry-max-bytes"]),
      maxAge: durationOf("--telemetry-max-age", values["telemetry-max-age"], "168h"),
      influx: targetOf("--telemetry-influx", values["telemetry-influx"], values["telemetry-influx-token-file"]),
      otlp: targetOf("--telemetry-otlp", values["telemetry-otlp"], values["telemetry-otlp-token-file"]),
    },
    acceptRestoredStore,
    adoptFleets: validateFleetIds(values["adopt-fleet"] ?? []),
    logFormat: format,
    verbose: values.verbose ?? false,
  };
}

const STORE_OPTIONS = {
  "data-dir": CLUSTER_OPTIONS["data-dir"],
  embedded: CLUSTER_OPTIONS.embedded,
} as const;

/** Commands on the data directory of the embedded API server. */
function parseStore(word: "keys" | "backup" | "restore", args: readonly string[]): HubArguments {
  if (word === "restore") {
    const { values, positionals } = read(args, { ...STORE_OPTIONS, "accept-restored-store": { type: "string" } });
    const acceptRestoredStore = codeOf(values["accept-restored-store"]);
    const dataDir = values["data-dir"] ?? DEFAULT_DATA_DIR;
    return { command: word, dataDir, file: only(positionals, "restore FILE"), acceptRestoredStore };
  }
  const { values, positionals } = read(args, STORE_OPTIONS);
  const dataDir = values["data-dir"] ?? DEFAULT_DATA_DIR;
  if (word === "backup") return { command: word, dataDir, file: only(positionals, "backup FILE") };
  if (only(positionals, "keys rotate") === "rotate") return { command: "keys rotate", dataDir };
  throw new PicoletError("invalid", "the command is picolet-hub keys rotate");
}

const CODE = /^[0-9a-f]{8}$/;

function codeOf(text: string | undefined): string | undefined {
  if (text === undefined || CODE.test(text)) return text;
  const what = "the code of 8 digits that the hub shows when it refuses a store";
  throw new PicoletError("invalid", `--accept-restored-store needs ${what}, not ${text}`);
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
    const known = Object.keys(options ?? {});
    const unknown = args.find((each) => each.startsWith("-") && !known.includes(nameOf(each)));
    const isUnknown = errorCode(error) === "ERR_PARSE_ARGS_UNKNOWN_OPTION" && unknown !== undefined;
    throw new PicoletError("invalid", isUnknown ? unknownFlag(nameOf(unknown), known) : describeError(error));
  }
}

const nameOf = (argument: string): string => argument.replace(/^--?/, "").replace(/=.*$/s, "");
const errorCode = (error: unknown): unknown => (error instanceof Error && "code" in error ? error.code : undefined);

function unknownFlag(name: string, known: readonly string[]): string {
  const near = nearestName(name, known);
  return `unknown flag --${name}; ${near === undefined ? "picolet-hub help lists the flags" : `did you mean --${near}?`}`;
}

const COMMANDS = ["serve", "token", "ca", "node", "keys", "backup", "restore", "version", "help"];

function unknownCommand(word: string): PicoletError {
  const near = nearestName(word, COMMANDS);
  const hint = near === undefined ? "picolet-hub help lists the commands" : `did you mean ${near}?`;
  return new PicoletError("invalid", `unknown command ${word}; ${hint}`);
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

function networksOf(cidrs: readonly string[]): readonly string[] {
  try {
    blockListOf(cidrs);
    return cidrs;
  } catch (error) {
    throw new PicoletError("invalid", `--kubelet-network: ${describeError(error)}`);
  }
}

function isGateOpen(text: string | undefined): boolean {
  if (text === undefined) return false;
  const value = new RegExp(`^${USER_NAMESPACES_GATE}=(true|false)$`).exec(text)?.[1];
  if (value !== undefined) return value === "true";
  throw new PicoletError("invalid", `--feature-gates must be ${USER_NAMESPACES_GATE}=true or =false, not ${text}`);
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

function rangeOf(text: string | undefined): AddressRange | undefined {
  try {
    return text === undefined ? undefined : addressRangeOf(text);
  } catch (error) {
    throw new PicoletError("invalid", `--kubelet-addresses: ${describeError(error)}`);
  }
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
  throw new PicoletError(
    "invalid",
    `${flag} must be a size of 1Mi and more, such as 256Mi, not ${text}${unitHint(text)}`,
  );
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
