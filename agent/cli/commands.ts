/** Every command with its flags and its help. What a command does is loaded only when it is run. */
import { type Command, NAMESPACE, NO_HEADERS, output } from "./command.ts";
import type { Arguments, Flag } from "./command-line.ts";
import type { Context } from "./context.ts";
import { usageError } from "./failures.ts";
import { KEYVALUE_COMMANDS } from "./keyvalue-commands.ts";

export const GLOBAL_FLAGS: readonly Flag[] = [
  { name: "socket", value: "PATH", help: "the agent's socket; also PICOLET_SOCKET" },
  { name: "timeout", value: "DURATION", help: "how long the agent may be silent (default 10s)" },
  { name: "help", short: "h", help: "how a command is used" },
];

const POD_OPERAND = `POD is the pod's name, NAMESPACE/NAME or pod/NAME. A static pod is found without
its node's name too. Without a namespace, "default" comes first, then the only
other one that has such a pod.`;

const status: Command = {
  words: ["status"],
  operands: "",
  atLeast: 0,
  atMost: 0,
  summary: "how the node, its runtimes and its pods are",
  details: `The first line says it all; then what is wrong; then the figures and the pods.
Exit code 0 when all is well, 1 when the node, a pod or a manifest is not or the
node is short of something, 2 when no agent answers.`,
  flags: [output("json", "yaml", "wide"), NO_HEADERS],
  examples: [
    ["edgectl status", "for people"],
    ["edgectl status -o json", "for scripts; the fields are stable"],
    ["edgectl status > /dev/null || alarm", "only the exit code"],
  ],
  completes: [],
  run: async (context, input) => (await import("./status-command.ts")).runStatus(context, input),
};

const RESOURCES: ReadonlyMap<string, "pods" | "events" | "images"> = new Map([
  ["pods", "pods"],
  ["pod", "pods"],
  ["po", "pods"],
  ["events", "events"],
  ["event", "events"],
  ["ev", "events"],
  ["images", "images"],
  ["image", "images"],
]);

const EVENT_FLAGS: readonly Flag[] = [
  { name: "limit", value: "N", help: "only the newest N (default 50 for people)" },
  { name: "pod", value: "POD", help: "only those of this pod, there or gone" },
];
const WATCH: Flag = { name: "watch", short: "w", help: "go on with what changes" };

const get: Command = {
  words: ["get"],
  operands: "pods|events|images [POD...]",
  atLeast: 1,
  atMost: 100,
  summary: "list pods, events or images as kubectl does",
  details: `Pods of the namespace "default" unless -n or -A says otherwise.
${POD_OPERAND}`,
  flags: [
    NAMESPACE,
    { name: "all-namespaces", short: "A", help: "pods of every namespace" },
    WATCH,
    output("json", "yaml", "wide", "name"),
    NO_HEADERS,
    ...EVENT_FLAGS,
  ],
  examples: [
    ["edgectl get pods -A", "every pod"],
    ["edgectl get pods -w", "and what becomes of them"],
    ["edgectl get pod web -o yaml", "one pod with its status"],
    ["edgectl get pods -A -o wide", "with addresses, sources and runtimes, as wide as it gets"],
  ],
  completes: ["resources", "pods"],
  run: runGet,
};

async function runGet(context: Context, input: Arguments): Promise<number> {
  const [first = "", ...names] = input.positionals;
  // `get pod/web` names resource and pod in one.
  const [resource = "", name] = first.split("/", 2);
  const kind = RESOURCES.get(resource);
  if (kind === undefined) {
    const { didYouMean } = await import("./command-line.ts");
    const known = ["pods", "events", "images"];
    throw usageError(`cannot get "${resource}", only ${known.join(", ")}${didYouMean(resource, known, "")}`);
  }
  if (kind === "pods") {
    const { runGetPods } = await import("./pods-command.ts");
    return await runGetPods(context, input, name === undefined ? names : [first, ...names]);
  }
  if (names.length > 0 || name !== undefined) throw usageError(`get ${kind} takes no names`);
  if (input.text("output") === "name") throw usageError(`get ${kind} has no -o name`);
  if (kind === "events") return (await import("./events-command.ts")).runEvents(context, input);
  return (await import("./images-command.ts")).runImageList(context, input);
}

const describe: Command = {
  words: ["describe"],
  operands: "[pod] POD",
  atLeast: 1,
  atMost: 2,
  summary: "all that is known of one pod, with its events",
  details: POD_OPERAND,
  flags: [NAMESPACE],
  examples: [["edgectl describe pod web", "the pod web, whatever its node is called"]],
  completes: ["pods", "pods"],
  run: async (context, input) => (await import("./describe-command.ts")).runDescribe(context, input),
};

const logs: Command = {
  words: ["logs"],
  operands: "POD [CONTAINER]",
  atLeast: 1,
  atMost: 2,
  summary: "what a pod's containers wrote",
  details: `Rotated files are read too, so a log can be long: --tail and --since keep it
short. -f ends with the container, or with Ctrl-C.
${POD_OPERAND}`,
  flags: [
    NAMESPACE,
    { name: "container", short: "c", value: "CONTAINER", help: "of a pod with several" },
    { name: "all-containers", help: "of all of them, each line with where it is from" },
    { name: "follow", short: "f", help: "go on with what is written" },
    { name: "previous", short: "p", help: "of the run before the last restart" },
    { name: "tail", value: "LINES", help: "only the last lines" },
    { name: "since", value: "DURATION", help: "only what is newer: 30s, 5m, 2h" },
    { name: "since-time", value: "TIME", help: "only what is newer than 2026-01-31T12:00:00Z" },
    { name: "timestamps", help: "when each line was written" },
    { name: "limit-bytes", value: "N", help: "no more than N bytes" },
    { name: "prefix", help: "where each line is from" },
  ],
  examples: [
    ["edgectl logs web --tail 20", "the last 20 lines"],
    ["edgectl logs web -f --since 5m", "the last 5 minutes and what comes"],
    ["edgectl logs web -c app --previous", "why it crashed"],
  ],
  completes: ["pods"],
  run: async (context, input) => (await import("./logs-command.ts")).runLogs(context, input),
};

const events: Command = {
  words: ["events"],
  operands: "",
  atLeast: 0,
  atMost: 0,
  summary: "what happened, oldest first",
  details: `Messages are wrapped to the width of the terminal; -o wide prints each event on
one line.`,
  flags: [NAMESPACE, WATCH, ...EVENT_FLAGS, output("json", "yaml", "wide"), NO_HEADERS],
  examples: [
    ["edgectl events --pod web", "of one pod"],
    ["edgectl events -w --limit 0", "only what happens from now on"],
  ],
  completes: [],
  run: async (context, input) => (await import("./events-command.ts")).runEvents(context, input),
};

const IMAGE_LIST = {
  operands: "",
  atLeast: 0,
  atMost: 0,
  summary: "images on this node, of all runtimes",
  details: `First what is being pulled, with how far it is where the runtime tells, and what
is to be prefetched: images that the annotation picolet.io/prefetch of the Node
object, or of a pod, names. -o wide shows whole digests and what is pinned.`,
  flags: [output("json", "yaml", "wide"), NO_HEADERS],
  completes: [],
  run: async (context, input) => (await import("./images-command.ts")).runImageList(context, input),
} satisfies Omit<Command, "words" | "examples">;

const imageList: Command = {
  ...IMAGE_LIST,
  words: ["image", "list"],
  examples: [["edgectl image list", "containers' and components' images"]],
};

const images: Command = {
  ...IMAGE_LIST,
  words: ["images"],
  examples: [["edgectl images", "the same as edgectl image list"]],
};

const RUNTIME: Flag = { name: "runtime", value: "NAME", help: "cri or wasm; else whichever it concerns" };

const imagePull: Command = {
  words: ["image", "pull"],
  operands: "REF",
  atLeast: 1,
  atMost: 1,
  summary: "get an image from its registry now",
  details: `Shows how far it is; Ctrl-C gives it up. With the node's own registry
configuration and credential plugins, and with pull secrets that pods of this
node name. Names, digests and sizes are in -o json.`,
  flags: [
    RUNTIME,
    { name: "namespace", short: "n", value: "NAMESPACE", help: "of the secrets (default default)" },
    { name: "secret", value: "NAMES", help: "pull secrets, separated by commas" },
    output("json", "yaml"),
  ],
  examples: [
    ["edgectl image pull registry.example/app:2", "before a rollout"],
    ["edgectl image pull registry.example/app:2 -n shop --secret pull", "a private one"],
  ],
  completes: [],
  run: async (context, input) => (await import("./image-commands.ts")).runImagePull(context, input),
};

const imageRemove: Command = {
  words: ["image", "rm"],
  operands: "REF...",
  atLeast: 1,
  atMost: 100,
  summary: "remove images, with all of their names",
  details: "REF is a name or an id. One that is pinned, or that a container uses, is kept.",
  flags: [RUNTIME, { name: "force", help: "also one that is pinned or used" }, output("json", "yaml")],
  examples: [["edgectl image rm registry.example/app:1", "the image and all of its other names"]],
  completes: [],
  run: async (context, input) => (await import("./image-commands.ts")).runImageRemove(context, input),
};

const pinning = (word: "pin" | "unpin", summary: string, example: string): Command => ({
  words: ["image", word],
  operands: "REF...",
  atLeast: 1,
  atMost: 100,
  summary,
  details: `Of the name, not of what it stands for now: an image of that name may come
later. The list is kept on disk; edgectl images -o json has it.`,
  flags: [output("json", "yaml")],
  examples: [[`edgectl image ${word} registry.example/app:2`, example]],
  completes: [],
  run: async (context, input) => (await import("./image-commands.ts")).runImagePin(context, input, word === "pin"),
});

const imagePin = pinning("pin", "keep images, however full the disk is", "it stays");
const imageUnpin = pinning("unpin", "keep images no longer than they are used", "it may go");

const imageImport: Command = {
  words: ["image", "import"],
  operands: "FILE",
  atLeast: 1,
  atMost: 1,
  summary: "take an image from a file, with no network",
  details: `FILE is an OCI or docker archive, or one .wasm component, on this machine. The
runtime that can run it takes it.`,
  flags: [{ name: "name", value: "REF", help: "what to call it, where the file does not say" }, output("json", "yaml")],
  examples: [
    ["edgectl image import app.tar", "an archive with its names in it"],
    ["edgectl image import hello.wasm --name example/hello:1", "a component"],
  ],
  completes: ["files"],
  run: async (context, input) => (await import("./images-command.ts")).runImageImport(context, input),
};

const apply: Command = {
  words: ["apply"],
  operands: "-f FILE",
  atLeast: 0,
  atMost: 0,
  summary: "run the pods of a file, and no longer those of the last one",
  details: `FILE holds Pods or Lists of them, in YAML or JSON; - is standard input. What is
applied replaces all that was applied before; pods of manifests and of the API
server are left alone. It is taken whole, or nothing changes. A List without
items removes all that was applied. Applied pods run again after a reboot.`,
  flags: [
    { name: "filename", short: "f", value: "FILE", help: "the pods; - for standard input" },
    { name: "dry-run", help: "only say what would change, and what is wrong" },
    output("json", "yaml"),
  ],
  examples: [
    ["edgectl apply -f pods.yaml", "these pods and no others"],
    ["edgectl apply -f - --dry-run < pods.yaml", "only check them"],
  ],
  completes: ["files"],
  run: async (context, input) => (await import("./apply-command.ts")).runApply(context, input),
};

const WASM_FLAGS: readonly Flag[] = [
  { name: "pod", value: "FILE", help: "a manifest: it is run as that pod" },
  { name: "container", short: "c", value: "CONTAINER", help: "of a pod with several" },
  { name: "annotation", short: "a", value: "NAME=VALUE", help: "a grant, as network=...; may come again" },
  { name: "memory", value: "QUANTITY", help: "its memory limit" },
  { name: "p3", help: "as a node with wasm.p3: true, which runs WASI 0.3" },
  { name: "max-size", value: "QUANTITY", help: "as a node with this wasm.maxComponentSize" },
];

const wasmCheck: Command = {
  words: ["wasm", "check"],
  operands: "FILE",
  atLeast: 1,
  atMost: 1,
  summary: "what a component wants, and whether this machine would run it",
  details: `FILE is a WebAssembly component; - is standard input. Needs no agent. Exit code
0 when it would run, 1 when it would not, with all the reasons.`,
  flags: [...WASM_FLAGS, output("json")],
  examples: [
    ["edgectl wasm check app.wasm", "as a pod that grants nothing"],
    ["edgectl wasm check app.wasm --pod app.yaml", "as this pod"],
  ],
  completes: ["files"],
  run: async (context, input) => (await import("./wasm-commands.ts")).runWasm(context, input, "check"),
};

const wasmRun: Command = {
  words: ["wasm", "run"],
  operands: "FILE [ARG...]",
  atLeast: 1,
  atMost: 1000,
  summary: "run a component once, with a pod's limits",
  details: `Needs no agent, but root for limits that a cgroup keeps: without it those that
are not kept are named on standard error. Its output and exit code are
edgectl's; Ctrl-C ends it (130), --time-limit does (124), counted from its
start. FILE may be - for standard input, of which the component sees nothing.
Arguments that begin with a dash come after --.`,
  flags: [
    ...WASM_FLAGS,
    { name: "cpu", value: "QUANTITY", help: "its CPU limit" },
    { name: "env", short: "e", value: "NAME=VALUE", help: "a variable; may come again" },
    { name: "dir", value: "HOST:CONTAINER[:ro]", help: "a folder, whose owner it is; may come again" },
    { name: "ca-file", value: "FILE", help: "authorities that it trusts besides (PEM)" },
    { name: "time-limit", value: "DURATION", help: "ends it after that" },
  ],
  examples: [
    ["edgectl wasm run hello.wasm", "the component alone"],
    [
      "edgectl wasm run app.wasm --memory 32Mi --dir ./data:/data -- --verbose",
      "with a limit, a folder and an argument",
    ],
    ["edgectl wasm run app.wasm --pod app.yaml", "as this pod's container"],
  ],
  completes: ["files"],
  run: async (context, input) => (await import("./wasm-commands.ts")).runWasm(context, input, "run"),
};

const nodeShutdown: Command = {
  words: ["node", "shutdown"],
  operands: "",
  atLeast: 0,
  atMost: 0,
  summary: "end all pods before the machine is switched off",
  details: `Ends the pods in the order of their priority, within shutdownGracePeriod; from
then on the node takes none. Returns when they have ended. Where systemd-logind
is running, a shutdown of the machine does this by itself; elsewhere this
belongs into what the machine runs before it stops.`,
  flags: [{ name: "cancel", help: "the machine stays on: the node takes pods again" }, output("json", "yaml")],
  examples: [
    ["edgectl node shutdown && poweroff", "switch the board off"],
    ["edgectl node shutdown --cancel", "go on"],
  ],
  completes: [],
  run: async (context, input) => (await import("./node-command.ts")).runNodeShutdown(context, input),
};

const config: Command = {
  words: ["config"],
  operands: "",
  atLeast: 0,
  atMost: 0,
  summary: "the configuration in force, and where it comes from",
  details: `As a file could have it, with the kubelet's names. What the agent's file does
not set is marked; what follows from this machine's memory says how. Secrets
are shown as ***.`,
  flags: [{ name: "no-defaults", help: "only what the file or the machine says" }, output("json", "yaml")],
  examples: [
    ["edgectl config --no-defaults", "what is special about this node"],
    ["edgectl config -o json", "for scripts"],
  ],
  completes: [],
  run: async (context, input) => (await import("./config-command.ts")).runConfig(context, input),
};

const version: Command = {
  words: ["version"],
  operands: "",
  atLeast: 0,
  atMost: 0,
  summary: "of edgectl and of the agent",
  details: "",
  flags: [{ name: "client", help: "of edgectl alone" }, output("json", "yaml")],
  examples: [["edgectl version --client", "without an agent"]],
  completes: [],
  run: async (context, input) => (await import("./version-command.ts")).runVersion(context, input),
};

const help: Command = {
  words: ["help"],
  operands: "[COMMAND]",
  atLeast: 0,
  atMost: 2,
  summary: "how a command is used",
  details: "",
  flags: [],
  examples: [["edgectl help logs", "the flags of logs"]],
  completes: ["commands"],
  run: async (context, input) => (await import("./help-command.ts")).runHelp(context, input, COMMANDS),
};

const completion: Command = {
  words: ["completion"],
  operands: "bash",
  atLeast: 1,
  atMost: 1,
  summary: "a script that completes commands, flags and names",
  details: "Names of pods and namespaces are asked of the agent.",
  flags: [],
  examples: [
    ["source <(edgectl completion bash)", "for this shell"],
    ["edgectl completion bash > /etc/bash_completion.d/edgectl", "for all"],
  ],
  completes: ["shells"],
  run: async (context, input) => (await import("./completion-command.ts")).runCompletion(context, input),
};

export const COMMANDS: readonly Command[] = [
  status,
  get,
  describe,
  logs,
  events,
  apply,
  images,
  imageList,
  imagePull,
  imageImport,
  imageRemove,
  imagePin,
  imageUnpin,
  wasmCheck,
  wasmRun,
  ...KEYVALUE_COMMANDS,
  nodeShutdown,
  config,
  version,
  help,
  completion,
];
