/**
 * The table of picolet-hub: its commands and flags, with what the help, the man page and docs/configuration.md say of
 * them.
 */
import { validateFleetIds } from "@picolet/hub-embedded/store/fleet-keys.ts";
import {
  addressFlag,
  bytesFlag,
  choiceFlag,
  countFlag,
  durationFlag,
  fileFlag,
  httpUrlFlag,
  optionalAddressFlag,
  parsedFlag,
  portRangeFlag,
  textFlag,
} from "@picolet/protocol/command-line/flag-values.ts";
import { type CommandText, type Flag, HELP_FLAG, type Program } from "@picolet/protocol/command-line/program.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { blockListOf } from "../kubelet-proxy/kubelet-targets.ts";
import { addressRangeOf, KUBELET_PORT } from "../kubelet-proxy/node-addresses.ts";
import { ROLLOUT_COMMANDS, rolloutRows } from "./rollout-flags.ts";

/** The one feature gate of Kubernetes that has an effect here. Off by default, as in Kubernetes 1.34. */
const USER_NAMESPACES_GATE = "UserNamespacesPodSecurityStandards";

export const CONFIG = fileFlag({
  name: "config",
  help: "YAML with a field for each flag; flags win over it",
  default: "/etc/picolet-hub/config.yaml",
});
const EMBEDDED: Flag = { name: "embedded", help: "use the embedded API server in --data-dir" };
export const DATA_DIR = fileFlag({
  name: "data-dir",
  value: "DIR",
  help: "its state, keys and tokens",
  default: "/var/lib/picolet-hub",
});
export const KUBECONFIG = fileFlag({
  name: "kubeconfig",
  help: "access to the cluster; without it KUBECONFIG, ~/.kube/config, or the pod's service account",
});
const CLUSTER_FLAGS = [CONFIG, EMBEDDED, DATA_DIR, KUBECONFIG];
const STORE_FLAGS = [CONFIG, EMBEDDED, DATA_DIR];

const CODE = /^[0-9a-f]{8}$/;
export const ACCEPT_RESTORED_STORE = parsedFlag(
  {
    name: "accept-restored-store",
    value: "CODE",
    help: "serve a store that was refused, embedded only; see below",
  },
  (text) => {
    if (CODE.test(text)) return text;
    const what = "the code of 8 digits that the hub shows when it refuses a store";
    throw new PicoletError("invalid", `needs ${what}, not "${text}"`);
  },
);

/** On loopback: no other machine reads it. */
const METRICS_ADDRESS = "127.0.0.1:9184";

/** A batch of each of a few boards. */
const LEAST_BYTES = "1Mi";

/** Flags of `serve`. */
export const FLAGS = {
  tunnelAddress: addressFlag({
    name: "tunnel-address",
    help: "where the hub listens for boards",
    default: "0.0.0.0:10270",
  }),
  apiAddress: addressFlag({
    name: "api-address",
    help: "where the API server listens, embedded only",
    default: "0.0.0.0:6443",
  }),
  pageAddress: optionalAddressFlag(
    { name: "page-address", help: "where the hub serves the page of the fleet, by HTTPS; off, or without it, nowhere" },
    "0.0.0.0:10280",
  ),
  advertiseAddress: textFlag({
    name: "advertise-address",
    value: "ADDRESS",
    help: "the address at which API servers reach this hub; without it this machine's first",
  }),
  kubeletPorts: portRangeFlag({
    name: "kubelet-ports",
    help: "ports on which the hub serves as each node's kubelet; without it any free ones",
  }),
  kubeletAddresses: parsedFlag(
    {
      name: "kubelet-addresses",
      value: "CIDR",
      help:
        `gives each node an address of its own, on port ${KUBELET_PORT}, for clients that know no other port; route the ` +
        "network to this machine alone: ip route add local CIDR dev lo",
    },
    addressRangeOf,
  ),
  serverName: textFlag({
    name: "server-name",
    value: "NAME",
    help: "a name or address at which boards and kubectl reach the hub, for its certificate",
    repeats: true,
  }),
  hubName: textFlag({
    name: "hub-name",
    value: "NAME",
    help: "marks this hub's nodes; replicas share it",
    default: "picolet",
  }),
  clientCaFile: fileFlag({
    name: "client-ca-file",
    help: "PEM of the CA that issues boards' certificates; without it the one that the cluster names",
  }),
  kubeletClientCaFile: fileFlag({
    name: "kubelet-client-ca-file",
    help: "PEM of the CA that issues API servers' client certificates; without it as --client-ca-file",
  }),
  kubeletCaFile: fileFlag({
    name: "kubelet-certificate-authority",
    help: "PEM of the CA that issues kubelets' certificates, embedded only; without it this hub's",
  }),
  kubeletNetwork: parsedFlag(
    {
      name: "kubelet-network",
      value: "CIDR",
      help:
        "a network that kubelets of other hubs may be in, embedded only; without it all but loopback, link-local, " +
        "multicast and metadata addresses",
      repeats: true,
    },
    (cidr) => {
      blockListOf([cidr]);
      return cidr;
    },
  ),
  admissionConfigFile: fileFlag({
    name: "admission-control-config-file",
    help: "defaults and exemptions of Pod Security, as kube-apiserver's flag, embedded only",
  }),
  featureGates: choiceFlag({
    name: "feature-gates",
    value: `${USER_NAMESPACES_GATE}=true`,
    help: "hostUsers: false frees pods from Pod Security's checks of their user, embedded only",
    choices: [`${USER_NAMESPACES_GATE}=true`, `${USER_NAMESPACES_GATE}=false`],
  }),
  writeKubeconfig: fileFlag({
    name: "write-kubeconfig",
    help: "where the administrator's kubeconfig is written, embedded only; without it admin.kubeconfig in --data-dir",
  }),
  storeMaxBytes: bytesFlag({
    name: "store-max-bytes",
    help: "the size of the store above which boards' writes are refused, embedded only; without it what the disk has",
    least: LEAST_BYTES,
    example: "256Mi",
  }),
  nodeCertificateDuration: durationFlag({
    name: "node-certificate-duration",
    help: "lifetime of a board's certificate, embedded only",
    default: "8760h",
  }),
  renewalWindow: durationFlag({
    name: "renewal-window",
    help: "how long after its certificate ran out a board may still renew it",
    default: "4320h",
  }),
  drainTime: durationFlag({
    name: "drain-time",
    help: "the time over which boards are sent elsewhere at SIGTERM",
    default: "10s",
  }),
  metricsAddress: optionalAddressFlag(
    {
      name: "metrics-address",
      help:
        "where metrics are served, or off: on loopback by plain HTTP to anyone, elsewhere by TLS to users with the right; " +
        `without it ${METRICS_ADDRESS}, where that is free`,
    },
    METRICS_ADDRESS,
  ),
  samplesInterval: durationFlag({
    name: "samples-interval",
    help: "how often boards send a sample of their usage, such as 60s, 10s to 1h; 0s: never",
    default: "0s",
    takesZero: true,
  }),
  metricsOtlp: httpUrlFlag({
    name: "metrics-otlp",
    help: "where boards' samples are sent by OTLP/HTTP in JSON: the URL above /v1/metrics",
  }),
  metricsOtlpTokenFile: fileFlag({ name: "metrics-otlp-token-file", help: "the token that they are sent with" }),
  telemetryInflux: httpUrlFlag({
    name: "telemetry-influx",
    help:
      "where components' telemetry is sent by line protocol, such as " +
      "http://HOST:8086/api/v2/write?org=ORG&bucket=B",
  }),
  telemetryInfluxTokenFile: fileFlag({ name: "telemetry-influx-token-file", help: "the token that it is sent with" }),
  telemetryOtlp: httpUrlFlag({
    name: "telemetry-otlp",
    help: "where it is sent by OTLP/HTTP in JSON: the URL above /v1/metrics and /v1/logs",
  }),
  telemetryOtlpTokenFile: fileFlag({ name: "telemetry-otlp-token-file", help: "the token that it is sent with" }),
  telemetryDir: fileFlag({
    name: "telemetry-dir",
    value: "DIR",
    help: "the folder of telemetry; without it one in --data-dir, and memory without --embedded",
  }),
  telemetryMaxBytes: bytesFlag({
    name: "telemetry-max-bytes",
    help: "the size of it, of which the oldest goes first; without it 256Mi, in memory 32Mi",
    least: LEAST_BYTES,
    example: "256Mi",
  }),
  telemetryMaxAge: durationFlag({ name: "telemetry-max-age", help: "how long it is kept", default: "168h" }),
  adoptFleet: parsedFlag(
    {
      name: "adopt-fleet",
      value: "ID",
      help: "a fleet whose boards accept this hub",
      repeats: true,
    },
    (id) => {
      validateFleetIds([id]);
      return id;
    },
  ),
  logFormat: choiceFlag({
    name: "log-format",
    help: "the format of the log",
    choices: ["text", "json"],
    default: "text",
  }),
} as const;

export const SERVER = parsedFlag(
  {
    name: "server",
    value: "NAME[:PORT]",
    help: "the name or address at which kubectl reaches the hub; without it the first of serverName",
  },
  (text): { readonly host: string; readonly port: number | undefined } => {
    const [, host = "", port] = /^(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::(\d{1,5}))?$/i.exec(text) ?? [];
    const isGood = host !== "" && URL.canParse(`https://${host}:${port ?? 0}`);
    if (isGood) return { host, port: port === undefined ? undefined : Number(port) };
    throw new PicoletError("invalid", `must be NAME or NAME:PORT, such as hub.example:6443, not "${text}"`);
  },
);
export const TTL = durationFlag({ name: "ttl", help: "how long the token is valid", default: "1h" });
export const USES = countFlag({ name: "uses", least: 1, help: "how many boards may join with it; else any number" });
export const DESCRIPTION = textFlag({ name: "description", value: "TEXT", help: "a note for people" });

const COMMAND_NAMES = [
  "serve",
  "token create",
  "token list",
  "token delete",
  "ca hash",
  "kubeconfig",
  "node reset",
  ...ROLLOUT_COMMANDS,
  "backup",
  "restore",
  "keys rotate",
  "version",
  "help",
] as const;
export type HubCommandName = (typeof COMMAND_NAMES)[number];

type Row = Omit<CommandText, "words" | "details" | "examples"> & Partial<Pick<CommandText, "details" | "examples">>;

const ROWS: Readonly<Record<HubCommandName, Row>> = {
  serve: {
    summary: "serve boards, for a cluster or with its own API server",
    details: `With --embedded the hub brings an API server of its own, in SQLite; otherwise it
is in front of the Kubernetes cluster that --kubeconfig names.`,
    flags: [
      ...CLUSTER_FLAGS,
      ...Object.values(FLAGS),
      ACCEPT_RESTORED_STORE,
      { name: "verbose", help: "log debug messages" },
    ],
    examples: [
      ["picolet-hub --embedded --server-name hub.example", "ports 10270 (boards) and 6443 (kubectl)"],
      ["picolet-hub --kubeconfig admin.kubeconfig", "in front of a cluster"],
    ],
    exitCodes: [
      [0, "stopped by a signal"],
      [65, "the store was refused"],
      [78, "the configuration file is wrong"],
    ],
  },
  "token create": {
    summary: "make a token with which boards join",
    flags: [
      ...CLUSTER_FLAGS,
      TTL,
      USES,
      DESCRIPTION,
      { name: "replace-nodes", help: "let boards take names of nodes that another key has" },
    ],
    examples: [
      ["picolet-hub token create --embedded --ttl 24h", "valid for a day"],
      ["picolet-hub token create --embedded --ttl 168h --uses 50", "for 50 boards within a week"],
    ],
  },
  "token list": { summary: "list valid tokens", flags: CLUSTER_FLAGS },
  "token delete": { summary: "delete a token", operands: "ID", atLeast: 1, atMost: 1, flags: CLUSTER_FLAGS },
  "ca hash": { summary: "print the hash of the CA that boards pin: sha256:...", flags: CLUSTER_FLAGS },
  kubeconfig: {
    summary: "print an administrator's kubeconfig for other machines",
    details: `Embedded only. It is the access in --data-dir with the name of --server.
Any reader of it is the administrator of the fleet.`,
    flags: [...STORE_FLAGS, SERVER],
    examples: [["picolet-hub kubeconfig --server hub.example > fleet.kubeconfig", "for kubectl elsewhere"]],
  },
  "node reset": {
    summary: "let a board with a new key take this node's name",
    details: "Ends every certificate that the name ever got.",
    operands: "NAME",
    atLeast: 1,
    atMost: 1,
    flags: CLUSTER_FLAGS,
  },
  ...rolloutRows(CLUSTER_FLAGS),
  backup: {
    summary: "copy the embedded API server's store, running or not",
    details: "Keep copies of hub-keys.json and hub-ca.json apart from it.",
    operands: "FILE",
    atLeast: 1,
    atMost: 1,
    completes: ["files"],
    flags: STORE_FLAGS,
  },
  restore: {
    summary: "put a backup in the place of a stopped hub's store",
    operands: "FILE",
    atLeast: 1,
    atMost: 1,
    completes: ["files"],
    flags: [...STORE_FLAGS, ACCEPT_RESTORED_STORE],
    exitCodes: [[65, "the store was refused"]],
  },
  "keys rotate": { summary: "make new keys for the embedded API server's Secrets", flags: STORE_FLAGS },
  version: { summary: "print the version", flags: [] },
  help: { summary: "show how a command is used", operands: "[COMMAND]", atMost: 2, completes: ["commands"], flags: [] },
};

export interface HubCommand extends CommandText {
  readonly name: HubCommandName;
}

export const HUB: Program<HubCommand> = {
  name: "picolet-hub",
  section: 8,
  summary: "a fleet of picolet boards in Kubernetes, or without it",
  description:
    "picolet-hub is the cloud end of the tunnel that boards dial. It makes each of them a node of a Kubernetes cluster: of the one that it stands in " +
    "front of, or of its own, whose API server it brings and keeps in SQLite.",
  commands: COMMAND_NAMES.map((name) => ({ details: "", examples: [], ...ROWS[name], name, words: name.split(" ") })),
  defaultWords: ["serve"],
  globals: [HELP_FLAG, { name: "version", help: "print the version" }],
  exitCodes: [
    [0, "done, or stopped by a signal"],
    [64, "wrong usage"],
    [65, "the store was refused"],
    [78, "the configuration file is wrong"],
    [1, "anything else"],
  ],
  environment: [
    ["KUBECONFIG", "the cluster, where neither --embedded nor --kubeconfig is given"],
    ["CREDENTIALS_DIRECTORY", "where systemd puts the credential picolet-hub-key"],
  ],
  files: [
    ["/etc/picolet-hub/config.yaml", "the configuration, which may be absent: a field for each flag of serve"],
    ["/var/lib/picolet-hub/hub.db", "the store of the embedded API server"],
    ["/var/lib/picolet-hub/hub-ca.json", "the CA of hub and boards"],
    ["/var/lib/picolet-hub/hub-keys.json", "the keys that open its Secrets"],
    ["/var/lib/picolet-hub/hub-mark.json", "how far the store is written"],
    ["/var/lib/picolet-hub/admin.kubeconfig", "the administrator's access"],
  ],
  chapters: [
    {
      title: "The store and its fleet (embedded)",
      paragraphs: [
        "hub.db in --data-dir belongs to the keys beside it: hub-ca.json, hub-keys.json (which opens its Secrets) and " +
          "hub-mark.json (how far it is written). Keep a copy of hub-ca.json and hub-keys.json apart from the backups: a backup " +
          "without them is of no use to boards, and shows no Secret to a thief.",
        "A hub does not start on a store that is missing, empty, older than the mark or another fleet's, for its boards would " +
          "end every pod that is not in it. `picolet-hub restore FILE` puts a backup in its place: the hub must be stopped, the " +
          "previous store is kept, every client lists again, what was written since the backup is lost (boards end pods that " +
          "were bound since), and keys that were revoked stay revoked. To serve the store as it is, start once with " +
          "--accept-restored-store and the CODE that the refusal shows; it is good for this store alone.",
        "Boards know their fleet (of a Kubernetes cluster the UID of the namespace kube-system). From a hub of another they " +
          "take nothing, and run on what they have, until that hub runs with --adopt-fleet and the id that they show, or they " +
          "join again with a new token.",
        "With the systemd credential picolet-hub-key (LoadCredentialEncrypted=) the keys in hub-keys.json are sealed with it, " +
          "so that they open nothing on another machine. `picolet-hub keys rotate` makes new ones; what older ones sealed " +
          "follows by itself. The hub makes a new data key every 90 days.",
      ],
    },
  ],
};
