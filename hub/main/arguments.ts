import { validateFleetIds } from "@picolet/hub-embedded/store/fleet-keys.ts";
import { type Arguments, parseCommandLine } from "@picolet/protocol/command-line/command-line.ts";
import type { ListenAddress, ValueFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import { MAX_SAMPLE_INTERVAL_SECONDS, MIN_SAMPLE_INTERVAL_SECONDS } from "@picolet/protocol/telemetry/usage-sample.ts";
import { MAX_TOKEN_USES } from "../identity/token-uses.ts";
import type { AddressRange } from "../kubelet-proxy/node-addresses.ts";
import { conflictIn, type FlagValues, parseConfigurationFile } from "./configuration-file.ts";
import {
  ACCEPT_RESTORED_STORE,
  CONFIG,
  DATA_DIR,
  DESCRIPTION,
  FLAGS,
  HUB,
  type HubCommandName,
  KUBECONFIG,
  SERVER,
  TTL,
  USES,
} from "./program.ts";
import { ROLLOUT_COMMANDS, type RolloutArguments, type RolloutCommandName, readRollout } from "./rollout-flags.ts";

/** The Kubernetes API that a command uses. */
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

export interface MetricsArguments {
  /** Undefined: the default, where it is free. */
  readonly address: ListenAddress | "off" | undefined;
  /** 0: boards are asked for no samples. */
  readonly samplesIntervalMs: Millis;
  readonly otlp: TelemetryTarget | undefined;
}

/** A time-series store. */
export interface TelemetryTarget {
  readonly url: URL;
  readonly tokenFile: string | undefined;
}

/** Where kubectl reaches the hub. */
export interface ServerName {
  /** An IPv6 address is in brackets. */
  readonly host: string;
  /** Undefined: the hub's own. */
  readonly port: number | undefined;
}

export interface ServeArguments {
  readonly command: "serve";
  readonly cluster: ClusterArguments;
  /** Marks the nodes that came through this hub; replicas share it. */
  readonly hubName: string;
  readonly tunnel: ListenAddress;
  /** Embedded only. */
  readonly api: ListenAddress;
  /** Address at which API servers reach the hub as kubelet of its nodes; written into their status. */
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
  /**
   * CIDRs in which the embedded API server dials kubelets of other hubs; empty: everywhere but loopback and the like.
   */
  readonly kubeletNetworks: readonly string[];
  /** A PodSecurityConfiguration or AdmissionConfiguration; embedded only. */
  readonly admissionConfigFile: string | undefined;
  /** True when `hostUsers: false` frees pods from Pod Security's checks of their user; embedded only. */
  readonly relaxesUserNamespaces: boolean;
  readonly kubeconfigOut: string | undefined;
  readonly nodeCertificateDuration: Millis;
  readonly renewalWindow: Millis;
  readonly drainTime: Millis;
  readonly telemetry: TelemetryArguments;
  readonly metrics: MetricsArguments;
  /** Bounds the embedded API server's store: above it boards' writes are refused. */
  readonly storeMaxBytes: number | undefined;
  /** Embedded only: the code of a refused store that must be served as it is. */
  readonly acceptRestoredStore: string | undefined;
  /** Fleets whose boards accept this hub as their own. */
  readonly adoptFleets: readonly string[];
  readonly logFormat: "text" | "json";
  readonly verbose: boolean;
}

export type HubArguments =
  | ServeArguments
  | { readonly command: "version" }
  | {
      readonly command: "help";
      /** The words of a command or a group; none for the help of the program. */
      readonly words: readonly string[];
    }
  | {
      readonly command: "token create";
      readonly cluster: ClusterArguments;
      readonly ttl: Millis;
      readonly description: string;
      /** True when a board may take the name of a node that another key has. */
      readonly replaceNodes: boolean;
      /** How many boards may join with it; undefined: any number. */
      readonly uses: number | undefined;
    }
  | { readonly command: "token list"; readonly cluster: ClusterArguments }
  | { readonly command: "token delete"; readonly cluster: ClusterArguments; readonly id: string }
  | { readonly command: "ca hash"; readonly cluster: ClusterArguments }
  | {
      readonly command: "kubeconfig";
      readonly dataDir: string;
      /** Undefined: no name is known. */
      readonly server: ServerName | undefined;
    }
  | { readonly command: "node reset"; readonly cluster: ClusterArguments; readonly node: string }
  | { readonly command: "rollout"; readonly cluster: ClusterArguments; readonly rollout: RolloutArguments }
  | { readonly command: "keys rotate"; readonly dataDir: string }
  | { readonly command: "backup"; readonly dataDir: string; readonly file: string }
  | {
      readonly command: "restore";
      readonly dataDir: string;
      readonly file: string;
      /** As in ServeArguments. */
      readonly acceptRestoredStore: string | undefined;
    };

/**
 * @param isNamed false for the file that is read only where it is there
 * @returns the text; undefined where there is none
 */
export type ReadConfiguration = (path: string, isNamed: boolean) => string | undefined;

/**
 * @param read without it no configuration file is read
 * @throws `invalid` that names the argument; the caller exits with 64. With the reason WRONG_CONFIGURATION it names
 * fields of the configuration file; the caller exits with 78
 */
export function parseHubArguments(args: readonly string[], read: ReadConfiguration = () => undefined): HubArguments {
  const line = parseCommandLine(args, HUB);
  const input = line.arguments;
  if (line.command === undefined) return { command: "help", words: [line.group ?? []].flat() };
  if (input.flag("help")) return { command: "help", words: line.command.words };
  if (input.flag("version")) return { command: "version" };
  const reader = READERS[line.command.name];
  if (!line.command.flags.includes(CONFIG)) return reader(input);
  const path = input.value(CONFIG);
  const text = read(path, input.text(CONFIG.name) !== undefined);
  if (text === undefined) return reader(input);
  const all = parseConfigurationFile(text, path);
  const flags = new Set(line.command.flags.map(({ name }) => name));
  const own = [...all].filter(([name]) => flags.has(name) && !isOverruled(name, input));
  try {
    return reader(input.over(new Map(own)), all);
  } catch (error) {
    // The command line's own mistake is reported as such.
    reader(input);
    throw conflictIn(text, path, error);
  }
}

/** A cluster on the command line takes the place of the file's, of either kind. */
const isOverruled = (name: string, input: Arguments): boolean =>
  (name === KUBECONFIG.name && input.flag("embedded")) ||
  (name === "embedded" && input.value(KUBECONFIG) !== undefined);

type Reader = (input: Arguments, file?: FlagValues) => HubArguments;

const ROLLOUT_READERS = Object.fromEntries(
  ROLLOUT_COMMANDS.map((name): [RolloutCommandName, Reader] => [
    name,
    (input) => ({ command: "rollout", cluster: clusterOf(input), rollout: readRollout(name, input) }),
  ]),
) as Readonly<Record<RolloutCommandName, Reader>>;

const READERS: Readonly<Record<HubCommandName, Reader>> = {
  ...ROLLOUT_READERS,
  serve,
  "token create": (input) => ({
    command: "token create",
    cluster: clusterOf(input),
    ttl: input.value(TTL),
    description: input.value(DESCRIPTION) ?? "",
    replaceNodes: input.flag("replace-nodes"),
    uses: usesOf(input),
  }),
  "token list": (input) => ({ command: "token list", cluster: clusterOf(input) }),
  "token delete": (input) => ({ command: "token delete", cluster: clusterOf(input), id: operand(input) }),
  "ca hash": (input) => ({ command: "ca hash", cluster: clusterOf(input) }),
  kubeconfig: (input, file) => {
    const [first] = file?.get(FLAGS.serverName.name) ?? [];
    const named = first === undefined ? undefined : SERVER.parse(bracketed(first));
    return { command: "kubeconfig", dataDir: input.value(DATA_DIR), server: input.value(SERVER) ?? named };
  },
  "node reset": (input) => ({ command: "node reset", cluster: clusterOf(input), node: operand(input) }),
  backup: (input) => ({ command: "backup", dataDir: input.value(DATA_DIR), file: operand(input) }),
  restore: (input) => ({
    command: "restore",
    dataDir: input.value(DATA_DIR),
    file: operand(input),
    acceptRestoredStore: input.value(ACCEPT_RESTORED_STORE),
  }),
  "keys rotate": (input) => ({ command: "keys rotate", dataDir: input.value(DATA_DIR) }),
  version: () => ({ command: "version" }),
  help: ({ positionals }) => ({ command: "help", words: positionals }),
};

/** An IPv6 address as URLs have it. */
const bracketed = (name: string): string => (name.includes(":") && !name.startsWith("[") ? `[${name}]` : name);

function usesOf(input: Arguments): number | undefined {
  const uses = input.value(USES);
  if (uses !== undefined && !(uses <= MAX_TOKEN_USES))
    throw usageError(`--uses must be at most ${MAX_TOKEN_USES}, not ${uses}`);
  return uses;
}

/** The parser has counted them. */
const operand = ({ positionals: [first = ""] }: Arguments): string => first;

function serve(input: Arguments): ServeArguments {
  const cluster = clusterOf(input);
  const acceptRestoredStore = input.value(ACCEPT_RESTORED_STORE);
  if (acceptRestoredStore !== undefined && cluster.kind !== "embedded") {
    throw usageError("--accept-restored-store is of no use without --embedded");
  }
  return {
    command: "serve",
    cluster,
    hubName: input.value(FLAGS.hubName),
    tunnel: input.value(FLAGS.tunnelAddress),
    api: input.value(FLAGS.apiAddress),
    advertiseAddress: input.value(FLAGS.advertiseAddress),
    kubeletPorts: input.value(FLAGS.kubeletPorts),
    kubeletAddresses: input.value(FLAGS.kubeletAddresses),
    serverNames: input.values(FLAGS.serverName),
    clientCaFile: input.value(FLAGS.clientCaFile),
    kubeletClientCaFile: input.value(FLAGS.kubeletClientCaFile),
    kubeletCaFile: input.value(FLAGS.kubeletCaFile),
    kubeletNetworks: input.values(FLAGS.kubeletNetwork),
    admissionConfigFile: input.value(FLAGS.admissionConfigFile),
    relaxesUserNamespaces: input.value(FLAGS.featureGates)?.endsWith("=true") ?? false,
    kubeconfigOut: input.value(FLAGS.writeKubeconfig),
    nodeCertificateDuration: input.value(FLAGS.nodeCertificateDuration),
    renewalWindow: input.value(FLAGS.renewalWindow),
    storeMaxBytes: input.value(FLAGS.storeMaxBytes),
    drainTime: input.value(FLAGS.drainTime),
    telemetry: {
      dir: input.value(FLAGS.telemetryDir),
      maxBytes: input.value(FLAGS.telemetryMaxBytes),
      maxAge: input.value(FLAGS.telemetryMaxAge),
      influx: targetOf(input, FLAGS.telemetryInflux, FLAGS.telemetryInfluxTokenFile),
      otlp: targetOf(input, FLAGS.telemetryOtlp, FLAGS.telemetryOtlpTokenFile),
    },
    metrics: {
      address: input.value(FLAGS.metricsAddress),
      samplesIntervalMs: samplesIntervalOf(input),
      otlp: targetOf(input, FLAGS.metricsOtlp, FLAGS.metricsOtlpTokenFile),
    },
    acceptRestoredStore,
    adoptFleets: validateFleetIds(input.values(FLAGS.adoptFleet)),
    logFormat: input.value(FLAGS.logFormat),
    verbose: input.flag("verbose"),
  };
}

function samplesIntervalOf(input: Arguments): Millis {
  const interval = input.value(FLAGS.samplesInterval);
  const [least, most] = [MIN_SAMPLE_INTERVAL_SECONDS * 1000, MAX_SAMPLE_INTERVAL_SECONDS * 1000];
  if (interval === 0 || (interval >= least && interval <= most)) return interval;
  throw usageError(`--${FLAGS.samplesInterval.name} must be from 10s to 1h, or 0s for none`);
}

function clusterOf(input: Arguments): ClusterArguments {
  const [isEmbedded, kubeconfig] = [input.flag("embedded"), input.value(KUBECONFIG)];
  if (isEmbedded && kubeconfig !== undefined) throw usageError("--embedded and --kubeconfig exclude each other");
  return isEmbedded ? { kind: "embedded", dataDir: input.value(DATA_DIR) } : { kind: "kubernetes", kubeconfig };
}

function targetOf(input: Arguments, url: ValueFlag<URL>, token: ValueFlag<string>): TelemetryTarget | undefined {
  const [target, tokenFile] = [input.value(url), input.value(token)];
  if (target !== undefined) return { url: target, tokenFile };
  if (tokenFile === undefined) return undefined;
  throw usageError(`--${token.name} is of no use without --${url.name}`);
}
