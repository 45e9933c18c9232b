/** `edgectl` for the node and its agent. */
import { type Command, NO_HEADERS, output } from "../context/command.ts";

export const STATUS: Command = {
  words: ["status"],
  operands: "",
  atLeast: 0,
  atMost: 0,
  summary: "how the node, its runtimes and its pods are",
  details: `The first line says it all; then what is wrong; then the figures and the pods.
Exit code 0 when all is well, 1 when the node, a pod or a manifest is not, the
node is short of something or the hub refuses it, 2 when no agent answers. A hub
that is only away is no fault: the node goes on without it. The agent's anon is
its anonymous memory, swapped or not, of its budget; RSS has file pages too.`,
  flags: [output("json", "yaml", "wide"), NO_HEADERS],
  examples: [
    ["edgectl status", "for people"],
    ["edgectl status -o json", "for scripts; the fields are stable"],
    ["edgectl status > /dev/null || alarm", "only the exit code"],
  ],
  completes: [],
  run: async (context, input) => (await import("./status-command.ts")).runStatus(context, input),
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

export const NODE_COMMANDS: readonly Command[] = [nodeShutdown, config, version];
