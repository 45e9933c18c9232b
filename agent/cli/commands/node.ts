/** `edgectl` for the node and its agent. */
import { bytesFlag, countFlag, durationFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { type Command, INTERVAL, NAMESPACE, NO_HEADERS, output } from "../context/command.ts";

export const STATUS: Command = {
  words: ["status"],
  access: "view",
  summary: "show the state of the node, its runtimes and its pods",
  details: `The first line is the judgement. What is wrong follows, then figures and pods.
Exit code 0 when all is well, 1 when the node, a pod or a manifest is not, the
node is short of something or the hub refuses it, 2 when no agent answers. A hub
that is only away is no fault: the node goes on without it. The agent's anon is
its anonymous memory, swapped or not, of its budget; RSS has file pages too. On
a terminal it fills one page: pods that are well are left out first.`,
  flags: [
    output("json", "yaml", "wide"),
    NO_HEADERS,
    { name: "watch", short: "w", help: "show it again when it has changed, until Ctrl-C" },
    INTERVAL,
  ],
  examples: [
    ["edgectl status", "for people"],
    ["edgectl status -o json", "for scripts; the fields are stable"],
    ["edgectl status > /dev/null || alarm", "only the exit code"],
    ["edgectl status --watch", "what changes"],
  ],
  run: async (context, input) => (await import("./status-command.ts")).runStatus(context, input),
};

/** The board has dialled within a second; a hub at the other end of the world has answered within a few. */
export const JOIN_WAIT = durationFlag({
  name: "wait",
  help: "how long to wait until the hub has taken the board",
  default: "60s",
  takesSeconds: true,
});

/** The agent's configuration file, for commands that need no agent. */
export const CONFIG = {
  name: "config",
  value: "FILE",
  help: "the agent's configuration",
  default: "/etc/picolet/config.yaml",
  completes: "files",
  parse: (text: string): string => text,
} as const;

const joinHub: Command = {
  words: ["join"],
  access: "admin",
  operands: "HUB",
  atLeast: 1,
  atMost: 1,
  summary: "make this board a node of a hub's fleet",
  details: `HUB is the hub's name or address, with a port other than 10270 if need be, or a
URL such as https://hub.example.com:443.
Writes it into the agent's configuration, of which all else stays, has the
agent check that, restarts the agent where systemd runs it, and waits until the
hub has taken the board. The token is kept in a file beside the configuration
that root alone may read.`,
  flags: [
    { name: "token", value: "TOKEN", help: "as `picolet-hub token create` prints it" },
    { name: "token-file", value: "FILE", help: "a file that has it; - is standard input", completes: "files" },
    { name: "ca-hash", value: "HASH", help: "how the hub is known: `picolet-hub ca hash` prints it" },
    { name: "ca-file", value: "FILE", help: "its CA as a PEM file, instead of the hash", completes: "files" },
    { name: "proxy", value: "URL", help: "an HTTP proxy on the way to the hub" },
    { name: "node-name", value: "NAME", help: "the node's name; without it the host's" },
    CONFIG,
    { name: "replace", help: "leave the hub that the board belongs to now" },
    { name: "no-start", help: "write the configuration, and leave the agent as it is" },
    JOIN_WAIT,
  ],
  examples: [
    ["edgectl join hub.example --token-file token --ca-file hub.pem", "join, and wait until it is done"],
    [
      "edgectl join hub.example --token-file token --ca-file hub.pem --no-start",
      "write the configuration, and start the agent later",
    ],
  ],
  run: async (context, input) => (await import("./join-command.ts")).runJoin(context, input),
};

const doctor: Command = {
  words: ["doctor"],
  access: (input) => (input.flag("fix") ? "admin" : "view"),
  summary: "check this machine for what a node needs, and mend it",
  details: `Needs no agent: it reads the state of kernel, cgroups, container runtime and its
network, clock, disk, swap, stored Secrets' key, and of the way to the hub.
Exit code 1 when there is a problem; a warning is none. --fix changes files of
this machine, and prints each change; without it nothing is changed.`,
  flags: [
    { name: "fix", help: "mend what can be mended without asking" },
    CONFIG,
    {
      name: "root-dir",
      value: "DIR",
      help: "the agent's folder of state",
      default: "/var/lib/picolet",
      completes: "files",
    },
    output("json", "yaml"),
  ],
  examples: [
    ["edgectl doctor --fix", "mend what can be mended, and show what is left"],
    ["edgectl doctor -o json", "for scripts"],
  ],
  run: async (context, input) => (await import("./doctor-command.ts")).runDoctor(context, input),
};

const debugNode: Command = {
  words: ["debug", "node"],
  access: "admin",
  operands: "[-- COMMAND [ARG...]]",
  atMost: 1000,
  summary: "run a shell or a command on this node, from an image",
  details: `Runs a privileged pod with the node's processes, network and IPC, and with the
node's root folder at /host: \`chroot /host\` makes it the shell's own. Works
without a hub; no other pod is changed. The pod is removed when the command
ends, when edgectl is interrupted, and when the terminal is lost. Without
COMMAND it runs the image's own, with this terminal if there is one. The exit
code is the command's; 1 also when it could not be run.
The image is pulled if the board does not have it.`,
  flags: [
    { name: "image", value: "IMAGE", help: "the image to run", completes: "images" },
    { name: "stdin", short: "i", help: "pass standard input on to COMMAND" },
    { name: "tty", short: "t", help: "run COMMAND with a terminal" },
  ],
  examples: [
    ["edgectl debug node --image registry.example/app:1 -- ls /host/etc", "one command, on the node's files"],
    ["edgectl debug node --image registry.example/app:1 -it -- sh", "a shell"],
  ],
  run: async (context, input) => (await import("./debug-command.ts")).runDebugNode(context, input),
};

/** As FILE of `support-bundle`. */
export const STANDARD_OUTPUT = "-";

export const BUNDLE_SIZE = bytesFlag({
  name: "size",
  help: "the size of the file at most",
  default: "10Mi",
  least: "256Ki",
});

const supportBundle: Command = {
  words: ["support-bundle"],
  access: (input) => (input.positionals[0] === STANDARD_OUTPUT ? "view" : "operate"),
  operands: "[FILE]",
  atMost: 1,
  summary: "write all that a maintainer needs into one file",
  details: `FILE is a new .tar.gz; - is standard output. It has the status, configuration,
pods, events, images and updates, what doctor finds, the agent's log, the end of
the logs of pods, and the state of the machine. Values of variables, headers and
secrets, keys, tokens and passwords are replaced by ***, as far as they can be
told: a program may write a secret into its log as any other word. Works without
an agent too, with what there is then. Exit code 1 when a part is missing.`,
  flags: [
    BUNDLE_SIZE,
    {
      name: "pod-logs",
      value: "WHOSE",
      help: "those of pods that are unwell (not ready, or restarted), all, none",
      choices: ["unwell", "all", "none"],
      default: "unwell",
    },
    CONFIG,
  ],
  examples: [
    ["edgectl support-bundle board.tar.gz", "into this file"],
    ["edgectl support-bundle - --pod-logs none | tar -tz", "what would be in it"],
  ],
  completes: ["files"],
  run: async (context, input) => (await import("./support-bundle-command.ts")).runSupportBundle(context, input),
};

export const GRACE_PERIOD = durationFlag({
  name: "grace-period",
  help: "the time that pods have, in place of shutdownGracePeriod",
  takesSeconds: true,
});

const nodeShutdown: Command = {
  words: ["node", "shutdown"],
  access: "operate",
  summary: "end all pods before the machine is switched off",
  details: `Ends the pods in the order of their priority, within shutdownGracePeriod or
--grace-period (critical pods end last, and have as long); from then on the node
takes none. Returns when they have ended. Where systemd-logind is running, a
shutdown of the machine does this by itself; elsewhere the machine has to run
this command before it stops.`,
  flags: [{ name: "cancel", help: "the machine stays on: take pods again" }, GRACE_PERIOD, output("json", "yaml")],
  examples: [
    ["edgectl node shutdown && poweroff", "switch the board off"],
    ["edgectl node shutdown --cancel", "go on"],
  ],
  run: async (context, input) => (await import("./node-command.ts")).runNodeShutdown(context, input),
};

const factoryReset: Command = {
  words: ["factory-reset"],
  access: "admin",
  summary: "make a board with picolet's image as new",
  details: `Restarts the board and empties its data partition, with pods, images, values,
keys, the configuration and the node's certificate. The system stays, and
picolet.yaml on the boot partition is applied again: put a new token there
first, so that the board joins again. Asks before; without a terminal it needs
--yes. Refused on a board without the image. Where no agent answers, an empty
file picolet-factory-reset beside picolet.yaml does the same.`,
  flags: [{ name: "yes", help: "do not ask" }],
  examples: [["ssh picolet@board-7 edgectl factory-reset --yes", "a board elsewhere"]],
  run: async (context, input) => (await import("./factory-reset-command.ts")).runFactoryReset(context, input),
};

const devices: Command = {
  words: ["devices"],
  access: "view",
  summary: "list the devices that pods may ask for, and who has them",
  details: `Devices of device plugins and of the configuration's devices, by the resource
that pods ask for. Exit code 1 when a container has one that is unhealthy: it is
unplugged, or its plugin is away.`,
  flags: [output("json", "yaml")],
  examples: [["edgectl devices", "cameras, serial ports, GPUs of this node"]],
  run: async (context, input) => (await import("./devices-command.ts")).runDevices(context, input),
};

const config: Command = {
  words: ["config"],
  access: "view",
  summary: "show the configuration in force, and what set each value",
  details: `As a file could have it, with the kubelet's names. What the agent's file does
not set is marked; what follows from this machine's memory says how. Secrets
are shown as ***.`,
  flags: [{ name: "no-defaults", help: "leave out what is a plain default" }, output("json", "yaml")],
  examples: [
    ["edgectl config --no-defaults", "what is special about this node"],
    ["edgectl config -o json", "for scripts"],
  ],
  run: async (context, input) => (await import("./config-command.ts")).runConfig(context, input),
};

const explain: Command = {
  words: ["explain"],
  access: "view",
  operands: "[FIELD]",
  atMost: 1,
  summary: "explain the fields of the agent's configuration",
  details: `FIELD is named as in /etc/picolet/config.yaml. Fields below it are explained
too. Without FIELD all that the agent acts upon are listed. Needs no agent.`,
  flags: [output("json", "yaml")],
  examples: [
    ["edgectl explain wasm.maxComponentSize", "one field"],
    ["edgectl explain hub", "a mapping and its fields"],
  ],
  completes: ["fields"],
  run: async (context, input) => (await import("./explain-command.ts")).runExplain(context, input),
};

const version: Command = {
  words: ["version"],
  access: "view",
  summary: "print the versions of edgectl and of the agent",
  details: "With --version alone, edgectl does the same as with --client.",
  flags: [{ name: "client", help: "print the version of edgectl alone" }, output("json", "yaml")],
  examples: [["edgectl version --client", "without an agent"]],
  run: async (context, input) => (await import("./version-command.ts")).runVersion(context, input),
};

export const WHY: Command = {
  words: ["why"],
  access: "view",
  operands: "[restarted|evicted|started|ended] POD | node",
  atLeast: 1,
  atMost: 4,
  summary: "show from the black box why a pod or the node is as it is",
  details: `The newest decision comes first, each with its figures. Equal ones are counted.
"why not started POD" and "why node not ready" are understood. POD may be gone;
power cuts and restarts are part of its story. Times are in UTC; "boot 3 +12s"
is the third start of the board, whose clock was not set then. Without -o a page
is shown. Exit code 1 when the pod is not ready now, or the node not healthy.`,
  flags: [
    { ...NAMESPACE, help: "the pod's namespace" },
    countFlag({ name: "limit", help: "show the newest N (without -o 12)" }),
    output("json", "yaml"),
  ],
  examples: [
    ["edgectl why web", "the story of the pod web"],
    ["edgectl why restarted web", "only what restarted it"],
    ["edgectl why node", "why the node is not ready, or not healthy"],
  ],
  completes: ["whyWords", "pods"],
  run: async (context, input) => (await import("./why-command.ts")).runWhy(context, input),
};

export const NODE_COMMANDS: readonly Command[] = [
  joinHub,
  doctor,
  debugNode,
  supportBundle,
  nodeShutdown,
  factoryReset,
  devices,
  config,
  explain,
  version,
];
