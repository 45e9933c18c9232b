/** `edgectl` for pods and what happens to them. */

import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { countFlag, durationFlag, timeFlag } from "@picolet/protocol/command-line/flag-values.ts";
import type { Flag } from "@picolet/protocol/command-line/program.ts";
import { type Command, INTERVAL, NAMESPACE, NO_HEADERS, output } from "../context/command.ts";
import type { Context } from "../context/context.ts";
import { usageError } from "../context/exit-codes.ts";

const POD_OPERAND = `POD is the pod's name, NAMESPACE/NAME or pod/NAME. A static pod is found without
its node's name too. Without a namespace, "default" comes first, then the only
other one that has such a pod.`;

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

export const EVENT_LIMIT = countFlag({ name: "limit", help: "print the newest N (without -o 50)" });
const EVENT_FLAGS: readonly Flag[] = [
  EVENT_LIMIT,
  { name: "pod", value: "POD", help: "print only events of this pod, which may be gone", completes: "pods" },
];
/** -1 is kubectl's way to say all of it. */
export const TAIL = countFlag({
  name: "tail",
  value: "LINES",
  help: "print only the last lines; -1 for all",
  besides: "-1",
});
export const LIMIT_BYTES = countFlag({ name: "limit-bytes", help: "print at most N bytes" });
export const SINCE = durationFlag({
  name: "since",
  help: "print only what is newer: 30s, 5m, 2h",
  example: "30s, 5m or 2h",
  takesZero: true,
});
export const SINCE_TIME = timeFlag({ name: "since-time", help: "print only what is newer than 2026-01-31T12:00:00Z" });
const WATCH: Flag = { name: "watch", short: "w", help: "keep printing what changes" };

const get: Command = {
  words: ["get"],
  access: "view",
  operands: "pods|events|images [POD...]",
  atLeast: 1,
  atMost: 100,
  summary: "list pods, events or images as kubectl does",
  details: `Pods of the namespace "default" unless -n or -A says otherwise.
${POD_OPERAND}`,
  flags: [
    NAMESPACE,
    { name: "all-namespaces", short: "A", help: "list pods of every namespace" },
    WATCH,
    output("json", "yaml", "wide", "name"),
    NO_HEADERS,
    ...EVENT_FLAGS,
  ],
  examples: [
    ["edgectl get pods -A", "every pod"],
    ["edgectl get pods -w", "and their changes"],
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
    const { didYouMean } = await import("@picolet/protocol/command-line/command-line.ts");
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
  return (await import("./image-list-commands.ts")).runImageList(context, input);
}

const describe: Command = {
  words: ["describe"],
  access: "view",
  operands: "[pod] POD",
  atLeast: 1,
  atMost: 2,
  summary: "show all about one pod, with its events",
  details: POD_OPERAND,
  flags: [NAMESPACE],
  examples: [["edgectl describe pod web", "the pod web, without the name of its node"]],
  completes: ["pods", "pods"],
  run: async (context, input) => (await import("./describe-command.ts")).runDescribe(context, input),
};

const logs: Command = {
  words: ["logs"],
  access: "view",
  operands: "POD [CONTAINER]",
  atLeast: 1,
  atMost: 2,
  summary: "print the logs of a pod's containers",
  details: `Rotated files are read too, so a log can be long: --tail and --since keep it
short. -f ends with the container, or with Ctrl-C.
${POD_OPERAND}`,
  flags: [
    NAMESPACE,
    {
      name: "container",
      short: "c",
      value: "CONTAINER",
      help: "the container, of a pod with several",
      completes: "containers",
    },
    { name: "all-containers", help: "print the logs of all, each line with its origin" },
    { name: "follow", short: "f", help: "keep printing what is written" },
    { name: "previous", short: "p", help: "print the log of the run before the last restart" },
    TAIL,
    SINCE,
    SINCE_TIME,
    { name: "timestamps", help: "print when each line was written" },
    LIMIT_BYTES,
    { name: "prefix", help: "print the origin of each line" },
  ],
  examples: [
    ["edgectl logs web --tail 20", "the last 20 lines"],
    ["edgectl logs web -f --since 5m", "the last 5 minutes and what follows"],
    ["edgectl logs web -c app --previous", "why it crashed"],
  ],
  completes: ["pods"],
  run: async (context, input) => (await import("./logs-command.ts")).runLogs(context, input),
};

const events: Command = {
  words: ["events"],
  access: "view",
  summary: "list events, oldest first",
  details: `Messages are wrapped to the width of the terminal; -o wide prints each event on
one line.`,
  flags: [NAMESPACE, WATCH, ...EVENT_FLAGS, output("json", "yaml", "wide"), NO_HEADERS],
  examples: [
    ["edgectl events --pod web", "of one pod"],
    ["edgectl events -w --limit 0", "only those from now on"],
  ],
  run: async (context, input) => (await import("./events-command.ts")).runEvents(context, input),
};

const apply: Command = {
  words: ["apply"],
  access: "admin",
  operands: "-f FILE",
  summary: "run the pods of a file, and delete those applied before",
  details: `FILE holds Pods or Lists of them, in YAML or JSON; - is standard input. What is
applied replaces all that was applied before: pods that were applied and are not
in FILE are deleted, each with a line that says so. On a terminal they are shown
first, and you are asked; --yes does not ask. Pods of manifests and of the API
server are left alone. FILE is taken whole, or nothing changes. A List without
items deletes all that was applied. Applied pods run again after a reboot.
Fields that no pod has are warned of.`,
  flags: [
    { name: "filename", short: "f", value: "FILE", help: "the pods; - for standard input", completes: "files" },
    { name: "dry-run", help: "only say what would change, and what is wrong" },
    { name: "yes", short: "y", help: "delete pods that are not in FILE without asking" },
    output("json", "yaml"),
  ],
  examples: [
    ["edgectl apply -f pods.yaml", "these pods and no others"],
    ["edgectl apply -f - --dry-run < pods.yaml", "only check them"],
  ],
  completes: ["files"],
  run: async (context, input) => (await import("./apply-command.ts")).runApply(context, input),
};

export const GRACE_PERIOD = durationFlag({
  name: "grace-period",
  help: "the time its containers have, at most the pod's own",
  takesSeconds: true,
  takesZero: true,
});
const CHANGE_FLAGS: readonly Flag[] = [
  NAMESPACE,
  GRACE_PERIOD,
  { name: "now", help: "as --grace-period 1s" },
  { name: "no-wait", help: "return before its containers have ended" },
  output("json", "yaml"),
];

const restart: Command = {
  words: ["restart"],
  access: "operate",
  operands: "POD...",
  atLeast: 1,
  atMost: 100,
  summary: "end all containers of a pod, and start them again",
  details: `The pod stays the same: its volumes, its name and its source. Its containers get
a new sandbox, init containers run again, and no back-off is waited for.
${POD_OPERAND}`,
  flags: CHANGE_FLAGS,
  examples: [["edgectl restart web", "as after a change of its image, but without one"]],
  completes: ["pods"],
  run: async (context, input) => (await import("./pod-change-command.ts")).runPodChange(context, input, "restart"),
};

const deletePods: Command = {
  words: ["delete"],
  access: "operate",
  operands: "[pod] POD...",
  atLeast: 1,
  atMost: 100,
  summary: "end a pod for good, as far as this board decides it",
  details: `A pod that was applied here is wanted no more. A pod of a hub becomes Failed;
the hub learns it, at once or when it is back, and decides what follows: of a
Deployment it makes another one. A static pod would come back at once, so it is
refused with the file that has it.
${POD_OPERAND}`,
  flags: CHANGE_FLAGS,
  examples: [["edgectl delete pod trial --now", "end it within a second"]],
  completes: ["pods", "pods"],
  run: async (context, input) => (await import("./pod-change-command.ts")).runPodChange(context, input, "delete"),
};

const CONTAINER: Flag = {
  name: "container",
  short: "c",
  value: "CONTAINER",
  help: "the container, of a pod with several",
  completes: "containers",
};
const SESSION_FLAGS: readonly Flag[] = [
  NAMESPACE,
  CONTAINER,
  { name: "stdin", short: "i", help: "pass standard input on" },
  { name: "tty", short: "t", help: "with a terminal" },
];

const exec: Command = {
  words: ["exec"],
  access: "admin",
  operands: "POD -- COMMAND [ARG...]",
  atLeast: 1,
  atMost: 1000,
  summary: "run a command in a container",
  details: `Works without a hub. Its exit code is the command's; 1 also when it could not be
run. With -it it has this terminal, which is given back as it was.
${POD_OPERAND}`,
  flags: SESSION_FLAGS,
  examples: [
    ["edgectl exec web -- cat /etc/hostname", "one command"],
    ["edgectl exec -it web -c app -- sh", "a shell"],
  ],
  completes: ["pods"],
  run: async (context, input) => (await import("./session-commands.ts")).runExec(context, input),
};

const attach: Command = {
  words: ["attach"],
  access: "admin",
  operands: "POD",
  atLeast: 1,
  atMost: 1,
  summary: "follow what a container writes from now on, and type to it",
  details: `Ends with the container, or with Ctrl-C, which does not end the container unless
it has a terminal.
${POD_OPERAND}`,
  flags: SESSION_FLAGS,
  examples: [["edgectl attach web", "what it writes"]],
  completes: ["pods"],
  run: async (context, input) => (await import("./session-commands.ts")).runAttach(context, input),
};

const cp: Command = {
  words: ["cp"],
  access: "admin",
  operands: "SOURCE TARGET",
  atLeast: 2,
  atMost: 2,
  summary: "copy files and folders into a container, or out of it",
  details: `One of both is POD:PATH or NAMESPACE/POD:PATH; a path here with a colon is
written ./a:b. The container needs the program tar. Links are copied into a
container as links, and left out of what comes from one, as kubectl does it.
Nothing is written outside TARGET. Exit code 1 when something was left out that
is no link.
${POD_OPERAND}`,
  flags: [
    NAMESPACE,
    CONTAINER,
    { name: "no-preserve", help: "leave owner and permissions in the container as its user has them" },
  ],
  examples: [
    ["edgectl cp web:/etc/hostname hostname.txt", "one file out of it"],
    ["edgectl cp hostname.txt web:/tmp -c app", "into a folder of it"],
  ],
  completes: ["files", "files"],
  run: async (context, input) => (await import("./cp-command.ts")).runCopy(context, input),
};

const portForward: Command = {
  words: ["port-forward"],
  access: "admin",
  operands: "POD [LOCAL:]REMOTE...",
  atLeast: 2,
  atMost: 100,
  summary: "forward ports of this machine to a pod",
  details: `Until Ctrl-C. ":80" takes any free port of this machine.
${POD_OPERAND}`,
  flags: [
    NAMESPACE,
    {
      name: "address",
      value: "ADDRESSES",
      help: "where to listen, with commas between them",
      default: "localhost",
    },
  ],
  examples: [["edgectl port-forward web 8080:80", "port 80 of the pod, at localhost:8080"]],
  completes: ["pods"],
  run: async (context, input) => (await import("./port-forward-command.ts")).runPortForward(context, input),
};

const top: Command = {
  words: ["top"],
  access: "view",
  summary: "show what the node and its pods use",
  details: `CPU in thousandths of a core, memory as the working set, the most first. On a
terminal it is shown again and again, until Ctrl-C; only what has changed is
written, so that a serial line can follow.`,
  flags: [
    NAMESPACE,
    { name: "containers", help: "with the containers of each pod" },
    { name: "sort-by", value: "WHAT", help: "what comes first", choices: ["cpu", "memory"], default: "cpu" },
    { name: "once", help: "show it once, also on a terminal" },
    INTERVAL,
    output("json", "yaml"),
    NO_HEADERS,
  ],
  examples: [["edgectl top --once --sort-by memory", "what takes the memory"]],
  run: async (context, input) => (await import("./top-command.ts")).runTop(context, input),
};

export const POD_COMMANDS: readonly Command[] = [
  ...[get, describe, logs, events, apply],
  ...[exec, attach, cp, portForward, top, restart, deletePods],
];
